"""Apache Kafka's brokers and Leadline's in one cluster under load: each kind takes the place of the other and dies.

    what was acknowledged is there, at its offset, once and in order
    a loop of transactions writes each record once, wherever its coordinators move to
    replicas are the same, byte for byte, and Kafka's replica-verification tool finds no difference

They run with --long.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.clients.loop import PARTITIONS as LOOP_PARTITIONS
from tests.clients.loop import Feed, Loop, committed, each_is_there_once, ends
from tests.conformance.kafka.elections import elect
from tests.conformance.kafka.replica_verification import verified
from tests.conformance.mixed_cluster import KAFKA, LEADLINE, PATIENCE_S, Kind, MixedCluster, mixed_cluster
from tests.fault.load import PARTITIONS, Load, check, running
from tests.support import in_memory
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ENOUGH = 50  # acknowledgements of each partition
FED_PER_S = 20  # records for the loop, which follows them on a busy machine as well
STUCK_S = 75  # longer than the time-outs of the loop
RATE = 1_000_000  # bytes a second, of moves
IDEMPOTENT: dict[str, str | bool] = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": "180000"}


@pytest.fixture(autouse=True, scope="module")
def _only_if_long(is_long: bool) -> None:
    if not is_long:
        pytest.skip("only with --long")


def spread(partitions: int, ids: list[int]) -> list[list[int]]:
    return [[*ids[n % len(ids) :], *ids[: n % len(ids)]] for n in range(partitions)]


def go_on(load: Load, why: str) -> None:
    """Until each partition has acknowledged some more."""

    def counts() -> list[int]:
        partitions = [partition for partition, _ in list(load.acked)]
        return [partitions.count(n) for n in range(PARTITIONS)]

    before = counts()
    until(
        lambda: min(now - then for now, then in zip(counts(), before, strict=True)) >= ENOUGH,
        lambda: f"{why}: {before}, then {counts()}; {load.failed[-3:]}",
    )


@contextmanager
def transactions(cluster: MixedCluster, ids: list[int]) -> Iterator[Callable[[], None]]:
    """A loop of transactions runs meanwhile; in the end each record was written once. Yields: wait for more of them.

    librdkafka 2.16 may wait for ever in send_offsets_to_transaction when the group's coordinator has gone, whatever
    time-out it is called with (its issues 5456 and 5511). Then the loop is killed, and starts anew.
    """
    for topic in ("input", "output"):
        cluster.create(topic, spread(LOOP_PARTITIONS, ids))
    program = [sys.executable, "-m", "tests.clients.python.exactly_once", cluster.bootstrap, "input", "output"]
    feed, loop = Feed(cluster.bootstrap, FED_PER_S), Loop([*program, "loop"])

    def go_on_with_transactions() -> None:
        before, since_s = loop.counts["committed"], time.monotonic()

        def goes_on() -> bool:
            nonlocal since_s
            if time.monotonic() - since_s > STUCK_S:
                loop.kill()
                loop.start()
                since_s = time.monotonic()
            return loop.counts["committed"] > before + 1

        until(goes_on, lambda: loop.last)

    try:
        go_on_with_transactions()
        yield go_on_with_transactions
        feed.stop()
        due = ends(cluster.bootstrap, "input")
        until(lambda: committed(cluster.bootstrap) == due, lambda: loop.last)
        loop.end()
    finally:
        feed.stop()
        with suppress(ValueError):
            loop.kill()
    each_is_there_once(cluster.bootstrap, feed.count)


def test_a_whole_cluster_is_replaced_broker_by_broker_and_back_while_in_use() -> None:
    for path in in_memory.directory():
        ids = [0, 1, 2]
        with mixed_cluster(path, dict.fromkeys(ids, KAFKA)) as cluster:
            cluster.create("orders", spread(PARTITIONS, ids))
            load = Load(cluster, "orders", "load", IDEMPOTENT, pause_s=0.05)
            topics = ("orders", "input", "output", GROUPS, TRANSACTIONS)
            with transactions(cluster, ids) as go_on_with_transactions, running(load):
                for kind in (LEADLINE, KAFKA):
                    replace_all(cluster, kind, topics, load, go_on_with_transactions)
            check(cluster, load)
            cluster.same_bytes(*topics)
            assert verified(cluster.bootstrap, "orders").startswith("max lag is 0")


def replace_all(
    cluster: MixedCluster, kind: Kind, topics: tuple[str, ...], load: Load, go_on_with_transactions: Callable[[], None]
) -> None:
    """The controller comes last."""
    controller = cluster.controller
    for id in sorted(cluster.brokers, key=lambda id: id == controller):
        cluster.replace(id, kind)
        go_on(load, f"after broker {id} became one of {kind}")
        go_on_with_transactions()
        cluster.settle(*topics)
    assert cluster.ids(kind) == list(cluster.brokers)


# Two of each


@pytest.fixture(scope="module")
def halves(_only_if_long: None) -> Iterator[MixedCluster]:
    for path in in_memory.directory():
        with mixed_cluster(path, {0: KAFKA, 1: KAFKA, 2: LEADLINE, 3: LEADLINE}) as cluster:
            yield cluster


@pytest.mark.parametrize("elected", [KAFKA, LEADLINE])
def test_brokers_of_both_kinds_are_killed_in_turn_under_load(halves: MixedCluster, elected: Kind) -> None:
    topic = f"killed-{elected[0]}"
    halves.create(topic, [[0, 2, 1], [2, 1, 3], [1, 3, 2]])
    load = Load(halves, topic, "load", IDEMPOTENT, pause_s=0.05)
    with running(load):
        for id in (2, 0, 3, 1):
            elect(halves.tree, lambda controller: controller in halves.ids(elected))
            go_on(load, f"before broker {id} is killed")
            halves.brokers[id].kill()
            go_on(load, f"after broker {id} was killed")
            halves.brokers[id].start()
            halves.settle(topic)
    check(halves, load)
    halves.same_bytes(topic)
    assert verified(halves.bootstrap, topic).startswith("max lag is 0")


@pytest.mark.parametrize("elected", [KAFKA, LEADLINE])
def test_every_partition_moves_to_the_other_kind_and_back_while_in_use(halves: MixedCluster, elected: Kind) -> None:
    elect(halves.tree, lambda controller: controller in halves.ids(elected))
    topic = f"moved-{elected[0]}"
    halves.create(topic, spread(PARTITIONS, [0, 1]))
    load = Load(halves, topic, "load", IDEMPOTENT, pause_s=0.05)
    with running(load):
        for kind in (LEADLINE, KAFKA, LEADLINE):
            go_on(load, f"before the move to {kind}")
            halves.move({topic: halves.ids(kind)})
            go_on(load, f"after the move to {kind}")
            assert {state.leader for state in halves.states(topic).values()} <= set(halves.ids(kind))
    check(halves, load)
    halves.same_bytes(topic)
    assert verified(halves.bootstrap, topic).startswith("max lag is 0")
    for id in halves.ids(KAFKA):
        until(lambda: not list(halves.brokers[id].log_dir.glob(f"{topic}-?")), "replicas that moved to be deleted")  # noqa: B023


def test_coordinators_move_between_the_kinds_in_the_middle_of_a_transaction(halves: MixedCluster) -> None:
    halves.create("sums", [[0, 2]])
    producer = Producer({"bootstrap.servers": halves.bootstrap, "transactional.id": "sums", "log_level": 0})
    consumer = Consumer({"bootstrap.servers": halves.bootstrap, "group.id": "sums", "log_level": 0})
    with closing(consumer):
        producer.init_transactions(PATIENCE_S)
        for n, (kind, outcome) in enumerate(
            [(LEADLINE, "commit"), (KAFKA, "abort"), (LEADLINE, "abort"), (KAFKA, "commit")]
        ):
            producer.begin_transaction()
            producer.produce("sums", f"{n} before".encode())
            assert producer.flush(PATIENCE_S) == 0
            producer.send_offsets_to_transaction(
                [TopicPartition("sums", 0, n + 1)], consumer.consumer_group_metadata(), PATIENCE_S
            )
            halves.move(dict.fromkeys((GROUPS, TRANSACTIONS), halves.ids(kind)))
            producer.produce("sums", f"{n} after".encode())
            end = producer.commit_transaction if outcome == "commit" else producer.abort_transaction
            end(PATIENCE_S)
            until(lambda: committed_offset(halves) == (n + 1 if outcome == "commit" else 1), "the group's offset")  # noqa: B023
    assert committed_values(halves, "sums") == [b"0 before", b"0 after", b"3 before", b"3 after"]
    halves.same_bytes("sums", GROUPS, TRANSACTIONS)


def committed_offset(cluster: MixedCluster) -> int:
    """-1 while a broker that is asked does not know yet who the coordinator is."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "sums", "log_level": 0})
    with closing(consumer):
        try:
            (partition,) = consumer.committed([TopicPartition("sums", 0)], PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return -1
        return int(partition.offset)


def committed_values(cluster: MixedCluster, topic: str) -> list[bytes]:
    """Of the only partition, up to the last stable offset, which reaches the end when all markers are written."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    values: list[bytes] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])

        def is_read() -> bool:
            values.extend(message.value() or b"" for message in consumer.consume(500, 0.5) if not message.error())
            (position,) = consumer.position([TopicPartition(topic, 0)])
            return bool(position.offset == consumer.get_watermark_offsets(TopicPartition(topic, 0), 60)[1])

        until(is_read, f"{topic} to be read")
    return values


def test_transactions_go_on_while_their_coordinators_and_topics_move(halves: MixedCluster) -> None:
    with transactions(halves, [0, 1]) as go_on_with_transactions:
        for kind in (LEADLINE, KAFKA, LEADLINE):
            for topics in ((GROUPS, TRANSACTIONS), ("input", "output")):
                halves.move(dict.fromkeys(topics, halves.ids(kind)))
                go_on_with_transactions()
    halves.same_bytes("input", "output", GROUPS, TRANSACTIONS)


@pytest.mark.parametrize(("source", "target"), [(0, 2), (2, 0)], ids=["to Leadline", "to Kafka"])
def test_a_move_between_the_kinds_is_as_slow_as_its_throttle(halves: MixedCluster, source: int, target: int) -> None:
    topic = f"throttled-{source}"
    halves.create(topic, [[source]], min_insync_replicas=1)
    producer = Producer({"bootstrap.servers": halves.bootstrap, "log_level": 0})
    for _ in range(60):
        producer.produce(topic, b"." * 100_000)
    assert producer.flush(PATIENCE_S) == 0
    began = time.monotonic()
    halves.move({topic: [target]}, "--throttle", str(RATE))
    assert 6_000_000 / (time.monotonic() - began) < 1.5 * RATE
    assert len(committed_values(halves, topic)) == 60


@pytest.mark.parametrize("elected", [KAFKA, LEADLINE])
@pytest.mark.parametrize(("leader", "follower"), [(0, 2), (2, 0)], ids=["Leadline survives", "Kafka survives"])
def test_after_an_unclean_election_the_former_leader_truncates(
    halves: MixedCluster, elected: Kind, leader: int, follower: int
) -> None:
    controller = 1 if elected == KAFKA else 3
    elect(halves.tree, lambda id: id == controller)
    topic = f"unclean-{leader}-{controller}"
    halves.create(topic, [[leader, follower]], min_insync_replicas=1, unclean_leader_election_enable="true")
    producer = Producer({"bootstrap.servers": halves.bootstrap, "acks": "1", "log_level": 0})

    def send(*values: bytes) -> None:
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(PATIENCE_S) == 0

    send(b"both")
    halves.settle(topic)
    halves.same_bytes(topic)
    halves.brokers[follower].kill()
    until(lambda: halves.states(topic)[0].isr == [leader], "the follower to leave the in-sync replicas")
    send(b"lost", b"lost as well")
    halves.brokers[leader].kill()
    until(lambda: halves.states(topic)[0].leader == -1, "the partition to be without a leader")
    halves.brokers[follower].start()
    until(lambda: halves.states(topic)[0].leader == follower, "the follower to lead")
    send(b"later")
    halves.brokers[leader].start()
    halves.settle(topic)
    assert committed_values(halves, topic) == [b"both", b"later"]
    halves.same_bytes(topic)
    assert verified(halves.bootstrap, topic).startswith("max lag is 0")
