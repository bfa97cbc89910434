"""Batches about to be written: what the log needs to know of them, found in one walk.

Pure: bytes in, a description out.
"""

from collections.abc import Sequence
from typing import NamedTuple

from leadline.errors import CorruptMessage
from leadline.log.index import TimestampOffset
from leadline.model import NO_EPOCH, NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicPartition
from leadline.records.batch import HEADER, HEADER_BYTES, LENGTH_END, Header, check_frame, crc_of, header_of


class AppendInfo(NamedTuple):
    """Whole batches."""

    data: Buffer
    first_offset: Offset
    last_offset: Offset
    newest: TimestampOffset
    epochs: Sequence[tuple[LeaderEpoch, Offset]]  # each with its first offset here
    stateful: Sequence[tuple[int, Header]]  # batches with a producer id, by position


def replicated_batches(data: Buffer, tp: TopicPartition) -> AppendInfo | None:
    """What a leader sent: CRC and order are checked. A batch cut off at the end is left out; None if there is none."""
    end, position, first, last, epoch = len(data), 0, -1, -1, NO_EPOCH
    newest = TimestampOffset(NO_TIMESTAMP, -1)
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    stateful: list[tuple[int, Header]] = []
    while position + HEADER_BYTES <= end:
        fields = HEADER.unpack_from(data, position)
        base, length, batch_epoch, magic, crc, _, delta, _, max_timestamp, producer_id, _, _, _ = fields
        check_frame(length, magic)
        size = LENGTH_END + length
        if position + size > end:
            break
        if base <= last or delta < 0:
            raise CorruptMessage(f"offset {base} comes behind {last} in records replicated to {tp}")
        if crc_of(data, position, size) != crc:
            raise CorruptMessage(f"the CRC of the batch at offset {base} replicated to {tp} does not match")
        if first < 0:
            first = base
        last = base + delta
        if batch_epoch != epoch:
            epoch = batch_epoch
            epochs.append((epoch, base))
        if max_timestamp > newest.timestamp:
            newest = TimestampOffset(max_timestamp, last)
        if producer_id >= 0:
            stateful.append((position, header_of(fields)))
        position += size
    if position == 0:
        return None
    return AppendInfo(memoryview(data)[:position], first, last, newest, epochs, stateful)
