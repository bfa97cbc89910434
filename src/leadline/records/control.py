"""Control batches: the commit and abort markers that end a transaction in a partition.

A control batch holds one record. Its key: version 0 (2), type (2). Its value: version 0 (2), coordinator epoch (4).

Pure: no file, no clock.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from leadline.errors import CorruptMessage
from leadline.model import NO_EPOCH, Buffer
from leadline.records.batch import Header
from leadline.records.build import BatchFields, build
from leadline.records.record import Record, records_of


class ControlType(IntEnum):
    """The type of a control record."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


class EndMarker(NamedTuple):
    """The marker that ends a transaction, and the epoch of its coordinator."""

    type: ControlType
    coordinator_epoch: int
    timestamp: int


_CONTROL_KEY = Struct(">hh")
_END_VALUE = Struct(">hi")


def end_marker(marker: EndMarker, producer_id: int, producer_epoch: int, leader_epoch: int = NO_EPOCH) -> bytearray:
    """The control batch that commits or aborts a producer's transaction."""
    key = _CONTROL_KEY.pack(0, marker.type)
    value = _END_VALUE.pack(0, marker.coordinator_epoch)
    fields = BatchFields(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        transactional=True,
        control=True,
    )
    return build([Record(0, marker.timestamp, key, value)], fields)


def read_end_marker(data: Buffer, position: int, header: Header) -> EndMarker | None:
    """The marker in a control batch; None if compaction emptied it."""
    record = next(records_of(data, position, header), None)
    if record is None:
        return None
    control = control_type(record.key)
    if control is ControlType.UNKNOWN:
        raise CorruptMessage(f"a control record of unknown type at offset {record.offset}")
    if record.value is None or len(record.value) < _END_VALUE.size:
        raise CorruptMessage(f"an end-of-transaction marker cut off at offset {record.offset}")
    _, coordinator_epoch = _END_VALUE.unpack_from(record.value)
    return EndMarker(control, coordinator_epoch, record.timestamp)


def control_type(key: bytes | None) -> ControlType:
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptMessage("a control record without a type")
    _, kind = _CONTROL_KEY.unpack_from(key)
    return ControlType(kind) if kind in (0, 1) else ControlType.UNKNOWN
