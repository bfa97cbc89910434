"""The two sparse indexes of one segment: where in the .log file to start looking, for an offset and for a time.

Formats, big-endian, one entry per index.interval.bytes, no header, no checksum:

    .index       offset relative to the segment's base (4), position in the .log file (4)
    .timeindex   largest timestamp so far (8), relative offset of the batch that holds it (4)

    entries are strictly increasing in both columns of .index
    entries of .timeindex are strictly increasing in time and never decrease in offset
    an index never points past its log: after a crash it is rebuilt from it

Read and written with pread and pwrite rather than through a mapping, so that a full or failing disk is an error to
handle and not a signal that kills the process. The last entries, where nearly every look-up lands, stay in memory.
"""

from bisect import bisect_right
from struct import Struct
from typing import ClassVar, NamedTuple

from leadline.log.files import OpenFile, write_all
from leadline.model import NO_TIMESTAMP, Offset
from leadline.ports import Files

MAX_RELATIVE = (1 << 31) - 1
TAIL_ENTRIES = 512  # kept in memory
BLOCK_ENTRIES = 512  # read at once when a search has come this near


class OffsetPosition(NamedTuple):
    offset: Offset
    position: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: Offset


class Index:
    """Entries of a fixed size in a file, and the search over them."""

    ENTRY: ClassVar[Struct]

    def __init__(self, files: Files, path: str, base_offset: Offset, max_bytes: int) -> None:
        self._files, self.path, self.base_offset = files, path, base_offset
        self.max_entries = max_bytes // self.ENTRY.size
        self._file: OpenFile | None = None
        self._count = -1  # -1: not looked at yet
        self._tail = bytearray()  # the last entries; together with what lies before them in the file, all of them

    @property
    def count(self) -> int:
        if self._count < 0:
            self._open()
        return self._count

    @property
    def size(self) -> int:
        return self.count * self.ENTRY.size

    def _open(self) -> OpenFile:
        if self._file is None:
            self._file = OpenFile(self._files, self.path, create=True)
        if self._count < 0:
            self._count = self._files.size(self._file.fd) // self.ENTRY.size
        return self._file

    def is_torn(self) -> bool:
        """True if the file does not hold whole entries."""
        return self._files.size(self._open().fd) % self.ENTRY.size != 0

    def entry(self, n: int) -> tuple[int, int]:
        size = self.ENTRY.size
        file = self._open()
        in_tail = len(self._tail) - (self._count - n) * size
        data = self._tail if in_tail >= 0 else self._files.pread(file.fd, size, n * size)
        first, second = self.ENTRY.unpack_from(data, max(in_tail, 0))
        return first, second

    def entries(self) -> list[tuple[int, int]]:
        """All of them, for dumps and checks."""
        data = self._files.pread(self._open().fd, self.size, 0)
        return [(first, second) for first, second in self.ENTRY.iter_unpack(data)]

    def _append(self, first: int, second: int) -> None:
        file = self._open()
        entry = self.ENTRY.pack(first, second)
        write_all(self._files, file.fd, entry, self._count * len(entry))
        self._count += 1
        self._tail += entry
        if len(self._tail) > 2 * TAIL_ENTRIES * len(entry):
            del self._tail[: -TAIL_ENTRIES * len(entry)]

    def _slot(self, target: int, column: int) -> int:
        """The last entry whose column is at most the target; -1 if there is none."""
        size, file = self.ENTRY.size, self._open()
        unpack = self.ENTRY.unpack_from
        low, high = 0, self._count
        data, start = self._tail, self._count - len(self._tail) // size
        if not (data and unpack(data)[column] <= target):
            high = start if data else high
            while high - low > BLOCK_ENTRIES:
                middle = (low + high) // 2
                if unpack(self._files.pread(file.fd, size, middle * size))[column] <= target:
                    low = middle
                else:
                    high = middle
            data, start = bytearray(self._files.pread(file.fd, (high - low) * size, low * size)), low
        found = bisect_right(range(len(data) // size), target, key=lambda n: unpack(data, n * size)[column])
        return start + found - 1

    def truncate(self, count: int) -> None:
        file = self._open()
        self._count = count
        self._tail.clear()
        self._files.ftruncate(file.fd, count * self.ENTRY.size)

    def load(self, data: bytes | bytearray) -> None:
        """Replace all entries, as recovery finds them."""
        file = self._open()
        self._files.ftruncate(file.fd, 0)
        write_all(self._files, file.fd, data, 0)
        self._count = len(data) // self.ENTRY.size
        self._tail.clear()

    def trim(self) -> None:
        """Cut what another broker reserved behind the last entry, and let go of the descriptor."""
        if self._count >= 0:
            self._files.ftruncate(self._open().fd, self.size)
        self.release()

    def release(self) -> None:
        self._file = None
        self._tail.clear()

    def file_to_flush(self) -> OpenFile:
        return self._open()


class OffsetIndex(Index):
    ENTRY = Struct(">ii")

    def is_full(self) -> bool:
        return self.count >= self.max_entries

    def last_offset(self) -> Offset:
        return self.base_offset + self.entry(self.count - 1)[0] if self.count else self.base_offset

    def append(self, offset: Offset, position: int) -> None:
        self._append(offset - self.base_offset, position)

    def lookup(self, offset: Offset) -> int:
        """The position at or before which the batch with this offset starts."""
        slot = self._slot(offset - self.base_offset, 0) if self.count else -1
        return self.entry(slot)[1] if slot >= 0 else 0

    def first_at_or_behind(self, position: int) -> Offset | None:
        """The offset of the first entry that points to a position or behind it."""
        slot = self._slot(position - 1, 1) + 1 if self.count else 0
        return self.base_offset + self.entry(slot)[0] if slot < self.count else None

    def truncate_to(self, offset: Offset) -> None:
        """Keep the entries of offsets below."""
        self.truncate(self._slot(offset - self.base_offset - 1, 0) + 1 if self.count else 0)


class TimeIndex(Index):
    ENTRY = Struct(">qi")

    def is_full(self) -> bool:
        return self.count >= self.max_entries - 1  # the last one is kept for when the segment is closed

    def last_entry(self) -> TimestampOffset:
        if not self.count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        timestamp, relative = self.entry(self.count - 1)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def append_if_later(self, timestamp: int, offset: Offset) -> None:
        if timestamp > self.last_entry().timestamp:
            self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """The last entry whose time is at most this; the segment's start if there is none."""
        slot = self._slot(timestamp, 0) if self.count else -1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        found, relative = self.entry(slot)
        return TimestampOffset(found, self.base_offset + relative)

    def truncate_to(self, offset: Offset) -> None:
        """Keep the entries of offsets below."""
        self.truncate(self._slot(offset - self.base_offset - 1, 1) + 1 if self.count else 0)
