"""A cluster on hosts of its own: ZooKeeper, brokers and clients in network namespaces, so that packets can be lost.

with namespaces(*hosts_of(3)) as net, net.inside(CLIENT), ExitStack() as stack:
    cluster = NamespacedCluster(path, net, stack, settings)
    cluster.create("orders", partitions=3)

Law: who starts a process ends it; the stack ends all of them.
"""

import subprocess
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.wire.messages import MetadataRequest, MetadataResponse
from tests.conformance.both import Connection
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import _four_letters
from tests.support.broker import RunningBroker
from tests.support.cluster import SETTINGS
from tests.support.namespaces import Namespaces
from tests.support.waiting import until

ZOOKEEPER, CLIENT = "zookeeper", "client"
ZOOKEEPER_PORT, BROKER_PORT = 2181, 9092
METADATA_VERSION = 9
ANSWER_S = 5.0

Replicas = dict[tuple[str, int], tuple[int, frozenset[int]]]  # leader and ISR by topic and partition


class BrokerProcess(Protocol):
    """A broker that can be started again: Leadline's, or Apache Kafka's."""

    directory: Path
    process: subprocess.Popen[bytes]

    def start(self) -> None: ...
    def stop(self) -> int: ...
    def kill(self) -> None: ...
    def output(self) -> str: ...


def host_of(broker: int) -> str:
    return f"broker{broker}"


def hosts_of(brokers: int) -> tuple[str, ...]:
    return (ZOOKEEPER, *(host_of(id) for id in range(1, brokers + 1)), CLIENT)


class NamespacedCluster:
    """The thread that makes it is on the host of the client. So are the threads and processes that it starts."""

    def __init__(
        self, path: Path, net: Namespaces, stack: ExitStack, settings: Mapping[str, str], brokers: int = 3
    ) -> None:
        self.path, self.net, self.settings = path, net, {**SETTINGS, **settings}
        self.ids = tuple(range(1, brokers + 1))
        self.addresses = {id: net.addresses[host_of(id)] for id in self.ids}
        self.bootstrap = ",".join(f"{address}:{BROKER_PORT}" for address in self.addresses.values())
        self.zookeeper_connect = f"{net.addresses[ZOOKEEPER]}:{ZOOKEEPER_PORT}"
        self.brokers: dict[int, BrokerProcess] = {}
        stack.callback(self.end)
        self.start_zookeeper()
        for id in self.ids:
            self.brokers[id] = self.new_broker(id)

    def end(self) -> None:
        for broker in self.brokers.values():
            if broker.process.poll() is None:
                broker.kill()
        self.kill_zookeeper()

    # Processes

    def start_zookeeper(self) -> None:
        file, data = self.path / "zookeeper.properties", self.path / "zookeeper"
        file.write_text(
            f"dataDir={data}\nclientPort={ZOOKEEPER_PORT}\nclientPortAddress={self.net.addresses[ZOOKEEPER]}\n"
            "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
        )
        small = ("-Dzookeeper.preAllocSize=1024",)  # in kB: the first sync of its 64 MB takes seconds on a busy machine
        command = jars.command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file), options=small)
        with self.net.inside(ZOOKEEPER), (self.path / "zookeeper.log").open("ab") as log:
            self.zookeeper = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(self.zookeeper_serves, lambda: (self.path / "zookeeper.log").read_text()[-3000:])

    def zookeeper_serves(self) -> bool:
        try:
            return _four_letters(self.zookeeper_connect, "srvr").startswith("Zookeeper version")
        except OSError:
            return False

    def kill_zookeeper(self) -> None:
        self.zookeeper.kill()
        self.zookeeper.wait()

    def new_broker(self, id: int) -> BrokerProcess:
        with self.net.inside(host_of(id)):
            return RunningBroker(self.path / host_of(id), self.settings_of(id))

    def settings_of(self, id: int) -> dict[str, str]:
        own = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://{self.addresses[id]}:{BROKER_PORT}",
            "zookeeper.connect": self.zookeeper_connect,
        }
        return {**self.settings, **own}

    def start(self, id: int) -> None:
        """Again."""
        with self.net.inside(host_of(id)):
            self.brokers[id].start()

    # Topics

    @property
    def admin(self) -> AdminClient:
        """A new one: it does not look by itself for a controller that is another one by now."""
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, partitions, len(self.ids), config=dict(config or {}))
        until(lambda: self._is_created(new))
        until(lambda: self.is_in_sync([topic]), lambda: self.states_of([topic]))

    def _is_created(self, new: NewTopic) -> bool:
        admin = self.admin  # kept while it is asked
        try:
            admin.create_topics([new])[new.topic].result(60)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.NOT_CONTROLLER, KafkaError.INVALID_REPLICATION_FACTOR):
                return False
            raise
        return True

    def metadata_of(self, broker: int, topics: Iterable[str]) -> MetadataResponse | None:
        """What one broker says; None if it does not answer."""
        names = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        try:
            connection = Connection(self.addresses[broker], BROKER_PORT, timeout_s=ANSWER_S)
        except OSError:
            return None
        try:
            request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
            return connection.ask(MetadataResponse, request, METADATA_VERSION)
        except (OSError, AssertionError):
            return None
        finally:
            connection.close()

    def states_of(self, topics: Iterable[str]) -> dict[int, Replicas | None]:
        """Leaders and ISRs as each broker knows them; None: it does not answer."""
        topics = list(topics)
        return {id: _replicas(self.metadata_of(id, topics)) for id in self.ids}

    def is_in_sync(self, topics: Iterable[str]) -> bool:
        """Each broker answers, and all agree that all replicas are in sync with their leader."""
        states = list(self.states_of(topics).values())
        return all(states) and all(state == states[0] and self._has_all(state) for state in states)

    def _has_all(self, replicas: Replicas | None) -> bool:
        partitions = (replicas or {}).values()
        return all(leader in isr and len(isr) == len(self.ids) for leader, isr in partitions)

    def leaders(self, topic: str) -> dict[int, int]:
        """By partition, as the first broker that answers says."""
        for id in self.ids:
            if replicas := _replicas(self.metadata_of(id, [topic])):
                return {partition: leader for (_, partition), (leader, _) in replicas.items()}
        return {}

    def controller(self) -> int:
        """-1: nobody answers."""
        answers = (self.metadata_of(id, []) for id in self.ids)
        return next((answer.controller_id for answer in answers if answer is not None), -1)


def _replicas(metadata: MetadataResponse | None) -> Replicas | None:
    if metadata is None or any(topic.error_code for topic in metadata.topics):
        return None
    return {
        (topic.name or "", part.partition_index): (part.leader_id, frozenset(part.isr_nodes))
        for topic in metadata.topics
        for part in topic.partitions
    }
