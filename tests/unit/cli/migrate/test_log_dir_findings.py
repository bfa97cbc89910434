"""Log directories before a migration: old message formats and KRaft are found, ordinary logs are not."""

from pathlib import Path

import pytest

from leadline.cli.migrate.finding import Area, Severity
from leadline.cli.migrate.log_dir_findings import judge_log_dir
from tests.support.logs import batch

SEGMENT = "00000000000000000000.log"


def segment(directory: Path, partition: str, data: bytes, name: str = SEGMENT) -> Path:
    folder = directory / partition
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)
    return folder / name


def test_ordinary_logs_raise_no_finding(tmp_path: Path) -> None:
    segment(tmp_path, "orders-0", bytes(batch()))
    segment(tmp_path, "orders-1", b"")
    segment(tmp_path, "orders-2", b"\0" * 10)
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert list(judge_log_dir(tmp_path)) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_each_segment_with_messages_of_an_old_format_blocks(tmp_path: Path, magic: int) -> None:
    old = bytes(batch())[:16] + bytes([magic]) + bytes(20)
    paths = [segment(tmp_path, name, old) for name in ("orders-1", "orders-0")]
    segment(tmp_path, "orders-0", bytes(batch()), "00000000000000000009.log")
    findings = list(judge_log_dir(tmp_path))
    assert [finding.severity for finding in findings] == [Severity.BLOCKS] * 2
    assert {finding.area for finding in findings} == {Area.STORAGE}
    assert [finding.where for finding in findings] == [(str(path),) for path in reversed(paths)]
    assert findings[0].what == f"message format {magic}, from before Kafka 0.11"


def test_a_directory_that_was_formatted_for_kraft_blocks(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\n")
    (finding,) = judge_log_dir(tmp_path)
    assert (finding.severity, finding.area, finding.what) == (Severity.BLOCKS, Area.MODE, "formatted for KRaft")


def test_a_directory_that_is_missing_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        list(judge_log_dir(tmp_path / "missing"))
