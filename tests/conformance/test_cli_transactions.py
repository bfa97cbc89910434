"""`leadline transactions` against a real Kafka and against Leadline: what Kafka's own tool tells, and what blocks."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.wire.messages import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from tests.conformance.both import ANSWER_S, Both, Side, produced
from tests.conformance.kafka.tools import tool
from tests.support.commands import leadline, lines
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

HOUR_MS = 3_600_000
READY_S = 60
VERIFICATION = "transaction.partition.verification.enable"


@pytest.fixture(scope="module", params=["Kafka", "Leadline"])
def cluster(request: pytest.FixtureRequest, both: Both) -> Side:
    return next(side for side in both.sides if side.name == request.param)


def topic(cluster: Side, name: str) -> str:
    leadline(cluster, "topics", "create", name, "--partitions", "2", "--if-not-exists")
    return name


@contextmanager
def transaction(cluster: Side, name: str, topic: str, *partitions: int) -> Iterator[Producer]:
    """One that is open, with a record in each partition; aborted in the end."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "transaction.timeout.ms": "600000"}
    )
    producer.init_transactions(READY_S)
    producer.begin_transaction()
    for partition in partitions:
        producer.produce(topic, b"x", partition=partition)
    producer.flush(READY_S)
    yield producer
    producer.abort_transaction(READY_S)


@contextmanager
def unverified(cluster: Side) -> Iterator[None]:
    """Leaders take transactional records without asking the coordinator: that is how transactions come to hang."""
    whose = ("configs", "alter", "--broker", "1")
    leadline(cluster, *whose, "--set", f"{VERIFICATION}=false")
    try:
        yield
    finally:
        leadline(cluster, *whose, "--delete", VERIFICATION)


def hang(cluster: Side, topic: str, partition: int, age_ms: int) -> tuple[int, int]:
    """A transaction that no coordinator knows of; its producer and where it begins."""
    anybody = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    producer_id = cluster.ask(InitProducerIdResponse, anybody, 4).producer_id
    record = Record(0, time.time_ns() // 1_000_000 - age_ms, b"k", b"v")
    fields = BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    request = ProduceRequest(
        transactional_id="ghost",
        acks=-1,
        timeout_ms=60_000,
        topic_data=[produced(topic, bytes(build([record], fields)), partition)],
    )
    starts: list[int] = []

    def is_taken() -> bool:  # the setting reaches the broker a moment after it was made
        (response,) = cluster.ask(ProduceResponse, request, 9).responses[0].partition_responses
        starts.append(response.base_offset)
        return response.error_code == 0

    until(is_taken)
    return producer_id, starts[-1]


def kafkas(cluster: Side, *arguments: str) -> list[list[str]]:
    """The rows that Kafka's own tool prints, without the head."""
    printed = tool("transactions", "--bootstrap-server", cluster.bootstrap, *arguments)
    return [line.split() for line in printed.splitlines()[1:] if line.strip()]


def objects(cluster: Side, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(cluster, "transactions", *arguments, "--json")]


def test_transactions_are_listed_and_described_as_kafkas_tool_does(cluster: Side) -> None:
    deals = topic(cluster, "listed-deals")
    with transaction(cluster, "listed-1", deals, 0, 1) as producer:
        ours = [[str(row[name]) for name in LISTED] for row in objects(cluster, "list")]
        theirs = kafkas(cluster, "list")
        (described,) = objects(cluster, "describe", "listed-1")
        (columns,) = kafkas(cluster, "describe", "--transactional-id", "listed-1")
        assert [row for row in ours if row[0] == "listed-1"] == [row for row in theirs if row[0] == "listed-1"]
        assert {row[0] for row in ours} == {row[0] for row in theirs}
        assert [str(described[name]) for name in DESCRIBED] == columns[:7]
        assert described["partitions"] == [{"topic": deals, "partition": 0}, {"topic": deals, "partition": 1}]

        ongoing = objects(cluster, "list", "--state", "Ongoing", "--producer-id", str(described["producer_id"]))
        assert [row["transactional_id"] for row in ongoing] == ["listed-1"]
        old = objects(cluster, "list", "--longer-than", "1h")
        assert "listed-1" not in [row["transactional_id"] for row in old]
        producer.commit_transaction(READY_S)
        producer.begin_transaction()
    until(lambda: objects(cluster, "describe", "listed-1")[0]["state"] == "CompleteCommit")
    assert "started      none under way; the last one" in "\n".join(
        lines(cluster, "transactions", "describe", "listed-1")
    )


LISTED = ("transactional_id", "coordinator", "producer_id", "state")
DESCRIBED = ("coordinator", "transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "started_ms")


def test_what_holds_the_last_stable_offset_is_named(cluster: Side) -> None:
    deals = topic(cluster, "blocked-deals")
    leadline(cluster, "produce", deals, "--partition", "0", stdin=b"a\nb\n")
    with transaction(cluster, "blocker", deals, 0), transaction(cluster, "second", deals, 0):
        leadline(cluster, "produce", deals, "--partition", "0", stdin=b"c\nd\n")
        first, second = objects(cluster, "blocking", deals)
        shown = lines(cluster, "transactions", "blocking", f"{deals}:0")
    assert (first["last_stable_offset"], first["high_watermark"], first["waiting"]) == (2, 6, 4)
    assert (second["waiting"], second["transactions"]) == (0, [])
    held, behind = first["transactions"]
    assert (held["transactional_id"], held["start_offset"], held["hangs"]) == ("blocker", 2, False)
    assert (behind["transactional_id"], behind["start_offset"]) == ("second", 3)
    assert shown[0] == f"{deals}-0: 4 records wait"
    assert "  transactional id    blocker, Ongoing" in shown
    assert "  how it ends         by its producer, or by broker 1 after its time-out of 10 min" in shown


def test_a_hanging_transaction_is_found_as_by_kafkas_tool_and_aborted(cluster: Side) -> None:
    deals = topic(cluster, "hanging-deals")
    with unverified(cluster):
        producer, start = hang(cluster, deals, 1, HOUR_MS)
        young, young_start = hang(cluster, deals, 0, 0)
    (hanging,) = objects(cluster, "find-hanging", "--topic", deals)
    ours = [str(hanging[name]) for name in HANGING]
    assert [ours] == [row[:7] for row in kafkas(cluster, "find-hanging", "--topic", deals)]
    assert (hanging["producer_id"], hanging["start_offset"]) == (producer, start)

    call = ("transactions", "abort", f"{deals}:1", "--start-offset", str(start))
    assert lines(cluster, *call)[-1] == "Nothing has been changed; add --execute to do it."
    assert objects(cluster, "blocking", f"{deals}:1")[0]["waiting"] == 1
    assert lines(cluster, *call, "--execute")[-1] == "Aborted."
    assert objects(cluster, "blocking", f"{deals}:1")[0]["waiting"] == 0

    of_producer = ("--producer-id", str(young), "--producer-epoch", "0", "--coordinator-epoch", "-1")
    shown = lines(cluster, "transactions", "abort", f"{deals}:0", *of_producer, "--execute")
    assert f"it aborts the transaction that starts at {young_start}." in shown[0]
    assert lines(cluster, "transactions", "find-hanging", "--topic", deals) == ["No hanging transaction."]


HANGING = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset", "last_timestamp")


def test_one_that_its_coordinator_will_end_is_not_torn_apart(cluster: Side) -> None:
    deals = topic(cluster, "torn-deals")
    with transaction(cluster, "torn", deals, 0):
        (blocked,) = objects(cluster, "blocking", f"{deals}:0")
        call = (
            "transactions",
            "abort",
            f"{deals}:0",
            "--start-offset",
            str(blocked["last_stable_offset"]),
            "--execute",
        )
        out, err = leadline(cluster, *call, code=1)
        assert "It does not hang: torn is Ongoing" in out
        assert "would split the transaction" in err
        assert objects(cluster, "blocking", f"{deals}:0") == [blocked]


@pytest.fixture(scope="module")
def some_deals(cluster: Side) -> str:
    return topic(cluster, "some-deals")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("describe nobody", "there is no transactional id nobody"),
        ("blocking no-deals", "there is no topic no-deals"),
        ("blocking some-deals:5", "some-deals has the partitions 0 to 1: there is no 5"),
        ("abort some-deals:0 --start-offset 9", "no open transaction of some-deals-0 starts at 9; none is open"),
        ("abort some-deals:0 --producer-id 9", "needed: --start-offset, or --producer-id"),
    ],
)
@pytest.mark.usefixtures("some_deals")
def test_what_cannot_be_done_is_one_line(cluster: Side, arguments: str, message: str) -> None:
    _, err = leadline(cluster, "transactions", *arguments.split(), "--timeout", str(ANSWER_S), code=1)
    (line,) = err.splitlines()
    assert line.startswith("leadline: ")
    assert message in line
