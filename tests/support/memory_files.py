"""A disk in the memory of one process: no path of it exists in the system, and no descriptor is one of the system's.

What asks the system instead of the port therefore fails. Nothing is ever lost: `fsync` has nothing to do.
"""

import errno
import mmap
import os
from threading import RLock
from typing import NoReturn

from leadline.model import Buffer
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import DiskSpace

FIRST_FD = 1_000_000  # beyond any limit of the system
TOTAL_BYTES = 1 << 40


def _refuse(code: int, path: str) -> NoReturn:
    raise OSError(code, os.strerror(code), path)


class MemoryFiles:
    def __init__(self) -> None:
        self._nodes: dict[str, bytearray | None] = {"/": None}  # None: a directory
        self._open: dict[int, bytearray] = {}
        self._mtimes_ms: dict[int, int] = {}  # by identity of the content
        self._locked: set[int] = set()
        self._next_fd = FIRST_FD
        self._guard = RLock()  # threads of log directories work here, too

    # Descriptors

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        with self._guard:
            if path not in self._nodes:
                if not flags & os.O_CREAT:
                    _refuse(errno.ENOENT, path)
                self._check_parent(path)
                self._nodes[path] = bytearray()
            content = self._nodes[path]
            if content is None:
                _refuse(errno.EISDIR, path)
            if flags & os.O_TRUNC:
                content.clear()
            self._next_fd += 1
            self._open[self._next_fd] = content
            return self._next_fd

    def close(self, fd: int, /) -> None:
        self._open.pop(fd)
        self._locked.discard(fd)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        return bytes(self._open[fd][position : position + length])

    def read_into(self, fd: int, buffer: memoryview, position: int, /) -> int:
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        content = self._open[fd]
        content.extend(bytes(max(position - len(content), 0)))
        content[position : position + len(data)] = data
        return len(data)

    def map(self, fd: int, size: int, /) -> mmap.mmap:
        mapped = mmap.mmap(-1, size)
        mapped[:] = self.pread(fd, size, 0)
        return mapped

    def populate(self, mapped: mmap.mmap, start: int, length: int, /) -> None:
        pass

    def ftruncate(self, fd: int, size: int, /) -> None:
        content = self._open[fd]
        del content[size:]
        content.extend(bytes(size - len(content)))

    def fsync(self, fd: int, /) -> None:
        assert fd in self._open

    def size(self, fd: int, /) -> int:
        return len(self._open[fd])

    def mtime_ms(self, fd: int, /) -> int:
        return self._mtimes_ms.get(id(self._open[fd]), 0)

    def lock(self, fd: int, /) -> None:
        if any(self._open[other] is self._open[fd] for other in self._locked):
            raise BlockingIOError
        self._locked.add(fd)

    # Paths

    def set_mtime_ms(self, path: str, mtime_ms: int, /) -> None:
        self._mtimes_ms[id(self._nodes[path])] = mtime_ms

    def exists(self, path: str, /) -> bool:
        return path in self._nodes

    def is_dir(self, path: str, /) -> bool:
        return path in self._nodes and self._nodes[path] is None

    def is_link(self, path: str, /) -> bool:
        return False

    def real_path(self, path: str, /) -> str:
        return path

    def listdir(self, path: str, /) -> list[str]:
        if not self.is_dir(path):
            _refuse(errno.ENOTDIR if path in self._nodes else errno.ENOENT, path)
        with self._guard:
            return [os.path.basename(node) for node in self._nodes if node != "/" and os.path.dirname(node) == path]

    def mkdir(self, path: str, /) -> None:
        with self._guard:
            if path in self._nodes:
                _refuse(errno.EEXIST, path)
            self._check_parent(path)
            self._nodes[path] = None

    def make_dirs(self, path: str, /) -> None:
        if not self.is_dir(path):
            self.make_dirs(os.path.dirname(path))
            self.mkdir(path)

    def rmdir(self, path: str, /) -> None:
        if self.listdir(path):
            _refuse(errno.ENOTEMPTY, path)
        del self._nodes[path]

    def unlink(self, path: str, /) -> None:
        if path not in self._nodes:
            _refuse(errno.ENOENT, path)
        if self._nodes[path] is None:
            _refuse(errno.EISDIR, path)
        del self._nodes[path]

    def rename(self, source: str, target: str, /) -> None:
        with self._guard:
            if source not in self._nodes:
                _refuse(errno.ENOENT, source)
            self._check_parent(target)
            for path in [path for path in self._nodes if path == source or path.startswith(f"{source}/")]:
                self._nodes[target + path[len(source) :]] = self._nodes.pop(path)

    def sync_dir(self, path: str, /) -> None:
        self.listdir(path)

    def _check_parent(self, path: str) -> None:
        parent = os.path.dirname(path)
        if not self.is_dir(parent):
            _refuse(errno.ENOTDIR if parent in self._nodes else errno.ENOENT, path)

    # The disk and the page cache

    def disk_space(self, path: str, /) -> DiskSpace:
        used = sum(len(content) for content in self._nodes.values() if content is not None)
        return DiskSpace(TOTAL_BYTES, TOTAL_BYTES - used)

    def is_cached(self, fd: int, position: int, length: int, /) -> bool:
        return fd in self._open

    def load(self, fd: int, position: int, length: int, /) -> None:
        assert fd in self._open

    def request_readahead(self, fd: int, position: int, length: int, /) -> None:
        assert fd in self._open

    def dirty_pages(self) -> DirtyPages | None:
        return None

    def write_back(self, fd: int, position: int, length: int, /) -> bool:
        return False
