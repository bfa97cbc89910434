"""Exactly once on three brokers: a loop reads a topic and writes each record to another, while brokers are killed.

Coordinators of the group and of the transactions move with the brokers that are killed; what they had decided does not
get lost on the way. LEADLINE_ROUNDS=10 kills ten times as often.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.clients.loop import PARTITIONS, Feed, Loop, committed, each_is_there_once, ends, until
from tests.support import in_memory, waiting
from tests.support.cluster import ROUNDS, Cluster, cluster

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
LOOPS = 2
STUCK_S = 60


@pytest.fixture
def served() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path, group_min_session_timeout_ms=1000) as started:
            for topic in ("output", "input"):
                started.create(topic, PARTITIONS)
            yield started


def commits(loop: Loop) -> None:
    """Wait for two more commits. A loop without any is started again, once.

    librdkafka 2.16 may wait for ever for a coordinator that it knows and could reach.
    """
    before = loop.counts["committed"]

    def has_committed() -> bool:
        return loop.counts["committed"] > before + 1

    try:
        waiting.until(has_committed, seconds=STUCK_S)
    except AssertionError:
        loop.kill()
        loop.start()
        until(has_committed, lambda: loop.last)


def test_each_record_is_written_once_while_coordinators_move(served: Cluster) -> None:
    program = [sys.executable, "-m", "tests.clients.python.exactly_once", served.bootstrap, "input", "output"]
    feed, loops = Feed(served.bootstrap), [Loop([*program, f"loop-{n}"]) for n in range(LOOPS)]

    def all_commit() -> None:
        for loop in loops:
            commits(loop)

    try:
        all_commit()
        for topic in (GROUPS, TRANSACTIONS, "output") * ROUNDS:
            served.run_steps(f"kill {served.leader(topic)}")
            all_commit()
            served.run_steps("start it")
            served.settle(GROUPS, TRANSACTIONS, "input", "output")
        feed.stop()
        due = ends(served.bootstrap, "input")
        until(lambda: committed(served.bootstrap) == due, lambda: [loop.last for loop in loops])
        for loop in loops:
            loop.end()
    finally:
        feed.stop()
        for loop in loops:
            with suppress(ValueError):
                loop.kill()
    each_is_there_once(served.bootstrap, feed.count)
