"""One segment of a log: a .log file of consecutive record batches, and its indexes.

    only the last segment of a log is written to
    its offsets are in [base, base + 2^31), so that indexes can hold them in four bytes

Reading returns slices of the file, never bytes: the kernel copies them to the socket.
"""

import logging
import os
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple, NoReturn

from leadline.config.topic import LogConfig
from leadline.errors import MISSING_REMEDY, CorruptFile, CorruptMessage
from leadline.log import names
from leadline.log.index import MAX_RELATIVE, OffsetIndex, TimeIndex, TimestampOffset
from leadline.log.open_files import CachedFile, OpenFile
from leadline.log.txn_index import TxnIndex
from leadline.model import NO_TIMESTAMP, Buffer, Offset
from leadline.records.batch import HEADER_BYTES, LENGTH_END, MAGIC, MIN_LENGTH, Header, header_at
from leadline.records.record import records_of
from leadline.runtime.ports import Chance, Files, shortage

log = logging.getLogger(__name__)

_WALK_BYTES = 4096  # read at once while looking for a batch
_FRONT = Struct(">qi4xb6xi")  # base offset, length, magic, last offset delta


class FileSlice(NamedTuple):
    """Bytes of a segment. Holding it keeps the file readable, also when the segment is deleted."""

    file: OpenFile
    position: int
    length: int


class BatchPosition(NamedTuple):
    """The place of a batch in its segment, and its offsets."""

    position: int
    size: int
    base_offset: Offset
    last_offset: Offset


class SegmentPath(NamedTuple):
    """Where the files of a segment are. The suffix is its state: see `names`."""

    directory: str
    base_offset: Offset
    suffix: str = ""

    def file(self, kind: str) -> str:
        return os.path.join(self.directory, names.file_name(self.base_offset, kind, self.suffix))

    def all_files(self) -> list[str]:
        return [self.file(kind) for kind in names.SEGMENT_SUFFIXES]


class Segment:
    def __init__(
        self,
        files: Files,
        location: SegmentPath,
        config: LogConfig,
        *,
        now_ms: int,
        jitter_ms: int = 0,
        create: bool = False,
    ) -> None:
        self._files, self.location = files, location
        self.base_offset = base_offset = location.base_offset
        self.created_ms, self.jitter_ms = now_ms, jitter_ms
        self.index_interval_bytes = config.index_interval_bytes
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(files, self.path(names.INDEX), base_offset, index_bytes)
        self.time_index = TimeIndex(files, self.path(names.TIME_INDEX), base_offset, index_bytes)
        self.txn_index = TxnIndex(files, self.path(names.TXN_INDEX), base_offset)
        self._log = CachedFile(files, self.path(names.LOG), create=create)
        self.size = self._log.open().size
        self._log.created()
        self._first_timestamp: int | None = None  # of the first batch: segment.ms counts from it
        self._newest: TimestampOffset | None = None  # largest timestamp and the last offset of its batch
        self._since_index = 0  # bytes since the last index entry
        self._indexes_full: bool | None = None  # None: not checked since they last changed
        self.has_unwritten_entries = False  # its indexes may have some
        self._index_reported = False  # that its offset index is wrong
        if create:
            self._newest = TimestampOffset(NO_TIMESTAMP, base_offset)
            if config.preallocate:
                self.file.truncate(config.segment_bytes)

    def path(self, kind: str) -> str:
        return self.location.file(kind)

    @property
    def file(self) -> OpenFile:
        """The .log file, which is opened if necessary. Callers keep this object, not its descriptor."""
        return self._log.open()

    def __repr__(self) -> str:
        return f"Segment({self.path(names.LOG)}, {self.size} bytes)"

    # Writing

    def append(self, data: Buffer, last_offset: Offset, timestamp: int, newest_offset: Offset) -> None:
        """Whole batches up to last_offset; the largest timestamp among them, and the last offset of its batch.

        Unless the disk fails, it raises before it has changed anything. Index entries for which a resource is short
        wait in memory.
        """
        position, size, newest = self.size, len(data), self._newest or self.newest
        if position == 0:
            self._first_timestamp = timestamp
            self.create_indexes()
        self._log.open().write(data, position)
        self.size = position + size
        if timestamp > newest.timestamp:
            self._newest = newest = TimestampOffset(timestamp, newest_offset)
        if self._since_index > self.index_interval_bytes:
            try:
                self.offset_index.append(last_offset, position)
                self.time_index.append_if_later(*newest)
            except OSError as error:
                if shortage(error) is None:
                    raise
            self._since_index, self._indexes_full, self.has_unwritten_entries = 0, None, True
        self._since_index += size

    def write_index_entries(self) -> None:
        self.has_unwritten_entries = False
        self.offset_index.open()
        self.time_index.open()

    def should_roll(self, size: int, last_offset: Offset, timestamp: int, config: LogConfig, now_ms: int) -> bool:
        """Whether the next batches go to a new segment."""
        taken = self.size
        if taken > config.segment_bytes - size:
            return True
        if taken > 0:
            first = self._first_timestamp
            if first is None:
                first = self.first_timestamp
            # By the records' own time where they carry one, so that replicas roll at the same offsets.
            age_ms = timestamp - first if first is not None and first >= 0 else now_ms - self.created_ms
            if age_ms > config.segment_ms - self.jitter_ms:
                return True
        if self._indexes_full is None:
            self._indexes_full = self.offset_index.is_full() or self.time_index.is_full()
        return self._indexes_full or not 0 <= last_offset - self.base_offset <= MAX_RELATIVE

    def seal(self) -> None:
        """No more appends: complete the time index and release unused space."""
        self._finish_time_index()
        self.offset_index.trim()
        self.time_index.trim()
        self.txn_index.trim()
        self._trim()

    def close(self) -> None:
        """Closes the files for a clean stop. A later read opens them again."""
        if self._newest is not None:
            self._finish_time_index()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.trim()
        self._trim()
        self._log.close()

    def _trim(self) -> None:
        """Release the space that was reserved after the last batch."""
        file = self.file
        if (end := file.size) < self.size:
            self._ends_early(end)
        if end > self.size:
            file.truncate(self.size)

    def open(self) -> None:
        """Open all its files."""
        self._log.open()
        self.offset_index.open()
        self.time_index.open()
        self.txn_index.entries()

    def release(self) -> None:
        """Close its files, except those with unflushed data. Readers continue; the next use opens them again."""
        self._log.close()
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.release()

    def discard(self) -> None:
        """It is about to be deleted. Readers keep their files."""
        self._log.discard()
        self.offset_index.discard()
        self.time_index.discard()
        self.txn_index.discard()

    def create_indexes(self) -> None:
        """The first append creates them; the active segment of a log that is opened has them at once, as in Kafka."""
        _ = self.offset_index.count, self.time_index.count

    def _finish_time_index(self) -> None:
        self.time_index.append_if_later(*self.newest)

    def files_to_flush(self) -> list[OpenFile]:
        """The files in the order in which they must reach the disk. Indexes that did not change are left out."""
        indexes = (index.file_to_flush() for index in (self.offset_index, self.time_index, self.txn_index))
        return [self.file, *(file for file in indexes if file is not None)]

    def not_flushed(self) -> None:
        """The flush that took its files could not begin."""
        self.offset_index.not_flushed()
        self.time_index.not_flushed()

    # Reading

    @property
    def newest(self) -> TimestampOffset:
        if self._newest is None:
            self._newest = self.time_index.last_entry()
        return self._newest

    @newest.setter
    def newest(self, newest: TimestampOffset) -> None:
        self._newest = newest

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp of its records; if they have none, the time of the last write."""
        return self.newest.timestamp if self.newest.timestamp >= 0 else self.file.mtime_ms

    @property
    def last_modified_ms(self) -> int:
        return self.file.mtime_ms

    @property
    def first_timestamp(self) -> int | None:
        if self._first_timestamp is None and self.size >= HEADER_BYTES:
            self._first_timestamp = header_at(self._chunk(self.file, 0)).max_timestamp
        return self._first_timestamp

    def batches(self, position: int = 0) -> Iterator[BatchPosition]:
        """The whole batches from a position on. Ends at the first bytes that are not a batch."""
        file, size = self.file, self.size
        while position + HEADER_BYTES <= size:
            chunk = self._chunk(file, position)
            at, enough = 0, len(chunk) - _FRONT.size
            while at <= enough:
                base, length, magic, delta = _FRONT.unpack_from(chunk, at)
                batch = BatchPosition(position + at, LENGTH_END + length, base, base + delta)
                if magic != MAGIC or length < MIN_LENGTH or batch.position + batch.size > size:
                    return
                yield batch
                at += batch.size
            position += at

    def _chunk(self, file: OpenFile, position: int) -> bytes:
        """The bytes that hold the next batches. CorruptFile if what was written there is gone."""
        expected = min(_WALK_BYTES, self.size - position)
        chunk = file.pread(expected, position)
        if len(chunk) < expected:
            self._ends_early(position + len(chunk))
        return chunk

    def _ends_early(self, at: int) -> NoReturn:
        text = f"the file ends here, though {self.size} bytes were written to it"
        raise CorruptFile(self.path(names.LOG), at, text, MISSING_REMEDY)

    def slice(self, position: int, length: int) -> FileSlice:
        """CorruptFile if the last reader came to the end of the file before the end of the segment."""
        file = self._log.open()
        if file.ends_at is not None:
            self._ends_early(file.ends_at)
        return FileSlice(file, position, length)

    def find(self, offset: Offset) -> BatchPosition | None:
        """The first batch that ends at or after an offset. CorruptMessage if it cannot be found because of damage."""
        position = self.offset_index.lookup(offset)
        try:
            batch = self._find_from(position, offset)
            if not position or batch is None or batch.position > position or batch.base_offset <= offset:
                return batch
        except CorruptMessage:
            if not position:
                raise
        # An entry of the index must point to a batch that holds its offset. This one does not.
        if not self._index_reported:
            path = self.offset_index.path
            log.warning("%s has a wrong entry for offset %d: the segment is read from its start", path, offset)
            self._index_reported = True
        return self._find_from(0, offset)

    def _find_from(self, start: int, offset: Offset) -> BatchPosition | None:
        """Search from a position. There must be a batch at it, unless it is the start of the segment."""
        file, position, size, unpack, base_offset = self.file, start, self.size, _FRONT.unpack_from, self.base_offset
        while position + HEADER_BYTES <= size:
            chunk = self._chunk(file, position)
            at, enough = 0, len(chunk) - _FRONT.size
            while at <= enough:
                base, length, magic, delta = unpack(chunk, at)
                behind = at + LENGTH_END + length
                if magic != MAGIC or length < MIN_LENGTH:
                    raise CorruptMessage(f"{file.path} holds no batch at byte {position + at}")
                if position + behind > size:
                    break
                if base + delta >= offset:
                    if not 0 <= base - base_offset <= base + delta - base_offset <= MAX_RELATIVE:
                        raise CorruptMessage(f"{file.path}: the batch at byte {position + at} has offset {base}")
                    return BatchPosition(position + at, behind - at, base, base + delta)
                at = behind
            if at == 0:
                break
            position += at
        if start and position == start:
            raise CorruptMessage(f"{file.path} holds no batch at byte {position}")
        return None

    def end(self) -> tuple[Offset, int]:
        """The offset after the last batch, and where that batch ends: before `size` if other bytes follow."""
        offset, position = self.base_offset, 0
        for batch in self.batches(self.offset_index.last_position()):
            offset, position = batch.last_offset + 1, batch.position + batch.size
        return offset, position

    def read_batch(self, batch: BatchPosition) -> tuple[bytes, Header]:
        data = self.file.pread(batch.size, batch.position)
        if len(data) < batch.size:
            raise CorruptFile(self.path(names.LOG), batch.position, f"{len(data)} bytes of a batch of {batch.size}")
        return data, header_at(data)

    def headers(self, position: int = 0) -> Iterator[tuple[BatchPosition, Header]]:
        for batch in self.batches(position):
            yield batch, header_at(self.file.pread(HEADER_BYTES, batch.position))

    def offset_for_time(self, timestamp: int, start: Offset) -> tuple[TimestampOffset, int] | None:
        """The first record at or after `start` that is not older, with its leader epoch."""
        indexed = self.time_index.lookup(timestamp)
        for batch, header in self.headers(self.offset_index.lookup(max(indexed.offset, start))):
            if header.max_timestamp >= timestamp and header.last_offset >= start:
                data, _ = self.read_batch(batch)
                for record in records_of(data, 0, header):
                    if record.timestamp >= timestamp and record.offset >= start:
                        return TimestampOffset(record.timestamp, record.offset), header.leader_epoch
        return None

    def offset_of_newest(self) -> tuple[TimestampOffset, int] | None:
        """The first record with the largest timestamp, with its leader epoch."""
        newest = self.newest
        for batch, header in self.headers(self.offset_index.lookup(newest.offset)):
            if header.max_timestamp == newest.timestamp:
                data, _ = self.read_batch(batch)
                for record in records_of(data, 0, header):
                    if record.timestamp == newest.timestamp:
                        return TimestampOffset(record.timestamp, record.offset), header.leader_epoch
        return None

    # Cutting, renaming, removing

    def truncate_to(self, offset: Offset, now_ms: int) -> int:
        """Keep the batches below an offset. Returns the number of bytes removed."""
        batch = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self._indexes_full = None
        cut = 0
        if batch is not None:
            cut = self.size - batch.position
            self.size = batch.position
            self.file.truncate(self.size)
        if self.size == 0:
            self.created_ms, self._first_timestamp = now_ms, None
        self._since_index = 0
        self._newest = self._find_newest()
        return cut

    def _find_newest(self) -> TimestampOffset:
        newest = self.time_index.last_entry()
        for _, header in self.headers(self.offset_index.lookup(newest.offset)):
            if header.max_timestamp > newest.timestamp:
                newest = TimestampOffset(header.max_timestamp, header.last_offset)
        return newest

    def rename(self, suffix: str) -> None:
        """Change the suffix of all its files. The .log goes first: without it the others are leftovers."""
        renamed = self.location._replace(suffix=suffix)
        for kind in names.SEGMENT_SUFFIXES:
            old = self.path(kind)
            if kind == names.LOG or self._files.exists(old):  # the first append creates the indexes
                self._files.rename(old, renamed.file(kind))
        self.location = renamed
        self._update_paths()

    def moved(self, directory: str) -> None:
        self.location = self.location._replace(directory=directory)
        self._update_paths()

    def _update_paths(self) -> None:
        self._log.renamed(self.path(names.LOG))
        self.offset_index.renamed(self.path(names.INDEX))
        self.time_index.renamed(self.path(names.TIME_INDEX))
        self.txn_index.renamed(self.path(names.TXN_INDEX))

    def all_paths(self) -> list[str]:
        return self.location.all_files()


def new_segment(files: Files, location: SegmentPath, config: LogConfig, now_ms: int, chance: Chance) -> Segment:
    limit_ms = min(config.segment_jitter_ms, config.segment_ms)
    jitter_ms = chance.randint(0, limit_ms) if limit_ms > 0 else 0
    return Segment(files, location, config, now_ms=now_ms, jitter_ms=jitter_ms, create=True)
