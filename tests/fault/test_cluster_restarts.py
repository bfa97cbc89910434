"""A cluster that is stopped and started as a whole, and brokers that come back into it."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.kafka.broker import _brokers_known_to
from tests.fault.load import Load, check, running
from tests.support import in_memory
from tests.support.cluster import PATIENCE_S, Cluster, cluster
from tests.support.waiting import until

AT_ONCE_S = 60.0  # half of what a broker would wait for others to lead instead of it


@pytest.fixture(scope="module")
def served() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path, zookeeper_session_timeout_ms=18_000, controlled_shutdown_retry_backoff_ms=40_000) as started:
            started.create("orders", 3)
            yield started


def stop_all(served: Cluster) -> float:
    """How long it took, in seconds."""
    began = time.monotonic()
    for broker in served.brokers.values():
        broker.process.terminate()
    assert [broker.process.wait(2 * AT_ONCE_S) for broker in served.brokers.values()] == [0] * len(served.brokers)
    return time.monotonic() - began


def start_all(served: Cluster) -> None:
    with ThreadPoolExecutor() as at_once:
        list(at_once.map(lambda broker: broker.start(), served.brokers.values()))
    served.settle()


def test_all_brokers_stop_at_once_and_come_back_with_all_they_had(served: Cluster) -> None:
    load = Load(served, "orders", "load", {"enable.idempotence": True, "acks": "all"}, pause_s=0.05)
    with running(load):
        until(lambda: len(load.acked) > 100)
        assert stop_all(served) < AT_ONCE_S
        start_all(served)
        more = len(load.acked) + 100
        until(lambda: len(load.acked) > more)
    check(served, load)
    served.run_steps("kill zookeeper")
    assert stop_all(served) < AT_ONCE_S
    served.run_steps("start zookeeper")
    start_all(served)
    check(served, load)


def test_a_starting_broker_answers_metadata_once_it_knows_all_brokers(served: Cluster) -> None:
    """A client forgets all brokers that are not in the response."""
    controller = served.controller()
    other = next(id for id in served.brokers if id != controller)
    served.run_steps(f"kill {other}, pause {controller}, start {other}")
    with ThreadPoolExecutor(1) as asking:
        brokers = asking.submit(_brokers_known_to, served.brokers[other].port)
        served.run_steps(f"wait 0.5, resume {controller}")
        assert brokers.result(PATIENCE_S) == set(served.brokers)
