"""Control batches: the markers that end transactions."""

import pytest

from leadline.errors import CorruptMessage
from leadline.records.batch import header_at
from leadline.records.build import BatchFields, build, empty
from leadline.records.control import ControlType, EndMarker, control_type, end_marker, read_end_marker
from leadline.records.record import Record
from tests.support.logs import START_MS


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_comes_back_as_it_was_written(kind: ControlType) -> None:
    written = EndMarker(kind, 5, START_MS)
    data = end_marker(written, producer_id=9, producer_epoch=2, leader_epoch=1)
    header = header_at(data)
    assert read_end_marker(data, 0, header) == written
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (9, 2, 1)


def test_a_marker_that_compaction_emptied_says_nothing() -> None:
    data = empty(header_at(end_marker(EndMarker(ControlType.COMMIT, 0, START_MS), 1, 0)))
    assert read_end_marker(data, 0, header_at(data)) is None


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"\0\0\0\0\0\0", "without a type"),
        (b"\0\0\0", b"\0\0\0\0\0\0", "without a type"),
        (b"\0\0\0\x05", b"\0\0\0\0\0\0", "unknown type"),
        (b"\0\0\0\x01", b"\0\0\0", "cut off"),
        (b"\0\0\0\x01", None, "cut off"),
    ],
)
def test_a_marker_that_is_none_is_corrupt(key: bytes | None, value: bytes | None, reason: str) -> None:
    data = build([Record(0, START_MS, key, value)], BatchFields(control=True, transactional=True, producer_id=1))
    with pytest.raises(CorruptMessage, match=reason):
        read_end_marker(data, 0, header_at(data))


def test_unknown_types_are_distinguished_from_garbage() -> None:
    assert control_type(b"\0\0\0\x02") is ControlType.UNKNOWN
