"""Kafka's own tool for transactions, on Leadline: it lists and describes them, finds the one that hangs, ends it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from leadline.wire.messages import ListOffsetsRequest, ListOffsetsResponse, ProduceRequest, ProduceResponse
from tests.conformance.both import Connection, produced
from tests.conformance.kafka.tools import tool
from tests.support.broker import RunningBroker, leadline
from tests.support.logs import START_MS, batch
from tests.support.topics import create_topic

pytestmark = pytest.mark.conformance

TOPIC, SECONDS = "deals", 120.0
HANGING = 4711  # a producer id that no coordinator knows


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With an open transaction, and with one from before brokers verified partitions."""
    settings = {
        "broker.id": 5,
        "log.retention.ms": -1,
        "transaction.state.log.num.partitions": 3,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.partition.verification.enable": "false",
    }
    place: Path = tmp_path_factory.mktemp("tool")
    with leadline(place / "data", **settings) as running, closing(Connection("localhost", running.port)) as connection:
        create_topic(running.bootstrap, TOPIC, 2)
        producer = Producer({"bootstrap.servers": running.bootstrap, "transactional.id": "open", "log_level": 0})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        producer.produce(TOPIC, b"v", partition=0)
        producer.flush(SECONDS)
        data = bytes(batch(producer_id=HANGING, transactional=True, timestamp=START_MS))
        request = ProduceRequest(transactional_id="gone", acks=-1, topic_data=[produced(TOPIC, data, 1)])
        (part,) = connection.ask(ProduceResponse, request, 9).responses[0].partition_responses
        assert part.error_code == 0
        yield running


def rows(broker: RunningBroker, *args: str) -> list[list[str]]:
    lines = tool("transactions", "--bootstrap-server", broker.bootstrap, *args).splitlines()
    return [line.split() for line in lines if line.strip()]


def test_it_lists_and_describes(broker: RunningBroker) -> None:
    header, listed = rows(broker, "list")
    assert header == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert (listed[0], listed[1], listed[3]) == ("open", "5", "Ongoing")
    header, described = rows(broker, "describe", "--transactional-id", "open")
    columns = dict(zip(header, described, strict=False))
    assert (columns["CoordinatorId"], columns["ProducerEpoch"], columns["TransactionState"]) == ("5", "0", "Ongoing")
    assert described[-1] == f"{TOPIC}-0"
    header, producer = rows(broker, "describe-producers", "--topic", TOPIC, "--partition", "0")
    columns = dict(zip(header, producer, strict=True))
    assert (columns["ProducerId"], columns["CurrentTransactionStartOffset"]) == (listed[2], "0")


def test_it_finds_the_one_that_hangs_and_ends_it(broker: RunningBroker) -> None:
    header, row = rows(broker, "find-hanging", "--broker-id", "5")
    hanging = dict(zip(header, row, strict=False))
    assert (hanging["Topic"], hanging["Partition"], hanging["ProducerId"]) == (TOPIC, "1", str(HANGING))
    assert stable_end(broker) == 0
    assert rows(broker, "abort", "--topic", TOPIC, "--partition", "1", "--start-offset", "0") == []
    assert stable_end(broker) == 2
    assert len(rows(broker, "find-hanging", "--broker-id", "5")) == 1  # the header alone


def stable_end(broker: RunningBroker) -> int:
    with closing(Connection("localhost", broker.port)) as connection:
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=1, timestamp=-1)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[part])]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=topics)
        return connection.ask(ListOffsetsResponse, request, 7).topics[0].partitions[0].offset
