"""A disk whose power can fail: it works on a real directory, and remembers what was done and what was synced.

Every change is journaled. From the journal up to any operation it materialises, elsewhere, a directory as a real disk
may hold it after a power failure at that moment:

    data of a file that were fsynced are there, in full
    what was written since is there, or not, or torn at any byte, or zeros; a change of size likewise; in any order
    entries of a directory that were synced are there
    what changed in it since happened up to some operation (ordered), or each on its own (strict)

The fsync of a file says nothing of its name: that is what `sync_dir` is for.
"""

import mmap
import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from leadline.model import Buffer
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import DiskSpace, OsFiles


@dataclass(eq=False)
class File:
    """What a name may stand for; the content is what the journal makes of it."""

    start: bytes = b""


@dataclass(eq=False)
class Directory:
    entries: dict[str, "File | Directory"] = field(default_factory=dict)


Node = File | Directory


@dataclass(frozen=True)
class Wrote:
    file: File
    position: int
    data: bytes


@dataclass(frozen=True)
class Resized:
    file: File
    size: int


@dataclass(frozen=True)
class Synced:
    node: Node


@dataclass(frozen=True)
class Linked:
    directory: Directory
    name: str
    node: Node


@dataclass(frozen=True)
class Unlinked:
    directory: Directory
    name: str
    node: Node


@dataclass(frozen=True)
class Renamed:
    directory: Directory
    name: str
    target: str
    node: Node


DataOp = Wrote | Resized
EntryOp = Linked | Unlinked | Renamed
Op = DataOp | EntryOp | Synced


class Unsynced(OsFiles):
    """The real disk without its waiting, for tests that cut no power."""

    @staticmethod
    def fsync(_: object, /) -> None:
        pass

    def sync_dir(self, _: str, /) -> None:
        pass


class CrashDisk:
    """`Files` over a directory. What lies there at the beginning counts as synced."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self._files, self.root_path = OsFiles(), str(root)
        self.journal: list[Op] = []
        self._root = _scan(root)
        self._start = {directory: dict(directory.entries) for directory in _directories(self._root)}
        self._open: dict[int, Node] = {}

    # Files

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        parent, name = self._parent(path)
        fd = self._files.open(path, flags, mode)
        node = parent.entries.get(name)
        if node is None:
            node = parent.entries[name] = File()
            self.journal.append(Linked(parent, name, node))
        elif flags & os.O_TRUNC and isinstance(node, File):
            self.journal.append(Resized(node, 0))
        self._open[fd] = node
        return fd

    def close(self, fd: int, /) -> None:
        self._open.pop(fd, None)
        self._files.close(fd)

    def pread(self, fd: int, length: int, position: int, /) -> bytes:
        return self._files.pread(fd, length, position)

    def read_into(self, fd: int, buffer: memoryview, position: int, /) -> int:
        return self._files.read_into(fd, buffer, position)

    def is_cached(self, fd: int, position: int, length: int, /) -> bool:
        return self._files.is_cached(fd, position, length)

    def load(self, fd: int, position: int, length: int, /) -> None:
        self._files.load(fd, position, length)

    def request_readahead(self, fd: int, position: int, length: int, /) -> None:
        self._files.request_readahead(fd, position, length)

    def dirty_pages(self) -> DirtyPages | None:
        return self._files.dirty_pages()

    def write_back(self, fd: int, position: int, length: int, /) -> bool:
        """What is written back is not synced: the journal does not change."""
        return self._files.write_back(fd, position, length)

    def disk_space(self, path: str, /) -> DiskSpace:
        return self._files.disk_space(path)

    def map(self, fd: int, size: int, /) -> mmap.mmap:
        return self._files.map(fd, size)

    def populate(self, mapped: mmap.mmap, start: int, length: int, /) -> None:
        self._files.populate(mapped, start, length)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:
        written = self._files.pwrite(fd, data, position)
        self.journal.append(Wrote(self._file(fd), position, bytes(data[:written])))
        return written

    def ftruncate(self, fd: int, size: int, /) -> None:
        self._files.ftruncate(fd, size)
        self.journal.append(Resized(self._file(fd), size))

    def fsync(self, fd: int, /) -> None:
        """Only the journal knows: a real one would cost time and prove nothing here."""
        self.journal.append(Synced(self._open[fd]))

    def size(self, fd: int, /) -> int:
        return self._files.size(fd)

    def mtime_ms(self, fd: int, /) -> int:
        return self._files.mtime_ms(fd)

    def set_mtime_ms(self, path: str, mtime_ms: int, /) -> None:
        self._files.set_mtime_ms(path, mtime_ms)

    def exists(self, path: str, /) -> bool:
        return self._files.exists(path)

    def lock(self, fd: int, /) -> None:
        self._files.lock(fd)

    def is_dir(self, path: str, /) -> bool:
        return self._files.is_dir(path)

    def is_link(self, path: str, /) -> bool:
        return self._files.is_link(path)

    def real_path(self, path: str, /) -> str:
        return self._files.real_path(path)

    def make_dirs(self, path: str, /) -> None:
        """Parents of the disk's own directory are not modelled."""
        if not self._files.is_dir(path):
            self.make_dirs(os.path.dirname(path))
            self.mkdir(path)

    def listdir(self, path: str, /) -> list[str]:
        return sorted(self._files.listdir(path))

    def mkdir(self, path: str, /) -> None:
        self._files.mkdir(path)
        parent, name = self._parent(path)
        parent.entries[name] = made = Directory()
        self.journal.append(Linked(parent, name, made))

    def rmdir(self, path: str, /) -> None:
        self._files.rmdir(path)
        self._forget(path)

    def unlink(self, path: str, /) -> None:
        self._files.unlink(path)
        self._forget(path)

    def rename(self, source: str, target: str, /) -> None:
        self._files.rename(source, target)
        directory, name = self._parent(source)
        same, new_name = self._parent(target)
        assert same is directory, "a rename between directories is not modelled"
        directory.entries[new_name] = node = directory.entries.pop(name)
        self.journal.append(Renamed(directory, name, new_name, node))

    def sync_dir(self, path: str, /) -> None:
        self._files.listdir(path)  # FileNotFoundError where there is none
        self.journal.append(Synced(self._directory(path)))

    def _forget(self, path: str) -> None:
        directory, name = self._parent(path)
        self.journal.append(Unlinked(directory, name, directory.entries.pop(name)))

    def _parent(self, path: str) -> tuple[Directory, str]:
        return self._directory(os.path.dirname(path)), os.path.basename(path)

    def _directory(self, path: str) -> Directory:
        directory = self._root
        for part in Path(path).relative_to(self.root_path).parts:
            if not isinstance(inner := directory.entries.get(part), Directory):
                raise FileNotFoundError(f"no directory {path}")
            directory = inner
        return directory

    def _file(self, fd: int) -> File:
        node = self._open[fd]
        assert isinstance(node, File)
        return node

    # The crash

    def after_power_failure(self, target: Path, operations: int, random: Random, *, strict: bool = False) -> None:
        """Write down what the disk may hold if the power fails behind that many operations of the journal."""
        files: dict[File, _Content] = {}
        entries = {directory: _Entries(dict(start)) for directory, start in self._start.items()}
        for op in self.journal[:operations]:
            match op:
                case Wrote(file) | Resized(file) | Synced(File() as file):
                    content = files.setdefault(file, _Content(bytearray(file.start)))
                    if isinstance(op, Synced):
                        content.sync()
                    else:
                        content.pending.append(op)
                case Synced(Directory() as directory):
                    entries.setdefault(directory, _Entries({})).sync()
                case Linked(directory) | Unlinked(directory) | Renamed(directory):
                    entries.setdefault(directory, _Entries({})).pending.append(op)
        self._write_out(self._root, target, files, entries, random, strict)

    def _write_out(
        self,
        directory: Directory,
        target: Path,
        files: dict[File, "_Content"],
        entries: dict[Directory, "_Entries"],
        random: Random,
        strict: bool,
    ) -> None:
        target.mkdir(exist_ok=True)
        listing = entries.get(directory)
        for name, node in listing.survivors(random, strict).items() if listing else ():
            if isinstance(node, Directory):
                self._write_out(node, target / name, files, entries, random, strict)
            else:
                content = files.get(node)
                (target / name).write_bytes(node.start if content is None else content.survivors(random))


@dataclass
class _Content:
    """A file: what is synced, and what was done to it since."""

    synced: bytearray
    pending: list[DataOp] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.pending:
            _apply(self.synced, op)
        self.pending.clear()

    def survivors(self, random: Random) -> bytes:
        data = bytearray(self.synced)
        fate = random.choice(("all", "none", "a part", "any"))
        last = random.randrange(len(self.pending)) if self.pending else 0
        for n, op in enumerate(self.pending):
            if fate == "all" or (fate == "a part" and n < last):
                _apply(data, op)
            elif fate == "any" or (fate == "a part" and n == last):
                _apply_in_part(data, op, random)
        return bytes(data)


@dataclass
class _Entries:
    """A directory: the names that are synced, and what was done to them since."""

    synced: dict[str, Node]
    pending: list[EntryOp] = field(default_factory=list)

    def sync(self) -> None:
        for op in self.pending:
            _apply_entry(self.synced, op)
        self.pending.clear()

    def survivors(self, random: Random, strict: bool) -> dict[str, Node]:
        surviving = dict(self.synced)
        last = random.randint(0, len(self.pending))
        for n, op in enumerate(self.pending):
            if random.random() < 0.5 if strict else n < last:
                _apply_entry(surviving, op)
        return surviving


def _apply(data: bytearray, op: DataOp) -> None:
    if isinstance(op, Resized):
        _resize(data, op.size)
    elif op.data:
        _resize(data, max(len(data), op.position))
        data[op.position : op.position + len(op.data)] = op.data


def _apply_in_part(data: bytearray, op: DataOp, random: Random) -> None:
    fate = random.choice(("kept", "dropped", "torn", "zeros"))
    if fate == "dropped":
        return
    if isinstance(op, Wrote) and fate == "torn":
        op = Wrote(op.file, op.position, op.data[: random.randint(0, len(op.data))])
    elif isinstance(op, Wrote) and fate == "zeros":
        intact = random.randint(0, len(op.data))
        op = Wrote(op.file, op.position, op.data[:intact] + bytes(len(op.data) - intact))
    _apply(data, op)


def _apply_entry(entries: dict[str, Node], op: EntryOp) -> None:
    if isinstance(op, Linked):
        entries[op.name] = op.node
        return
    if entries.get(op.name) is op.node:
        del entries[op.name]
    if isinstance(op, Renamed):
        entries[op.target] = op.node


def _resize(data: bytearray, size: int) -> None:
    del data[size:]
    data.extend(bytes(size - len(data)))


def _scan(path: Path) -> Directory:
    entries: dict[str, Node] = {
        child.name: _scan(child) if child.is_dir() else File(child.read_bytes()) for child in path.iterdir()
    }
    return Directory(entries)


def _directories(directory: Directory) -> list[Directory]:
    inner = [node for node in directory.entries.values() if isinstance(node, Directory)]
    return [directory, *(descendant for node in inner for descendant in _directories(node))]
