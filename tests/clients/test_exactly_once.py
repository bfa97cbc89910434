"""Exactly once, whoever is killed: a loop reads a topic, and writes each record to another in transactions.

What is killed, a hundred times with the Java clients:

- 84 times an instance of the loop within its process: it stops in the midst of a transaction, at any of its steps, and
  its sockets are closed without a word to the broker. One in six lives on as a zombie until its successor has begun.
- 6 times the process of the loop, with all its instances, by SIGKILL.
- 10 times the broker, by SIGKILL; it is started again.

With librdkafka each instance is a process, and each kill a SIGKILL: of an instance, or of the broker.

    what is read from the output with read_committed is the input, each record once
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.clients.client import HERE
from tests.clients.loop import PARTITIONS, Feed, Loop, committed, each_is_there_once, ends, output, until
from tests.conformance.kafka import jars
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic

JAVA_KILLS = 84, 6, 10  # of instances, of the process that runs them, of the broker; a quarter of that without --long
LIBRDKAFKA_KILLS = 25, 5  # of processes, of the broker; a third
INSTANCES = 4
PAUSE_S = (0.0, 0.8)  # between two kills from without

SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with leadline(tmp_path / "data", **SETTINGS) as running:
        for topic in ("input", "output"):
            create_topic(running.bootstrap, topic, PARTITIONS)
        yield running


def shuffled(*kinds: tuple[int, Callable[[], None]]) -> list[Callable[[], None]]:
    kills = [kill for count, kill in kinds for _ in range(count)]
    return random.sample(kills, len(kills))


def restart(loop: Loop) -> None:
    loop.kill()
    loop.start()


def restart_broker(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()


def check(bootstrap: str, count: int) -> None:
    each_is_there_once(bootstrap, count)
    assert output(bootstrap, "read_uncommitted").total() > count, "some transaction was cut after it had written"


def test_java_clients_write_each_record_once_through_kills_of_all_kinds(broker: RunningBroker, is_long: bool) -> None:
    in_process, of_processes, of_broker = (count if is_long else (count + 3) // 4 for count in JAVA_KILLS)
    classes = jars.compiled(HERE / "java" / "ExactlyOnce.java")
    command = jars.command("ExactlyOnce", broker.bootstrap, "input", "output", str(INSTANCES), classes=classes)
    feed, loop = Feed(broker.bootstrap), Loop(command)
    try:
        for kill in shuffled((of_processes, lambda: restart(loop)), (of_broker, lambda: restart_broker(broker))):
            before = loop.counts["killed"]
            until(lambda: loop.counts["killed"] > before, lambda: loop.last)  # noqa: B023 - it ends within the round
            time.sleep(random.uniform(*PAUSE_S))
            kill()
        until(lambda: loop.counts["killed"] >= in_process, lambda: (loop.counts, loop.last))
        loop.say("live")
        feed.stop()
        due = ends(broker.bootstrap, "input")
        until(lambda: committed(broker.bootstrap) == due, lambda: (loop.counts, loop.last))
        loop.end()
    finally:
        feed.stop()
        with suppress(ValueError):
            loop.kill()
    assert loop.counts["fenced"] > 0 or not is_long, "no zombie was seen"
    assert loop.counts["ZOMBIE"] == 0
    check(broker.bootstrap, feed.count)


def test_librdkafka_writes_each_record_once_through_kills_of_its_processes(
    broker: RunningBroker, is_long: bool
) -> None:
    of_processes, of_broker = (count if is_long else (count + 2) // 3 for count in LIBRDKAFKA_KILLS)
    program = [sys.executable, "-m", "tests.clients.python.exactly_once", broker.bootstrap, "input", "output"]
    feed, loops = Feed(broker.bootstrap), [Loop([*program, f"loop-{n}"]) for n in range(3)]
    try:
        for kill in shuffled(
            (of_processes, lambda: restart(random.choice(loops))), (of_broker, lambda: restart_broker(broker))
        ):
            before = sum(loop.counts["committed"] for loop in loops)
            until(lambda: sum(loop.counts["committed"] for loop in loops) > before, lambda: loops[0].last)  # noqa: B023
            time.sleep(random.uniform(0, 0.5))
            kill()
        feed.stop()
        due = ends(broker.bootstrap, "input")
        until(lambda: committed(broker.bootstrap) == due, lambda: [loop.last for loop in loops])
        for loop in loops:
            loop.end()
    finally:
        feed.stop()
        for loop in loops:
            with suppress(ValueError):
                loop.kill()
    check(broker.bootstrap, feed.count)
