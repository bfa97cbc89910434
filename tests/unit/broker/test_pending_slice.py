"""Slices of files on their way out: what is in memory is known, and the disk is asked in time."""

import os
import socket
from pathlib import Path

import pytest

from leadline.broker.pending_slice import READAHEAD_BYTES, PendingSlice, read_through
from leadline.errors import StorageError
from leadline.log.open_files import OpenFile
from leadline.runtime.network import TcpSocket
from leadline.runtime.ports import OsFiles
from tests.support.logs import LogBench, batch


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


def test_a_file_that_was_shortened_ends_one_reply_and_then_takes_its_log_offline(tmp_path: Path) -> None:
    """Otherwise a reader would lose its connection again and again, and with it what it reads of other partitions."""
    bench = LogBench(tmp_path)
    log = bench.open()
    log.append_as_leader(batch(size=20_000), 0)
    log.advance_high_watermark(1)
    records = log.read(0, 1).slice
    assert records is not None
    os.truncate(records.file.path, 10_000)
    ours, theirs = socket.socketpair()
    with theirs, TcpSocket(fileno=ours.detach()) as connection:
        slice_ = PendingSlice(*records)
        assert slice_.send(connection, slice_.length) == 10_000
        with pytest.raises(OSError, match="the file ends at byte 10000"):
            slice_.send(connection, slice_.length)
    with pytest.raises(StorageError, match="at byte 10000: the file ends here, though 20"):
        log.read(0, 1)
    assert [file.path for file in bench.unusable] == [records.file.path]
