"""What the system reports of this process."""

import os
import time
from pathlib import Path

import pytest

from leadline.runtime import process_statistics as module
from leadline.runtime.process_statistics import process_statistics


def test_the_figures_are_those_of_this_process(tmp_path: Path) -> None:
    before = process_statistics()
    if before is None:
        pytest.skip("needs /proc")
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
        after = process_statistics()
    assert after is not None
    assert after.open_descriptors == before.open_descriptors + 1
    assert after.cpu_s >= before.cpu_s > 0
    assert before.virtual_bytes > before.resident_bytes > 1 << 20
    assert before.started_s == after.started_s < time.time()


def test_a_process_name_may_have_parentheses_and_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = ["S", *("0" for _ in range(10)), "300", "50", *("0" for _ in range(6)), "1000", "4096", "2"]
    (tmp_path / "stat").write_text(f"1 (a (b) c) {' '.join(fields)}\n")
    (tmp_path / "boot").write_text("cpu 1\nbtime 500\n")
    (tmp_path / "io").write_text("read_bytes: 7\nwrite_bytes: 8\n")
    for name, file in (("STAT", "stat"), ("BOOT", "boot"), ("IO", "io")):
        monkeypatch.setattr(module, name, str(tmp_path / file))
    monkeypatch.setattr(module, "DESCRIPTORS", str(tmp_path))
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert process_statistics() == (350 / ticks, 4096, 2 * page, 500 + 1000 / ticks, 3, 7, 8)


@pytest.mark.parametrize("content", [None, "", "1 (name"])
def test_a_system_without_these_files_reports_nothing(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "stat"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr(module, "STAT", str(path))
    assert process_statistics() is None
