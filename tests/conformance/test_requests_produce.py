"""Produce and InitProducerId, answered as Kafka does, for good batches and bad ones."""

from collections.abc import Callable
from struct import pack_into

import pytest
from crc32c import crc32c

from leadline.records.batch import HEADER, header_at
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record
from leadline.wire.classes import Message
from leadline.wire.messages import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Both, Side, produced
from tests.support.logs import START_MS, batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

VERSIONS, NEW = range(12), range(3, 12)
LOADING = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)  # what Kafka does when first asked


def request(*topics: ProduceRequest.TopicProduceData, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=list(topics))


def with_crc(data: bytearray) -> bytearray:
    """With the CRC put right after a change."""
    pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return data


def changed(position: int, layout: str, value: int, *, sign: bool = True) -> bytearray:
    data = batch(3)
    pack_into(layout, data, position, value)
    return with_crc(data) if sign else data


def message_set(magic: int) -> bytes:
    """One record of before record batches: CRC left out."""
    body = bytes([magic, 0]) + (b"\0" * 8 if magic else b"") + b"\xff\xff\xff\xff" + b"\0\0\0\1v"
    return b"\0" * 8 + (len(body) + 4).to_bytes(4, "big") + b"\0" * 4 + body


def short_batch(size: int, magic: int = 2) -> bytes:
    return b"\0" * 8 + (size - 12).to_bytes(4, "big") + b"\0" * 4 + bytes([magic]) + b"\0" * (size - 17)


BAD: dict[str, bytes | bytearray | None] = {
    "empty": b"",
    "less than a header": b"x" * 10,
    "a header cut off": batch()[:60],
    "a batch cut off": batch()[:-1],
    "two batches": batch() + batch(),
    "a batch and a piece": batch() + batch()[:30],
    "a wrong CRC": changed(17, ">I", 1234, sign=False),
    "a changed record": changed(70, ">B", 1, sign=False),
    "magic 0": message_set(0),
    "magic 1": message_set(1),
    "magic 3": changed(16, ">B", 3),
    "a whole batch without room for a producer id": short_batch(50),
    "a whole batch with a header cut short": short_batch(60),
    "an entry of magic 3": short_batch(40, 3),
    "messages too short for a batch": message_set(1) * 3,
    "a negative length": changed(8, ">i", -1),
    "a length too small": changed(8, ">i", 10),
    "a length too large": changed(8, ">i", 1 << 30),
    "a base offset": changed(0, ">q", 5),
    "no records": changed(57, ">i", 0),
    "a negative count": changed(57, ">i", -1),
    "too high a count": changed(57, ">i", 4),
    "too low a count": changed(57, ">i", 2),
    "a negative last offset delta": changed(23, ">i", -1),
    "too high a last offset delta": changed(23, ">i", 3),
    "a control batch": changed(21, ">h", 1 << 5),
    "log append time": changed(21, ">h", 1 << 3),
    "a transaction": batch(producer_id=77, transactional=True),
    "a producer without a sequence": batch(producer_id=78, sequence=-1),
    "a producer with a negative epoch": batch(producer_id=79, producer_epoch=-1),
    "the last sequence": batch(2, producer_id=80, sequence=(1 << 31) - 1),
    "too large": batch(1, size=1_100_000),
    "just too large": batch(1, size=999_930),
    "as large as can be": batch(1, size=999_900),
}


@pytest.mark.parametrize("what", BAD)
def test_a_batch_that_is_bad_in_some_way(both: Both, what: str) -> None:
    topic = both.create(f"bad-{list(BAD).index(what)}")
    data = BAD[what]
    for version in (0, 2, 3, 5, 7, 8, 9, 10, 11):
        both.ask_and_compare(ProduceResponse, request(produced(topic, None if data is None else bytes(data))), version)
    same_end(both, topic)


def same_end(both: Both, topic: str) -> int:
    part = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    list_offsets = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
    )
    return both.ask_and_compare(ListOffsetsResponse, list_offsets, 7).topics[0].partitions[0].offset


@pytest.mark.parametrize("version", VERSIONS)
def test_good_and_bad_partitions_side_by_side(both: Both, version: int) -> None:
    topic = both.create(f"mixed-{version}", 2)
    good = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(3)))
    nowhere = [ProduceRequest.PartitionProduceData(index=n, records=bytes(batch(3))) for n in (2, -1, 1 << 30)]
    bad = ProduceRequest.PartitionProduceData(index=1, records=bytes(changed(17, ">I", 1, sign=False)))
    here = ProduceRequest.TopicProduceData(name=topic, partition_data=[good, *nowhere, bad])
    for acks in (1, -1):
        answer = both.ask_and_compare(
            ProduceResponse,
            request(here, produced("missing", bytes(batch())), produced("a b", None), acks=acks),
            version,
        )
        assert len(answer.responses) == 3
    assert same_end(both, topic) == 6


@pytest.mark.parametrize("version", [0, 2, 3, 9, 11])
def test_records_in_no_format_fail_the_whole_request(both: Both, version: int) -> None:
    topic = both.create(f"formless-{version}", 2)
    good = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(3)))
    for data in (changed(8, ">i", 13), changed(16, ">B", 3), short_batch(40, 3)):
        bad = ProduceRequest.PartitionProduceData(index=1, records=bytes(data))
        here = ProduceRequest.TopicProduceData(name=topic, partition_data=[good, bad])
        answer = both.ask_and_compare(ProduceResponse, request(here, produced("missing", b"")), version)
        codes = [part.error_code for entry in answer.responses for part in entry.partition_responses]
        assert codes == [2, 2, 2]
    assert same_end(both, topic) == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_without_topics_or_partitions_are_answered_as_kafka_does(both: Both, version: int) -> None:
    both.ask_and_compare(ProduceResponse, request(), version)
    both.ask_and_compare(ProduceResponse, request(ProduceRequest.TopicProduceData(name="missing")), version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [7, 2, -2, 32767])
def test_acks_that_mean_nothing_are_refused_and_append_nothing(both: Both, version: int, acks: int) -> None:
    topic = both.create(f"acks-{version}-{acks}")
    both.ask_and_compare(
        ProduceResponse, request(produced(topic, bytes(batch())), produced("missing", b""), acks=acks), version
    )
    assert same_end(both, topic) == 0


@pytest.mark.parametrize("version", [0, 2, 3, 8, 9, 11])
def test_without_acks_there_is_no_answer_and_an_error_closes_the_connection(both: Both, version: int) -> None:
    topic = both.create(f"silent-{version}")
    for side in both.sides:
        connection = side.connect()
        connection.send(request(produced(topic, bytes(batch(2))), acks=0), version)
        connection.send(request(produced(topic, bytes(batch(2))), acks=1), version)
        assert connection.receive() is not None
        connection.send(request(produced("missing", bytes(batch(2))), acks=0), version)
        assert connection.receive() is None
        connection.close()
    assert same_end(both, topic) == 4


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_each_codec_are_taken_in_the_versions_in_which_kafka_takes_them(both: Both, codec: Codec) -> None:
    """Below version 7 there is no zstd, but below 3 nobody looks."""
    topic = both.create(f"codec-{codec.name.lower()}")
    for version in VERSIONS:
        both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(batch(3, codec=codec)))), version)
    same_end(both, topic)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused_as_kafka_does(both: Both, codec: int) -> None:
    topic = both.create(f"codec-{codec}")
    produce = request(produced(topic, bytes(changed(21, ">h", codec))))
    answer = both.ask_and_compare(ProduceResponse, produce, 9)
    assert answer.responses[0].partition_responses[0].error_code == -1


def test_more_replicas_wanted_in_sync_than_there_are(both: Both) -> None:
    topic = both.create("in-sync", min_insync_replicas=2)
    for acks in (1, -1):
        both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(batch())), acks=acks), 9)


def test_a_batch_that_fits_no_segment(both: Both) -> None:
    topic = both.create("short-segments", segment_bytes=1000)
    for size in (800, 2000):
        both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(batch(size=size)))), 9)


def test_sequence_numbers_are_checked_as_kafka_does(both: Both) -> None:
    topic = both.create("sequences")

    def send(sequence: int, count: int = 2, epoch: int = 0, version: int = 9) -> int:
        data = batch(count, producer_id=5, producer_epoch=epoch, sequence=sequence)
        answer = both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(data))), version)
        return answer.responses[0].partition_responses[0].error_code

    assert send(0) == send(2) == send(4) == send(6) == send(8) == 0
    assert send(4) == send(8) == 0  # duplicates
    assert send(10) == 0
    for sequence, count in ((0, 2), (2, 3), (3, 2), (14, 1), (5, 1)):
        for version in (3, 8, 11):
            send(sequence, count, version=version)
    assert send(12, epoch=1) != 0
    assert send(0, epoch=1) == 0
    assert send(12) != 0
    assert send(2, epoch=1) == 0
    described(both, topic)
    same_end(both, topic)


def described(both: Both, topic: str, *partitions: int) -> DescribeProducersResponse:
    partitions_of_topic = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions or (0,)))
    return both.ask_and_compare(DescribeProducersResponse, DescribeProducersRequest(topics=[partitions_of_topic]), 0)


def test_the_producers_of_partitions_are_described_as_kafka_does(both: Both) -> None:
    topic = both.create("producers", 2)
    for producer, sequence in ((1, 0), (2, 5), (1, 1)):
        both.produce(topic, bytes(batch(producer_id=producer, sequence=sequence, timestamp=START_MS + sequence)))
    description = described(both, topic, 0, 1, 2, -1)
    assert [len(part.active_producers) for part in description.topics[0].partitions][:2] == [2, 0]
    described(both, "missing")
    described(both, "a b", 3, 3)
    both.ask_and_compare(DescribeProducersResponse, DescribeProducersRequest(), 0)


def test_records_without_a_key_on_a_compacted_topic(both: Both) -> None:
    topic = both.create("keyed", cleanup_policy="compact")
    mixed = [Record(n, START_MS, key, b"v") for n, key in enumerate([b"a", None, b"c", None, None, None])]
    for version in NEW:
        for data in (build(mixed), build(mixed, BatchFields(codec=Codec.GZIP)), batch(2), batch(key=None)):
            both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(data))), version)
    same_end(both, topic)


@pytest.mark.parametrize(("setting", "value"), [("before", 3_600_000), ("after", 3_600_000), ("difference", 1000)])
def test_times_that_are_too_far_off(both: Both, setting: str, value: int) -> None:
    configs = {f"message_timestamp_{setting}_max_ms": value}
    topic = both.create(f"times-{setting}", **configs)
    for version in (3, 8, 11):
        for timestamp in (START_MS, 4_000_000_000_000, -1):
            both.ask_and_compare(
                ProduceResponse, request(produced(topic, bytes(batch(3, timestamp=timestamp)))), version
            )


@pytest.mark.parametrize("codec", ["producer", "uncompressed", "gzip", "zstd"])
def test_the_brokers_time_and_codec(both: Both, codec: str) -> None:
    topic = both.create(f"stamped-{codec}", message_timestamp_type="LogAppendTime", compression_type=codec)
    for version in NEW:
        for source in (Codec.NONE, Codec.GZIP):
            both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(batch(3, codec=source)))), version)
    stamped = bytearray(batch())
    pack_into(">h", stamped, 21, 1 << 3)
    both.ask_and_compare(ProduceResponse, request(produced(topic, bytes(with_crc(stamped)))), 9)
    repeated = bytes(batch(2, producer_id=9))
    for _ in range(2):
        both.ask_and_compare(ProduceResponse, request(produced(topic, repeated)), 9)


def test_what_is_stored_is_fetched_byte_for_byte_the_same(both: Both) -> None:
    topic = both.create("stored")
    sent = [batch(3), batch(2, codec=Codec.LZ4), batch(producer_id=3), batch(2, codec=Codec.ZSTD, key=None)]
    both.produce(topic, *map(bytes, sent))
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=0, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])])
    answer = both.ask_and_compare(FetchResponse, fetch, 12)
    data = answer.responses[0].partitions[0].records
    assert isinstance(data, memoryview)
    assert header_at(data).base_offset == 0
    assert len(data) == sum(map(len, sent)) > HEADER.size


@pytest.mark.parametrize("version", InitProducerIdRequest.VERSIONS)
def test_each_producer_without_transactions_gets_an_id_of_its_own(both: Both, version: int) -> None:
    ids: dict[Side, list[int]] = {side: [] for side in both.sides}

    def ask_and_compare(make: Callable[[Side], Message]) -> InitProducerIdResponse:
        answers = both.map(lambda side: side.ask(InitProducerIdResponse, make(side), version))
        for side, answer in zip(both.sides, answers, strict=True):
            if answer.producer_id >= 0:
                assert answer.producer_id not in ids[side]
                ids[side].append(answer.producer_id)
                answer.producer_id = 0
        return both.compare(answers, version)

    until(lambda: both.kafka.ask(InitProducerIdResponse, LOADING, version).error_code == 0)
    for timeout_ms in (0, 60_000, -1, 1 << 30):
        ask_and_compare(
            lambda _, ms=timeout_ms: InitProducerIdRequest(  # type: ignore[misc]
                transactional_id=None, transaction_timeout_ms=ms
            )
        )
    ask_and_compare(lambda _: InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000))
    if version >= 3:
        for producer, epoch in ((-1, 3), (5, -1), (-2, -2)):
            ask_and_compare(
                lambda _, p=producer, e=epoch: InitProducerIdRequest(  # type: ignore[misc]
                    transactional_id=None, transaction_timeout_ms=1000, producer_id=p, producer_epoch=e
                )
            )
        own = {side: ids[side][0] for side in both.sides}
        for epoch in (0, 3, 32766, 32767):
            ask_and_compare(
                lambda side, e=epoch: InitProducerIdRequest(  # type: ignore[misc]
                    transactional_id=None, transaction_timeout_ms=1000, producer_id=own[side], producer_epoch=e
                )
            )
