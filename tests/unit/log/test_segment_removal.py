"""Segments that go: renamed at once, removed later, and replaced by compacted ones in three steps."""

import errno
import gc
import os
import shutil
from pathlib import Path

import pytest

from leadline.log import segment_removal
from leadline.log.log import (
    Log,
)
from leadline.log.reasons import SegmentDeletionReason
from tests.support.logs import (
    LogBench,
    append_batches,
    batch,
    bytes_of,
    listing,
)
from tests.support.watched_files import Failing, WatchedFiles


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(tmp_path, {"index.interval.bytes": "100"})


@pytest.fixture
def log(bench: LogBench) -> Log:
    return bench.open()


def is_open(fd: int, inode: int) -> bool:
    """Whether a descriptor still is that file. Another thread may have opened another one under its number."""
    try:
        return os.fstat(fd).st_ino == inode
    except OSError:
        return False


def test_a_slice_outlives_its_segment_and_then_lets_go_of_the_descriptor(log: Log, bench: LogBench) -> None:
    written = append_batches(log, 2)
    log.roll()
    read = log.read(0, 9999)
    assert read.slice is not None
    fd = read.slice.file.fd
    inode = os.fstat(fd).st_ino
    log.truncate_fully_and_start_at(50)
    bench.background.run_due()
    assert "00000000000000000000.log.deleted" not in listing(bench.directory)
    assert bytes_of(read) == written[0]
    del read
    gc.collect()
    assert not is_open(fd, inode)


def test_an_empty_segment_that_is_rolled_is_replaced(log: Log) -> None:
    log.roll()
    log.roll()
    assert log.segments.bases == [0]
    assert log.append_as_leader(batch(), 0).first_offset == 0


def test_a_compacted_segment_takes_its_place_in_three_steps(log: Log, bench: LogBench) -> None:
    append_batches(log, 1)
    log.roll()
    old = [log.segments.first]
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(old[0].path(suffix), old[0].path(suffix) + ".cleaned")
    new = segment_removal.cleaned_segment(log, 0)

    def suffixes() -> list[str]:
        return sorted(name[20:] for name in listing(bench.directory) if name.startswith("0" * 20 + ".log"))

    assert suffixes() == [".log", ".log.cleaned"]
    segment_removal.ready_to_swap(log, new)
    assert suffixes() == [".log", ".log.swap"]
    segment_removal.swap_in(log, new, old)
    assert suffixes() == [".log.deleted", ".log.swap"]
    assert log.segments.first is new
    segment_removal.swapped_in(log, new)
    assert suffixes() == [".log", ".log.deleted"]
    bench.background.run_due()
    assert suffixes() == [".log"]


def test_segments_that_cannot_be_replaced_stay(tmp_path: Path) -> None:
    failing = Failing(10**9, errno.EMFILE, only=["open"])
    log = LogBench(tmp_path, files=WatchedFiles(failing)).open()
    append_batches(log, 1)
    segments = list(log.segments)
    failing.left = 1
    with pytest.raises(OSError, match="Too many open files"):
        segment_removal.replace_segments(log, segments, 7, SegmentDeletionReason.TRUNCATION)
    assert list(log.segments) == segments
    assert Path(segments[0].path(".log")).exists()
