"""Dumps of .index, .timeindex, .txnindex and .snapshot files."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leadline.admin.json_values import Json
from leadline.cli.dump_log.dump_row import DumpRow, Rows
from leadline.cli.dump_log.log_file import batches_in
from leadline.errors import CorruptFile
from leadline.log import txn_index
from leadline.log.index import OffsetIndex, TimeIndex
from leadline.log.producer_snapshots import decode_snapshot
from leadline.records.batch import Header


@dataclass(slots=True)
class SegmentBatches:
    """The batches of a segment, to check its indexes."""

    path: str
    positions: dict[int, Header] = field(default_factory=dict)
    base_offsets: list[int] = field(default_factory=list)
    headers: list[Header] = field(default_factory=list)

    @classmethod
    def of(cls, path: str) -> "SegmentBatches":
        batches = cls(path)
        for position, header, _ in batches_in(path):
            batches.positions[position] = header
            batches.base_offsets.append(header.base_offset)
            batches.headers.append(header)
        return batches

    def batch_with(self, offset: int) -> Header | None:
        at = bisect_right(self.base_offsets, offset) - 1
        return self.headers[at] if at >= 0 and offset <= self.headers[at].last_offset else None


def _entries(path: str, size: int) -> Iterator[tuple[int, bytes]]:
    """Each entry of `size` bytes with its position. CorruptFile if the last one is incomplete."""
    position = 0
    with open(path, "rb") as file:
        while len(entry := file.read(size)) == size:
            yield position, entry
            position += size
        if entry:
            raise CorruptFile(path, position, f"an entry is incomplete: {len(entry)} of {size} bytes")


def read_index(path: str, base: int, batches: SegmentBatches | None) -> Rows:
    """The entries before the zeros at the end. An index of zeros only has one row, as in Kafka's tool."""
    last = (-1, -1)
    for position, entry in _entries(path, OffsetIndex.ENTRY.size):
        relative, at = OffsetIndex.ENTRY.unpack(entry)
        row = DumpRow("offsetIndexEntry", {"offset": base + relative, "position": at})
        if not any(entry):  # space that a running broker reserved, or that a crash left
            yield from [row] if position == 0 else []
            return
        yield row
        if relative <= last[0] or at <= last[1]:
            yield CorruptFile(path, position, f"offset {base + relative} and position {at} do not both increase")
        last = (relative, at)
        if batches is not None and (error := _entry_error(batches, base + relative, at)):
            yield CorruptFile(path, position, error)


def _entry_error(batches: SegmentBatches, offset: int, position: int) -> str:
    """An entry is right if its position is at or before the batch of its offset."""
    header = batches.positions.get(position)
    if header is None:
        return f"the entry points to byte {position}, where no batch of {batches.path} starts"
    if offset < header.base_offset:
        return f"the entry for offset {offset} points past it, to the batch at {header.base_offset}"
    if offset > batches.headers[-1].last_offset:
        return f"the entry for offset {offset} is past the last offset of the log, {batches.headers[-1].last_offset}"
    return ""


def read_time_index(path: str, base: int, batches: SegmentBatches | None) -> Rows:
    last = (-2, -1)
    for position, entry in _entries(path, TimeIndex.ENTRY.size):
        timestamp, relative = TimeIndex.ENTRY.unpack(entry)
        row = DumpRow("timeIndexEntry", {"timestamp": timestamp, "offset": base + relative})
        if not any(entry):
            yield from [row] if position == 0 else []
            return
        yield row
        if timestamp <= last[0] or relative < last[1]:
            yield CorruptFile(
                path, position, f"timestamp {timestamp} and offset {base + relative} do not both increase"
            )
        last = (timestamp, relative)
        if batches is None:
            continue
        header = batches.batch_with(base + relative)
        if header is None:
            yield CorruptFile(path, position, f"no batch of {batches.path} holds offset {base + relative}")
        elif header.max_timestamp != timestamp:
            yield CorruptFile(
                path,
                position,
                f"the batch of offset {base + relative} has {header.max_timestamp} as its last timestamp",
            )


def read_txn_index(path: str, base: int, batches: SegmentBatches | None) -> Rows:
    last = base - 1
    for position, entry in _entries(path, txn_index.ENTRY_BYTES):
        try:
            (aborted,) = txn_index.decode(path, entry)
        except CorruptFile as error:
            raise CorruptFile(path, position, error.reason) from None
        yield DumpRow(
            "abortedTxn",
            {
                "version": txn_index.VERSION,
                "producerId": aborted.producer_id,
                "firstOffset": aborted.first_offset,
                "lastOffset": aborted.last_offset,
                "lastStableOffset": aborted.last_stable_offset,
            },
        )
        if aborted.last_offset <= last:
            yield CorruptFile(path, position, f"last offset {aborted.last_offset} is not above {last}")
        last = aborted.last_offset
        if batches is not None:
            header = batches.batch_with(aborted.last_offset)
            if header is None or not header.is_control or header.producer_id != aborted.producer_id:
                yield CorruptFile(
                    path, position, f"no marker of producer {aborted.producer_id} at offset {aborted.last_offset}"
                )


def read_snapshot(path: str) -> Rows:
    for producer_id, producer in decode_snapshot(path, Path(path).read_bytes()):
        fields: dict[str, Json] = {
            "producerId": producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.txn_first_offset,
            "lastTimestamp": producer.last_timestamp,
        }
        if producer.batches:
            batch = producer.batches[-1]
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        yield DumpRow("producer", fields)
