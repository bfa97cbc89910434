"""Three brokers, ZooKeeper and a client on hosts of their own, between which packets are lost in silence.

While a leader is cut off, and still reaches its clients, another broker leads, and the clients are told so: they go on
before the network is mended. Nothing that was acknowledged is lost, nothing is there twice.

    a broker is silent after 5 s; its session, where it is cut off from ZooKeeper, is over after 9 s
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from leadline.log.checkpoints import read_epochs
from leadline.runtime.ports import OsFiles
from tests.fault.load import PARTITIONS, Load, check, running
from tests.support import in_memory
from tests.support.namespaced_cluster import CLIENT, ZOOKEEPER, NamespacedCluster, host_of, hosts_of
from tests.support.namespaces import namespaces
from tests.support.waiting import until

SLOW_S = 4.0  # what a busy machine may add
SILENT_S = 8.5 + SLOW_S  # silence is noticed after 7.5 s; a candidate waits 0.5 s for each broker that is silent to it
EXPIRED_S = 9.0 + SLOW_S  # a session is over
WRITTEN_S = 1.0 + SLOW_S  # from an election until its clients go on
OWN_SETTINGS = {"zookeeper.session.timeout.ms": "9000", "replica.lag.time.max.ms": "30000"}
PRODUCER: dict[str, str | bool] = {
    "enable.idempotence": True,
    "acks": "all",
    "topic.metadata.refresh.interval.ms": "300000",  # the default: it asks when it is told to
}
OTHERS = "the other brokers"


class LossyCluster(NamespacedCluster):
    def has_new_leader(self, topic: str, partition: int, before: int) -> bool:
        """Whether a broker other than that one has begun a later epoch."""
        return any(
            entry.epoch > 0
            for id, broker in self.brokers.items()
            if id != before
            for entry in read_epochs(OsFiles(), str(broker.directory / f"{topic}-{partition}/leader-epoch-checkpoint"))
        )

    def hosts(self, place: str, cut_off: int) -> list[str]:
        return [ZOOKEEPER] if place == ZOOKEEPER else [host_of(id) for id in self.ids if id != cut_off]


@pytest.fixture(scope="module")
def bed() -> Iterator[LossyCluster]:
    for path in in_memory.directory():
        with namespaces(*hosts_of(3)) as net, net.inside(CLIENT), ExitStack() as stack:
            yield LossyCluster(path, net, stack, OWN_SETTINGS)


@pytest.mark.parametrize(
    ("name", "places", "is_one_way", "is_controller", "elected_s"),
    [
        ("followers", (OTHERS,), False, False, SILENT_S),
        ("controller-and-followers", (OTHERS,), True, True, SILENT_S),
        ("zookeeper", (ZOOKEEPER,), False, False, EXPIRED_S),
    ],
)
def test_clients_go_on_while_their_leader_is_cut_off(
    bed: LossyCluster, name: str, places: tuple[str, ...], is_one_way: bool, is_controller: bool, elected_s: float
) -> None:
    bed.create(name, PARTITIONS)
    controller = bed.controller()
    cut_off = controller if is_controller else next(id for id in bed.ids if id != controller)
    led = [partition for partition, leader in bed.leaders(name).items() if leader == cut_off]
    load = Load(bed, name, "load", PRODUCER, pause_s=0.05)
    with running(load):
        until(lambda: len(load.acked) > 100)
        for other in (other for place in places for other in bed.hosts(place, cut_off)):
            bed.net.lose(host_of(cut_off), other)
            if not is_one_way:
                bed.net.lose(other, host_of(cut_off))
        try:
            deadline = time.monotonic() + elected_s
            for partition in led:
                has_leader = partial(bed.has_new_leader, name, partition, cut_off)
                until(has_leader, f"{name}-{partition} has a new leader", deadline - time.monotonic())
            for partition in led:
                enough = acknowledged(load, partition) + 20
                is_written = partial(has_acknowledged, load, partition, enough)
                until(is_written, f"{name}-{partition} is written to", WRITTEN_S)
        finally:
            bed.net.mend()
        until(lambda: bed.is_in_sync([name]))
    check(bed, load)


def has_acknowledged(load: Load, partition: int, count: int) -> bool:
    return acknowledged(load, partition) >= count


def acknowledged(load: Load, partition: int) -> int:
    return sum(1 for number, _ in list(load.acked) if number == partition)
