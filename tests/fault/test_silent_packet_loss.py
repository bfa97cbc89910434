"""Three brokers, ZooKeeper and a client on hosts of their own, between which packets are lost in silence.

While a leader is cut off, and still reaches its clients, another broker leads, and the clients are told so: they go on
before the network is mended. Nothing that was acknowledged is lost, nothing is there twice.

    a broker is silent after 5 s; its session, where it is cut off from ZooKeeper, is over after 9 s
"""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.log.checkpoints import read_epochs
from leadline.runtime.ports import OsFiles
from tests.conformance.kafka import jars
from tests.fault.load import PARTITIONS, Load, check, running
from tests.support import in_memory
from tests.support.broker import RunningBroker
from tests.support.cluster import SETTINGS
from tests.support.namespaces import Namespaces, namespaces
from tests.support.waiting import until

BROKERS = (1, 2, 3)
ZOOKEEPER_PORT, BROKER_PORT = 2181, 9092
ELECTED_S = 30.0  # much less than clients and followers wait for a leader, or a network that is not mended
OWN_SETTINGS = {"zookeeper.session.timeout.ms": "9000", "replica.lag.time.max.ms": "30000"}
PRODUCER: dict[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "topic.metadata.refresh.interval.ms": "300000",  # the default: it asks when it is told to
}
ZOOKEEPER, OTHERS = "zookeeper", "the other brokers"


class Bed:
    def __init__(self, path: Path, net: Namespaces, stack: ExitStack) -> None:
        self.path, self.net = path, net
        self._start_zookeeper(stack)
        self.brokers = {id: self._start_broker(id, stack) for id in BROKERS}
        self.bootstrap = ",".join(f"{net.addresses[host(id)]}:{BROKER_PORT}" for id in BROKERS)

    @property
    def admin(self) -> AdminClient:
        """A new one: it does not look by itself for a controller that is another one by now."""
        with self.net.inside("client"):
            return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def _start_zookeeper(self, stack: ExitStack) -> None:
        address, file = self.net.addresses["zookeeper"], self.path / "zookeeper.properties"
        file.write_text(
            f"dataDir={self.path}/zookeeper\nclientPort={ZOOKEEPER_PORT}\nclientPortAddress={address}\ntickTime=500\n"
            "admin.enableServer=false\n"
        )
        command = jars.command("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file))
        with self.net.inside("zookeeper"), (self.path / "zookeeper.log").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.kill)
            until(lambda: can_connect(address, ZOOKEEPER_PORT))

    def _start_broker(self, id: int, stack: ExitStack) -> RunningBroker:
        own = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://{self.net.addresses[host(id)]}:{BROKER_PORT}",
            "zookeeper.connect": f"{self.net.addresses['zookeeper']}:{ZOOKEEPER_PORT}",
        }
        with self.net.inside(host(id)):
            broker = RunningBroker(self.path / host(id), {**SETTINGS, **OWN_SETTINGS, **own})
        stack.callback(broker.kill)
        return broker

    def create(self, topic: str) -> None:
        new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=len(BROKERS))
        until(lambda: self._is_created(new))
        until(lambda: self.is_in_sync(topic))

    def _is_created(self, new: NewTopic) -> bool:
        admin = self.admin  # kept while it is asked
        try:
            admin.create_topics([new])[new.topic].result(60)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.NOT_CONTROLLER, KafkaError.INVALID_REPLICATION_FACTOR):
                return False
            raise
        return True

    def leaders(self, topic: str) -> dict[int, int]:
        partitions = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
        return {number: partition.leader for number, partition in partitions.items()}

    def is_in_sync(self, topic: str) -> bool:
        partitions = self.admin.list_topics(topic, timeout=60).topics[topic].partitions
        return len(partitions) == PARTITIONS and all(
            len(partition.isrs) == len(BROKERS) for partition in partitions.values()
        )

    def controller(self) -> int:
        return int(self.admin.list_topics(timeout=60).controller_id)

    def has_new_leader(self, topic: str, partition: int, before: int) -> bool:
        """Whether a broker other than that one has begun a later epoch."""
        return any(
            entry.epoch > 0
            for id, broker in self.brokers.items()
            if id != before
            for entry in read_epochs(OsFiles(), str(broker.directory / f"{topic}-{partition}/leader-epoch-checkpoint"))
        )

    def hosts(self, place: str, cut_off: int) -> list[str]:
        return ["zookeeper"] if place == ZOOKEEPER else [host(id) for id in BROKERS if id != cut_off]


def host(broker: int) -> str:
    return f"broker{broker}"


def can_connect(address: str, port: int) -> bool:
    try:
        with socket.create_connection((address, port), timeout=5):
            return True
    except OSError:
        return False


def soon(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + ELECTED_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {ELECTED_S} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    hosts = ("zookeeper", *map(host, BROKERS), "client")
    for path in in_memory.directory():
        with namespaces(*hosts) as net, ExitStack() as stack:
            yield Bed(path, net, stack)


@pytest.mark.parametrize(
    ("name", "places", "is_one_way", "is_controller"),
    [
        ("followers", (OTHERS,), False, False),
        ("controller-and-followers", (OTHERS,), True, True),
        ("zookeeper", (ZOOKEEPER,), False, False),
    ],
)
def test_clients_go_on_while_their_leader_is_cut_off(
    bed: Bed, name: str, places: tuple[str, ...], is_one_way: bool, is_controller: bool
) -> None:
    bed.create(name)
    controller = bed.controller()
    cut_off = controller if is_controller else next(id for id in BROKERS if id != controller)
    led = [partition for partition, leader in bed.leaders(name).items() if leader == cut_off]
    with bed.net.inside("client"):
        load = Load(bed, name, "load", PRODUCER, pause_s=0.05)
    with running(load):
        until(lambda: len(load.acked) > 100)
        for other in (other for place in places for other in bed.hosts(place, cut_off)):
            bed.net.lose(host(cut_off), other)
            if not is_one_way:
                bed.net.lose(other, host(cut_off))
        try:
            for partition in led:
                soon(partial(bed.has_new_leader, name, partition, cut_off), f"{name}-{partition} has a new leader")
            for partition in led:
                enough = acknowledged(load, partition) + 20
                soon(partial(has_acknowledged, load, partition, enough), f"{name}-{partition} is written to")
        finally:
            bed.net.mend()
        until(lambda: bed.is_in_sync(name))
    with bed.net.inside("client"):
        check(bed, load)


def has_acknowledged(load: Load, partition: int, count: int) -> bool:
    return acknowledged(load, partition) >= count


def acknowledged(load: Load, partition: int) -> int:
    return sum(1 for number, _ in list(load.acked) if number == partition)
