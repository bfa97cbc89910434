"""Leadline as one of the brokers of an Apache Kafka cluster: it follows, leads, coordinates and is the controller."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic
from kazoo.client import KazooClient

from leadline.wire.messages import MetadataRequest, MetadataResponse
from tests.conformance.both import Connection
from tests.conformance.kafka.broker import Broker, broker, zookeeper
from tests.conformance.kafka.elections import elect
from tests.support.broker import RunningBroker, leadline
from tests.support.commands import leadline as command
from tests.support.commands import started
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

PATIENCE_S = 180
OURS = 2
SETTINGS = {
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.min.isr": 2,
    "min.insync.replicas": 2,
    "group.initial.rebalance.delay.ms": 0,
    "zookeeper.session.timeout.ms": 6000,
}
REPORTER = {"--set": "=org.apache.kafka.common.metrics.JmxReporter", "--delete": ""}


@dataclass
class Mixed:
    """Two brokers of Kafka's, 0 and 1, and one of ours, 2."""

    kafkas: list[Broker]
    ours: RunningBroker
    tree: KazooClient
    admin: AdminClient

    @property
    def bootstrap(self) -> str:
        return ",".join([self.ours.bootstrap, *(kafka.bootstrap for kafka in self.kafkas)])

    @property
    def dirs(self) -> list[Path]:
        return [*(kafka.log_dir for kafka in self.kafkas), self.ours.directory]

    def create(self, topic: str, partitions: int = 3) -> None:
        """A client may not know yet which controller was elected."""

        def created() -> bool:
            try:
                self.admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                    raise
                self.admin.list_topics(timeout=60)  # it does not ask anew by itself
                return False
            return True

        until(created, f"{topic} to be created")
        self.wait_for_all(topic)

    def wait_for_all(self, topic: str) -> None:
        """Waits until the metadata of each broker shows three in-sync replicas for each partition."""

        def in_sync(broker: Connection) -> bool:
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
            (description,) = broker.ask(MetadataResponse, request, 4).topics
            return bool(description.partitions) and all(
                len(partition.isr_nodes) == 3 for partition in description.partitions
            )

        for address in self.bootstrap.split(","):
            host, port = address.split(":")
            with closing(Connection(host, int(port))) as broker:
                until(partial(in_sync, broker), f"all replicas of {topic} in sync")

    def leaders(self, topic: str) -> set[int]:
        return {
            partition.leader
            for partition in self.admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        }

    def same_bytes(self, topic: str) -> None:
        """The replicas of each partition, once they have caught up."""
        names = sorted(path.name for path in self.dirs[0].glob(f"{topic}-*"))
        assert names

        def same() -> bool:
            return all(len({content(folder / name) for folder in self.dirs}) == 1 for name in names)

        until(same, f"replicas of {topic} that are byte for byte the same")


def content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def done(futures: dict[str, "Future[Any]"]) -> None:
    for future in futures.values():
        future.result(PATIENCE_S)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    path = tmp_path_factory.mktemp("mixed")
    with ExitStack() as stack:
        zk = stack.enter_context(zookeeper(path / "zookeeper"))
        kafkas = [
            stack.enter_context(broker(path / f"kafka{id}", zk, **(SETTINGS | {"broker.id": id}))) for id in range(2)
        ]
        tree = KazooClient(zk.connect)
        tree.start()
        stack.callback(tree.close)
        stack.callback(tree.stop)
        settings = SETTINGS | {"broker.id": OURS, "zookeeper.connect": zk.connect}
        ours = stack.enter_context(leadline(path / "ours", **settings))
        admin = AdminClient({"bootstrap.servers": kafkas[0].bootstrap})
        until(lambda: len(admin.list_topics(timeout=60).brokers) == 3, "three brokers")
        yield Mixed(kafkas, ours, tree, admin)


class Sent:
    """What was acknowledged."""

    def __init__(self, cluster: Mixed, topic: str, **settings: object) -> None:
        self.topic, self.values, self.errors = topic, set[bytes](), list[KafkaError]()
        defaults = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 1}
        self.producer = Producer(defaults | {name.replace("_", "."): value for name, value in settings.items()})

    def send(self, name: str, count: int) -> None:
        for number in range(count):
            self.producer.produce(self.topic, f"{name} {number}".encode(), str(number), on_delivery=self._delivered)
            self.producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is not None:
            self.errors.append(error)
        elif value is not None:
            self.values.add(value)

    def flush(self) -> None:
        assert self.producer.flush(PATIENCE_S) == 0
        assert self.errors == []


def read(cluster: Mixed, topic: str, group: str, count: int) -> list[bytes]:
    """All that is committed, through a group."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    values: list[bytes] = []
    with closing(consumer):
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() or b"" for message in consumer.consume(500, 0.5) if message.error() is None]
        values += [message.value() or b"" for message in consumer.consume(500, 0.5) if message.error() is None]
        consumer.commit(asynchronous=False)
    return values


@contextmanager
def away(ours: RunningBroker) -> Iterator[None]:
    ours.kill()
    yield
    ours.start()


@pytest.mark.parametrize("elected", ["kafka", "leadline"])
def test_records_groups_and_transactions_go_through_all_brokers(cluster: Mixed, elected: str) -> None:
    elect(cluster.tree, lambda id: (id == OURS) == (elected == "leadline"))
    topic = f"all-{elected}"
    cluster.create(topic)
    assert cluster.leaders(topic) == {0, 1, 2}
    sent = Sent(cluster, topic)
    sent.send("plain", 1000)
    sent.flush()
    for number in range(4):  # so many that each broker coordinates one
        in_txn = Sent(cluster, topic, transactional_id=f"{elected} {number}")
        in_txn.producer.init_transactions(PATIENCE_S)
        for outcome in (in_txn.producer.commit_transaction, in_txn.producer.abort_transaction):
            in_txn.producer.begin_transaction()
            committed = outcome == in_txn.producer.commit_transaction
            in_txn.send(f"{'committed' if committed else 'aborted'} {number}", 20)
            in_txn.flush()
            outcome(PATIENCE_S)
    expected = sorted([f"plain {n}" for n in range(1000)] + [f"committed {n} {m}" for n in range(4) for m in range(20)])
    for group in "abcd":
        assert sorted(value.decode() for value in read(cluster, topic, f"{elected} {group}", 1080)) == expected
    cluster.same_bytes(topic)
    cluster.same_bytes("__consumer_offsets")
    cluster.same_bytes("__transaction_state")


def test_as_the_controller_it_makes_grows_and_deletes_topics_on_kafkas_brokers(cluster: Mixed) -> None:
    elect(cluster.tree, lambda id: id == OURS)
    cluster.create("grows", 2)
    done(cluster.admin.create_partitions([NewPartitions("grows", 5)]))
    until(lambda: len(cluster.admin.list_topics("grows", timeout=60).topics["grows"].partitions) == 5, "5 partitions")
    cluster.wait_for_all("grows")
    done(cluster.admin.delete_topics(["grows"]))
    until(lambda: not any(list(folder.glob("grows-*[0-9]")) for folder in cluster.dirs), "the replicas' end")
    until(lambda: "grows" not in cluster.admin.list_topics(timeout=60).topics, "the topic's end")


@pytest.mark.parametrize("elected", ["kafka", "leadline"])
def test_what_was_acknowledged_survives_its_death(cluster: Mixed, elected: str) -> None:
    """It is killed while it leads a third of the partitions, and perhaps the cluster; later it comes back."""
    elect(cluster.tree, lambda id: (id == OURS) == (elected == "leadline"))
    topic = f"death-{elected}"
    cluster.create(topic)
    sent = Sent(cluster, topic)
    sent.send("before", 1000)
    with away(cluster.ours):
        sent.send("without", 1000)
        sent.flush()
    cluster.wait_for_all(topic)
    sent.send("after", 1000)
    sent.flush()
    values = read(cluster, topic, f"death {elected}", 3000)
    assert len(values) == len(set(values)) == len(sent.values) == 3000
    assert set(values) == sent.values
    cluster.same_bytes(topic)


def lead(cluster: Mixed, path: Path, broker: int, *topics: str) -> None:
    """Let one broker lead all partitions of these topics, by `leadline reassign` and `leadline leader-election`."""
    replicas = [broker, *(id for id in range(3) if id != broker)]
    partitions = cluster.admin.list_topics(timeout=60).topics
    entries = [
        {"topic": topic, "partition": n, "replicas": replicas} for topic in topics for n in partitions[topic].partitions
    ]
    plan = path / f"{broker}.json"
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    command(cluster, "reassign", "execute", str(plan), "--timeout", "180")
    command(cluster, "leader-election", "preferred", *topics, "--timeout", "180")
    for topic in topics:
        until(lambda: cluster.leaders(topic) == {broker}, f"broker {broker} to lead {topic}")  # noqa: B023


def test_transactions_survive_coordinators_that_move_to_the_other_kind_and_back(cluster: Mixed, tmp_path: Path) -> None:
    """All that an open transaction touches changes hands: its records, its state, the offsets of its group."""
    elect(cluster.tree, lambda id: id == OURS)
    cluster.create("moving", 1)
    sent = Sent(cluster, "moving", transactional_id="moving")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "moving", "log_level": 0})
    producer = sent.producer
    with closing(consumer):
        producer.init_transactions(PATIENCE_S)
        consumer.committed([TopicPartition("moving", 0)], PATIENCE_S)  # from now on there is a topic of offsets
        topics = ("moving", "__consumer_offsets", "__transaction_state")
        for broker, end in ((OURS, producer.commit_transaction), (0, producer.abort_transaction), (OURS, None)):
            producer.begin_transaction()
            sent.send(f"before {broker} {end is None}", 5)
            sent.flush()
            producer.send_offsets_to_transaction(
                [TopicPartition("moving", 0, 10 + broker)], consumer.consumer_group_metadata(), PATIENCE_S
            )
            lead(cluster, tmp_path, broker, *topics)
            sent.send(f"after {broker} {end is None}", 5)
            sent.flush()
            (end or producer.commit_transaction)(PATIENCE_S)
        expected = {
            f"{when} {OURS} {last} {n}" for when in ("before", "after") for last in (False, True) for n in range(5)
        }
        assert {value.decode() for value in read(cluster, "moving", "moving readers", 20)} == expected

        def is_committed() -> bool:
            try:
                (partition,) = consumer.committed([TopicPartition("moving", 0)], PATIENCE_S)
            except KafkaException as error:  # the client learns from it that the coordinator has moved
                if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
                return False
            return bool(partition.offset == 10 + OURS)

        until(is_committed, "the group's offset to be committed")
    for topic in topics:
        cluster.same_bytes(topic)


def test_migrate_check_finds_what_stands_in_the_way_in_a_running_cluster(cluster: Mixed) -> None:
    def blocking() -> list[dict[str, Any]]:
        process = started(cluster, "migrate", "check", "--output", "json", "--timeout", str(PATIENCE_S))
        answer = json.loads(process.communicate(timeout=PATIENCE_S)[0])
        findings = [finding for finding in answer["findings"] if finding["severity"] == "blocks"]
        assert (process.returncode, answer["ready"]) == (int(bool(findings)), not findings)
        assert sorted(answer["order"]) == [0, 1, 2]
        return findings

    def set_reporter(change: str) -> None:
        command(cluster, "configs", "alter", "--broker", "0", change, "metric.reporters" + REPORTER[change])

    until(lambda: blocking() == [], "the cluster to be ready: replicas may still catch up")
    set_reporter("--set")
    try:
        until(lambda: "JmxReporter" in command(cluster, "configs", "describe", "--broker", "0")[0], "the reporter")
        (finding,) = blocking()
    finally:
        set_reporter("--delete")
    assert (finding["area"], finding["where"]) == ("plugin", ["broker 0"])
    assert finding["what"] == f"metric.reporters{REPORTER['--set']}"
