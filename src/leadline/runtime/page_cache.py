"""The kernel's page cache, as Linux lets a process see and steer it: what is in memory, and what is not on disk yet.

The functions of the real files (see `OsFiles`). Elsewhere than on Linux the cache cannot be probed, and all counts as
cached; nothing is read ahead or written back early.
"""

import errno
import mmap
import os
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

VMSTAT = "/proc/vmstat"
PAGE_BYTES = mmap.PAGESIZE
PROBE_BYTES = 512 * 1024  # distance between two probes
SYNC_FILE_RANGE_WRITE_AND_WAIT = 7  # waits for current writeback, and for the new one
NOT_SUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})  # by this system, or for this file
NOT_TO_A_DEVICE = frozenset({errno.ENOTSOCK, errno.ENOTSUP, errno.EINVAL})  # only Linux sends a file to one

_PROBE = [bytearray(1)]  # the byte that is read is of no interest
_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)
_LOAD_BYTES = 256 * 1024  # in one read, where a file can only be sent to a socket


class DirtyPages(NamedTuple):
    """The dirty pages of the whole machine."""

    waiting: int  # dirty, or being written back
    background: int  # from here on the kernel writes back by itself
    limit: int  # writers are stopped before there are this many

    @property
    def throttled_from(self) -> float:
        return (self.background + self.limit) / 2


def is_cached(fd: int, position: int, length: int, /) -> bool:
    """Whether a range can be read without the disk: probes a byte here and there."""
    if (nowait := _NOWAIT) is None:
        return True  # this system cannot report it
    probe, buffer, last = os.preadv, _PROBE, position + length - 1
    try:
        while position < last:
            if probe(fd, buffer, position, nowait) == 0:
                return True  # past the end: sendfile reports that
            position += PROBE_BYTES
        probe(fd, buffer, last, nowait)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system cannot report it
    return True


def load(fd: int, position: int, length: int, /) -> None:
    """Bring a range into memory. Blocks. It is sent to /dev/null: a copy would cost more than all the rest."""
    end = position + length
    try:
        while position < end and (count := os.sendfile(_dev_null(), fd, position, end - position)):
            position += count
    except OSError as error:
        if error.errno not in NOT_TO_A_DEVICE:
            raise
        while position < end and (data := os.pread(fd, min(end - position, _LOAD_BYTES), position)):
            position += len(data)


def request_readahead(fd: int, position: int, length: int, /) -> None:
    """Have the disk read a range that will be needed soon. May block."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)


@cache
def _dev_null() -> int:
    return os.open(os.devnull, os.O_WRONLY)


def dirty_pages(path: str = VMSTAT, /) -> DirtyPages | None:
    """None where the system does not report it."""
    try:
        with open(path) as file:
            counts = {name: int(value) for name, value in map(str.split, file)}
        waiting = counts["nr_dirty"] + counts["nr_writeback"]
        return DirtyPages(waiting, counts["nr_dirty_background_threshold"], counts["nr_dirty_threshold"])
    except (OSError, KeyError, ValueError):
        return None


def write_back(fd: int, position: int, length: int, /) -> bool:
    """Write the dirty pages of a range back, and wait for that. A length of 0 reaches to the end of the file.

    False where the system lacks the call, or no descriptor is left to load it with. An error is one of
    the disk: a later fsync of this descriptor does not report it again.
    """
    try:
        call = _sync_file_range()
    except (OSError, ImportError):
        return False
    if call is None:
        return False
    if call(fd, position, length, SYNC_FILE_RANGE_WRITE_AND_WAIT) != 0:
        import ctypes

        code = ctypes.get_errno()
        if code in NOT_SUPPORTED:
            return False
        raise OSError(code, os.strerror(code))
    return True


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    import ctypes  # here: most brokers never need it

    try:
        call = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint)
    return partial(call)
