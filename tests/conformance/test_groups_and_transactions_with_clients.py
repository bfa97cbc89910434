"""What applications see of groups and transactions: one script with real clients, on Kafka and on Leadline.

A script runs on one broker and returns what its consumers, producers and administrators were told: the shape of
assignments, error codes, committed offsets, the records that were read. It runs on both brokers at
the same time, and both must give the same.
"""

import importlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka.errors import TransactionalIdNotFoundError  # type: ignore[import-untyped]

from tests.clients.client import Client
from tests.conformance.kafka.broker import broker, zookeeper
from tests.support.broker import leadline
from tests.support.topics import create_topic
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

confluent: Any = importlib.import_module("confluent_kafka")  # its types do not say what it exports
admin_api: Any = importlib.import_module("confluent_kafka.admin")

T = TypeVar("T")
PATIENCE_S = 120.0
ASK_AGAIN_S = 5  # librdkafka may wait in vain for a coordinator that was not there when it first asked for it
NOT_YET = {"COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "_TIMED_OUT"}
PARTITIONS = 6
SESSION_MS = 10_000  # on a busy machine, too, a member that lives is heard within it
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 5,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 5,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    "transactional.id.expiration.ms": 15_000,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 300,
}


def code(call: Callable[[], object]) -> str:
    """How a call ended: by the name of its error."""
    try:
        call()
    except KafkaException as error:
        cause = error.args[0]
        return (
            f"{cause.name()}{', fatal' if cause.fatal() else ''}{', abortable' if cause.txn_requires_abort() else ''}"
        )
    return "fine"


@dataclass
class Place:
    """A broker, and what a script does there under one name."""

    bootstrap: str
    name: str
    ends: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admin = admin_api.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def topic(self, name: str, records: int = 0) -> str:
        """A topic of six partitions, with so many records."""
        topic = f"{self.name}-{name}"
        create_topic(self.bootstrap, topic, PARTITIONS)
        self.fill(topic, records)
        return topic

    def fill(self, topic: str, records: int) -> None:
        producer = self.producer()
        for n in range(records):
            producer.produce(topic, b"%d" % n, partition=n % PARTITIONS)
        assert producer.flush(PATIENCE_S) == 0

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "log_level": 0, "linger.ms": 1} | _dotted(settings))

    def transactional(self, name: str, **settings: object) -> Producer:
        producer = self.producer(transactional_id=f"{self.name}-{name}", **settings)
        producer.init_transactions(PATIENCE_S)
        return producer

    def consumer(self, group: str = "group", **settings: object) -> Consumer:
        own = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{self.name}-{group}",
            "log_level": 0,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 100,
        }
        return Consumer(own | _dotted(settings))

    def member(self, topic: str, **settings: object) -> "Member":
        member = Member(self.consumer("group", **settings), topic)
        self.ends.append(member.drop)
        return member

    def group(self, group: str = "group") -> Any:
        """As described; the first to ask may have to wait until there is a coordinator."""
        name = f"{self.name}-{group}"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                futures = self.admin.describe_consumer_groups([name], request_timeout=ASK_AGAIN_S)
                return futures[name].result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].name() not in NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def has_forgotten(self, name: str) -> bool:
        """Whether the coordinator knows nothing of a transactional id."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            admin.describe_transactions([f"{self.name}-{name}"])
        except TransactionalIdNotFoundError:
            return True
        finally:
            admin.close()
        return False

    def described(self, group: str = "group") -> tuple[str, str, int]:
        description = self.group(group)
        return description.state.name, description.partition_assignor, len(description.members)

    def alter_offset(self, topic: str, offset: int, group: str = "group") -> str:
        """That of partition 0, by an administrator; the error."""
        name = f"{self.name}-{group}"
        offsets = confluent.ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, offset)])
        (result,) = self.admin.alter_consumer_group_offsets([offsets])[name].result(PATIENCE_S).topic_partitions
        return "fine" if result.error is None else str(result.error.name())

    def committed(self, topic: str, group: str = "group") -> list[int]:
        """By partition; -1001 if there is none."""
        consumer = self.consumer(group)
        partitions = consumer.committed([TopicPartition(topic, n) for n in range(PARTITIONS)], PATIENCE_S)
        consumer.close()
        return [partition.offset for partition in partitions]

    def read(self, topic: str, isolation: str = "read_committed") -> list[bytes]:
        """All values from the start to the end as this isolation sees it, in their order."""
        consumer = self.consumer("none", isolation_level=isolation, enable_partition_eof=True)
        consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        values: list[bytes] = []
        ended = 0
        deadline = time.monotonic() + PATIENCE_S
        while ended < PARTITIONS:
            assert time.monotonic() < deadline, "not read to the end"
            for message in consumer.consume(1000, 0.1):
                if (error := message.error()) is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    values.append(value)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended += 1
        consumer.close()
        return sorted(values)


def _dotted(settings: dict[str, object]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}


class Member:
    """A consumer in a thread of its own, which polls it and runs other calls on it until it is closed."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self.consumer = consumer
        self.rebalances = 0  # how often something was given to it or taken from it
        self.read: list[bytes] = []
        self.errors: list[str] = []
        self.owns: list[int] = []  # as of the last poll
        self._polls = True
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            with suppress(Empty):
                job = self._jobs.get(timeout=0 if self._polls else 0.02)
                if job is None:
                    return
                job[1].set_result(job[0]())
            if self._polls:
                self._poll()

    def _poll(self) -> None:
        message = self.consumer.poll(0.05)
        owns = sorted(partition.partition for partition in self.consumer.assignment())
        self.rebalances += owns != self.owns
        self.owns = owns
        if message is None:
            return
        if (error := message.error()) is not None:
            self.errors.append(error.name())
            self._polls = not error.fatal()
        else:
            value = message.value()
            assert isinstance(value, bytes)
            self.read.append(value)

    def do(self, job: Callable[[], T]) -> T:
        """In its thread, between two polls."""
        done: Future[T] = Future()
        self._jobs.put((job, done))
        return done.result(PATIENCE_S)

    def pause(self) -> None:
        """It polls no more; its heartbeats go on."""
        self.do(lambda: setattr(self, "_polls", False))

    def resume(self) -> None:
        self.do(lambda: setattr(self, "_polls", True))

    def commit(self, topic: str, offset: int) -> str:
        offsets = [TopicPartition(topic, n, offset) for n in range(PARTITIONS)]

        def commit() -> None:
            for committed in self.consumer.commit(offsets=offsets, asynchronous=False) or []:
                if committed.error is not None:
                    raise KafkaException(committed.error)

        return self.do(lambda: code(commit))

    def close(self) -> None:
        self._end()
        self.consumer.close()

    def drop(self) -> None:
        """Without a farewell. When others have just left, the group rebalances, and then librdkafka's close may wait
        for ever, with the interpreter's lock in its hands.
        """
        self._end()
        del self.consumer

    def _end(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        self.owns = []


def settled(place: Place, *members: Member) -> list[int]:
    """How many partitions each has, once the group is stable and they hold what the coordinator says.

    A cooperative group is stable between two rebalances, too: what one member gave up has no owner then, and the next
    rebalance gives it away. So a group has settled when each partition has an owner.
    """
    held: list[list[int]] = []

    def is_so() -> bool:
        group = place.group()
        assigned = [
            sorted(partition.partition for partition in member.assignment.topic_partitions) for member in group.members
        ]
        held[:] = sorted(member.owns for member in members)
        is_stable = group.state.name == "STABLE" and sorted(assigned) == held
        return is_stable and set(range(PARTITIONS)) <= {partition for owns in held for partition in owns}

    until(is_so, held)
    assert sorted(partition for owns in held for partition in owns) == list(range(PARTITIONS)), "each has one owner"
    return sorted(len(owns) for owns in held)


# Scenes

Script = Callable[[Place], object]


def several_consumers_join_at_once(strategy: str) -> Script:
    def script(place: Place) -> object:
        topic = place.topic("joined", records=60)
        members = [place.member(topic, partition_assignment_strategy=strategy) for _ in range(3)]
        shares = settled(place, *members)
        until(lambda: sum(len(member.read) for member in members) >= 60)
        outcomes = [member.commit(topic, 10) for member in members]
        late = place.member(topic, partition_assignment_strategy=strategy)
        more = settled(place, late, *members)
        return shares, more, outcomes, place.described(), place.committed(topic), late.read

    return script


def a_member_leaves_while_another_joins(place: Place) -> object:
    topic = place.topic("left")
    stays, leaves = (place.member(topic, partition_assignment_strategy="range") for _ in range(2))
    first = settled(place, stays, leaves)
    stays.pause()  # so that the rebalance cannot end
    leaves.pause()  # nor wait to join again: a broker hears the next word of a connection once it has answered
    joins = place.member(topic, partition_assignment_strategy="range")
    until(lambda: place.described()[0] == "PREPARING_REBALANCING")
    leaves.close()
    until(lambda: place.described()[2] == 2)
    between = place.described()
    stays.resume()
    return first, between, settled(place, stays, joins), place.described()


def offsets_are_committed_while_the_group_rebalances(place: Place) -> object:
    topic = place.topic("committed", records=60)
    old = place.member(topic, partition_assignment_strategy="range")
    settled(place, old)
    before = old.commit(topic, 3)
    old.pause()
    new = place.member(topic, partition_assignment_strategy="range")
    until(lambda: place.described()[0] == "PREPARING_REBALANCING")
    meanwhile = old.commit(topic, 5), place.committed(topic)
    old.resume()
    shares = settled(place, old, new)
    return before, meanwhile, shares, old.commit(topic, 6), new.commit(topic, 7), place.committed(topic)


def a_consumer_that_does_not_poll_is_expelled(place: Place) -> object:
    topic = place.topic("expelled", records=6)
    limits: dict[str, Any] = {"max_poll_interval_ms": SESSION_MS, "partition_assignment_strategy": "range"}
    lazy = place.member(topic, **limits)
    settled(place, lazy)
    lazy.pause()
    busy = place.member(topic, **limits)
    shares = settled(place, busy)
    outcome = lazy.commit(topic, 4)
    lazy.resume()
    return shares, outcome, place.committed(topic), settled(place, lazy, busy)


def static_members_restart(place: Place) -> object:
    topic = place.topic("static")
    settings: dict[str, Any] = {"partition_assignment_strategy": "range"}
    one, two = (place.member(topic, group_instance_id=name, **settings) for name in ("one", "two"))
    first = settled(place, one, two)
    owned, rebalances = two.owns, two.rebalances
    one.close()
    within = place.described()
    one = place.member(topic, group_instance_id="one", **settings)
    again = settled(place, one, two), two.owns == owned, two.rebalances - rebalances
    one.close()
    alone = settled(place, two)  # its session is over
    gone = place.described()
    one = place.member(topic, group_instance_id="one", **settings)
    return first, within, again, alone, gone, settled(place, one, two), place.described()


def a_static_member_is_fenced_by_its_double(place: Place) -> object:
    topic = place.topic("double")
    first = place.member(topic, group_instance_id="one")
    settled(place, first)
    second = place.member(topic, group_instance_id="one")
    until(lambda: first.errors)
    return first.errors[-1], first.commit(topic, 1), settled(place, second), second.errors


def a_zombie_producer_is_fenced(place: Place) -> object:
    topic = place.topic("fenced")
    zombie = place.transactional("fenced")
    zombie.begin_transaction()
    zombie.produce(topic, b"of the zombie", partition=0)
    assert zombie.flush(PATIENCE_S) == 0
    successor = place.transactional("fenced")
    outcomes = [code(lambda: zombie.commit_transaction(PATIENCE_S))]
    outcomes.append(code(zombie.begin_transaction))
    successor.begin_transaction()
    successor.produce(topic, b"of its successor", partition=0)
    outcomes.append(code(lambda: successor.commit_transaction(PATIENCE_S)))
    return outcomes, place.read(topic), place.read(topic, "read_uncommitted")


def a_zombie_that_only_writes_is_fenced(place: Place) -> object:
    topic = place.topic("fenced-writing")
    zombie = place.transactional("writing")
    zombie.begin_transaction()
    place.transactional("writing")
    zombie.produce(topic, b"late", partition=0)
    return code(lambda: zombie.commit_transaction(PATIENCE_S)), place.read(topic, "read_uncommitted")


def records_are_read_changed_and_written(place: Place) -> object:
    source, target = place.topic("source", records=60), place.topic("target")
    producer = place.transactional("loop")
    rounds: list[object] = []
    for run, commit in enumerate((False, True)):  # what was aborted is done again
        consumer = place.consumer("loop", isolation_level="read_committed")
        consumer.subscribe([source])
        producer.begin_transaction()
        read: dict[int, int] = {}
        count = 0
        deadline = time.monotonic() + PATIENCE_S
        while count < 60:
            assert time.monotonic() < deadline
            for message in consumer.consume(60 - count, 0.1):
                partition, offset, value = message.partition(), message.offset(), message.value()
                assert message.error() is None
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                read[partition] = offset + 1
                producer.produce(target, b"%d: %s" % (run, value), partition=partition)
                count += 1
        offsets = [TopicPartition(source, partition, offset) for partition, offset in read.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        open_yet = place.read(target)
        if commit:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        consumer.close()
        rounds.append([open_yet, place.committed(source, "loop"), place.read(target)])
    return rounds, len(place.read(target, "read_uncommitted"))


def offsets_of_a_member_that_was_replaced_are_not_taken(place: Place) -> object:
    """A transaction carries the group metadata that its consumer had when they were fetched."""
    topic = place.topic("generations", records=6)
    producer = place.transactional("generations")
    member = place.member(topic, partition_assignment_strategy="range")
    settled(place, member)
    metadata = member.do(member.consumer.consumer_group_metadata)
    other = place.member(topic, partition_assignment_strategy="range")
    settled(place, member, other)
    producer.begin_transaction()
    offsets = [TopicPartition(topic, 0, 1)]
    outcome = code(lambda: producer.send_offsets_to_transaction(offsets, metadata, PATIENCE_S))
    ended = code(lambda: producer.abort_transaction(PATIENCE_S))
    return outcome, ended, place.committed(topic)


def a_transaction_takes_too_long(place: Place) -> object:
    topic = place.topic("slow")
    producer = place.transactional("slow", transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce(topic, b"never seen", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    until(lambda: ends(place, topic, "read_committed") == ends(place, topic, "read_uncommitted"))
    outcome = code(lambda: producer.commit_transaction(PATIENCE_S))
    return outcome, place.read(topic), ends(place, topic, "read_uncommitted")


def ends(place: Place, topic: str, isolation: str) -> int:
    level = getattr(confluent.IsolationLevel, isolation.upper())
    where = TopicPartition(topic, 0)
    futures = place.admin.list_offsets({where: admin_api.OffsetSpec.latest()}, isolation_level=level)
    return int(futures[where].result(PATIENCE_S).offset)


def a_transactional_id_expires(place: Place) -> object:
    """An unused transactional id expires, and a producer that comes back begins anew."""
    topic = place.topic("expired")
    producer = place.transactional("expired")
    producer.begin_transaction()
    producer.produce(topic, b"before", partition=0)
    producer.commit_transaction(PATIENCE_S)
    until(lambda: place.has_forgotten("expired"))
    producer.begin_transaction()
    producer.produce(topic, b"after", partition=0)
    outcome = code(lambda: producer.commit_transaction(PATIENCE_S))
    successor = place.transactional("expired")
    successor.begin_transaction()
    successor.produce(topic, b"anew", partition=0)
    return outcome, code(lambda: successor.commit_transaction(PATIENCE_S)), place.read(topic)


def a_java_consumer_shares_a_group_with_librdkafka(place: Place) -> object:
    """It prefers two strategies, of which the other knows one."""
    topic = place.topic("shared")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        java = Client("java", place.bootstrap, Path(folder))
        place.ends.append(java.close)
        other = place.member(topic, partition_assignment_strategy="range")
        settled(place, other)
        call = {"topic": topic, "group": f"{place.name}-group", "count": 30, "isolation": "read_committed"}
        reading = threads.submit(java.ask, "read_in_group", **call)
        until(lambda: place.described()[::2] == ("STABLE", 2) and len(other.owns) == 3)
        described = place.described()
        place.fill(topic, 60)
        read = reading.result(PATIENCE_S)
        alone = settled(place, other)
        until(lambda: len(set(other.read)) == 30)  # some of them twice: it commits nothing
        return described, sorted((row[0], row[1]) for row in read), alone, place.committed(topic)


def groups_that_are_not_there(place: Place) -> object:
    nowhere, topic = f"{place.name}-nowhere", place.topic("nowhere")
    admin = place.admin
    group_partitions = confluent.ConsumerGroupTopicPartitions
    return (
        place.described("nowhere"),
        code(lambda: admin.delete_consumer_groups([nowhere])[nowhere].result(PATIENCE_S)),
        admin.list_consumer_group_offsets([group_partitions(nowhere)])[nowhere].result(PATIENCE_S).topic_partitions,
        place.committed(topic, "nowhere"),
        place.alter_offset(topic, 1, "nowhere"),
        place.described("nowhere"),
        place.committed(topic, "nowhere"),
        code(lambda: admin.delete_consumer_groups([nowhere])[nowhere].result(PATIENCE_S)),
        place.described("nowhere"),
    )


def a_group_that_is_in_use_is_not_changed(place: Place) -> object:
    topic = place.topic("used", records=6)
    member = place.member(topic)
    settled(place, member)
    name, admin = f"{place.name}-group", place.admin
    outcomes = [
        code(lambda: admin.delete_consumer_groups([name])[name].result(PATIENCE_S)),
        place.alter_offset(topic, 1),
    ]
    member.close()
    until(lambda: place.described()[0] == "EMPTY")
    outcomes.append(place.alter_offset(topic, 2))
    return outcomes, place.committed(topic), place.described()


def an_offset_too_far_or_of_no_topic(place: Place) -> object:
    topic = place.topic("odd")
    consumer = place.consumer("odd")

    def commit(of: str, partition: int, offset: int, metadata: str = "") -> list[str]:
        position = TopicPartition(of, partition, offset, metadata)
        try:
            results = consumer.commit(offsets=[position], asynchronous=False)
        except KafkaException as error:
            return [error.args[0].name()]
        return ["fine" if result.error is None else result.error.name() for result in results or []]

    outcomes = [
        commit(topic, 0, 1 << 40),
        commit(topic, PARTITIONS, 1),
        commit(f"{topic}-not", 0, 1),
        commit(topic, 1, 2, "m" * 4095),
        commit(topic, 2, 2, "m" * 4096),
    ]
    consumer.close()
    return outcomes, place.committed(topic, "odd")


SCRIPTS: dict[str, Script] = {
    "several consumers join at once, eagerly": several_consumers_join_at_once("range"),
    "several consumers join at once, cooperatively": several_consumers_join_at_once("cooperative-sticky"),
} | {
    script.__name__.replace("_", " "): script
    for script in (
        a_member_leaves_while_another_joins,
        offsets_are_committed_while_the_group_rebalances,
        a_consumer_that_does_not_poll_is_expelled,
        static_members_restart,
        a_static_member_is_fenced_by_its_double,
        a_zombie_producer_is_fenced,
        a_zombie_that_only_writes_is_fenced,
        records_are_read_changed_and_written,
        offsets_of_a_member_that_was_replaced_are_not_taken,
        a_transaction_takes_too_long,
        a_transactional_id_expires,
        a_java_consumer_shares_a_group_with_librdkafka,
        groups_that_are_not_there,
        a_group_that_is_in_use_is_not_changed,
        an_offset_too_far_or_of_no_topic,
    )
}


WAITING = "a transactional id expires"  # it does hardly anything else, and so it does it while the others run


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("kafka")
    with zookeeper(folder / "zookeeper") as keeper, broker(folder / "broker", keeper, **SETTINGS) as running:
        yield running.bootstrap


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with leadline(tmp_path_factory.mktemp("leadline") / "data", **SETTINGS) as running:
        yield running.bootstrap


@contextmanager
def stage(bootstrap: str, name: str) -> Iterator[Place]:
    place = Place(bootstrap, name.replace(" ", "-").replace(",", ""))
    try:
        yield place
    finally:
        for end in place.ends:
            end()


def run_script(bootstrap: str, name: str) -> object:
    with stage(bootstrap, name) as place:
        return SCRIPTS[name](place)


@pytest.fixture(scope="module")
def waiting(kafka: str, ours: str) -> Iterator[list[Future[object]]]:
    with ThreadPoolExecutor(2) as threads:
        yield [threads.submit(run_script, address, WAITING) for address in (kafka, ours)]


@pytest.mark.parametrize("name", sorted(SCRIPTS, key=WAITING.__eq__))
def test_applications_get_the_same_results_from_both_brokers(
    name: str, kafka: str, ours: str, waiting: list[Future[object]]
) -> None:
    with ThreadPoolExecutor(2) as threads:
        runs = waiting if name == WAITING else [threads.submit(run_script, address, name) for address in (kafka, ours)]
        theirs_done, ours_done = runs
        assert ours_done.result() == theirs_done.result()
