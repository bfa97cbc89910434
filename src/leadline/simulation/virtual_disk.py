"""A disk in memory that can lose its power, fill up, fail and be slow.

what was fsynced stays; of what was written since, a power failure keeps a beginning and tears the next write, or it
    keeps any sectors, in any order
a name stays once its directory was synced; of later changes to names a power failure keeps a beginning
the end of a process loses nothing: the system keeps written data
"""

import errno
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import NamedTuple, NoReturn

from leadline.log.names import LOG
from leadline.model import Buffer
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import DiskSpace, Time
from leadline.simulation.moments import APPEND, RENAME, SYNC, TRUNCATION

TOTAL_BYTES = 1 << 40
SECTOR_BYTES = 512
READ, WRITE, FSYNC = "read", "write", "fsync"  # operations that can fail


class _Write(NamedTuple):
    """How to undo one: what the file had there before."""

    position: int
    before: bytes
    size_before: int
    length: int


@dataclass(eq=False, slots=True)
class VirtualFile:
    name: str = ""  # when it was created
    data: bytearray = field(default_factory=bytearray)
    unsynced: list[_Write] = field(default_factory=list)
    mtime_ms: int = 0


@dataclass(eq=False, slots=True)
class Directory:
    entries: dict[str, "VirtualFile | Directory"] = field(default_factory=dict)
    unsynced: list[dict[str, "VirtualFile | Directory"]] = field(default_factory=list)  # before each change


def _refuse(code: int, path: str) -> NoReturn:
    raise OSError(code, os.strerror(code), path)


_NUMBERS = count()  # of all disks of this process


class VirtualDisk:
    """`Files` of one host. `mount` gives each process its own descriptors."""

    def __init__(self, clock: Time, total_bytes: int = TOTAL_BYTES) -> None:
        self.clock, self.total_bytes = clock, total_bytes
        self.number = next(_NUMBERS)
        self.root = Directory({"data": Directory()})  # as an operator prepares it
        self.used_bytes = 0
        self.errors: dict[str, int] = {}  # the errno of every operation that fails

    def fail_power(self, chance: Random) -> None:
        """All processes have ended."""
        self._lose(self.root, chance)
        self.used_bytes = _size(self.root)

    def _lose(self, directory: Directory, chance: Random) -> None:
        if directory.unsynced:
            kept = chance.randint(0, len(directory.unsynced))
            if kept < len(directory.unsynced):
                directory.entries = directory.unsynced[kept]
            directory.unsynced = []
        for node in directory.entries.values():
            if isinstance(node, Directory):
                self._lose(node, chance)
            elif node.unsynced:
                _lose_writes(node, chance)


def _lose_writes(file: VirtualFile, chance: Random) -> None:
    """A beginning of the writes stays, or any of their sectors."""
    if chance.random() < 0.5:
        _lose_sectors(file, chance)
        return
    writes = file.unsynced
    kept = chance.randint(0, len(writes))
    torn = writes[kept] if kept < len(writes) else None
    torn_data = bytes(file.data[torn.position : torn.position + torn.length]) if torn is not None else b""
    for write in reversed(writes[kept:]):
        file.data[write.position : write.position + write.length] = write.before
        del file.data[write.size_before :]
        file.data.extend(bytes(write.size_before - len(file.data)))
    if torn is not None and torn_data and chance.random() < 0.5:
        part = torn_data[: chance.randint(0, len(torn_data))]
        file.data.extend(bytes(max(torn.position - len(file.data), 0)))
        file.data[torn.position : torn.position + len(part)] = part
    file.unsynced = []


def _lose_sectors(file: VirtualFile, chance: Random) -> None:
    """The disk has reordered writes: the file has its new size, and each sector its old or its new content."""
    new = bytes(file.data)
    for write in reversed(file.unsynced):
        file.data[write.position : write.position + write.length] = write.before
        del file.data[write.size_before :]
        file.data.extend(bytes(write.size_before - len(file.data)))
    del file.data[len(new) :]
    file.data.extend(bytes(len(new) - len(file.data)))
    for at in range(0, len(new), SECTOR_BYTES):
        if chance.random() < 0.5:
            file.data[at : at + SECTOR_BYTES] = new[at : at + SECTOR_BYTES]
    file.unsynced = []


def _size(directory: Directory) -> int:
    return sum(_size(node) if isinstance(node, Directory) else len(node.data) for node in directory.entries.values())


class MountedDisk:
    """A disk as one process sees it. When the process is killed, its calls fail, and its locks are gone."""

    def __init__(self, disk: VirtualDisk, name: str, came: Callable[[str], None] = lambda _: None) -> None:
        self._disk, self._name = disk, name
        self._came = came  # called with the moments that calls make
        self._open: dict[int, VirtualFile] = {}
        self._next_fd = 1_000_000
        self.is_dead = False

    def end(self) -> None:
        self.is_dead = True

    # Descriptors

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if node is None:
            if not flags & os.O_CREAT:
                _refuse(errno.ENOENT, path)
            self._check_writable(path)
            node = VirtualFile(name, mtime_ms=self._disk.clock.now_ms())
            self._changing(parent)
            parent.entries[name] = node
        elif flags & os.O_EXCL and flags & os.O_CREAT:
            _refuse(errno.EEXIST, path)
        if isinstance(node, Directory):
            _refuse(errno.EISDIR, path)
        self._next_fd += 1
        self._open[self._next_fd] = node
        if flags & os.O_TRUNC:
            self.ftruncate(self._next_fd, 0)
        return self._next_fd

    def close(self, fd: int, /) -> None:
        self._open.pop(fd, None)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        if self._disk.errors:
            self._check(READ, "")
        return bytes(memoryview(self._open[fd].data)[position : position + length])

    def read_into(self, fd: int, buffer: memoryview, position: int, /) -> int:
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        self._check_writable("")
        file, length = self._open[fd], len(data)
        size = len(file.data)
        grown = max(position + length - size, 0)
        if (lacking := self._disk.used_bytes + grown - self._disk.total_bytes) > 0 and grown:
            if lacking >= length:
                _refuse(errno.ENOSPC, "")
            data, length, grown = memoryview(data)[:-lacking], length - lacking, max(grown - lacking, 0)
        file.unsynced.append(_Write(position, bytes(file.data[position : position + length]), size, length))
        if position > size:
            file.data.extend(bytes(position - size))
        file.data[position : position + length] = data
        file.mtime_ms = self._disk.clock.now_ms()
        self._disk.used_bytes += grown
        if file.name.endswith(LOG):
            self._came(APPEND)
        return length

    def map(self, fd: int, size: int, /) -> mmap.mmap:
        mapped = mmap.mmap(-1, size)
        mapped[:] = self.pread(fd, size, 0)
        return mapped

    def populate(self, mapped: mmap.mmap, start: int, length: int, /) -> None:
        pass

    def ftruncate(self, fd: int, size: int, /) -> None:
        self._check_writable("")
        file, before = self._open[fd], len(self._open[fd].data)
        if size == before:
            return
        if file.name.endswith(LOG):
            self._came(TRUNCATION)
        file.unsynced.append(_Write(size, bytes(file.data[size:]), before, max(before - size, 0)))
        del file.data[size:]
        file.data.extend(bytes(size - len(file.data)))
        self._disk.used_bytes += size - before

    def fsync(self, fd: int, /) -> None:
        self._came(SYNC)
        self._check_writable("", FSYNC)
        self._open[fd].unsynced.clear()

    def size(self, fd: int, /) -> int:
        return len(self._open[fd].data)

    def mtime_ms(self, fd: int, /) -> int:
        return self._open[fd].mtime_ms

    def lock(self, fd: int, /) -> None:
        """Only one process runs on a host at a time."""

    # Paths

    def set_mtime_ms(self, path: str, mtime_ms: int, /) -> None:
        node = self._node(path)
        if isinstance(node, VirtualFile):
            node.mtime_ms = mtime_ms

    def exists(self, path: str, /) -> bool:
        return self._find(path) is not None

    def is_dir(self, path: str, /) -> bool:
        return isinstance(self._find(path), Directory)

    def is_link(self, path: str, /) -> bool:
        return False

    def real_path(self, path: str, /) -> str:
        return f"{self._name}@{self._disk.number}:{path}"

    def listdir(self, path: str, /) -> list[str]:
        return list(self._directory(path).entries)

    def mkdir(self, path: str, /) -> None:
        self._check_writable(path)
        parent, name = self._parent(path)
        if name in parent.entries:
            _refuse(errno.EEXIST, path)
        self._changing(parent)
        parent.entries[name] = Directory()

    def make_dirs(self, path: str, /) -> None:
        if path != "/" and not self.is_dir(path):
            self.make_dirs(os.path.dirname(path))
            self.mkdir(path)

    def rmdir(self, path: str, /) -> None:
        self._check_writable(path)
        if self._directory(path).entries:
            _refuse(errno.ENOTEMPTY, path)
        parent, name = self._parent(path)
        self._changing(parent)
        del parent.entries[name]

    def unlink(self, path: str, /) -> None:
        self._check_writable(path)
        parent, name = self._parent(path)
        node = self._node(path)
        if isinstance(node, Directory):
            _refuse(errno.EISDIR, path)
        self._changing(parent)
        del parent.entries[name]
        self._disk.used_bytes -= len(node.data)

    def rename(self, source: str, target: str, /) -> None:
        self._check_writable(source)
        node = self._node(source)
        parent, name = self._parent(source)
        other, new_name = self._parent(target)
        replaced = other.entries.get(new_name)
        if isinstance(replaced, Directory) and replaced.entries:
            _refuse(errno.ENOTEMPTY, target)
        self._changing(parent)
        if other is not parent:
            self._changing(other)
        del parent.entries[name]
        other.entries[new_name] = node
        if isinstance(replaced, VirtualFile):
            self._disk.used_bytes -= len(replaced.data)
        self._came(RENAME)

    def sync_dir(self, path: str, /) -> None:
        self._check_writable(path, FSYNC)
        self._directory(path).unsynced.clear()

    def disk_space(self, path: str, /) -> DiskSpace:
        return DiskSpace(self._disk.total_bytes, self._disk.total_bytes - self._disk.used_bytes)

    # The page cache

    def is_cached(self, fd: int, position: int, length: int, /) -> bool:
        return True

    def load(self, fd: int, position: int, length: int, /) -> None:
        pass

    def request_readahead(self, fd: int, position: int, length: int, /) -> None:
        pass

    def dirty_pages(self) -> DirtyPages | None:
        return None

    def write_back(self, fd: int, position: int, length: int, /) -> bool:
        return False

    # Nodes

    def _check_writable(self, path: str, operation: str = WRITE) -> None:
        if self.is_dead:
            _refuse(errno.EIO, path)
        if self._disk.errors:
            self._check(operation, path)

    def _check(self, operation: str, path: str) -> None:
        if (code := self._disk.errors.get(operation)) is not None:
            _refuse(code, path)

    @staticmethod
    def _changing(directory: Directory) -> None:
        directory.unsynced.append(dict(directory.entries))

    def _find(self, path: str) -> "VirtualFile | Directory | None":
        node: VirtualFile | Directory | None = self._disk.root
        for name in path.split("/"):
            if name:
                node = node.entries.get(name) if isinstance(node, Directory) else None
        return node

    def _node(self, path: str) -> "VirtualFile | Directory":
        node = self._find(path)
        if node is None:
            _refuse(errno.ENOENT, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._node(path)
        if not isinstance(node, Directory):
            _refuse(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        folder, _, name = path.rpartition("/")
        return self._directory(folder), name
