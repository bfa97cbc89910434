"""How the world is asked: clock, files, and work that would block.

Deciding code never touches the world by itself; it gets these. Production and the simulated disk of the tests are
peers: the same code runs above both.
"""

import _thread
import contextlib
import errno
import fcntl
import mmap
import os
import random
import resource
import time
import uuid
from collections.abc import Callable, MutableSequence
from typing import Any, NamedTuple, Protocol, TypeVar

from leadline.errors import ResourceExhausted
from leadline.model import Buffer
from leadline.runtime import page_cache
from leadline.runtime.page_cache import DirtyPages

T = TypeVar("T")
MADV_POPULATE_READ = 22  # since Linux 5.14
MAC_DESCRIPTORS = 10_240  # OPEN_MAX of macOS: its hard limit says infinity, and is refused
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # of macOS, whose fsync leaves data in the disk's cache
LARGE_BYTES = 1024 * 1024  # a smaller file is removed in no time


class Time(Protocol):
    """The wall clock, for timestamps, and a clock that never goes back, for time-outs."""

    def now_ms(self) -> int: ...
    def monotonic_s(self) -> float: ...


def monotonic_ms(time: Time) -> int:
    """By the clock that never goes back: a wait does not last longer because somebody set the other one."""
    return int(time.monotonic_s() * 1000)


class Chance(Protocol):
    """The source of randomness: ids, jitter, shuffles."""

    def new_uuid(self) -> uuid.UUID: ...
    def uniform(self, low: float, high: float, /) -> float: ...
    def randint(self, low: int, high: int, /) -> int: ...
    def shuffle(self, items: MutableSequence[Any], /) -> None: ...
    def secret_bytes(self, length: int, /) -> bytes:
        """Bytes that cannot be guessed: for nonces, salts, keys."""
        ...


class DiskSpace(NamedTuple):
    total_bytes: int
    usable_bytes: int  # by this user


class Files(Protocol):
    """Files and directories by path and descriptor, named as in `os`. Nothing is durable before its fsync."""

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int: ...
    def close(self, fd: int, /) -> None: ...
    def pread(self, fd: int, length: int, position: int, /) -> bytes: ...
    def read_into(self, fd: int, buffer: memoryview, position: int, /) -> int: ...
    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int: ...
    def map(self, fd: int, size: int, /) -> mmap.mmap: ...
    def populate(self, mapped: mmap.mmap, start: int, length: int, /) -> None: ...
    def ftruncate(self, fd: int, size: int, /) -> None: ...
    def fsync(self, fd: int, /) -> None: ...
    def size(self, fd: int, /) -> int: ...
    def mtime_ms(self, fd: int, /) -> int: ...
    def set_mtime_ms(self, path: str, mtime_ms: int, /) -> None: ...
    def lock(self, fd: int, /) -> None: ...
    def exists(self, path: str, /) -> bool: ...
    def is_dir(self, path: str, /) -> bool: ...
    def is_link(self, path: str, /) -> bool: ...
    def real_path(self, path: str, /) -> str: ...
    def listdir(self, path: str, /) -> list[str]: ...
    def mkdir(self, path: str, /) -> None: ...
    def make_dirs(self, path: str, /) -> None: ...
    def rmdir(self, path: str, /) -> None: ...
    def rename(self, source: str, target: str, /) -> None: ...
    def unlink(self, path: str, /) -> None: ...
    def sync_dir(self, path: str, /) -> None: ...
    def disk_space(self, path: str, /) -> DiskSpace: ...

    # The page cache: pages that are in memory, and pages that are not on disk yet

    def is_cached(self, fd: int, position: int, length: int, /) -> bool: ...
    def load(self, fd: int, position: int, length: int, /) -> None: ...
    def request_readahead(self, fd: int, position: int, length: int, /) -> None: ...
    def dirty_pages(self) -> DirtyPages | None: ...
    def write_back(self, fd: int, position: int, length: int, /) -> bool: ...


class Job(NamedTuple):
    """Work for a thread: it takes values and returns a value. `then` is called with that, back on the loop."""

    run: Callable[[], Any]
    then: Callable[[Any], None]


class Background(Protocol):
    """A thread for work that would block the loop: fsync, deletion. Jobs run one by one, in order.

    A job takes values and returns a value; `then` is called with it, back on the loop. An OSError of a job is the
    directory's failure and never reaches `then`. A job for which a resource was short (`shortage`) is tried again a
    little later, or `short` is called instead, on the loop. What is called `later` runs on the loop.

    Group commits: what is to `run_in_group` is planned when it begins, on the loop. Several of them run at the same
    time, but not beside the jobs: what comes first is done first. A plan that returns None needs no job.
    """

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None: ...
    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> None: ...
    def later(self, delay_ms: int, call: Callable[[], None]) -> None: ...


class SystemTime:
    monotonic_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)  # for a process without a loop

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class SystemChance:
    new_uuid = staticmethod(uuid.uuid4)
    uniform = staticmethod(random.uniform)
    randint = staticmethod(random.randint)
    shuffle = staticmethod(random.shuffle)
    secret_bytes = staticmethod(os.urandom)


UNLIMITED_DESCRIPTORS = 1 << 20  # as many are reckoned with if the system sets no limit


def descriptor_limit() -> int:
    """The files and sockets that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return UNLIMITED_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int:
    """As far as the system allows it without privileges: the soft limit becomes the hard one. The limit from now on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft not in (hard, resource.RLIM_INFINITY):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MAC_DESCRIPTORS), hard))
    return descriptor_limit()


def _fsync(fd: int) -> None:
    if _FULL_FSYNC is None:
        os.fsync(fd)
        return
    try:
        fcntl.fcntl(fd, _FULL_FSYNC)
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.ENOTTY, errno.EINVAL):
            raise
        os.fsync(fd)  # this file system does not have it


def shortage(error: BaseException) -> str | None:
    """The resource that ran out, its limit and the remedy, if an error means that. None: it means something else.

    Such an error concerns one operation, not the disk: the same may succeed a moment later.
    """
    if isinstance(error, ResourceExhausted):
        return str(error)
    if isinstance(error, MemoryError):
        return "out of memory: give the process more of it, or the machine"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "no further thread can be started: raise ulimit -u, or the limit of the control group (pids.max)"
    if not isinstance(error, OSError):
        return None
    if error.errno == errno.EMFILE:
        limit = descriptor_limit()
        return f"all {limit} file descriptors of the process are in use: raise ulimit -n, or lower max.connections"
    if error.errno == errno.ENFILE:
        return "the system has no file descriptor left: raise fs.file-max (sysctl)"
    if error.errno == errno.ENOMEM:
        return "out of memory: give the process more of it, or the machine"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        of = f" for {error.filename}" if error.filename else ""
        cause = "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is used up"
        return f"{cause}{of}: free some space, lower log.retention.bytes, or move partitions to another of log.dirs"
    return None


class OsFiles:
    """The real disk. The hot calls are the ones of `os` themselves.

    Where the process has no descriptor left, `make_room` is asked to close an idle one, as long as it does.
    """

    def __init__(self, make_room: Callable[[], bool] = lambda: False) -> None:
        self._make_room = make_room

    def _with_descriptor(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._make_room():
                    raise

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        return self._with_descriptor(lambda: os.open(path, flags, mode))

    def listdir(self, path: str, /) -> list[str]:
        return self._with_descriptor(lambda: os.listdir(path))

    @staticmethod
    def fsync(fd: int, /) -> None:
        """Any failure is the disk's fault: data that was written before may be lost."""
        try:
            _fsync(fd)
        except OSError as error:
            if shortage(error) is None:
                raise
            raise OSError(errno.EIO, f"fsync failed, and written data may be lost: {error.strerror}") from error

    def sync_dir(self, path: str, /) -> None:
        fd = self.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    pread = staticmethod(os.pread)
    pwrite = staticmethod(os.pwrite)
    ftruncate = staticmethod(os.ftruncate)
    exists = staticmethod(os.path.lexists)  # also a link to nowhere: its name is taken
    is_dir = staticmethod(os.path.isdir)
    is_link = staticmethod(os.path.islink)
    mkdir = staticmethod(os.mkdir)
    rmdir = staticmethod(os.rmdir)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    is_cached = staticmethod(page_cache.is_cached)
    load = staticmethod(page_cache.load)
    request_readahead = staticmethod(page_cache.request_readahead)
    write_back = staticmethod(page_cache.write_back)

    @staticmethod
    def dirty_pages() -> DirtyPages | None:
        return page_cache.dirty_pages()

    @staticmethod
    def disk_space(path: str, /) -> DiskSpace:
        disk = os.statvfs(path)
        return DiskSpace(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)

    @staticmethod
    def real_path(path: str, /) -> str:
        return os.path.realpath(path)

    @staticmethod
    def make_dirs(path: str, /) -> None:
        """Creates a directory, and those of its parents that do not exist."""
        with contextlib.suppress(FileExistsError):
            os.makedirs(path)

    @staticmethod
    def lock(fd: int, /) -> None:
        """A record lock, as Java takes it. BlockingIOError or PermissionError if another process holds it."""
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @staticmethod
    def close(fd: int, /) -> None:
        """The last close of a deleted file removes it, which takes long if it is large: a thread does it."""
        status = os.fstat(fd)
        if status.st_nlink == 0 and status.st_size >= LARGE_BYTES:
            with contextlib.suppress(RuntimeError):  # no thread can be started
                _thread.start_new_thread(os.close, (fd,))  # without waiting for it, or for its start
                return
        os.close(fd)

    @staticmethod
    def read_into(fd: int, buffer: memoryview, position: int, /) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(fd, [buffer], position)
        data = os.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

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
