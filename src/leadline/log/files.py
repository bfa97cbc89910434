"""Small moves on files that several formats need: an open file with an owner, whole writes, atomic replacement."""

import contextlib
import errno
import mmap
import os
from collections.abc import Callable, Sequence

from leadline.ports import Buffer, Files

FILE_MODE = 0o644


class OpenFile:
    """A descriptor that is closed when nobody refers to it any more.

    A segment and every slice that a reader still sends hold one: deleting the segment drops its reference, the
    readers finish on theirs, and the number is never reused under them.
    """

    __slots__ = ("_files", "ahead_to", "fd", "path")

    def __init__(self, files: Files, path: str, *, create: bool = False) -> None:
        self._files, self.path, self.fd = files, path, -1
        self.ahead_to = 0  # what lies before this was asked of the disk, as somebody reads on there
        self.fd = files.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), FILE_MODE)

    def __del__(self) -> None:
        if self.fd >= 0:
            with contextlib.suppress(OSError):
                self._files.close(self.fd)
            self.fd = -1


class Mapped:
    """A file to look at as memory, read ahead a window at a time.

    Looking at a mapping whose disk fails raises a signal that nobody survives. So each window is made present first,
    by a call that answers with an error instead; what lies behind is let go, to stay small.
    """

    WINDOW = 2 * 1024 * 1024

    def __init__(self, files: Files, file: OpenFile, size: int, progress: Callable[[int], None]) -> None:
        self._files, self._file, self._size, self._progress = files, file, size, progress
        self._map = files.map(file.fd, size)
        self.view = memoryview(self._map)
        self._behind = self._present = 0

    def __enter__(self) -> "Mapped":
        return self

    def __exit__(self, *_: object) -> None:
        self.view.release()
        self._map.close()

    def reach(self, start: int, end: int) -> int:
        """Make the bytes up to `end` present, and some more; those before `start` are not needed again."""
        target = min(self._size, max(end, self._present + self.WINDOW))
        begin = self._present & ~(mmap.PAGESIZE - 1)
        try:
            self._files.populate(self._map, begin, target - begin)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise OSError(errno.EIO, f"cannot read {self._file.path} from byte {begin} on") from error
            self._files.pread(self._file.fd, target - begin, begin)  # an older kernel: read it to see whether one can
        done = start & ~(mmap.PAGESIZE - 1)
        if done > self._behind:
            self._map.madvise(mmap.MADV_DONTNEED, self._behind, done - self._behind)
            self._behind = done
        self._progress(target - self._present)
        self._present = target
        return target


def write_all(files: Files, fd: int, data: Buffer, position: int) -> None:
    """All of the data, also where the kernel takes it in pieces."""
    written = files.pwrite(fd, data, position)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(rest):
        written += files.pwrite(fd, rest[written:], position + written)


def read_file(files: Files, path: str) -> bytes:
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size, parts, position = files.size(fd), list[bytes](), 0
        while position < size and (part := files.pread(fd, size - position, position)):
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    finally:
        files.close(fd)


def write_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    fd = files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        write_all(files, fd, data, 0)
        if sync:
            files.fsync(fd)
    finally:
        files.close(fd)


def replace_file(files: Files, path: str, data: bytes) -> None:
    """The old content or the new, never a mixture and never nothing, whenever the power goes."""
    temporary = path + ".tmp"
    write_file(files, temporary, data, sync=True)
    files.rename(temporary, path)
    files.sync_dir(os.path.dirname(path))


def sync_file(files: Files, path: str) -> None:
    """fsync by path; a file that is gone needs none."""
    try:
        fd = files.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def remove_files(files: Files, paths: Sequence[str]) -> None:
    """Remove what is there."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)
