"""What a leader checks before it gives a batch its offset."""

import pytest

from leadline.config.topic import LogConfig
from leadline.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnknownServerError,
    WireError,
)
from leadline.log import validation
from leadline.log.producer_state import AppendOrigin
from leadline.records.batch import assign, crc_of, header_at, stamp_append_time
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.python_walker import Summary
from leadline.records.record import Record
from tests.support.logs import START_MS, TP, batch, marker, records

CLIENT = AppendOrigin.CLIENT


def changed(data: bytearray, at: int, value: bytes) -> bytearray:
    """With other bytes and a CRC that matches them."""
    data = bytearray(data)
    data[at : at + len(value)] = value
    data[17:21] = crc_of(data, 0, len(data)).to_bytes(4, "big")
    return data


def elsewhere(data: bytearray) -> bytearray:
    assign(data, 0, 5, 0)
    return data


def checked(data: bytes | bytearray, config: LogConfig) -> Summary:
    header = validation.one_batch(data, config, CLIENT, TP)
    return validation.content_of(data, header, config, TP, START_MS)


@pytest.mark.parametrize(
    ("data", "error", "reason"),
    [
        (b"", InvalidRecord, "no record batch in 0 bytes"),
        (batch()[:60], InvalidRecord, "no record batch in 60 bytes"),
        (batch()[:-1], InvalidRecord, "is cut off"),
        (batch() + batch(), InvalidRecord, "more than one record batch"),
        (elsewhere(batch()), InvalidRecord, "should be 0, but it is 5"),
        (batch(size=2000), RecordTooLarge, "exceeds max.message.bytes=1000"),
        (batch()[:-1] + b"?", CorruptMessage, "CRC .* does not match"),
        (batch()[:16] + b"\1" + batch()[17:], InvalidRecord, "messages of format 1"),
        (batch()[:16] + b"\x09" + batch()[17:], CorruptMessage, "Invalid magic found in record: 9"),
        (changed(batch(2), 57, bytes(4)), InvalidRecord, "0 records"),
        (changed(batch(2), 57, b"\0\0\0\3"), InvalidRecord, "covers 2 offsets but has 3 records"),
        (changed(batch(2), 23, b"\xff\xff\xff\xff"), InvalidRecord, "last offset delta -1"),
        (marker(1, commit=True), InvalidRecord, "clients may not write control records"),
        (changed(batch(producer_id=5), 53, b"\xff\xff\xff\xff"), InvalidRecord, "sequence number -1"),
        (changed(batch(), 61, b"\1"), InvalidRecord, "record 0 has a length of -1"),
        (changed(batch(), 61, b"\0"), InvalidRecord, "its parts have another"),
        (changed(batch(), 61, b"\x7e"), InvalidRecord, "its parts have another"),
        (changed(batch(2), 61, b"\1"), InvalidRecord, "record 0 has a length of -1, in a batch for"),
        (changed(batch(), len(batch()) - 1, b"\1"), InvalidRecord, "has -1 headers"),
        (changed(batch(2), len(batch(2)) - 1, b"\1"), InvalidRecord, "record 1 of .* has -1 headers"),
        (changed(batch(2), 21, b"\0\7"), UnknownServerError, "Unknown compression type id: 7"),
    ],
)
def test_what_a_client_may_not_send_is_refused_with_the_reason(
    data: bytes | bytearray, error: type[WireError], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        checked(data, LogConfig.parse({"max.message.bytes": "1000"}))


def test_a_batch_in_order_is_taken() -> None:
    data = batch(3, producer_id=1)
    assert validation.one_batch(data, LogConfig(), CLIENT, TP) == header_at(data)


def test_a_coordinator_may_write_control_records() -> None:
    data = marker(1, commit=True)
    assert validation.one_batch(data, LogConfig(), AppendOrigin.COORDINATOR, TP).is_control


def test_on_a_compacted_topic_every_record_has_a_key() -> None:
    config = LogConfig.parse({"cleanup.policy": "compact"})
    some = [Record(0, START_MS, b"k", b"v"), Record(1, START_MS, None, b"v"), Record(2, START_MS, None, None)]
    data = build(some)
    with pytest.raises(InvalidRecord, match="2 record errors") as raised:
        validation.content_of(data, header_at(data), config, TP, START_MS)
    assert [error.batch_index for error in raised.value.records] == [1, 2]
    data = build(some[:1])
    validation.content_of(data, header_at(data), config, TP, START_MS)


@pytest.mark.parametrize(("ahead", "behind", "refused"), [(0, 0, [1, 2]), (5, 0, [2]), (0, 5, [1]), (5, 5, [])])
def test_times_too_far_from_the_brokers_are_refused_with_their_place(
    ahead: int, behind: int, refused: list[int]
) -> None:
    config = LogConfig.parse(
        {"message.timestamp.after.max.ms": str(ahead), "message.timestamp.before.max.ms": str(behind)}
    )
    times = [START_MS, START_MS + 5, START_MS - 5, -1]
    data = build([Record(n, time, b"k", b"v") for n, time in enumerate(times)])
    if not refused:
        assert validation.content_of(data, header_at(data), config, TP, START_MS)[0] == START_MS + 5
        return
    with pytest.raises(InvalidTimestamp, match="rejected due to invalid timestamp") as raised:
        validation.content_of(data, header_at(data), config, TP, START_MS)
    assert [one.batch_index for one in raised.value.records] == refused


def test_a_producer_does_not_stamp_in_the_brokers_name() -> None:
    data = batch(2)
    stamp_append_time(data, 0, len(data), START_MS)
    config = LogConfig.parse({"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(InvalidTimestamp, match="rejected due to invalid timestamp") as raised:
        validation.content_of(data, header_at(data), config, TP, START_MS)
    assert "Producer should not set timestamp type to LogAppendTime" in raised.value.records[0].message
    content = validation.content_of(data, header_at(data), LogConfig(), TP, START_MS)
    _, header = validation.as_configured(data, header_at(data), content, LogConfig(), TP, START_MS)
    assert not header.is_log_append_time


@pytest.mark.parametrize("name", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_the_topics_codec_takes_the_place_of_the_producers(name: str) -> None:
    data = batch(3, codec=Codec.LZ4)
    config = LogConfig.parse({"compression.type": name})
    converted = validation.with_codec(data, header_at(data), None, config, TP)
    assert header_at(converted).codec is Codec.named(name)
    assert (converted is data) == (name == "lz4")


def test_under_the_topics_codec_a_batch_may_be_too_large() -> None:
    data = build(records(1, size=5000), BatchFields(codec=Codec.ZSTD))
    config = LogConfig.parse({"compression.type": "uncompressed", "max.message.bytes": "1000"})
    with pytest.raises(RecordTooLarge, match=r"under compression.type=uncompressed, exceeds max.message.bytes=1000"):
        validation.with_codec(data, header_at(data), None, config, TP)
