"""How the world is asked: clock, files, and work that would block.

What decides never touches the world by itself; it is handed these. Production and the simulated disk of the tests are
peers: the same code runs above both.
"""

import _thread
import mmap
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
MADV_POPULATE_READ = 22  # since Linux 5.14
LARGE_BYTES = 1024 * 1024  # a smaller file is removed in no time
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    def now_ms(self) -> int: ...


class Files(Protocol):
    """Files and directories by path and descriptor, named as in `os`. Nothing is durable before its fsync."""

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...
    def preadv(self, fd: int, buffers: Sequence[bytearray | memoryview], position: int, /) -> int: ...
    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int: ...
    def map(self, fd: int, size: int, /) -> mmap.mmap: ...
    def populate(self, mapped: mmap.mmap, start: int, length: int, /) -> None: ...
    def ftruncate(self, fd: int, size: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def size(self, fd: int, /) -> int: ...
    def mtime_ms(self, fd: int, /) -> int: ...
    def set_mtime_ms(self, path: str, mtime_ms: int, /) -> None: ...
    def exists(self, path: str, /) -> bool: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def mkdir(self, path: str, /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...
    def rename(self, source: str, target: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def sync_dir(self, path: str, /) -> None: ...


class Job(NamedTuple):
    """Work for a thread: it takes values and returns a value. `then` is called with that, back on the loop."""

    run: Callable[[], Any]
    then: Callable[[Any], None]


class Background(Protocol):
    """Where work goes that would block the loop: fsync, deletion. Jobs run one after the other, in their order.

    A job takes values and returns a value; `then` is called with it, back on the loop. An OSError of a job is the
    directory's failure and never reaches `then`. What is called `later` runs on the loop.

    Group commit: what is to `run_in_group` waits while a group runs. Then all that wait are planned, on the loop, and
    run as the next group, at the same time. A plan that returns None needs no job.
    """

    def run(self, doing: str, job: Callable[[], T], then: Callable[[T], None]) -> None: ...
    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None: ...
    def later(self, delay_ms: int, call: Callable[[], None]) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class OsFiles:
    """The real disk. The hot calls are the ones of `os` themselves."""

    open = staticmethod(os.open)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    pwrite = staticmethod(os.pwrite)
    ftruncate = staticmethod(os.ftruncate)
    fsync = staticmethod(os.fsync)
    exists = staticmethod(os.path.exists)
    listdir = staticmethod(os.listdir)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)

    @staticmethod
    def close(fd: int, /) -> None:
        """Whoever is the last to close a deleted file removes it, which takes long if it is large: a thread does."""
        found = os.fstat(fd)
        if found.st_nlink or found.st_size < LARGE_BYTES:
            os.close(fd)
        else:
            _thread.start_new_thread(os.close, (fd,))  # and nobody waits for it, not even for its start

    @staticmethod
    def map(fd: int, size: int, /) -> mmap.mmap:
        return mmap.mmap(fd, size, prot=mmap.PROT_READ)

    @staticmethod
    def populate(mapped: mmap.mmap, start: int, length: int, /) -> None:
        """Make a range of a mapping present; OSError where looking at it would be fatal."""
        mapped.madvise(MADV_POPULATE_READ, start, length)

    @staticmethod
    def size(fd: int, /) -> int:
        return os.fstat(fd).st_size

    @staticmethod
    def mtime_ms(fd: int, /) -> int:
        return os.fstat(fd).st_mtime_ns // 1_000_000

    @staticmethod
    def set_mtime_ms(path: str, mtime_ms: int, /) -> None:
        os.utime(path, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))

    @staticmethod
    def sync_dir(path: str, /) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
