"""What a leader refuses, Kafka refuses with the same error code, and with the same records to blame.

More kinds of bad batches are in test_bad_batches_are_refused_as_kafka_does.py.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.log.producer_state import AppendOrigin
from leadline.records import varint
from leadline.records.batch import CRC_AT, crc_of
from tests.conformance.kafka.answers import Batch, Codec, Record
from tests.conformance.kafka.oracle import START_MS, Oracle
from tests.conformance.pair import Pair, Refused, answer_of

pytestmark = pytest.mark.conformance

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE = 2, 10, 18
INVALID_TIMESTAMP, OUT_OF_ORDER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, COORDINATOR_FENCED = 32, 45, 47, 48, 52
INVALID_RECORD = 87

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")


def records(count: int = 3, *, size: int = 10, key: bytes | None = b"k") -> list[Record]:
    return [Record(START_MS + n, key, b"v" * size) for n in range(count)]


def changed(batch: bytes, at: int, format: str, value: int, *, crc: bool = True) -> bytes:
    """With one field of the header different, and the CRC put right again."""
    data = bytearray(batch)
    struct.pack_into(format, data, at, value)
    if crc:
        struct.pack_into(">I", data, CRC_AT, crc_of(data, 0, len(data)))
    return bytes(data)


Open = Callable[..., Pair]


@pytest.fixture
def opened(oracle: Oracle, tmp_path: Path) -> Open:
    def open(**settings: object) -> Pair:
        pair = Pair(oracle, tmp_path, {name.replace("_", "."): str(value) for name, value in settings.items()})
        pair.open()
        return pair

    return open


@pytest.mark.parametrize(
    ("at", "format", "value", "code"),
    [
        (0, ">q", 5, INVALID_RECORD),  # base offset
        (8, ">i", 30, CORRUPT_MESSAGE),  # length below a header's
        (8, ">i", 3, CORRUPT_MESSAGE),
        (8, ">i", -7, CORRUPT_MESSAGE),
        (16, ">b", 3, CORRUPT_MESSAGE),  # magic
        (16, ">b", -1, CORRUPT_MESSAGE),
        (23, ">i", 5, INVALID_RECORD),  # last offset delta
        (23, ">i", 1, INVALID_RECORD),
        (23, ">i", -1, INVALID_RECORD),
        (57, ">i", 4, INVALID_RECORD),  # count
        (57, ">i", 0, INVALID_RECORD),
        (57, ">i", -1, INVALID_RECORD),
        (53, ">i", -1, INVALID_RECORD),  # base sequence
        (21, ">h", 0b110000, INVALID_RECORD),  # a control batch
    ],
)
def test_a_header_that_cannot_be(opened: Open, at: int, format: str, value: int, code: int) -> None:
    pair = opened()
    batch = pair.oracle.build("none", records(), producer_id=7, producer_epoch=0, base_sequence=0)
    assert pair.append(changed(batch, at, format, value)) == Refused(code)
    pair.assert_same_state()


def sized(body: bytes) -> bytes:
    return varint.encode(len(body)) + body


def with_records(batch: bytes, *record_bytes: bytes) -> bytes:
    """The batch with other records, its length and its CRC put right."""
    data = batch[:61] + b"".join(record_bytes)
    return changed(changed(data, 8, ">i", len(data) - 12), 57, ">i", len(record_bytes))


MANY = varint.encode(2**31 - 1)
FRONT = b"\0\0\0"  # attributes, timestamp and offset
KEY_VALUE = b"\2k\2v"
GOOD = sized(FRONT + KEY_VALUE + b"\0")
NOT_RECORDS = {
    "a length of -1": b"\1",
    "a length of -1, and more": b"\1" + GOOD,
    "a length of 0": b"\0",
    "more than there is": varint.encode(200) + FRONT + KEY_VALUE + b"\0",
    "2^31-1 headers": sized(FRONT + KEY_VALUE + MANY),
    "2^31-1 headers, and 40 bytes": sized(FRONT + KEY_VALUE + MANY + bytes(40)),
    "-1 headers": sized(FRONT + KEY_VALUE + b"\1"),
    "no count of headers": sized(FRONT + KEY_VALUE),
    "a header without a key": sized(FRONT + KEY_VALUE + b"\2\1\0"),
    "a header that is cut off": sized(FRONT + KEY_VALUE + b"\2\2k"),
    "a header that is too long": sized(FRONT + KEY_VALUE + b"\2\2k\x7e"),
    "a key that is too long": sized(FRONT + b"\x7ek\2v\0"),
    "a value that is too long": sized(FRONT + b"\2k\x7ev\0"),
    "bytes behind the headers": sized(FRONT + KEY_VALUE + b"\0\0"),
    "a number without an end": sized(b"\0" + b"\xff" * 12),
}


@pytest.mark.parametrize("cleanup", ["delete", "compact"])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("broken", NOT_RECORDS.values(), ids=NOT_RECORDS)
def test_a_first_record_that_is_none(opened: Open, broken: bytes, others: int, cleanup: str) -> None:
    pair = opened(cleanup_policy=cleanup)
    batch = pair.oracle.build("none", records(1 + others))
    assert pair.append(with_records(batch, broken, *[GOOD] * others)) == Refused(INVALID_RECORD)
    pair.assert_same_state()


@pytest.mark.parametrize("count", [1, 3])
def test_records_that_do_not_fill_their_batch(opened: Open, count: int) -> None:
    pair = opened(cleanup_policy="compact")
    batch = with_records(pair.oracle.build("none", records(count)), *[GOOD] * (count - 1), GOOD + GOOD)
    assert pair.append(batch) == Refused(INVALID_RECORD)


@pytest.mark.parametrize("broken", NOT_RECORDS.values(), ids=NOT_RECORDS)
def test_any_record_that_is_none_where_records_are_looked_at(opened: Open, broken: bytes) -> None:
    pair = opened(cleanup_policy="compact")
    assert pair.append(with_records(pair.oracle.build("none", records(3)), GOOD, GOOD, broken)) == Refused(
        INVALID_RECORD
    )
    pair.assert_same_state()


@pytest.mark.parametrize("broken", NOT_RECORDS.values(), ids=NOT_RECORDS)
def test_a_later_record_that_is_none(opened: Open, broken: bytes) -> None:
    pair = opened()
    batch = with_records(pair.oracle.build("none", records(2)), GOOD, broken)
    assert pair.append(batch) == Refused(INVALID_RECORD)
    pair.assert_same_state()


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist(opened: Open, codec: int) -> None:
    pair = opened()
    assert pair.append(changed(pair.oracle.build("none", records()), 21, ">h", codec)) == Refused(-1)


@pytest.mark.parametrize("at", [17, 21, 30, 60, 61, 75])
def test_a_byte_that_the_crc_does_not_expect(opened: Open, at: int) -> None:
    pair = opened()
    batch = pair.oracle.build("none", records())
    broken = changed(batch, at, ">B", batch[at] ^ 0x40, crc=False)
    assert pair.append(broken) == Refused(CORRUPT_MESSAGE)


def test_a_base_offset_is_looked_at_before_the_size_and_the_size_before_the_crc(opened: Open) -> None:
    pair = opened(max_message_bytes=100)
    batch = changed(pair.oracle.build("none", records()), 17, ">I", 0, crc=False)
    assert pair.append(changed(batch, 0, ">q", 1, crc=False)) == Refused(INVALID_RECORD)
    assert pair.append(batch) == Refused(MESSAGE_TOO_LARGE)


def test_more_than_one_batch_is_refused(opened: Open) -> None:
    pair = opened()
    batch = pair.oracle.build("none", records())
    assert pair.append(batch + batch) == Refused(INVALID_RECORD)


def test_what_is_cut_off_behind_a_batch_is_left_out(opened: Open) -> None:
    pair = opened()
    batch = pair.oracle.build("none", records())
    assert pair.append(batch + batch[:-1]) == (0, 2, -1)
    pair.close()
    pair.assert_same_files()


def test_a_batch_larger_than_the_largest(opened: Open) -> None:
    pair = opened(max_message_bytes=200)
    assert pair.append(pair.oracle.build("none", records(size=100))) == Refused(MESSAGE_TOO_LARGE)
    batch = pair.oracle.build("none", records(1, size=200 - 61 - 10))
    assert (len(batch), pair.append(batch)) == (200, (0, 0, -1))


def test_a_batch_larger_than_a_segment(opened: Open) -> None:
    pair = opened(segment_bytes=200)
    assert pair.append(pair.oracle.build("none", records(size=100)), epoch=3) == Refused(RECORD_LIST_TOO_LARGE)
    pair.assert_same_state()  # also that the epoch was noted before


def test_a_follower_takes_a_batch_larger_than_the_largest(opened: Open) -> None:
    pair = opened(max_message_bytes=200)
    assert pair.replicate(pair.oracle.build("none", records(size=100), leader_epoch=0)) == (0, 2)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("late", [True, False])
def test_records_whose_time_is_too_far_off(opened: Open, codec: Codec, late: bool) -> None:
    pair = opened(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    times = [START_MS - 1000, START_MS - 1001, START_MS, START_MS + 500, START_MS + 501, -1]
    wrong = (1,) if late else (4,)
    batch = [Record(time, None, b"v") for n, time in enumerate(times) if n in wrong or n in (0, 2, 3, 5)]
    expected = tuple(n for n, record in enumerate(batch) if record.timestamp in (START_MS - 1001, START_MS + 501))
    assert pair.append(pair.oracle.build(codec, batch)) == Refused(INVALID_TIMESTAMP, expected)


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_on_a_compacted_topic(opened: Open, codec: Codec) -> None:
    pair = opened(cleanup_policy="compact")
    keys = [b"k", None, b"", None, None, None]
    batch = pair.oracle.build(codec, [Record(START_MS, key, b"v") for key in keys])
    assert pair.append(batch) == Refused(INVALID_RECORD, (1, 3, 4, 5))


def test_a_wrong_time_weighs_more_than_a_missing_key(opened: Open) -> None:
    pair = opened(cleanup_policy="compact,delete", message_timestamp_after_max_ms=10)
    mixed = [Record(START_MS, None, b"v"), Record(START_MS + 11, b"k", b"v"), Record(START_MS + 11, None, b"v")]
    assert pair.append(pair.oracle.build("none", mixed)) == Refused(INVALID_TIMESTAMP, (0, 1, 2))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_the_brokers_time_is_not_the_producers_to_claim(opened: Open, codec: Codec) -> None:
    pair = opened(message_timestamp_type="LogAppendTime")
    batch = pair.oracle.build(codec, records(), timestamp_type="LogAppendTime", log_append_time=START_MS + 9)
    assert pair.append(batch) == Refused(INVALID_TIMESTAMP, (0, 1, 2))


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_where_the_producers_time_counts_the_claim_is_taken_off(opened: Open, codec: Codec) -> None:
    pair = opened()
    batch = pair.oracle.build(codec, records(), timestamp_type="LogAppendTime", log_append_time=START_MS + 9)
    assert pair.append(batch) == (0, 2, -1)
    pair.close()
    pair.assert_same_files()


# Producers

Send = Callable[..., object]


@pytest.fixture
def send(opened: Open) -> Send:
    pair = opened()

    def send(
        sequence: int, *, epoch: int = 0, count: int = 1, transactional: bool = False, producer: int = 7
    ) -> object:
        batch = pair.oracle.build(
            "none",
            records(count),
            producer_id=producer,
            producer_epoch=max(epoch, 0),
            base_sequence=sequence,
            transactional=transactional,
        )
        answer = pair.append(changed(batch, 51, ">h", epoch))
        pair.assert_same_state()
        return answer

    send.pair = pair  # type: ignore[attr-defined]
    return send


def test_a_gap_in_the_sequence(send: Send) -> None:
    assert send(5) == (0, 0, -1)  # the first of an unknown producer may be any
    assert send(7) == Refused(OUT_OF_ORDER)
    assert send(4) == Refused(OUT_OF_ORDER)
    assert send(6) == (1, 1, -1)


def test_a_repeated_batch_is_answered_with_its_first_offsets(send: Send) -> None:
    for n in range(6):
        send(2 * n, count=2)
    assert send(4, count=2) == (4, 5, START_MS + 1)
    assert send(0, count=2) == Refused(OUT_OF_ORDER)  # six batches ago
    assert send(4, count=1) == Refused(OUT_OF_ORDER)  # not the whole batch


def test_a_new_epoch_starts_at_nought(send: Send) -> None:
    send(0)
    assert send(1, epoch=1) == Refused(OUT_OF_ORDER)
    assert send(0, epoch=1) == (1, 1, -1)
    assert send(1, epoch=0) == Refused(INVALID_PRODUCER_EPOCH)


def test_a_sequence_that_ends_at_its_largest_number(send: Send) -> None:
    send((1 << 31) - 2, count=2)
    assert send(1) == Refused(OUT_OF_ORDER)
    assert send(0) == (2, 2, -1)


def test_outside_of_the_open_transaction(send: Send) -> None:
    send(0, transactional=True)
    assert send(1) == Refused(INVALID_TXN_STATE)
    assert send(0, epoch=1) == Refused(INVALID_TXN_STATE)


def test_a_producer_without_an_epoch(send: Send) -> None:
    assert send(0, epoch=-1) == (0, 0, -1)
    assert send(9, epoch=-1) == (1, 1, -1)
    assert send(4, epoch=0) == (2, 2, -1)


def test_markers_of_fenced_producers_and_coordinators(send: Send) -> None:
    pair: Pair = send.pair  # type: ignore[attr-defined]

    def end(epoch: int, coordinator_epoch: int) -> object:
        marker = pair.oracle.end_transaction_marker(7, epoch, commit=True, coordinator_epoch=coordinator_epoch)
        answer = pair.append(marker, 0, AppendOrigin.COORDINATOR)
        pair.assert_same_state()
        return answer

    send(0, epoch=2, transactional=True)
    assert end(1, 0) == Refused(INVALID_PRODUCER_EPOCH)
    assert end(2, 5) == (1, 1, -1)
    assert end(2, 4) == Refused(COORDINATOR_FENCED)
    assert end(3, 5) == (2, 2, -1)
    assert send(1, epoch=2) == Refused(INVALID_PRODUCER_EPOCH)
    assert send(1, epoch=3) == Refused(OUT_OF_ORDER)
    assert send(0, epoch=3) == (3, 3, -1)


# A follower


def test_a_follower_has_it_already(opened: Open) -> None:
    pair = opened()
    pair.append(pair.oracle.build("none", records()))
    assert pair.replicate(pair.oracle.build("none", records(), base_offset=1, leader_epoch=0)) == Refused(-1)
    pair.assert_same_state()


def test_a_follower_gets_a_corrupt_batch(opened: Open) -> None:
    pair = opened()
    good = pair.oracle.build("none", records(), base_offset=0, leader_epoch=0)
    bad = changed(pair.oracle.build("none", records(), base_offset=3, leader_epoch=0), 40, ">B", 7, crc=False)
    assert pair.replicate(good + bad) == Refused(CORRUPT_MESSAGE)
    pair.assert_same_state()


def test_a_follower_keeps_what_its_leader_has_outside_of_an_open_transaction(opened: Open) -> None:
    """Kafka refuses it, and could then not open its log either, if it had it. The leader's log is the truth."""
    pair = opened()
    batches = [
        pair.oracle.build(
            "none",
            records(1),
            base_offset=n,
            leader_epoch=0,
            producer_id=7,
            producer_epoch=0,
            base_sequence=n,
            transactional=n == 0,
        )
        for n in range(2)
    ]
    pair.replicate(batches[0])
    assert answer_of(lambda: pair.oracle.append_follower(batches[1])) == Refused(INVALID_TXN_STATE)
    assert pair.log.append_as_follower(bytearray(batches[1])) is not None


# Another compression than the producer's

SETTING = {"none": "uncompressed"}


@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODECS)
@pytest.mark.parametrize("times", ["CreateTime", "LogAppendTime"])
def test_a_topics_own_compression(opened: Open, source: Codec, target: Codec, times: str) -> None:
    pair = opened(compression_type=SETTING.get(target, target), message_timestamp_type=times)
    originals = [
        Record(START_MS + 40 - n, f"k{n}".encode() if n % 3 else None, b"v" * n, (("h", b"1"),) if n % 2 else ())
        for n in range(30)
    ]
    pair.append(pair.oracle.build(source, originals, producer_id=4, producer_epoch=1, base_sequence=8))
    marker = pair.oracle.end_transaction_marker(5, 0, commit=True)
    pair.append(marker, 0, AppendOrigin.COORDINATOR)
    pair.close()
    ours, theirs = (
        pair.oracle.parse((directory / "00000000000000000000.log").read_bytes())
        for directory in (pair.ours, pair.theirs)
    )
    assert [without_size(batch) for batch in ours] == [without_size(batch) for batch in theirs]
    assert (ours[0].codec, ours[1].codec, ours[0].valid) == (target, "none", True)


def without_size(batch: Batch) -> tuple[object, ...]:
    """All that does not depend on how well it was compressed."""
    fields = {name: getattr(batch, name) for name in batch.__slots__ if name not in ("size", "crc")}
    return tuple(fields.items())


def test_a_batch_too_large_once_it_is_unpacked(opened: Open) -> None:
    pair = opened(compression_type="uncompressed", max_message_bytes=500)
    batch = pair.oracle.build("zstd", records(10, size=100))
    assert len(batch) < 500
    assert pair.append(batch) == Refused(MESSAGE_TOO_LARGE)
