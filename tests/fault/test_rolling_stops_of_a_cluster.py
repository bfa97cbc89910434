"""Brokers that are stopped by SIGTERM and started again, one after the other, under an idempotent producer.

    while one is away, the leaders that stay acknowledge records of each partition
    nothing that was acknowledged is lost, and nothing is there twice

A leader that waited for the replica that left would wait for replica.lag.time.max.ms, which is longer here than any
test. So it does not matter how fast the machine is.
"""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.fault.load import PARTITIONS, Load, check, running
from tests.support import in_memory
from tests.support.cluster import ROUNDS, Cluster, cluster
from tests.support.waiting import until

HOURS_MS = 10 * 3_600_000
STOPS = 6
ENOUGH = 30  # acknowledgements of a partition


@pytest.fixture
def served() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path, zookeeper_session_timeout_ms=18_000, replica_lag_time_max_ms=HOURS_MS) as started:
            started.create("orders", PARTITIONS)
            yield started


def acknowledged(load: Load) -> Counter[int]:
    """By partition."""
    return Counter(partition for partition, _ in list(load.acked))


def go_on(load: Load, why: str) -> None:
    before = acknowledged(load)
    until(
        lambda: min((acknowledged(load) - before)[partition] for partition in range(PARTITIONS)) >= ENOUGH,
        lambda: f"{why}: {acknowledged(load) - before}",
    )


def test_those_that_stay_acknowledge_while_one_is_away(served: Cluster) -> None:
    load = Load(served, "orders", "load", {"enable.idempotence": True, "acks": "all"}, pause_s=0.05)
    with running(load):
        for stop in range(STOPS * ROUNDS):
            id = 1 + stop % len(served.brokers)
            go_on(load, f"before stop {stop}")
            served.run_steps(f"stop {id}")
            go_on(load, f"after stop {stop}, of broker {id}")
            served.run_steps(f"start {id}")
            served.settle()
    check(served, load)
