"""Loading of a shard: its state is rebuilt from the records of its partition.

    a shard is loaded from whole and valid batches, or not at all

A state with gaps would look right: a group would have no offsets, or old ones, and its consumers would skip or repeat
records. So everything that a disk can change is checked: the frame of each batch, its CRC, and its offsets.
"""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from leadline.errors import CorruptFile, WireError
from leadline.log import names
from leadline.log.log import Log
from leadline.log.open_files import OpenFile
from leadline.log.segment import Segment
from leadline.model import Offset
from leadline.records.batch import HEADER_BYTES, Header, check_frame, crc_of, header_at
from leadline.records.record import Record, records_of

YIELD_BYTES = 64 * 1024  # replayed before other tasks run; a larger batch is replayed whole


class ReplayedShard(Protocol):
    def replay(self, header: Header, records: Iterable[Record]) -> None: ...


async def replay_log(log: Log, shard: ReplayedShard, buffer_bytes: int, start: Offset = 0) -> int:
    """Replay the log from an offset to its end. Returns the number of records. CorruptFile if a batch is damaged.

    A shard that loads serves no request: only markers of transactions are appended meanwhile. They are replayed, too.
    `buffer_bytes`: size of one read.
    """
    replayed, offset = 0, max(start, log.log_start)
    while offset < log.log_end:
        segment = log.segments.floor(offset) or log.segments.first  # compaction may have merged it with others
        reader = _SegmentReader(segment, log.segments.end_of(segment, log.log_end))
        while reader.position < reader.size:
            data, batches = await asyncio.to_thread(reader.read, buffer_bytes)
            yield_at = YIELD_BYTES
            for position, header in batches:
                if header.last_offset >= offset:
                    try:
                        shard.replay(header, records_of(data, position, header))
                    except WireError as error:
                        raise reader.damage(reader.position - len(data) + position, str(error)) from error
                    replayed += header.record_count
                if position >= yield_at:
                    yield_at = position + YIELD_BYTES
                    await asyncio.sleep(0)
        offset = reader.end
    return replayed


class _SegmentReader:
    """The batches of one segment, in order."""

    def __init__(self, segment: Segment, end: Offset) -> None:
        self._file: OpenFile = segment.file  # readable even if the segment is deleted meanwhile
        self._path = segment.path(names.LOG)
        self.position, self.size = 0, segment.size
        self._next_offset, self.end = segment.base_offset, end

    def read(self, buffer_bytes: int) -> tuple[bytes, list[tuple[int, Header]]]:
        """The next whole batches, with their positions in the data. Blocking. CorruptFile if one is damaged."""
        data = self._pread(min(buffer_bytes, self.size - self.position))
        batches: list[tuple[int, Header]] = []
        at = 0
        while at < len(data):
            if at + HEADER_BYTES > len(data) or (header := self._header(data, at)).size > len(data) - at:
                if batches:
                    break
                data = self._pread(self._first_size(data))
                continue
            self._check(data, at, header)
            batches.append((at, header))
            at += header.size
        self.position += at
        return data[:at], batches

    def _pread(self, length: int) -> bytes:
        data = self._file.pread(length, self.position)
        if len(data) < length:
            raise self.damage(self.position, f"{len(data)} bytes instead of {length}")
        return data

    def _first_size(self, data: bytes) -> int:
        """The size of the first batch, or of its header if the data do not hold the header."""
        size = HEADER_BYTES if len(data) < HEADER_BYTES else self._header(data, 0).size
        if size > self.size - self.position:
            raise self.damage(self.position, f"a batch of {size} bytes, where the file has {self.size - self.position}")
        return size

    def _header(self, data: bytes, at: int) -> Header:
        header = header_at(data, at)
        try:
            check_frame(header.length, header.magic)
        except WireError as error:
            raise self.damage(self.position + at, str(error)) from error
        return header

    def _check(self, data: bytes, at: int, header: Header) -> None:
        if not self._next_offset <= header.base_offset <= header.last_offset < self.end:
            offsets, allowed = f"{header.base_offset} to {header.last_offset}", f"{self._next_offset} to {self.end - 1}"
            raise self.damage(self.position + at, f"a batch with the offsets {offsets}, which must be from {allowed}")
        if crc_of(data, at, header.size) != header.crc:
            raise self.damage(self.position + at, f"the CRC of the batch at offset {header.base_offset} does not match")
        self._next_offset = header.last_offset + 1

    def damage(self, position: int, reason: str) -> CorruptFile:
        remedy = (
            "restore the file from a copy; in a cluster, remove the directory that it is in: it is copied again from "
            f"another replica; otherwise, shorten it by 'truncate -s {position} {self._path}': then the rest of "
            "this file is lost"
        )
        return CorruptFile(self._path, position, reason, remedy)
