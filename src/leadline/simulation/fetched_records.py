"""The records of a fetch, as a consumer of either isolation level sees them.

Pure: no file, no clock.
"""

from leadline.model import Buffer, Offset
from leadline.records.batch import walk
from leadline.records.record import records_of
from leadline.wire.messages import FetchResponse


def values_in(data: Buffer) -> dict[Offset, bytes]:
    values: dict[Offset, bytes] = {}
    for position, header in walk(data):
        if not header.is_control:
            for record in records_of(data, position, header):
                values[record.offset] = record.value or b""
    return values


def committed_values_in(data: Buffer, part: FetchResponse.PartitionData) -> dict[Offset, bytes]:
    """The values without those of transactions that the response lists as aborted."""
    aborted = sorted((a.first_offset, a.producer_id) for a in part.aborted_transactions or [])
    values: dict[Offset, bytes] = {}
    skipped: set[int] = set()  # producers whose open transaction was aborted
    for position, header in walk(data):
        while aborted and aborted[0][0] <= header.last_offset:
            skipped.add(aborted.pop(0)[1])
        if header.is_control:
            skipped.discard(header.producer_id)
        elif not header.is_transactional or header.producer_id not in skipped:
            for record in records_of(data, position, header):
                values[record.offset] = record.value or b""
    return values


def end_of(data: Buffer, offset: Offset) -> Offset:
    """The offset after the last whole batch."""
    for _, header in walk(data):
        offset = header.last_offset + 1
    return offset
