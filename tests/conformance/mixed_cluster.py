"""A cluster of Apache Kafka's brokers and of Leadline's, in which one may take the place of the other.

A broker has one server.properties, one directory and one port, whoever runs on it:

    with mixed_cluster(path, {0: KAFKA, 1: KAFKA, 2: LEADLINE}) as cluster:
        cluster.replace(0, LEADLINE)
        cluster.settle("orders")
"""

import json
import random
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from tests.conformance.kafka.broker import Broker, ZooKeeper, broker, zookeeper
from tests.conformance.kafka.elections import controller_of
from tests.support.broker import RunningBroker
from tests.support.commands import leadline
from tests.support.waiting import until

Kind = Literal["Apache Kafka", "Leadline"]
KAFKA: Kind = "Apache Kafka"
LEADLINE: Kind = "Leadline"
OTHER: dict[Kind, Kind] = {KAFKA: LEADLINE, LEADLINE: KAFKA}
PATIENCE_S = 180
STABLE_PORTS = range(10_000, 32_000)  # the system gives them to nobody while a broker is away
SETTINGS: dict[str, object] = {
    "zookeeper.session.timeout.ms": 18_000,  # Kafka's broker ends if its session does while it starts on a busy machine
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.min.isr": 2,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": -1,
}


class PartitionState(NamedTuple):
    leader: int  # -1: there is none
    replicas: list[int]
    isr: list[int]


class MixedBroker:
    """One id of the cluster."""

    def __init__(self, id: int, kind: Kind, folder: Path, zk: ZooKeeper, settings: Mapping[str, object]) -> None:
        self.id, self.kind, self.folder, self._zk, self._settings = id, kind, folder, zk, settings
        self.port = _stable_port()
        self._stack = ExitStack()
        self.server: Broker | RunningBroker | None = None

    @property
    def log_dir(self) -> Path:
        return self.folder / "data"

    def start(self) -> None:
        assert self.server is None
        if self.kind == KAFKA:
            own = {"broker.id": self.id, "port": self.port, **self._settings}
            self.server = self._stack.enter_context(broker(self.folder, self._zk, **own))
        else:
            self.server = RunningBroker(self.log_dir, {}, properties=self._properties())

    def _properties(self) -> Path:
        """Those that Apache Kafka's broker had, or would have."""
        file = self.folder / "server.properties"
        if not file.exists():
            self.log_dir.mkdir(parents=True)
            own = {
                "broker.id": self.id,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "log.dirs": self.log_dir,
                "zookeeper.connect": self._zk.connect,
            }
            file.write_text("".join(f"{name}={value}\n" for name, value in {**own, **self._settings}.items()))
        return file

    def stop(self) -> None:
        """In order."""
        assert self.server is not None
        assert self.server.stop() in (0, None)
        self._forget()

    def kill(self) -> None:
        assert self.server is not None
        self.server.kill()
        self._forget()

    def _forget(self) -> None:
        self.server = None
        self._stack.close()

    def end(self) -> None:
        if self.server is not None:
            self.kill()


class MixedCluster:
    def __init__(self, path: Path, kinds: Mapping[int, Kind], settings: Mapping[str, object]) -> None:
        self.path = path
        self._stack = ExitStack()
        self._zk = self._stack.enter_context(zookeeper(path / "zookeeper"))
        self.tree = KazooClient(self._zk.connect)
        self.tree.start()
        self._stack.callback(self.tree.close)
        self._stack.callback(self.tree.stop)
        self.brokers = {
            id: MixedBroker(id, kind, path / f"broker{id}", self._zk, SETTINGS | dict(settings))
            for id, kind in kinds.items()
        }
        for member in self.brokers.values():
            self._stack.callback(member.end)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def start(self) -> None:
        for member in self.brokers.values():
            member.start()
        until(lambda: len(self.admin.list_topics(timeout=60).brokers) == len(self.brokers), "all brokers")

    def close(self) -> None:
        self._stack.close()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.brokers.values())

    def ids(self, kind: Kind) -> list[int]:
        return [id for id, member in self.brokers.items() if member.kind == kind]

    @property
    def controller(self) -> int:
        until(lambda: controller_of(self.tree) is not None, "a controller")
        controller = controller_of(self.tree)
        return -1 if controller is None else controller

    # What happens

    def replace(self, id: int, kind: Kind) -> None:
        """The broker stops in order, and the other product starts with its settings, directory and port."""
        member = self.brokers[id]
        member.stop()
        member.kind = kind
        member.start()

    def create(self, topic: str, replicas: Sequence[Sequence[int]], **config: object) -> None:
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        new = NewTopic(topic, len(replicas), config=settings, replica_assignment=[list(ids) for ids in replicas])

        def is_created() -> bool:
            try:
                self.admin.create_topics([new])[topic].result(PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                    raise
                self.admin.list_topics(timeout=60)  # it does not look for the new controller by itself
                return False
            return True

        until(is_created, f"{topic} to be created")
        self.settle(topic)

    def move(self, replicas: Mapping[str, Sequence[int]], *options: str) -> None:
        """All partitions of these topics to these brokers, one of which leads each, by `leadline reassign`."""
        entries = []
        for topic, ids in replicas.items():
            for n in self.states(topic):
                turned = [*ids[n % len(ids) :], *ids[: n % len(ids)]]
                entries.append({"topic": topic, "partition": n, "replicas": turned})
        plan = self.path / f"plan-{random.getrandbits(48):x}.json"
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        out, _ = leadline(self, "reassign", "execute", str(plan), "--timeout", str(PATIENCE_S), *options)
        assert "Done after" in out, out
        for topic, ids in replicas.items():
            assert all(set(state.replicas) == set(ids) for state in self.states(topic).values())

    # What is so

    def states(self, topic: str) -> dict[int, PartitionState]:
        partitions = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
        return {n: PartitionState(part.leader, part.replicas, part.isrs) for n, part in partitions.items()}

    def settle(self, *topics: str) -> None:
        """Until all replicas of these topics are in sync."""
        for topic in topics:
            until(
                lambda: self._is_in_sync(topic),  # noqa: B023 - it ends within the round
                lambda: f"{topic} in sync: {self._states_if_any(topic)}",  # noqa: B023
            )

    def _states_if_any(self, topic: str) -> dict[int, PartitionState]:
        try:
            return self.states(topic)
        except (KafkaException, KeyError):
            return {}

    def _is_in_sync(self, topic: str) -> bool:
        states = self._states_if_any(topic)
        return bool(states) and all(
            state.leader in state.isr and set(state.isr) == set(state.replicas) for state in states.values()
        )

    def same_bytes(self, *topics: str) -> None:
        """All replicas of each partition, once they have caught up."""
        for topic in topics:
            for n, state in self.states(topic).items():
                folders = [self.brokers[id].log_dir / f"{topic}-{n}" for id in state.replicas]
                until(
                    lambda: len({_content(folder) for folder in folders}) == 1,  # noqa: B023
                    f"replicas {state.replicas} of {topic}-{n} that are the same, byte for byte",
                )


def _content(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def _stable_port() -> int:
    while True:
        port = random.choice(STABLE_PORTS)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


@contextmanager
def mixed_cluster(path: Path, kinds: Mapping[int, Kind], **settings: object) -> Iterator[MixedCluster]:
    """Settings with underscores for dots."""
    cluster = MixedCluster(path, kinds, {name.replace("_", "."): value for name, value in settings.items()})
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
