"""Files that tell of each operation before it is done: for a test to write down, or to let it fail."""

import errno
import mmap
import os
from collections.abc import Callable, Sequence

from leadline.model import Buffer
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import DiskSpace, Files, OsFiles

Watch = Callable[[str, str], None]  # operation and path; an OSError that it raises is the operation's


class WatchedFiles:
    def __init__(self, watch: Watch, inner: Files | None = None) -> None:
        self.watch, self.inner = watch, inner or OsFiles()
        self._paths: dict[int, str] = {}

    def _on(self, operation: str, fd: int) -> None:
        self.watch(operation, self._paths.get(fd, "?"))

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        self.watch("open", path)
        fd = self.inner.open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def close(self, fd: int, /) -> None:
        """Not watched: it happens whenever the last reference goes."""
        self._paths.pop(fd, None)
        self.inner.close(fd)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        self._on("pread", fd)
        return self.inner.pread(fd, length, position)

    def read_into(self, fd: int, buffer: memoryview, position: int, /) -> int:
        self._on("pread", fd)
        return self.inner.read_into(fd, buffer, position)

    def is_cached(self, fd: int, position: int, length: int, /) -> bool:
        return self.inner.is_cached(fd, position, length)

    def load(self, fd: int, position: int, length: int, /) -> None:
        self._on("load", fd)
        self.inner.load(fd, position, length)

    def request_readahead(self, fd: int, position: int, length: int, /) -> None:
        self._on("request_readahead", fd)
        self.inner.request_readahead(fd, position, length)

    def dirty_pages(self) -> DirtyPages | None:
        return self.inner.dirty_pages()

    def write_back(self, fd: int, position: int, length: int, /) -> bool:
        self._on("write_back", fd)
        return self.inner.write_back(fd, position, length)

    def disk_space(self, path: str, /) -> DiskSpace:
        self.watch("disk_space", path)
        return self.inner.disk_space(path)

    def map(self, fd: int, size: int, /) -> mmap.mmap:
        self._on("map", fd)
        return self.inner.map(fd, size)

    def populate(self, mapped: mmap.mmap, start: int, length: int, /) -> None:
        self.watch("populate", "?")
        self.inner.populate(mapped, start, length)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        self._on("pwrite", fd)
        return self.inner.pwrite(fd, data, position)

    def ftruncate(self, fd: int, size: int, /) -> None:
        self._on("ftruncate", fd)
        self.inner.ftruncate(fd, size)

    def fsync(self, fd: int, /) -> None:
        self._on("fsync", fd)
        self.inner.fsync(fd)

    def size(self, fd: int, /) -> int:
        self._on("size", fd)
        return self.inner.size(fd)

    def mtime_ms(self, fd: int, /) -> int:
        self._on("mtime_ms", fd)
        return self.inner.mtime_ms(fd)

    def set_mtime_ms(self, path: str, mtime_ms: int, /) -> None:
        self.watch("set_mtime_ms", path)
        self.inner.set_mtime_ms(path, mtime_ms)

    def exists(self, path: str, /) -> bool:
        return self.inner.exists(path)

    def lock(self, fd: int, /) -> None:
        self.inner.lock(fd)

    def is_dir(self, path: str, /) -> bool:
        return self.inner.is_dir(path)

    def is_link(self, path: str, /) -> bool:
        return self.inner.is_link(path)

    def real_path(self, path: str, /) -> str:
        return self.inner.real_path(path)

    def make_dirs(self, path: str, /) -> None:
        self.watch("make_dirs", path)
        self.inner.make_dirs(path)

    def listdir(self, path: str, /) -> list[str]:
        self.watch("listdir", path)
        return self.inner.listdir(path)

    def mkdir(self, path: str, /) -> None:
        self.watch("mkdir", path)
        self.inner.mkdir(path)

    def rmdir(self, path: str, /) -> None:
        self.watch("rmdir", path)
        self.inner.rmdir(path)

    def rename(self, source: str, target: str, /) -> None:
        self.watch("rename", source)
        self.inner.rename(source, target)

    def unlink(self, path: str, /) -> None:
        self.watch("unlink", path)
        self.inner.unlink(path)

    def sync_dir(self, path: str, /) -> None:
        self.watch("sync_dir", path)
        self.inner.sync_dir(path)


class Failing:
    """A watch under which an operation fails, so often in a row, and all that follow if the disk is gone for good."""

    def __init__(
        self, nth: int, error: int, *, for_good: bool = False, only: Sequence[str] = (), often: int = 1
    ) -> None:
        self.left, self.error, self.only = nth, error, only
        self.ends_at = 1 if nth == 0 else -(1 << 63) if for_good else 1 - often
        self.failed: list[str] = []
        self.off = False  # nothing fails, and nothing is counted

    def __call__(self, operation: str, path: str) -> None:
        if self.off or (self.only and operation not in self.only):
            return
        self.left -= 1
        if self.ends_at <= self.left <= 0:
            self.failed.append(f"{operation} {path}")
            raise OSError(self.error, os.strerror(self.error), path)


class SmallDisk(WatchedFiles):
    """Full after so many bytes: the write that crosses the line is cut short, the next one fails."""

    def __init__(self, room: int) -> None:
        super().__init__(lambda *_: None)
        self.room = room

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        if not data:
            return 0
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.inner.pwrite(fd, data[: self.room], position)
        self.room -= written
        return written
