"""Clusters of three brokers, Leadline's and Kafka's, in one ZooKeeper; all run, and one is used at a time.

Both have the settings they come with. Partitions are assigned by hand: who leads is known, and each broker has a copy.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.bench.load import brokers
from tests.bench.load.brokers import PATIENCE_S, TICK_S, Broker, Spent
from tests.bench.load.client import TIMEOUT_S, Connection, Refused
from tests.conformance.kafka.broker import ZooKeeper, wait_for_the_end_of, zookeeper

SIZE = 3
POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Cluster:
    name: str
    brokers: tuple[Broker, ...]  # broker.id is the place in it
    connect: str  # of its ZooKeeper

    def measure(self, work: Callable[[], object]) -> Spent:
        """The CPU time of all brokers; ZooKeeper's is not counted."""
        meters = [broker.meter() for broker in self.brokers]
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        return Spent(seconds, max(sum(meter().cpu_seconds for meter in meters), TICK_S))

    def wait_until_idle(self) -> None:
        for broker in self.brokers:
            broker.wait_until_idle()

    # Who is who

    def metadata(self, broker: int, topics: Sequence[str]) -> MetadataResponse:
        """The metadata of one broker."""
        named = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        with Connection(self.brokers[broker].port) as connection:
            return connection.ask(MetadataRequest(topics=named), MetadataResponse, 4)

    @property
    def controller(self) -> int:
        def controller_of_all() -> int | None:
            metadata = self.metadata(0, ())
            return metadata.controller_id if len(metadata.brokers) == SIZE and metadata.controller_id >= 0 else None

        return until(controller_of_all, f"a controller of {self.name} that knows all brokers")

    def create(self, assignments: dict[str, list[tuple[int, ...]]]) -> None:
        """Topics with the replicas of each of their partitions, the leader first; ready to be written to."""
        keep = CreateTopicsRequest.CreateableTopicConfig(name="retention.ms", value="-1")
        enough = CreateTopicsRequest.CreateableTopicConfig(name="min.insync.replicas", value="2")
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreateTopicsRequest.CreatableReplicaAssignment(partition_index=n, broker_ids=list(replicas))
                    for n, replicas in enumerate(partitions)
                ],
                configs=[keep, enough],
            )
            for name, partitions in assignments.items()
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=int(TIMEOUT_S * 1000))
        with Connection(self.brokers[self.controller].port) as connection:
            codes = {made.error_code for made in connection.ask(request, CreateTopicsResponse, 4).topics} - {0}
        if codes:
            raise Refused(f"creating topics was answered with {codes}")
        for broker in range(SIZE):
            until(partial(self._in_sync, broker, assignments), "the new topics")

    def _in_sync(self, broker: int, assignments: dict[str, list[tuple[int, ...]]]) -> int | None:
        """All of them, as this broker knows it."""
        actual = {
            (topic.name, part.partition_index): (part.leader_id, set(part.isr_nodes))
            for topic in self.metadata(broker, list(assignments)).topics
            for part in topic.partitions
        }
        expected = {
            (name, n): (replicas[0], set(replicas))
            for name, partitions in assignments.items()
            for n, replicas in enumerate(partitions)
        }
        return len(actual) if actual == expected else None

    # Coming and going

    def kill(self, broker: int) -> None:
        self.brokers[broker].stop()

    def stop(self, broker: int) -> None:
        """In order; until it has ended."""
        process = self.brokers[broker].process
        assert process is not None
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)

    def start(self, broker: int) -> None:
        """Again. Kafka refuses to start as long as ZooKeeper believes that it is running."""
        if self.name == "Kafka":
            wait_for_the_end_of(broker, self.connect)
        self.brokers[broker].start()


def until(poll: Callable[[], int | None], what: str) -> int:
    """What it finds at last."""
    deadline = time.monotonic() + PATIENCE_S
    while (value := poll()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: nothing in {PATIENCE_S} s")
        time.sleep(POLL_S)
    return value


@contextmanager
def two_clusters(folder: Path) -> Iterator[tuple[Cluster, Cluster]]:
    """Leadline's and Kafka's, both running."""
    with zookeeper(folder / "zookeeper") as keeper, ExitStack() as ends:
        clusters = _leadline(folder, keeper), _kafka(folder, keeper)
        for cluster in clusters:
            for broker in cluster.brokers:
                ends.callback(broker.stop)
                broker.start()
        yield clusters


def _settings(keeper: ZooKeeper, side: str, id: int) -> dict[str, str]:
    return {
        **brokers.SETTINGS,
        "broker.id": str(id),
        "zookeeper.connect": f"{keeper.connect}/{side}",
        "auto.leader.rebalance.enable": "false",  # not while something is measured
    }


def _leadline(folder: Path, keeper: ZooKeeper) -> Cluster:
    made = [brokers.leadline(folder / f"leadline-{n}", _settings(keeper, "leadline", n)) for n in range(SIZE)]
    return Cluster("Leadline", tuple(made), f"{keeper.connect}/leadline")


def _kafka(folder: Path, keeper: ZooKeeper) -> Cluster:
    made = [brokers.kafka(folder / f"kafka-{n}", keeper, _settings(keeper, "kafka", n)) for n in range(SIZE)]
    return Cluster("Kafka", tuple(made), f"{keeper.connect}/kafka")
