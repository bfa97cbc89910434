"""Compaction of one log: of the records with one key, only the last stays. It runs in its own process.

The dirty part of the log is read for the last offset of each key, as far as the memory for keys goes. Then every
segment up to there is rewritten without the records that a later one replaces, small ones together, each group into a
segment with the suffix .cleaned. The broker swaps it in (see `segment_removal`).

    offsets never change; the last record of a key stays
    a tombstone stays for delete.retention.ms after its first compaction (the batch holds this delete horizon)
    records of aborted transactions go; a marker goes when its transaction has no records left, and its horizon passed
    the last batch of an active producer stays, if only as a header: its sequence numbers must outlive its records

As a program: a JSON request on stdin, one JSON line for each group on stdout.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.cleaned_transactions import CleanedTransactions
from leadline.log.compaction_request import EXIT_SHORTAGE, CleanedGroup, CleanerStats, CompactionRequest
from leadline.log.files import remove_files
from leadline.log.index import MAX_RELATIVE, TimestampOffset
from leadline.log.open_files import CACHE
from leadline.log.segment import Segment, SegmentPath
from leadline.log.skimpy_offset_map import SECRET_BYTES, SkimpyOffsetMap
from leadline.log.txn_index import AbortedTxn
from leadline.model import NO_TIMESTAMP, Buffer, Offset
from leadline.records import walker
from leadline.records.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, Header, header_at
from leadline.records.build import BatchFields, compressed, empty, rebuild
from leadline.records.compression import Codec
from leadline.records.record import body_of
from leadline.runtime.ports import Files, OsFiles, SystemChance, SystemTime, Time, shortage

IN_TRANSACTION = CONTROL | TRANSACTIONAL


class CleanerThrottle:
    """Sleeps so that reading and writing together stay below a rate."""

    def __init__(self, bytes_per_second: float, now: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._rate, self._now, self._sleep = bytes_per_second, now, sleep
        self._start, self._used = now(), 0

    def used(self, count: int) -> None:
        self._used += count
        ahead = self._used / self._rate - (self._now() - self._start)
        if ahead > 0.01:
            self._sleep(ahead)


class CleanedBatch(NamedTuple):
    """The rest of a batch after compaction."""

    data: Buffer
    last_offset: Offset  # of its records; that of the batch if none is left
    max_timestamp: int


class CleanedChunk:
    """The rest of batches that were read together. It is written together."""

    def __init__(self) -> None:
        self.data, self.last_offset, self.newest = bytearray(), -1, TimestampOffset(NO_TIMESTAMP, -1)

    def add(self, data: Buffer, last_offset: Offset, max_timestamp: int, timestamp_offset: Offset) -> None:
        self.data += data
        self.last_offset = max(self.last_offset, last_offset)
        if max_timestamp > self.newest.timestamp:
            self.newest = TimestampOffset(max_timestamp, timestamp_offset)


class UnpackedBodies:
    """Bodies of compressed batches that were unpacked for their keys, until the rewriting takes them."""

    def __init__(self, most_bytes: int) -> None:
        self._left_bytes = most_bytes
        self._bodies: dict[Offset, Buffer] = {}  # by the base offset of the batch

    def unpack(self, data: Buffer, position: int, header: Header) -> Buffer:
        """The body of a batch. It is kept if there is room."""
        body = body_of(data, position, header)
        if header.codec is not Codec.NONE and len(body) <= self._left_bytes:
            self._left_bytes -= len(body)
            self._bodies[header.base_offset] = body
        return body

    def take(self, data: Buffer, position: int, header: Header) -> Buffer:
        """The body of a batch. If it was kept, it is no longer."""
        body = self._bodies.pop(header.base_offset, None)
        return body_of(data, position, header) if body is None else body


class Compaction:
    """One pass."""

    def __init__(
        self, request: CompactionRequest, files: Files, clock: Time, throttle: CleanerThrottle, secret: bytes
    ) -> None:
        self.request, self.files, self.throttle, self._clock = request, files, throttle, clock
        self.segments = [self._segment(base) for base in request.bases]
        dirty = max(request.first_uncleanable - request.first_dirty, 0)
        self.keys = SkimpyOffsetMap(request.dedupe_bytes, request.load_factor, dirty, secret)
        self._bodies = UnpackedBodies(request.dedupe_bytes - self.keys.table_bytes)
        self._new_horizon_ms = request.now_ms + request.config.delete_retention_ms
        self.stats = CleanerStats()

    def _segment(self, base: Offset) -> Segment:
        request = self.request
        return Segment(self.files, SegmentPath(request.directory, base), request.config, now_ms=request.now_ms)

    def run(self) -> Iterator[CleanedGroup]:
        self._learn_keys()
        end = self.keys.end + 1
        group_stats, txns = self.stats, CleanedTransactions()
        for group in self._groups([segment for segment in self.segments if segment.base_offset < end]):
            started = self._clock.monotonic_s()
            self.stats = CleanerStats(keys=len(self.keys), keyless=group_stats.keyless)
            self._clean_group(group, txns)
            self.stats.seconds = self._clock.monotonic_s() - started
            yield CleanedGroup([segment.base_offset for segment in group], end, self.stats)

    # The keys

    def _learn_keys(self) -> None:
        request, keys = self.request, self.keys
        dirty = [segment for segment, end in self._with_ends() if end > request.first_dirty]
        txns = CleanedTransactions(self._aborted(request.first_dirty, request.first_uncleanable))
        for segment in dirty:
            if not self._learn_segment(segment, txns):
                return
            keys.end = max(keys.end, self._end_of(segment) - 1)

    def _learn_segment(self, segment: Segment, txns: CleanedTransactions) -> bool:
        """False once there is no more room."""
        start, keys = self.request.first_dirty, self.keys
        for data in self._chunks(segment, segment.offset_index.lookup(start)):
            at = 0
            while at < len(data):
                at, has_room = keys.learn_plain(data, at, start)
                if not has_room:
                    return False
                if at < len(data):
                    header = header_at(data, at)
                    if not self._learn_batch(data, at, header, txns):
                        return False
                    at += header.size
        return True

    def _learn_batch(self, data: Buffer, position: int, header: Header, txns: CleanedTransactions) -> bool:
        start, keys = self.request.first_dirty, self.keys
        if header.is_control:
            txns.is_empty_marker(data, position, header)
        elif not txns.is_aborted(header):
            body = self._bodies.unpack(data, position, header)
            if not keys.learn(body, header.record_count, header.base_offset, start):
                return False
        if header.last_offset >= start:
            keys.end = max(keys.end, header.last_offset)
        return True

    # The rewriting

    def _groups(self, segments: Sequence[Segment]) -> list[list[Segment]]:
        """Neighbours that fit into one segment together."""
        groups: list[list[Segment]] = []
        config = self.request.config
        size = offsets = times = 0
        for segment in segments:
            more = segment.size, segment.offset_index.size, segment.time_index.size
            if (
                groups
                and size + more[0] <= config.segment_bytes
                and offsets + more[1] <= config.segment_index_bytes
                and times + more[2] <= config.segment_index_bytes
                and (segment.size == 0 or self._end_of(segment) - 1 - groups[-1][0].base_offset <= MAX_RELATIVE)
            ):
                groups[-1].append(segment)
                size, offsets, times = size + more[0], offsets + more[1], times + more[2]
            else:
                groups.append([segment])
                size, offsets, times = more
        return groups

    def _clean_group(self, group: Sequence[Segment], txns: CleanedTransactions) -> None:
        """`txns` goes from group to group: a marker may be in another group than its records."""
        request, files = self.request, self.files
        path = SegmentPath(request.directory, group[0].base_offset, names.CLEANED)
        remove_files(files, path.all_files())
        cleaned = Segment(files, path, request.config, now_ms=request.now_ms, create=True)
        cleaned.size = 0
        txns.kept = cleaned.txn_index
        for segment in group:
            txns.add(self._aborted(segment.base_offset, self._end_of(segment)))
            self._clean_into(segment, cleaned, txns)
        cleaned.seal()
        for file in cleaned.files_to_flush():
            file.sync()
        for kind in (names.LOG, names.INDEX, names.TIME_INDEX):
            files.set_mtime_ms(cleaned.path(kind), group[-1].last_modified_ms)

    def _clean_into(self, segment: Segment, cleaned: Segment, txns: CleanedTransactions) -> None:
        position, buffer = 0, self.request.io_buffer_bytes
        while position < segment.size:
            data, buffer = self._chunk(segment, position, buffer)
            out, at = CleanedChunk(), 0
            while at < len(data) and len(out.data) <= buffer:  # more if a batch grew: then that is written first
                at = self._clean_plain(data, at, out, buffer)
                if at < len(data) and len(out.data) <= buffer:
                    header = header_at(data, at)
                    if (batch := self._filter(data, at, header, txns)) is not None:
                        out.add(batch.data, batch.last_offset, batch.max_timestamp, header.last_offset)
                    at += header.size
            self.stats.bytes_read += at
            if out.data:
                cleaned.append(out.data, out.last_offset, *out.newest)
                self.stats.bytes_written += len(out.data)
                self.throttle.used(len(out.data))
            position += at

    def _clean_plain(self, data: Buffer, position: int, out: CleanedChunk, most_bytes: int) -> int:
        """Compact the plain batches from a position on. Returns the position of the first other one."""
        request, stats = self.request, self.stats
        room = most_bytes - len(out.data)
        left = self.keys.clean_plain(data, position, request.now_ms, self._new_horizon_ms, room)
        stats.add(left.records_read, left.records_written, left.keyless)
        if left.data:
            out.add(left.data, left.last_offset, left.max_timestamp, left.timestamp_offset)
        return left.end

    def _filter(self, data: Buffer, position: int, header: Header, txns: CleanedTransactions) -> CleanedBatch | None:
        """The records of a batch that stay, as a batch."""
        request, stats, horizon = self.request, self.stats, header.delete_horizon_ms
        whole, body = memoryview(data)[position : position + header.size], None
        if not header.attributes & IN_TRANSACTION:
            body = self._bodies.take(data, position, header)
            left = self.keys.clean_packed(whole, body, request.now_ms, self._new_horizon_ms)
            if left is not None:
                stats.add(left.records_read, left.records_written, left.keyless)
                if left.is_whole:
                    return CleanedBatch(whole, header.last_offset, header.max_timestamp)
                batch = compressed(left.batch, header.codec) if left.batch else None
                return None if batch is None else CleanedBatch(batch, left.last_offset, left.max_timestamp)
        horizon_passed = horizon is not None and horizon <= request.now_ms
        empty_txn = header.is_control and txns.is_empty_marker(data, position, header)
        discard = empty_txn and horizon_passed if header.is_control else txns.is_aborted(header)
        keep_header = header.has_producer_id and self._is_last_of_producer(header)
        if discard and not keep_header:
            return None
        stats.records_read += header.record_count
        if discard:
            return CleanedBatch(empty(header), header.last_offset, header.max_timestamp)
        if body is None:
            body = self._bodies.take(data, position, header)
        records = self.keys.retained(
            body, header.record_count, header.base_offset,
            keep_tombstones=not horizon_passed, keep_all=header.is_control,
        )  # fmt: skip
        stats.records_written += records.record_count
        stats.keyless += records.keyless
        if not records.record_count:
            return CleanedBatch(empty(header), header.last_offset, header.max_timestamp) if keep_header else None
        set_horizon = horizon is None and (records.tombstones > 0 or empty_txn)
        if records.record_count == header.record_count and not set_horizon:
            return CleanedBatch(whole, header.last_offset, header.max_timestamp)
        if set_horizon:
            horizon = self._new_horizon_ms
        rebuilt = rebuild(body, records, header, BatchFields.of(header, horizon))
        last_offset = header.base_offset + records.last_offset_delta
        return CleanedBatch(rebuilt, last_offset, header_at(rebuilt).max_timestamp)

    def _is_last_of_producer(self, header: Header) -> bool:
        last = self.request.producers.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset is not None:
            return header.last_offset == last.last_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    # Reading

    def _with_ends(self) -> Iterator[tuple[Segment, Offset]]:
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.request.first_uncleanable]
        return zip(self.segments, ends, strict=True)

    def _end_of(self, segment: Segment) -> Offset:
        return next(end for other, end in self._with_ends() if other is segment)

    def _aborted(self, start: Offset, end: Offset) -> list[AbortedTxn]:
        """Aborted transactions with records in [start, end)."""
        transactions: list[AbortedTxn] = []
        for segment, segment_end in self._with_ends():
            if segment_end > start:
                more, complete = segment.txn_index.between(start, end)
                transactions += more
                if complete:
                    return transactions
        return transactions + [txn for txn in self.request.aborted_later if txn.first_offset < end]

    def _chunk(self, segment: Segment, position: int, buffer: int) -> tuple[bytes, int]:
        """As many whole batches as the buffer holds, and the size of the buffer, which grows for a larger batch."""
        while True:
            data = segment.file.pread(min(buffer, segment.size - position), position)
            self.throttle.used(len(data))
            whole, is_damaged = walker.whole_batches(data)
            if is_damaged:  # it must not get a new, valid CRC
                raise CorruptFile(segment.path(names.LOG), position + whole, "the CRC of a batch does not match")
            if whole:
                return data[:whole], buffer
            buffer = self._grown(buffer, segment, position, data)

    def _grown(self, size: int, segment: Segment, position: int, data: bytes) -> int:
        batch_bytes = header_at(data).size if len(data) >= HEADER_BYTES else 0
        if batch_bytes <= len(data) or batch_bytes > segment.size - position:
            raise CorruptFile(segment.path(names.LOG), position, "there is no whole batch here")
        most = max(self.request.config.max_message_bytes, self.request.max_message_bytes, batch_bytes)
        return min(size * 2, most)

    def _chunks(self, segment: Segment, position: int) -> Iterator[bytes]:
        buffer = self.request.io_buffer_bytes
        while position < segment.size:
            data, buffer = self._chunk(segment, position, buffer)
            yield data
            position += len(data)


def main() -> int:
    request = CompactionRequest.from_json(sys.stdin.read())
    files, clock = OsFiles(CACHE.make_room), SystemTime()
    throttle = CleanerThrottle(request.max_bytes_per_second, clock.monotonic_s, clock.sleep)
    try:
        for group in Compaction(request, files, clock, throttle, SystemChance().secret_bytes(SECRET_BYTES)).run():
            print(json.dumps(asdict(group)), flush=True)
    except (OSError, MemoryError) as error:
        if (lacking := shortage(error)) is None:
            raise
        print(lacking, file=sys.stderr)
        return EXIT_SHORTAGE
    return 0


if __name__ == "__main__":
    sys.exit(main())
