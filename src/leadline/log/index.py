"""The two sparse indexes of one segment: where in the .log file to start looking, for an offset and for a time.

Formats, big-endian, one entry per index.interval.bytes, no header, no checksum:

    .index       offset relative to the segment's base (4), position in the .log file (4)
    .timeindex   largest timestamp so far (8), relative offset of the batch that holds it (4)

    entries are strictly increasing in both columns of .index
    entries of .timeindex are strictly increasing in time and never decrease in offset
    an index never points past its log: after a crash it is rebuilt from it

Read and written with pread and pwrite rather than through a mapping, so that a full or failing disk is an error to
handle and not a signal that kills the process. The last entries stay in memory, since nearly
every look-up needs them. So do the block of entries that was read last, for sequential readers, and the first entry of
each block. New entries are written in groups, within a second, and before the file is read: after a crash the index is
rebuilt anyway. So the file may be closed while entries wait to be written.
"""

import sys
from array import array
from bisect import bisect_right
from struct import Struct
from typing import ClassVar, NamedTuple

from leadline.errors import CorruptFile
from leadline.log.open_files import CachedFile, OpenFile
from leadline.model import NO_TIMESTAMP, Offset
from leadline.runtime.ports import Files

MAX_RELATIVE = (1 << 31) - 1
BLOCK_ENTRIES = 512  # read at once; as many of the last ones, and up to twice, stay in memory
INDEX_REMEDY = "nothing: it builds the index again from the log"
UNWRITTEN_ENTRIES = 64  # at most, of the last ones

Columns = tuple["array[int]", "array[int]"]


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: Offset


class EntryBlock:
    """Consecutive entries, by columns: a search is one bisection over plain numbers."""

    __slots__ = ("columns", "start")

    def __init__(self, start: int = 0, columns: Columns | None = None) -> None:
        self.start = start  # the number of the first one
        self.columns: Columns = columns or (array("q"), array("q"))

    def append(self, first: int, second: int) -> None:
        self.columns[0].append(first)
        self.columns[1].append(second)

    def drop(self, count: int) -> None:
        """The first ones."""
        self.start += count
        for column in self.columns:
            del column[:count]

    def __len__(self) -> int:
        return len(self.columns[0])


_NO_ENTRIES = EntryBlock()  # shared by the indexes of idle segments


class Index:
    """Entries of a fixed size in a file, and the search over them."""

    __slots__ = (
        "_block", "_count", "_fences", "_file", "_is_flushed", "_tail", "_unwritten", "base_offset", "max_entries"
    )  # fmt: skip
    ENTRY: ClassVar[Struct]

    def __init__(self, files: Files, path: str, base_offset: Offset, max_bytes: int) -> None:
        self._file, self.base_offset = CachedFile(files, path, create=True), base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._count = -1  # -1: not read yet
        self._unwritten = b""  # the last entries, which are not in the file yet
        self._is_flushed = False  # the file is flushed, or a flush has begun; unknown at first
        self._forget()

    def _forget(self) -> None:
        self._tail = _NO_ENTRIES  # the last entries that were appended here
        self._fences = _NO_ENTRIES  # the first entry of each block, as far as searches needed them
        self._block = _NO_ENTRIES  # the one that was read last

    @property
    def path(self) -> str:
        return self._file.path

    def renamed(self, path: str) -> None:
        self._file.renamed(path)

    @property
    def count(self) -> int:
        if self._count < 0:
            self.open()
        return self._count

    @property
    def size(self) -> int:
        return self.count * self.ENTRY.size

    def open(self) -> OpenFile:
        """The file, with all entries."""
        file = self._file.open()
        if self._count < 0:
            self._count = file.size // self.ENTRY.size
            self._file.created()
        if entries := self._unwritten:
            file.write(entries, self.size - len(entries))
            self._unwritten, self._is_flushed = b"", False
        return file

    def is_torn(self) -> bool:
        """True if the file does not hold whole entries."""
        return self.open().size % self.ENTRY.size != 0

    def _read(self, first: int, count: int) -> bytes:
        """CorruptFile if they are not there any more."""
        size = self.ENTRY.size
        data = self.open().pread(count * size, first * size)
        if len(data) < count * size:
            text = f"the file ends here, before entry {first + count} of {self._count}"
            raise CorruptFile(self.path, first * size + len(data), text, INDEX_REMEDY)
        return data

    @classmethod
    def decode(cls, data: bytes) -> Columns:
        firsts, seconds = array("q"), array("q")
        for first, second in cls.ENTRY.iter_unpack(data):
            firsts.append(first)
            seconds.append(second)
        return firsts, seconds

    def entry(self, n: int) -> tuple[int, int]:
        in_tail = n - self._tail.start
        if 0 <= in_tail < len(self._tail):
            return self._tail.columns[0][in_tail], self._tail.columns[1][in_tail]
        first, second = self.ENTRY.unpack(self._read(n, 1))
        return first, second

    def entries(self) -> list[tuple[int, int]]:
        """All of them, for dumps and checks."""
        return list(zip(*self.decode(self._read(0, self.count)), strict=True))

    def _append(self, first: int, second: int) -> None:
        tail, count = self._tail, self.count
        if tail is _NO_ENTRIES:
            tail = self._tail = EntryBlock()
        firsts, seconds = tail.columns
        if not firsts:
            tail.start = count
        self._count = count + 1
        firsts.append(first)
        seconds.append(second)
        self._unwritten += self.ENTRY.pack(first, second)
        if len(self._unwritten) >= UNWRITTEN_ENTRIES * self.ENTRY.size:
            self.open()
        if len(firsts) > 2 * BLOCK_ENTRIES:
            tail.drop(BLOCK_ENTRIES)

    def _search(self, target: int, column: int) -> tuple[EntryBlock, int]:
        """The last entry whose column is at most the target: its block and index there; -1 if there is none."""
        block = self._tail
        values = block.columns[column]
        if not values or values[0] > target:
            block = self._block_with(target, column)
            values = block.columns[column]
        return block, bisect_right(values, target) - 1

    def _block_with(self, target: int, column: int) -> EntryBlock:
        fences, count = self._fences, self.count
        if fences is _NO_ENTRIES:
            fences = self._fences = EntryBlock()
        while len(fences) * BLOCK_ENTRIES < count:
            fences.append(*self.entry(len(fences) * BLOCK_ENTRIES))
        start = max(bisect_right(fences.columns[column], target) - 1, 0) * BLOCK_ENTRIES
        length = min(BLOCK_ENTRIES, count - start)
        if self._block.start != start or len(self._block) != length:
            self._block = EntryBlock(start, self.decode(self._read(start, length)))
        return self._block

    def _slot(self, target: int, column: int) -> int:
        """The number of the last entry whose column is at most the target; -1 if there is none."""
        block, index = self._search(target, column)
        return block.start + index if index >= 0 else -1

    def truncate(self, count: int) -> None:
        file = self.open()
        self._count, self._is_flushed = count, False
        self._forget()
        file.truncate(count * self.ENTRY.size)

    def load(self, data: bytes | bytearray) -> None:
        """Replace all entries: recovery has collected them."""
        file = self.open()
        file.truncate(0)
        file.write(data, 0)
        self._count, self._is_flushed = len(data) // self.ENTRY.size, False
        self._forget()

    def trim(self) -> None:
        """Truncate the space that another broker reserved after the last entry, and write what waits."""
        if self._count >= 0:
            self.open().truncate(self.size)
            self._is_flushed = False
        self.release()

    def close(self) -> None:
        """As `trim`, but a file that is complete already does not change."""
        if self._count >= 0 and self.open().size != self.size:
            self.trim()
        self.release()

    def release(self) -> None:
        """Close the file, unless it has unflushed data. Entries that were not written are forgotten."""
        if self._unwritten:
            self._count, self._unwritten = -1, b""
        self._file.close()
        self._forget()

    def discard(self) -> None:
        """The file is about to be deleted."""
        self._unwritten = b""
        self._file.discard()

    def not_flushed(self) -> None:
        """The flush that took the file could not begin."""
        self._is_flushed = False

    def file_to_flush(self) -> OpenFile | None:
        """The caller flushes it. None if nothing has changed since the last flush."""
        file, was_flushed = self.open(), self._is_flushed
        self._is_flushed = True
        return None if was_flushed else file


class OffsetIndex(Index):
    __slots__ = ()
    ENTRY = Struct(">ii")

    @classmethod
    def decode(cls, data: bytes) -> Columns:
        both = array("i", data)
        if sys.byteorder == "little":
            both.byteswap()
        return both[::2], both[1::2]

    def is_full(self) -> bool:
        return self.count >= self.max_entries

    def last_offset(self) -> Offset:
        return self.base_offset + self.entry(self.count - 1)[0] if self.count else self.base_offset

    def last_position(self) -> int:
        return self.entry(self.count - 1)[1] if self.count else 0

    def append(self, offset: Offset, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def lookup(self, offset: Offset) -> int:
        """A position at or before the start of the batch with this offset."""
        if not self.count:
            return 0
        block, index = self._search(offset - self.base_offset, 0)
        return max(block.columns[1][index], 0) if index >= 0 else 0

    def first_at_or_after(self, position: int) -> Offset | None:
        """The offset of the first entry that points to this position or a later one."""
        slot = self._slot(position - 1, 1) + 1 if self.count else 0
        return self.base_offset + self.entry(slot)[0] if slot < self.count else None

    def truncate_to(self, offset: Offset) -> None:
        """Keep the entries of offsets below."""
        self.truncate(self._slot(offset - self.base_offset - 1, 0) + 1 if self.count else 0)


class TimeIndex(Index):
    __slots__ = ()
    ENTRY = Struct(">qi")

    def is_full(self) -> bool:
        return self.count >= self.max_entries - 1  # the last one is kept for when the segment is closed

    def last_entry(self) -> TimestampOffset:
        if not self.count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self.entry(self.count - 1)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def append_if_later(self, timestamp: int, offset: Offset) -> None:
        times = self._tail.columns[0]
        if timestamp > (times[-1] if times else self.last_entry().timestamp):
            self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose time is at most this; the segment's start if there is none."""
        slot = self._slot(timestamp, 0) if self.count else -1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        indexed, relative = self.entry(slot)
        return TimestampOffset(indexed, self.base_offset + relative)

    def truncate_to(self, offset: Offset) -> None:
        """Keep the entries of offsets below."""
        self.truncate(self._slot(offset - self.base_offset - 1, 1) + 1 if self.count else 0)
