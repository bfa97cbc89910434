"""Transactions, answered as Kafka does: fencing, wrong states, verification, markers by hand, the journal."""

import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from leadline.coordinator.record_serde import deserialize, serialize
from leadline.coordinator.runtime import partition_for
from leadline.records.batch import walk
from leadline.records.control import read_end_marker
from leadline.records.record import records_of
from leadline.wire.classes import Message
from leadline.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProduceRequest,
    ProduceResponse,
    TransactionLogValue,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.conformance.both import SETTINGS, Both, Side, both_brokers, produced
from tests.support.logs import batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

M = TypeVar("M", bound=Message)
NONE, CONCURRENT = 0, 51
INT_MAX = (1 << 31) - 1
TIMEOUT_MS = 60_000

_names = (f"txn-{n}" for n in count())
_transactional_ids: dict[tuple[Side, int], str] = {}  # by side and producer id


class Producer:
    """A transactional producer, at both: each gave it a producer id of its own, and the same epoch."""

    def __init__(self, both: Both, name: str | None = None) -> None:
        self.both, self.name = both, next(_names) if name is None else name
        self.ids: dict[Side, int] = {}
        self.epoch = -1

    def ask_and_compare(self, kind: type[M], version: int, make: Callable[[Side], Message]) -> M:
        """With the producer ids that each gave out made the same."""
        answers = self.both.map(lambda side: side.ask(kind, make(side), version))
        for side, answer in zip(self.both.sides, answers, strict=True):
            for part in _parts(answer):
                if isinstance(part, DescribeTransactionsResponse.TopicData):
                    part.partitions.sort()  # in Kafka's the order of a hash table
                if (transactional_id := _transactional_ids.get((side, getattr(part, "producer_id", -1)))) is not None:
                    setattr(part, "producer_id", transactional_id)  # noqa: B010  (not every part has one)
        return self.both.compare(answers, version)

    def init(self, version: int = 4, timeout_ms: int = TIMEOUT_MS, **fields: int) -> int:
        """The error. Without one, it has its ids."""

        def make(side: Side) -> Message:
            request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
            if "producer_epoch" in fields:
                request.producer_epoch = fields["producer_epoch"]
                request.producer_id = fields.get("producer_id", self.ids.get(side, 0))
            return request

        answers = self.both.map(lambda side: side.ask(InitProducerIdResponse, make(side), version))
        for side, answer in zip(self.both.sides, answers, strict=True):
            if answer.error_code == NONE:
                self.ids[side], self.epoch = answer.producer_id, answer.producer_epoch
                answer.producer_id = 0
                _transactional_ids[side, self.ids[side]] = self.name
        return self.both.compare(answers, version).error_code

    def begin(self) -> "Producer":
        """Initialised, whatever was before."""
        self.settled()
        assert self.init() == NONE
        return self

    def add(self, version: int, *partitions: tuple[str, int], epoch: int | None = None, id_shift: int = 0) -> list[int]:
        def make(side: Side) -> Message:
            return AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.ids.get(side, 0) + id_shift,
                v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
                v3_and_below_topics=_topics(partitions),
            )

        answer = self.ask_and_compare(AddPartitionsToTxnResponse, version, make)
        return [
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        ]

    def add_offsets(self, version: int, group: str, *, epoch: int | None = None, id_shift: int = 0) -> int:
        return self.ask_and_compare(
            AddOffsetsToTxnResponse,
            version,
            lambda side: AddOffsetsToTxnRequest(
                transactional_id=self.name,
                producer_id=self.ids.get(side, 0) + id_shift,
                producer_epoch=self.epoch if epoch is None else epoch,
                group_id=group,
            ),
        ).error_code

    def end(self, version: int = 3, *, commit: bool = True, epoch: int | None = None, id_shift: int = 0) -> int:
        code = self.ask_and_compare(
            EndTxnResponse,
            version,
            lambda side: EndTxnRequest(
                transactional_id=self.name,
                producer_id=self.ids.get(side, 0) + id_shift,
                producer_epoch=self.epoch if epoch is None else epoch,
                committed=commit,
            ),
        ).error_code
        if code == NONE:
            self.settled()
        return code

    def settled(self) -> str:
        """The markers are written, on both sides."""
        for side in self.both.sides:
            until(partial(self._is_settled, side))
        return self.describe().transaction_state

    def _is_settled(self, side: Side) -> bool:
        return not self.state(side).startswith("Prepare")

    def state(self, side: Side) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        return side.ask(DescribeTransactionsResponse, request, 0).transaction_states[0].transaction_state

    def describe(self) -> DescribeTransactionsResponse.TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        return self.ask_and_compare(DescribeTransactionsResponse, 0, lambda _: request).transaction_states[0]

    def produce(
        self, version: int, topic: str, partition: int = 0, *, acks: int = -1, transactional_id: str | None = "",
        epoch: int | None = None, id_shift: int = 0, sequence: int = 0, transactional: bool = True,
    ) -> int:  # fmt: skip
        def make(side: Side) -> Message:
            data = batch(
                producer_id=self.ids.get(side, 0) + id_shift,
                producer_epoch=self.epoch if epoch is None else epoch,
                sequence=sequence,
                transactional=transactional,
            )
            return ProduceRequest(
                transactional_id=self.name if transactional_id == "" else transactional_id,
                acks=acks,
                timeout_ms=60_000,
                topic_data=[produced(topic, bytes(data), partition)],
            )

        return self.ask_and_compare(ProduceResponse, version, make).responses[0].partition_responses[0].error_code

    def producers_of(self, topic: str, *partitions: int) -> DescribeProducersResponse:
        partitions_of_topic = DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=list(partitions))
        return self.ask_and_compare(
            DescribeProducersResponse, 0, lambda _: DescribeProducersRequest(topics=[partitions_of_topic])
        )


def _parts(value: object) -> Iterator[Message]:
    """All structs in an answer."""
    spec = getattr(value, "SPEC", None)
    if spec is not None:
        yield value  # type: ignore[misc]
        for field in spec.fields:
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, list):
        for item in value:
            yield from _parts(item)


def _topics(partitions: tuple[tuple[str, int], ...]) -> list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]:
    names = list(dict.fromkeys(name for name, _ in partitions))
    return [
        AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
            name=name, partitions=[number for topic, number in partitions if topic == name]
        )
        for name in names
    ]


@pytest.fixture(scope="module", autouse=True)
def coordinators(both: Both) -> None:
    """Both have read their journals."""
    for side in both.sides:
        until(partial(is_found, side, 1))
        until(partial(is_found, side, 0))
        until(partial(is_ready, side))


def is_found(side: Side, key_type: int) -> bool:
    return side.ask(FindCoordinatorResponse, FindCoordinatorRequest(key="k", key_type=key_type), 3).error_code == NONE


def is_ready(side: Side) -> bool:
    """It serves, and reads no partition of its journal any longer."""
    request = InitProducerIdRequest(transactional_id="first", transaction_timeout_ms=1000)
    if side.ask(InitProducerIdResponse, request, 4).error_code != NONE:
        return False
    return side.ask(ListTransactionsResponse, ListTransactionsRequest(), 1).error_code == NONE


@pytest.fixture(scope="module")
def topic(both: Both, coordinators: None) -> str:
    return both.create("in-transactions", 6)


@pytest.fixture
def producer(both: Both) -> Producer:
    return Producer(both).begin()


@pytest.mark.parametrize("version", InitProducerIdRequest.VERSIONS)
def test_each_init_fences_the_one_before(both: Both, version: int) -> None:
    one = Producer(both)
    assert [one.init(version) for _ in range(3)] == [NONE] * 3
    assert one.epoch == 2
    assert one.describe().transaction_state == "Empty"


@pytest.mark.parametrize("version", InitProducerIdRequest.VERSIONS)
def test_a_timeout_must_be_positive_and_at_most_the_brokers(both: Both, version: int) -> None:
    one = Producer(both)
    codes = [one.init(version, timeout_ms) for timeout_ms in (1, 900_000, 0, -1, 900_001, INT_MAX, -INT_MAX - 1)]
    assert codes == [0, 0, 50, 50, 50, 50, 50]
    assert Producer(both, "").init(version) == 42
    assert Producer(both, "").init(version, -1) == 42


@pytest.mark.parametrize("version", range(3, 6))
def test_a_producer_that_goes_on_names_itself(both: Both, version: int) -> None:
    one = Producer(both)
    assert one.init(version, producer_epoch=5, producer_id=77) == NONE  # nothing is known to compare it with
    assert [one.init(version, producer_epoch=one.epoch) for _ in range(3)] == [NONE] * 3
    assert one.epoch == 3
    assert one.init(version, producer_epoch=2) == NONE  # did not get its last answer
    assert one.epoch == 3
    codes = [one.init(version, producer_epoch=epoch) for epoch in (1, 0, 4, 100, 32766, 32767, -2)]
    assert set(codes) == {90 if version >= 4 else 47}
    assert one.init(version, producer_epoch=3, producer_id=1 << 40) == (90 if version >= 4 else 47)
    assert one.init(version, producer_epoch=3, producer_id=-1) == 42
    assert one.init(version, producer_epoch=-1, producer_id=5) == 42
    assert one.init(version) == NONE  # somebody else begins: who was before is out
    assert one.init(version, producer_epoch=3) == (90 if version >= 4 else 47)


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_or_refused_as_kafka_does(
    both: Both, producer: Producer, topic: str, version: int
) -> None:
    assert producer.add(version, (topic, 0)) == [0]
    assert producer.describe().transaction_state == "Ongoing"
    assert producer.add(version, (topic, 0)) == [0]
    assert producer.add(version, (topic, 0), (topic, 1), (topic, 3)) == [0, 0, 0]
    assert producer.add(version) == []
    description = producer.describe()
    assert [(part.topic, sorted(part.partitions)) for part in description.topics] == [(topic, [0, 1, 3])]
    assert producer.end(commit=False) == NONE
    assert producer.add(version) == []  # which opens one, of nothing
    assert producer.describe().transaction_state == "Ongoing"
    assert producer.end() == NONE


@pytest.mark.parametrize("version", range(4))
def test_partitions_that_cannot_be_added(both: Both, producer: Producer, topic: str, version: int) -> None:
    fenced = 90 if version >= 2 else 47
    assert producer.add(version, (topic, 0), epoch=7) == [fenced]
    assert producer.add(version, (topic, 0), (topic, 1), epoch=-1) == [fenced, fenced]
    assert producer.add(version, (topic, 0), id_shift=1 << 30) == [49]
    assert producer.add(version, (topic, 6)) == [3]
    assert producer.add(version, (topic, -1)) == [3]
    assert sorted(producer.add(version, (topic, 0), ("missing", 0), (topic, 9))) == [3, 3, 55]
    assert sorted(producer.add(version, (topic, 0), ("__consumer_offsets", 0), ("missing", 1))) == [3, 29, 55]
    assert producer.add(version, ("a b", 0)) == [3]
    assert producer.add(version, (topic, 0), (topic, 0), epoch=9) == [fenced, fenced]
    assert sorted(producer.add(version, (topic, 9), (topic, 9), (topic, 0))) == [3, 55]
    assert producer.describe().transaction_state == "Empty"
    nobody = Producer(both)
    assert nobody.add(version, (topic, 0)) == [49]
    assert nobody.describe().error_code == 105
    assert Producer(both, "").add(version, (topic, 0)) == [42]


@pytest.mark.parametrize("version", [4, 5])
def test_many_transactions_in_one_request_and_to_verify_only(both: Both, topic: str, version: int) -> None:
    one, other, prepared = (Producer(both).begin() for _ in range(3))
    one.add(3, (topic, 0), (topic, 1))
    prepared.add(3, (topic, 0))
    prepared.end()

    def ask_and_compare(verify: bool, epoch_shift: int = 0, *partitions: tuple[str, int]) -> set[int]:
        def make(side: Side) -> Message:
            return AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                        transactional_id=txn_producer.name,
                        producer_id=txn_producer.ids.get(side, 0),
                        producer_epoch=txn_producer.epoch + epoch_shift,
                        verify_only=verify,
                        topics=_topics(partitions),
                    )
                    for txn_producer in (one, other, prepared, Producer(both, "nobody"), Producer(both, ""))
                ]
            )

        answer = one.ask_and_compare(AddPartitionsToTxnResponse, version, make)
        return {
            part.partition_error_code
            for txn in answer.results_by_transaction
            for topic_result in txn.topic_results
            for part in topic_result.results_by_partition
        }

    assert ask_and_compare(True, 0, (topic, 0), (topic, 2)) == {0, 120, 49, 42}
    assert ask_and_compare(True, 1, (topic, 0)) == {90, 49, 42}
    assert ask_and_compare(True, 0, (topic, 0), (topic, 7)) == {3, 55}
    assert ask_and_compare(True, 0, ("__consumer_offsets", 3)) == {120, 49, 42}
    assert ask_and_compare(False, 1, (topic, 0)) == {90, 49, 42}
    assert ask_and_compare(False, 0, (topic, 0), ("missing", 0)) == {3, 55}
    assert ask_and_compare(False, 0, (topic, 4), (topic, 5)) == {0, 49, 42}
    assert ask_and_compare(True, 0, (topic, 4)) == {0, 49, 42}
    for txn_producer in (one, other, prepared):
        assert txn_producer.end(commit=False) == NONE


@pytest.mark.parametrize("version", AddOffsetsToTxnRequest.VERSIONS)
def test_offsets_of_a_group_are_added(both: Both, producer: Producer, version: int) -> None:
    fenced = 90 if version >= 2 else 47
    assert producer.add_offsets(version, "g", epoch=5) == fenced
    assert producer.add_offsets(version, "g", id_shift=1 << 30) == 49
    assert producer.describe().transaction_state == "Empty"
    assert producer.add_offsets(version, "g") == NONE
    assert [part.topic for part in producer.describe().topics] == ["__consumer_offsets"]
    assert producer.add_offsets(version, "") == NONE
    assert Producer(both, "nobody").add_offsets(version, "g") == 49
    assert Producer(both, "").add_offsets(version, "g") == 42
    assert producer.end() == NONE
    assert producer.settled() == "CompleteCommit"


@pytest.mark.parametrize("version", EndTxnRequest.VERSIONS)
@pytest.mark.parametrize("commit", [True, False])
def test_the_end_of_a_transaction_is_checked_as_kafka_does(
    producer: Producer, topic: str, version: int, commit: bool
) -> None:
    fenced = 90 if version >= 2 else 47
    assert producer.end(version, commit=commit) == 48  # Empty
    producer.add(3, (topic, 0), (topic, 5))
    assert producer.end(version, commit=commit, epoch=9) == fenced
    assert producer.end(version, commit=commit, id_shift=1 << 30) == 49
    assert producer.end(version, commit=commit) == NONE
    assert producer.settled() == ("CompleteCommit" if commit else "CompleteAbort")
    assert producer.end(version, commit=commit) == NONE  # once more
    assert producer.end(version, commit=not commit) == 48
    assert Producer(producer.both, "nobody").end(version) == 49
    assert Producer(producer.both, "").end(version) == 42
    assert producer.begin().describe().transaction_state == "Empty"


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_zombie_is_fenced(both: Both, topic: str, version: int) -> None:
    zombie = Producer(both).begin()
    zombie.add(3, (topic, 1))
    assert zombie.produce(9, topic, 1) == NONE
    heir = Producer(both, zombie.name)
    assert heir.init(version) == CONCURRENT  # first what was left open is aborted
    heir.settled()
    assert heir.init(version) == NONE
    assert (zombie.epoch, heir.epoch) == (0, 2)
    assert zombie.add(3, (topic, 1)) == [90]
    assert zombie.end() == 90
    assert zombie.add_offsets(3, "g") == 90
    assert zombie.init(version, producer_epoch=0) == (90 if version >= 4 else 47)
    for at in range(3, 12):
        assert zombie.produce(at, topic, 1, sequence=1) == 47
    assert heir.add(3, (topic, 1)) == [0]
    assert heir.produce(9, topic, 1) == NONE
    assert heir.end() == NONE
    heir.producers_of(topic, 1)


@pytest.mark.parametrize("version", range(3, 12))
def test_records_for_a_partition_that_is_not_part_of_the_transaction(
    both: Both, producer: Producer, topic: str, version: int
) -> None:
    not_added = 120 if version > 10 else 48
    assert producer.produce(version, topic) == not_added
    producer.add(3, (topic, 0))
    assert producer.produce(version, topic, 2) == not_added
    assert producer.produce(version, topic, id_shift=1 << 30) == 49
    assert producer.produce(version, topic, epoch=5) == 47
    assert producer.produce(version, topic, transactional_id="nobody") == 49
    assert producer.produce(version, topic, transactional_id=None) == 53
    assert producer.produce(version, topic, 17) == 3
    assert producer.produce(version, "missing") == 3
    assert producer.produce(version, topic, 2, acks=7) == not_added
    assert producer.produce(version, topic, 0, acks=7) == 21
    assert producer.produce(version, "__consumer_offsets", 2) == not_added
    assert producer.produce(version, topic) == NONE
    assert producer.produce(version, topic) == NONE  # once more
    assert producer.produce(version, topic, sequence=1) == NONE
    assert producer.produce(version, topic, sequence=5) == 45
    assert producer.produce(version, topic, sequence=2, transactional=False) == 48
    producer.producers_of(topic, 0, 2)
    assert producer.end(commit=version % 2 == 0) == NONE
    assert producer.produce(version, topic, sequence=2) == not_added
    producer.producers_of(topic, 0, 2)
    same_records(both, topic, 0)


@pytest.mark.parametrize("version", [3, 9, 11])
def test_a_write_that_waits_for_an_earlier_one_to_open_the_transaction(
    producer: Producer, topic: str, version: int
) -> None:
    not_added = 120 if version > 10 else 48
    assert producer.produce(version, topic, 4, sequence=0) == not_added
    producer.add(3, (topic, 4))
    assert producer.produce(version, topic, 4, sequence=1) == 45
    assert producer.produce(version, topic, 4, sequence=0) == NONE
    assert producer.produce(version, topic, 4, sequence=1) == NONE
    assert producer.end() == NONE


@pytest.mark.parametrize("version", [3, 9, 11])
@pytest.mark.parametrize("damage", ["two", "a piece more", "cut off", "corrupt"])
def test_what_is_not_one_whole_batch_is_refused_as_such(
    both: Both, producer: Producer, topic: str, version: int, damage: str
) -> None:
    def make(side: Side) -> Message:
        one = bytes(batch(producer_id=producer.ids[side], producer_epoch=0, transactional=True))
        data = {"two": one + one, "a piece more": one + one[:20], "cut off": one[:-3], "corrupt": one[:-1] + b"?"}[
            damage
        ]
        return ProduceRequest(
            transactional_id=producer.name, acks=-1, timeout_ms=60_000, topic_data=[produced(topic, data, 2)]
        )

    producer.ask_and_compare(ProduceResponse, version, make)
    producer.add(3, (topic, 2))
    producer.ask_and_compare(ProduceResponse, version, make)
    assert producer.end(commit=False) == NONE
    same_ends(both, topic, 2)


def test_records_of_two_transactions_in_one_request(both: Both, topic: str) -> None:
    one, other = Producer(both).begin(), Producer(both).begin()
    one.add(3, (topic, 0), (topic, 1))
    other.add(3, (topic, 0), (topic, 1))
    for version in (3, 8, 11):

        def make(side: Side) -> Message:
            parts = [
                ProduceRequest.PartitionProduceData(
                    index=n,
                    records=bytes(batch(producer_id=txn_producer.ids[side], producer_epoch=0, transactional=True)),
                )
                for n, txn_producer in enumerate((one, other))
            ]
            topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=parts)
            return ProduceRequest(transactional_id=one.name, acks=-1, timeout_ms=60_000, topic_data=[topic_data])

        answer = one.ask_and_compare(ProduceResponse, version, make)
        assert {part.error_code for part in answer.responses[0].partition_responses} == {49}
    assert (one.end(), other.end()) == (NONE, NONE)


def mark(
    producer: Producer, version: int, *partitions: tuple[str, int], commit: bool = True, epoch: int | None = None,
    coordinator_epoch: int = 0,
) -> list[int]:  # fmt: skip
    def make(side: Side) -> Message:
        names = dict.fromkeys(name for name, _ in partitions)
        topics = [
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                name=name, partition_indexes=[number for topic, number in partitions if topic == name]
            )
            for name in names
        ]
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=producer.ids.get(side, 0),
            producer_epoch=producer.epoch if epoch is None else epoch,
            transaction_result=commit,
            topics=topics,
            coordinator_epoch=coordinator_epoch,
        )
        return WriteTxnMarkersRequest(markers=[marker])

    answer = producer.ask_and_compare(WriteTxnMarkersResponse, version, make)
    return [part.error_code for result in answer.markers for topic in result.topics for part in topic.partitions]


@pytest.mark.parametrize("version", WriteTxnMarkersRequest.VERSIONS)
def test_markers_that_a_client_writes_are_checked_as_kafka_does(both: Both, producer: Producer, version: int) -> None:
    topic = both.create(f"marked-{version}", 3)
    producer.add(3, (topic, 0), (topic, 1))
    assert producer.produce(9, topic) == NONE
    assert producer.produce(9, topic, 1) == NONE
    assert mark(producer, version, (topic, 0), commit=False, coordinator_epoch=3) == [0]
    assert mark(producer, version, (topic, 0), coordinator_epoch=2) == [52]
    assert mark(producer, version, (topic, 0), (topic, 2), coordinator_epoch=5) == [0, 0]
    assert sorted(mark(producer, version, (topic, 9), ("missing", 0), (topic, 2), coordinator_epoch=5)) == [0, 3, 3]
    assert mark(producer, version, (topic, 2), epoch=3, coordinator_epoch=5) == [0]
    assert mark(producer, version, (topic, 2), epoch=2, coordinator_epoch=5) == [47]
    assert mark(producer, version) == []
    both.ask_and_compare(WriteTxnMarkersResponse, WriteTxnMarkersRequest(), version)
    producer.producers_of(topic, 0, 1, 2, 3)
    assert producer.produce(9, topic, sequence=1) == NONE  # it is still part of the transaction
    for number in range(3):
        same_records(both, topic, number)
        same_ends(both, topic, number)


def test_a_write_that_was_begun_before_a_marker_comes_too_late(both: Both, producer: Producer) -> None:
    topic = both.create("late")
    producer.add(3, (topic, 0))
    assert producer.end(commit=False) == NONE
    assert producer.produce(9, topic) == 48
    assert producer.produce(11, topic) == 120
    producer.producers_of(topic, 0)
    same_records(both, topic, 0)


def test_a_partition_that_is_deleted_meanwhile_is_passed_over(both: Both, producer: Producer, topic: str) -> None:
    doomed = both.create("doomed", 2)
    producer.add(3, (doomed, 0), (doomed, 1), (topic, 0))
    assert producer.produce(9, doomed) == NONE
    request = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=doomed)], timeout_ms=60_000)
    both.ask_and_compare(
        DeleteTopicsResponse, request, 6, differ=lambda answer: setattr(answer.responses[0], "topic_id", None)
    )
    assert producer.end() == NONE
    assert producer.settled() == "CompleteCommit"


def test_a_transaction_that_takes_too_long_is_aborted(both: Both, topic: str) -> None:
    slow = Producer(both)
    assert slow.init(timeout_ms=1) == NONE
    assert slow.add(3, (topic, 3)) == [0]
    until(lambda: [slow.state(side) for side in both.sides] == ["CompleteAbort"] * 2)
    assert slow.describe().producer_epoch == 1
    assert slow.end() == 90
    assert slow.add(3, (topic, 3)) == [90]
    assert slow.produce(9, topic, 3) == 47
    assert slow.init(producer_epoch=0) == 90
    slow.begin()
    assert slow.epoch == 2


def test_transactions_are_listed_and_described_as_kafka_does(both: Both, topic: str) -> None:
    open_one, done, empty = (Producer(both, f"seen-{n}").begin() for n in range(3))
    open_one.add(3, (topic, 2), (topic, 5))
    done.add(3, (topic, 2))
    done.end()
    for txn_producer in (open_one, done, empty, Producer(both, "nobody"), Producer(both, "")):
        txn_producer.describe()
    names = [open_one.name, done.name, "nobody", open_one.name]
    request = DescribeTransactionsRequest(transactional_ids=names)
    answers = both.map(lambda side: side.ask(DescribeTransactionsResponse, request, 0))
    assert [[state.error_code for state in answer.transaction_states] for answer in answers] == [[0, 0, 105, 0]] * 2
    assert both.ask_and_compare(DescribeTransactionsResponse, DescribeTransactionsRequest(), 0).transaction_states == []

    def listed(version: int, *states: str, ids: bool = False, duration: int | None = None) -> set[tuple[str, str]]:
        def make(side: Side) -> ListTransactionsRequest:
            request = ListTransactionsRequest(state_filters=list(states))
            if ids:
                request.producer_id_filters = [open_one.ids[side], empty.ids[side], 1 << 50]
            if duration is not None:
                request.duration_filter = duration
            return request

        answers = both.map(lambda side: side.ask(ListTransactionsResponse, make(side), version))
        for answer in answers:
            answer.transaction_states = [
                state for state in answer.transaction_states if state.transactional_id.startswith("seen-")
            ]
            for state in answer.transaction_states:
                state.producer_id = 0
            answer.unknown_state_filters.sort()
        answer = both.compare(answers, version)
        return {(state.transactional_id, state.transaction_state) for state in answer.transaction_states}

    ongoing, complete, never = ("seen-0", "Ongoing"), ("seen-1", "CompleteCommit"), ("seen-2", "Empty")
    for version in ListTransactionsRequest.VERSIONS:
        assert listed(version) == {ongoing, complete, never}
        assert listed(version, "Ongoing") == {ongoing}
        assert listed(version, "Ongoing", "Empty", "Ongoing") == {ongoing, never}
        assert listed(version, "Dead", "PrepareEpochFence", "PrepareCommit", "PrepareAbort", "CompleteAbort") == set()
        assert listed(version, "ongoing", "", "Nonsense") == set()
        assert listed(version, "Empty", "Nonsense") == {never}
        assert listed(version, ids=True) == {ongoing, never}
        assert listed(version, "Empty", ids=True) == {never}
    for duration, expected_count in ((-1, 3), (-5, 3), (1 << 40, 1), (1 << 62, 0)):
        assert len(listed(1, duration=duration)) == expected_count
    open_one.end()


def fetched(side: Side, topic: str, partition: int) -> bytes:
    part = FetchRequest.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=10_000_000)
    request = FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=10_000_000,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])],
    )  # fmt: skip
    answer = side.ask(FetchResponse, request, 11).responses[0].partitions[0]
    assert answer.error_code == 0, answer
    return bytes(answer.records or b"")  # type: ignore[arg-type]


def same_records(both: Both, topic: str, partition: int) -> None:
    """Batch by batch, markers included: all but producer ids, checksums and the broker's times."""

    def shape(side: Side) -> list[object]:
        data = fetched(side, topic, partition)
        shapes: list[object] = []
        for position, header in walk(data):
            plain = header._replace(crc=0, producer_id=0)
            if header.is_control:
                marker = read_end_marker(data, position, header)
                assert marker is not None
                records = [(record.key, record.value, record.headers) for record in records_of(data, position, header)]
                plain = plain._replace(base_timestamp=0, max_timestamp=0)
                shapes.append((plain, records, marker._replace(timestamp=0, coordinator_epoch=0)))
            else:
                shapes.append(plain)
        return shapes

    theirs, ours = both.map(shape)
    assert theirs == ours


@pytest.mark.parametrize("n", range(8))
def test_the_journals_records_are_the_same_byte_for_byte(both: Both, n: int) -> None:
    """But for producer ids and times. Kafka's order of partitions is that of its hash tables."""
    topics = [both.create(f"journal-{n}-{name}", 8) for name in "abcdefgh"[: n + 1]]
    one = Producer(both, f"journal-{n}").begin()
    draw = random.Random(n)
    for _ in range(4):
        one.add(3, *((draw.choice(topics), draw.randrange(8)) for _ in range(1 + n % 4)))
    one.end(commit=n % 2 == 0)

    def journal(side: Side) -> list[tuple[bytes, bytes]]:
        entries = []
        data = fetched(side, "__transaction_state", partition_for(one.name, 50))
        for position, header in walk(data):
            for record in records_of(data, position, header):
                if record.key is not None and record.key.endswith(one.name.encode()):
                    value = deserialize(TransactionLogValue, record.value)
                    assert value.producer_id == one.ids[side]
                    value.producer_id = value.transaction_last_update_timestamp_ms = 0
                    value.transaction_start_timestamp_ms = min(value.transaction_start_timestamp_ms, 0)
                    entries.append((record.key, serialize(value, 0)))
                    assert (record.value or b"")[:2] == b"\0\0"
        return entries

    theirs, ours = both.map(journal)
    assert theirs == ours
    assert len(ours) >= 4


def test_expired_ids_and_too_long_timeouts_are_refused_as_the_settings_say(tmp_path: Path) -> None:
    """Ids expire soon, transactions must be short, and partitions are not verified."""
    more = {
        "transactional.id.expiration.ms": 1000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
        "transaction.max.timeout.ms": 5000,
        "transaction.partition.verification.enable": "false",
    }
    with both_brokers(tmp_path, SETTINGS | more) as both:
        for side in both.sides:
            until(partial(is_found, side, 1))
            until(partial(is_ready, side))
        topic = both.create("unverified", 2)
        one, idle = Producer(both, "one"), Producer(both, "idle")
        assert [one.init(timeout_ms=timeout_ms) for timeout_ms in (5001, 5000)] == [50, NONE]
        assert idle.init(timeout_ms=5000) == NONE
        assert one.add(3, (topic, 0)) == [0]
        for version in (3, 11):
            assert one.produce(version, topic, 1, sequence=(version - 3) // 8) == NONE  # which nobody will end
        assert one.produce(9, topic, 0, transactional_id="nobody") == NONE
        one.producers_of(topic, 0, 1)
        until(lambda: [idle.state(side) for side in both.sides] == ["", ""])
        assert idle.describe().error_code == 105
        assert idle.end() == 49
        before = dict(idle.ids)
        assert idle.init(timeout_ms=5000, producer_epoch=0) == NONE  # as if never seen
        assert idle.epoch == 0
        assert all(idle.ids[side] != before[side] for side in both.sides)
        assert one.describe().transaction_state == "Ongoing"  # what is open is not idle
        assert one.end() == NONE
        assert mark(one, 1, (topic, 1), commit=False) == [0]
        for n in range(2):
            same_records(both, topic, n)
            same_ends(both, topic, n)


def same_ends(both: Both, topic: str, partition: int) -> None:
    """The last stable offset, and the high watermark."""
    for isolation in (0, 1):
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])]
        both.ask_and_compare(
            ListOffsetsResponse, ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 7
        )
