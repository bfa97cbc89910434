"""The scan of a segment after a crash: the hot loop of recovery.

It checks every batch (frame, CRC, order of offsets), updates the epochs and the producer state, and collects the
entries of the indexes. It ends at the first byte that is not part of a valid batch.

`walker.scan_usual` does this for usual batches in a row, compiled: those of the current epoch, without a producer or of
one that is in `ScannedProducers`. The loop takes all others. Where nothing was compiled it takes every batch.
"""

import zlib
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct

from leadline.errors import CorruptFile, CorruptMessage
from leadline.log import names
from leadline.log.epochs import LeaderEpochs
from leadline.log.index import MAX_RELATIVE, OffsetIndex, TimeIndex, TimestampOffset
from leadline.log.open_files import MappedFile
from leadline.log.producer_entry import BATCHES_KEPT
from leadline.log.producer_state import ProducerState
from leadline.log.segment import Segment
from leadline.log.txn_index import AbortedTxn
from leadline.model import NO_TIMESTAMP
from leadline.records.batch import (
    ATTRIBUTES_AT,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    MIN_LENGTH,
    Header,
    header_at,
)
from leadline.records.checksum import crc32c
from leadline.records.control import read_end_marker
from leadline.records.python_walker import LONG_MAX
from leadline.records.walker import IS_COMPILED, scan_usual
from leadline.runtime.ports import Files

Progress = Callable[[int], None]  # bytes read since the last call

LEGACY_MIN_LENGTH = 14
PRODUCER_EPOCH = Header._fields.index("producer_epoch")
_FRONT = Struct(">qiibI2xi8xqq")  # base offset, length, epoch, magic, CRC, last offset delta, max timestamp, producer
_LEGACY_CRC = Struct(">I")


@dataclass(slots=True)
class SegmentScan:
    """The content of a segment up to its last valid batch."""

    newest: TimestampOffset
    valid_bytes: int = 0
    offset_entries: bytearray = field(default_factory=bytearray)
    time_entries: bytearray = field(default_factory=bytearray)
    aborted: list[AbortedTxn] = field(default_factory=list)


class ScannedProducers:
    """The last batches that `scan_usual` saw of producers whose entries exist, until the entries get them.

    A row of numbers for each: its id, its epoch, how many batches there were, and the arguments of
    `ProducerEntry.add_batch` for the last ones. Several producers share a row, and one of them has it.
        before the loop replays a batch, the row of its producer is dropped
    """

    ROWS, ROW = 256, 3 + 4 * BATCHES_KEPT

    def __init__(self, state: ProducerState) -> None:
        self._state = state
        self.numbers = array("q", (-1,)) * (self.ROWS * self.ROW)
        self._rows = set[int]()  # those that are taken

    def take(self, producer_id: int, epoch: int) -> None:
        """Its batches of this epoch go to its row, which is free."""
        row = producer_id % self.ROWS * self.ROW
        self._rows.add(row)
        self.numbers[row : row + 3] = array("q", (producer_id, epoch, 0))

    def drop(self, producer_id: int) -> None:
        """Release the row of a producer, saving its contents in the entry of its owner."""
        self._update(producer_id % self.ROWS * self.ROW)

    def update_entries(self) -> None:
        for row in list(self._rows):
            self._update(row)

    def _update(self, row: int) -> None:
        if row not in self._rows:
            return
        self._rows.discard(row)
        producer_id, _, count = self.numbers[row : row + 3]
        entry = self._state.by_id[producer_id]
        for n in range(max(count - BATCHES_KEPT, 0), count):
            at = row + 3 + n % BATCHES_KEPT * 4
            entry.add_batch(*self.numbers[at : at + 4])
        self.numbers[row : row + 3] = array("q", (-1, -1, 0))


def scan_segment(
    files: Files,
    segment: Segment,
    producers: ProducerState,
    epochs: LeaderEpochs,
    progress: Progress = lambda _: None,
    *,
    flushed: bool = False,
) -> SegmentScan:
    """Updates producers and epochs. CorruptFile for the message formats of an old Kafka: they are not truncated.

    In a segment that was `flushed` before the crash, a wrong CRC is damage, and later batches stay.
    """
    scan = SegmentScan(TimestampOffset(NO_TIMESTAMP, segment.base_offset))
    if segment.size >= HEADER_BYTES:
        with MappedFile(files, segment.file, segment.size, progress) as mapped:
            _scan(mapped, segment, producers, epochs, scan, flushed)
    return scan


def _scan(
    mapped: MappedFile,
    segment: Segment,
    producers: ProducerState,
    epochs: LeaderEpochs,
    scan: SegmentScan,
    flushed: bool,
) -> None:
    view, size, base, interval = mapped.view, segment.size, segment.base_offset, segment.index_interval_bytes
    offsets, times = scan.offset_entries, scan.time_entries
    newest, newest_offset, indexed_time = NO_TIMESTAMP, base, NO_TIMESTAMP
    at, index_behind = 0, interval  # valid up to `at`; a batch that starts after `index_behind` gets an index entry
    next_offset, epoch = base, (epochs.latest.epoch if epochs.latest else -1)
    unpack, checksum, replay_plain = _FRONT.unpack_from, crc32c, producers.replay_next
    pack_offset, pack_time = OffsetIndex.ENTRY.pack, TimeIndex.ENTRY.pack
    last_start, last_offset, present = size - HEADER_BYTES, min(base + MAX_RELATIVE, LONG_MAX), 0
    header_present = -1  # headers that start at or below this are readable, and all bytes below `present`
    scanned = ScannedProducers(producers)
    while at <= last_start:
        if at > header_present:
            present = mapped.reach(at, at + HEADER_BYTES)
            header_present = present - HEADER_BYTES
        if IS_COMPILED:
            state = array("q", (at, present, next_offset, newest, newest_offset, indexed_time, index_behind))
            state.extend((epoch, base, last_offset, interval))
            more_offsets, more_times = scan_usual(view, state, scanned.numbers, flushed)
            at, _, next_offset, newest, newest_offset, indexed_time, index_behind, *_ = state
            offsets += more_offsets
            times += more_times
            if at > header_present:
                continue
        first, length, batch_epoch, magic, crc, delta, max_timestamp, producer_id = unpack(view, at)
        behind = at + LENGTH_END + length
        if magic != MAGIC or length < MIN_LENGTH or behind > size:
            _refuse_legacy(mapped, segment, at, length, magic)
            break
        if behind > present:
            present = mapped.reach(at, behind)
            header_present = present - HEADER_BYTES
        last = first + delta
        if first < next_offset or delta < 0 or last > last_offset:
            break
        if checksum(view[at + ATTRIBUTES_AT : behind]) != crc and not flushed:
            break
        if producer_id >= 0:
            scanned.drop(producer_id)
            fields = HEADER.unpack_from(view, at)
            if replay_plain(fields):
                scanned.take(producer_id, fields[PRODUCER_EPOCH])
            elif not _replay(view[at:behind], producers, scan):
                break
        if max_timestamp > newest:
            newest, newest_offset = max_timestamp, last
        if at > index_behind:
            offsets += pack_offset(last - base, at)
            if newest > indexed_time:
                times += pack_time(newest, newest_offset - base)
                indexed_time = newest
            index_behind = at + interval
        if batch_epoch > epoch:
            epochs.assign(batch_epoch, first)
            epoch = batch_epoch
        next_offset = last + 1
        at = behind
    if newest > indexed_time:
        times += pack_time(newest, newest_offset - base)
    scanned.update_entries()
    producers.end_offset = max(next_offset, producers.end_offset)
    scan.newest, scan.valid_bytes = TimestampOffset(newest, newest_offset), at


def _replay(batch: memoryview, producers: ProducerState, scan: SegmentScan) -> bool:
    """Apply a batch to the state of its producer. False if it is not a valid batch after all."""
    header = header_at(batch)
    try:
        marker = read_end_marker(batch, 0, header) if header.attributes & CONTROL else None
    except CorruptMessage:
        return False
    if (aborted := producers.replay(header, marker)) is not None:
        scan.aborted.append(aborted)
    return True


def _refuse_legacy(mapped: MappedFile, segment: Segment, at: int, length: int, magic: int) -> None:
    """Messages of an old Kafka are not a torn write: truncating them would lose them. They stay, and are reported."""
    behind = at + LENGTH_END + length
    if magic not in (0, 1) or length < LEGACY_MIN_LENGTH or behind > segment.size:
        return
    mapped.reach(at, behind)
    (crc,) = _LEGACY_CRC.unpack_from(mapped.view, at + LENGTH_END)
    if zlib.crc32(mapped.view[at + LENGTH_END + 4 : behind]) == crc:
        raise CorruptFile(
            segment.path(names.LOG),
            at,
            f"message format {magic} (from before Kafka 0.11) is not supported; let Apache Kafka 3.8 rewrite the topic",
        )
