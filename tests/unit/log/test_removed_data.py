"""What recovery removes: it is counted, kept beside the log, and readable."""

import errno
import os
import re
from pathlib import Path

import pytest

from leadline.cli import main
from leadline.log import removed_data
from leadline.log.names import removed_at, removed_name
from tests.support.logs import START_MS, LogBench, holds_everything, marker, three_segments
from tests.support.watched_files import WatchedFiles


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return three_segments(tmp_path)


def path(bench: LogBench, base: int, kind: str) -> Path:
    return bench.directory / f"{base:020d}{kind}"


def test_what_recovery_removes_is_kept_and_logged_with_its_counts(
    bench: LogBench, caplog: pytest.LogCaptureFixture
) -> None:
    segment = path(bench, 3, ".log")
    whole, last = segment.read_bytes(), path(bench, 6, ".log").read_bytes()
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    segment.write_bytes(damaged)
    bench.open(clean=False)
    at = len(whole) - len(marker(2, commit=False))
    assert (bench.directory / removed_name(3, START_MS, at)).read_bytes() == damaged[at:]
    assert (bench.directory / removed_name(6, START_MS)).read_bytes() == last
    assert (
        f"orders-0 was cut off at offset 5: {segment} has no valid batch at byte {at}. Removed: "
        f"{len(whole) - at + len(last)} bytes; whole segments: 1, whole batches: 3, records: 3, offsets: 6 to 8. "
        f"It is kept in {bench.directory}, and leadline dump-log reads it: {removed_name(3, START_MS, at)}, "
        f"{removed_name(6, START_MS)}"
    ) in caplog.text


def test_what_was_removed_can_be_read_with_dump_log(bench: LogBench, capsys: pytest.CaptureFixture[str]) -> None:
    segment = path(bench, 3, ".log")
    segment.write_bytes(segment.read_bytes()[:-1])
    bench.open(clean=False)
    assert main(["dump-log", str(bench.directory / removed_name(6, START_MS)), "--deep"]) == 0
    assert re.findall(r"\| offset: (\d+) ", capsys.readouterr().out) == ["6", "7", "8"]


def test_zeros_behind_the_log_are_cut_and_not_kept(bench: LogBench) -> None:
    """As a crash leaves them where a segment is preallocated."""
    segment = path(bench, 6, ".log")
    segment.write_bytes(segment.read_bytes() + bytes(5000))
    assert holds_everything(bench.open(clean=False))
    assert not list(bench.directory.glob("*.removed"))


def test_of_what_earlier_recoveries_removed_as_much_is_kept_as_there_is_room_for(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removed_data, "KEPT_BYTES", 250)
    for number, size in ((1, 100), (2, 100), (3, 100)):
        (bench.directory / removed_name(0, number)).write_bytes(b"x" * size)
    with path(bench, 6, ".log").open("ab") as file:
        file.write(b"y" * 100)
    bench.open(clean=False)
    left = sorted(removed_at(file.name) for file in bench.directory.glob("*.removed"))
    assert left == [3, START_MS]


def test_a_full_disk_does_not_stop_a_recovery(bench: LogBench) -> None:
    def full(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(".removed"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    with path(bench, 6, ".log").open("ab") as file:
        file.write(b"y" * 100)
    again = LogBench(bench.directory.parent, {"index.interval.bytes": "100"}, WatchedFiles(full))
    assert holds_everything(again.open(clean=False))
