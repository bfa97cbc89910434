"""Old clients: Produce v0-2 and Fetch v0-3 with message formats 0 and 1, answered as Kafka does, byte for byte.

Snappy is compared by what it unpacks to: Kafka's library finds other matches than ours.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leadline.records.batch import CODEC_MASK, HEADER, header_at
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec, decompress
from leadline.records.record import Record, RecordHeader
from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.conformance.both import Both, produced
from tests.support.logs import START_MS, batch
from tests.support.message_sets import bad_sets, batches_in_disguise, good_sets, much

pytestmark = pytest.mark.conformance

CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4]
OLD_PRODUCE, OLD_FETCH, NEW_FETCH = range(3), range(4), 12
AFTER_MS = 10 * 365 * 86_400_000  # limits times that are centuries ahead
PADDING = b"\xff" * 8  # the offset of what fills a set up to the size of what was read


def produce(both: Both, topic: str, data: bytes, version: int) -> int:
    """The error code of both."""
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(topic, data)])
    answer = both.ask_and_compare(ProduceResponse, request, version)
    return answer.responses[0].partition_responses[0].error_code


def produce_each(both: Both, topic: str, sets: dict[str, bytes], version: int) -> dict[str, int]:
    differences, codes = [], {}
    for name, data in sets.items():
        try:
            codes[name] = produce(both, topic, data, version)
        except AssertionError as error:
            differences.append(f"{name}: {error}")
    assert not differences, "\n".join(differences)
    return codes


def fetch(
    both: Both,
    topic: str,
    version: int,
    offset: int = 0,
    limit: int = 1 << 20,
    *,
    partition: int = 0,
    changed: Callable[[bytes], bytes] = bytes,
) -> bytes | None:
    """Leadline's records, if they are Kafka's. `changed`: leaves out where they are meant to differ."""

    def differ(answer: FetchResponse) -> None:
        (part,) = answer.responses[0].partitions
        if isinstance(part.records, memoryview):
            part.records = changed(bytes(part.records))

    part = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=limit)
    request = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])])
    answer = both.ask_and_compare(FetchResponse, request, version, differ=differ)
    records = answer.responses[0].partitions[0].records
    assert records is None or isinstance(records, bytes)
    return records


def entries_of(data: bytes) -> Iterator[bytes]:
    """Message sets and record batches are made of entries. What is cut off at the end is left out, and padding too."""
    while data and len(data) >= (size := 12 + int.from_bytes(data[8:12], "big")) and data[:8] != PADDING:
        yield data[:size]
        data = data[size:]


def unpacked(data: bytes, *, with_times: bool = True) -> bytes:
    """Without what depends on how well the content is packed: sizes and checksums."""
    return b"".join(_unpacked(entry, with_times) for entry in entries_of(data))


def _unpacked(entry: bytes, with_times: bool) -> bytes:
    magic = entry[16]
    if magic == 2:
        header = header_at(entry)
        header = header._replace(length=0, crc=0, max_timestamp=header.max_timestamp if with_times else 0)
        return HEADER.pack(*header) + decompress(header.codec, entry[HEADER.size :])
    codec, key_at = Codec(entry[17] & CODEC_MASK), 26 if magic else 18
    front = entry[:8] + entry[16 : key_at if with_times else 18]
    if codec is Codec.NONE:
        return front + entry[key_at:]
    return front + entry[key_at : key_at + 4] + unpacked(decompress(codec, entry[key_at + 8 :]), with_times=with_times)


def without_times(data: bytes) -> bytes:
    return unpacked(data, with_times=False)


# Produce


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_are_stored_as_kafka_stores_them(both: Both, magic: int) -> None:
    topic = both.create(f"good-messages-{magic}")
    for version in OLD_PRODUCE:
        codes = produce_each(both, topic, good_sets(magic), version)
        assert set(codes.values()) == {0}, codes
    assert fetch(both, topic, NEW_FETCH)


def test_large_wrappers_of_snappy_are_stored_as_kafka_stores_them(both: Both) -> None:
    topic = both.create("snappy-messages")
    assert [produce(both, topic, much(magic, Codec.SNAPPY), 2) for magic in (0, 1)] == [0, 0]
    assert fetch(both, topic, NEW_FETCH, changed=unpacked)


@pytest.mark.parametrize("magic", [0, 1])
def test_bad_message_sets_are_refused_as_kafka_does(both: Both, magic: int) -> None:
    topic = both.create(f"bad-messages-{magic}", message_timestamp_after_max_ms=AFTER_MS)
    codes = produce_each(both, topic, bad_sets(magic), 2)
    assert set(codes.values()) == ({0, 2, 10, 87, -1} if magic == 0 else {0, 2, 10, 32, 87, -1})
    fetch(both, topic, NEW_FETCH)


def test_record_batches_in_old_requests_are_taken_as_kafka_does(both: Both) -> None:
    topic = both.create("disguised")
    produce_each(both, topic, batches_in_disguise(), 1)
    fetch(both, topic, NEW_FETCH)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_in_new_requests_are_refused_as_kafka_does(both: Both, magic: int) -> None:
    topic = both.create(f"too-old-{magic}")
    sets = good_sets(magic) | {name: bad_sets(magic)[name] for name in ("a wrong CRC", "both formats", "zstd")}
    for version in (3, 7, 11):
        codes = produce_each(both, topic, sets, version)
        assert set(codes.values()) == {87}, codes


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "lz4", "zstd"])
def test_message_sets_get_the_codec_of_their_topic(both: Both, codec: str) -> None:
    topic = both.create(f"messages-{codec}", compression_type=codec, message_timestamp_after_max_ms=AFTER_MS)
    for magic in (0, 1):
        produce_each(both, topic, good_sets(magic) | bad_sets(magic), 2)
    fetch(both, topic, NEW_FETCH)


@pytest.mark.parametrize("magic", [0, 1])
def test_message_sets_on_compacted_topics_need_keys(both: Both, magic: int) -> None:
    topic = both.create(f"keyed-messages-{magic}", cleanup_policy="compact", min_cleanable_dirty_ratio=1)
    produce_each(both, topic, good_sets(magic) | bad_sets(magic), 2)
    fetch(both, topic, NEW_FETCH)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", ["producer", "gzip"])
def test_message_sets_get_the_brokers_time(both: Both, magic: int, codec: str) -> None:
    topic = both.create(f"stamp-{codec}-{magic}", message_timestamp_type="LogAppendTime", compression_type=codec)
    for version in (0, 2):
        produce_each(both, topic, good_sets(magic) | bad_sets(magic), version)
    assert fetch(both, topic, NEW_FETCH, changed=without_times)


@pytest.mark.parametrize("version", OLD_PRODUCE)
def test_old_producers_of_several_partitions_and_without_acks(both: Both, version: int) -> None:
    topic = both.create(f"old-producers-{version}", 2)
    good, bad = good_sets(version // 2)["gzip"], bad_sets(version // 2)["a wrong CRC"]
    parts = [
        ProduceRequest.PartitionProduceData(index=n, records=data) for n, data in enumerate((good, bad, good), start=-1)
    ]
    here = ProduceRequest.TopicProduceData(name=topic, partition_data=parts)
    for acks in (1, -1, 7):
        request = ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[here, produced("missing", good)])
        both.ask_and_compare(ProduceResponse, request, version)
    for side in both.sides:
        connection = side.connect()
        connection.send(ProduceRequest(acks=0, timeout_ms=9, topic_data=[produced(topic, good, 1)]), version)
        request = ProduceRequest(acks=1, timeout_ms=9, topic_data=[produced(topic, good, 1)])
        part = connection.ask(ProduceResponse, request, version).responses[0].partition_responses[0]
        assert (part.error_code, part.base_offset) == (0, 9)
        connection.send(ProduceRequest(acks=0, timeout_ms=9, topic_data=[produced(topic, bad, 1)]), version)
        assert connection.receive() is None
        connection.close()


# Fetch


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    """45 records: batches of three, of each codec, of a producer, with headers, without times, in two segments."""
    name = both.create("down")
    for codec in CODECS:
        headed = [Record(n, START_MS + 5 - n, b"k", b"v", (RecordHeader("a", b"b"),)) for n in range(3)]
        both.produce(
            name,
            bytes(batch(3, codec=codec)),
            bytes(batch(3, codec=codec, producer_id=3, sequence=3 * CODECS.index(codec))),
            bytes(build(headed, BatchFields(codec=codec))),
            bytes(build([Record(n, -1, None, None) for n in range(3)], BatchFields(codec=codec))),
            bytes(batch(3, codec=codec, size=300, timestamp=START_MS << 1)),
        )
    return name


@pytest.mark.parametrize("version", OLD_FETCH)
def test_batches_are_converted_down_as_kafka_does(both: Both, topic: str, version: int) -> None:
    for offset in (-1, *range(18), 29, 30, 44, 45, 46):
        fetch(both, topic, version, offset)
    assert fetch(both, topic, version)


@pytest.mark.parametrize("version", OLD_FETCH)
def test_limits_cut_message_sets_where_kafka_does(both: Both, topic: str, version: int) -> None:
    for limit in (0, 1, 11, 12, 50, 118, 119, 150, 230, 300, 500, 1000, 2000):
        for offset in (0, 1, 9, 13, 16):
            fetch(both, topic, version, offset, limit)


@pytest.mark.parametrize("version", OLD_FETCH)
def test_an_old_fetch_of_several_partitions_and_its_limits(both: Both, topic: str, version: int) -> None:
    other = both.create(f"down-{version}", 2)
    both.produce(other, bytes(batch(2, codec=Codec.GZIP)), partition=1)
    parts = [FetchRequest.FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=500) for n in (1, 0, 2, 1)]
    for max_bytes in (0, 100, 10_000):
        topics = [
            FetchRequest.FetchTopic(topic=name, partitions=parts if name == other else parts[1:2])
            for name in (other, topic, "missing")
        ]
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=topics)
        both.ask_and_compare(FetchResponse, request, version)


def test_slices_larger_than_what_is_converted_at_once(both: Both) -> None:
    topic = both.create("down-much")
    for codec in CODECS:
        both.produce(topic, bytes(batch(300, size=300, codec=codec)), bytes(batch(1, size=200_000)))
    for version in (1, 3):
        for offset, limit in ((0, 100_000), (150, 131_072), (301, 1 << 21), (301, 400_000), (600, 1 << 21)):
            fetch(both, topic, version, offset, limit)


def test_snappy_is_converted_down_to_what_kafka_converts_it_to(both: Both) -> None:
    topic = both.create("down-snappy")
    both.produce(topic, bytes(batch(3, codec=Codec.SNAPPY)), bytes(batch(400, size=300, codec=Codec.SNAPPY)))
    for version in OLD_FETCH:
        for offset in (0, 2, 3, 100):
            assert fetch(both, topic, version, offset, changed=unpacked)


def test_log_append_times_are_converted_down_as_kafka_does(both: Both) -> None:
    topic = both.create("down-stamped", len(CODECS), message_timestamp_type="LogAppendTime")
    for partition, codec in enumerate(CODECS):
        both.produce(topic, bytes(batch(3, codec=codec)), partition=partition)
        for version in OLD_FETCH:
            changed = without_times if version > 1 else bytes  # format 0 has no times
            assert fetch(both, topic, version, limit=1000, partition=partition, changed=changed)


def test_control_batches_are_left_out(both: Both) -> None:
    topic = both.create("down-controlled")
    for n, codec in enumerate(CODECS):
        both.produce(topic, bytes(batch(2, producer_id=7, sequence=2 * n, codec=codec)))
        end_transaction(both, topic, 7)
    for version in OLD_FETCH:
        for offset in (0, 1, 3, 4, 6, 8, 9):
            fetch(both, topic, version, offset)
        for limit in (100, 150, 250):
            fetch(both, topic, version, 0, limit)
            fetch(both, topic, version, 8, limit)


def test_kafka_repeats_the_batch_behind_a_control_batch_and_leadline_does_not(both: Both) -> None:
    topic = both.create("down-repeated")
    both.produce(topic, bytes(batch(producer_id=9)))
    end_transaction(both, topic, 9)
    both.produce(topic, bytes(batch(codec=Codec.GZIP)), bytes(batch(codec=Codec.LZ4)))
    for version in OLD_FETCH:
        first, second = entries_of(fetch(both, topic, version, 1, changed=without_repetition) or b"")
        assert (first[:8], second[:8]) == (b"\0" * 7 + b"\2", b"\0" * 7 + b"\3")


def without_repetition(data: bytes) -> bytes:
    return b"".join(dict.fromkeys(entries_of(data)))


def end_transaction(both: Both, topic: str, producer_id: int) -> None:
    partitions = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=topic, partition_indexes=[0])
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=producer_id, producer_epoch=0, transaction_result=True, topics=[partitions], coordinator_epoch=0
    )
    both.ask_and_compare(WriteTxnMarkersResponse, WriteTxnMarkersRequest(markers=[marker]), 1)


def test_zstd_among_others_ends_a_set_and_is_refused_at_its_start(both: Both) -> None:
    topic = both.create("down-zstd")
    for codec in (Codec.NONE, Codec.GZIP, Codec.ZSTD, Codec.NONE, Codec.NONE, Codec.ZSTD):
        both.produce(topic, bytes(batch(2, codec=codec)))
    for version in OLD_FETCH:
        for offset in range(13):
            fetch(both, topic, version, offset)


def test_topics_that_old_consumers_may_not_read(both: Both) -> None:
    for setting, value in (("compression_type", "zstd"), ("message_downconversion_enable", "false")):
        settings: dict[str, Any] = {setting: value}
        topic = both.create(f"down-{setting}", **settings)
        both.produce(topic, bytes(batch(3)))
        for version in (*OLD_FETCH, 4):
            for offset in (0, 3, 9):
                fetch(both, topic, version, offset)
