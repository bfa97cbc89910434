"""Slices of files on their way out: what is in memory is known, and the disk is asked in time."""

import os
from pathlib import Path

import pytest

from leadline.broker.pending_slice import READAHEAD_BYTES, PendingSlice, read_through
from leadline.log.files import OpenFile
from leadline.runtime.ports import OsFiles


def test_what_is_read_through_is_in_the_page_cache_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "cold"
    path.write_bytes(os.urandom(3_000_000))
    file = OpenFile(OsFiles(), str(path))
    file.sync()
    os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)
    if file.is_cached(0, 3_000_000):
        pytest.skip("needs a file system that forgets what it is told to")

    def is_cached_after_read_through() -> bool:
        read_through(file, 1_000_000, 3_000_000)
        return file.is_cached(1_000_000, 2_000_000)

    assert any(is_cached_after_read_through() for _ in range(5))  # a system short of memory takes pages at any moment


def test_readahead_is_requested_before_the_slice_is_used_up(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"")
    file = OpenFile(OsFiles(), str(path))
    step = READAHEAD_BYTES // 4

    def readahead(n: int) -> int | None:
        """The readahead of a reader of the n-th part of the file."""
        return PendingSlice(file, n * step, step).next_readahead()

    assert [readahead(n) for n in range(9)] == [None] * 9  # it comes from memory
    file.ahead_to = 4 * step
    assert [readahead(n) for n in range(9)] == [None, None, 4 * step, None, None, None, 8 * step, None, None]
    assert readahead(50) is None  # another reader, elsewhere
