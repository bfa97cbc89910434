"""The threads that run jobs: trouble stays with its job, topics come and go, and a stop drains."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from leadline.spark.client.connection import Unreachable
from leadline.spark.jobs import job_runner
from leadline.spark.jobs.job_runner import JobRunner, RunSpec
from leadline.spark.jobs.job_schedule import UpkeepSpec
from leadline.spark.jobs.table_job import TableJobSpec
from leadline.spark.jobs.topic_discovery import TopicEntry
from leadline.spark.table.table import TableError, WriterRefused
from leadline.spark.table.table_format import TablePlace
from leadline.spark.table.table_writer import BatchSummary, TableSpec
from tests.support.scripted_jobs import WAIT_S, World
from tests.support.waiting import until


def spec_of(topic: str, interval_s: float = 0.01, upkeep: UpkeepSpec | None = None) -> TableJobSpec:
    place = TablePlace("delta", f"/lake/{topic}")
    return TableJobSpec(place, TableSpec(topic, {}), None, interval_s, upkeep or UpkeepSpec(1))


ALL: list[TopicEntry[TableJobSpec]] = [TopicEntry((), ".*", spec_of)]


@contextmanager
def running(
    world: World, *, once: bool = False, entries: list[TopicEntry[TableJobSpec]] | None = None
) -> Iterator[JobRunner]:
    runner = JobRunner(world, RunSpec(2, 0.01, once), entries or ALL, world)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop(WAIT_S)


def fail(error: Exception) -> Callable[[], BatchSummary | None]:
    def step() -> BatchSummary | None:
        raise error

    return step


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TableError("a corrupt batch"), "failed TABLE"),
        (PermissionError("no"), "failed TABLE"),
        (ZeroDivisionError("a fault of ours"), "failed TABLE"),
        (Unreachable("away"), "failed OUTAGE"),
        (WriterRefused("another writer"), "failed TAKEN_OVER"),
    ],
)
def test_trouble_of_one_job_stays_with_it(error: Exception, kind: str) -> None:
    world = World("orders", "users")
    world.steps["orders"] = fail(error)
    with running(world) as runner:
        world.wait_for(kind, "orders")
        world.wait_for("wrote", "users", 10)
        assert {job.topic: bool(job.trouble) for job in runner.statistics()} == {"orders": True, "users": False}


def test_topics_are_picked_up_when_they_appear_and_left_when_they_are_gone() -> None:
    world = World("orders")
    with running(world):
        world.wait_for("wrote", "orders")
        world.topics_there = {"orders", "users"}
        world.wait_for("wrote", "users")
        world.topics_there = {"users"}
        world.wait_for("removed", "orders")
        world.wait_for("wrote", "users", world.events.count(("wrote", "users")) + 3)
    assert ("added", "__offsets") not in world.events
    assert sorted(world.closed) == ["orders", "users"]


def test_once_ends_when_each_table_has_what_was_there_or_failed() -> None:
    world = World("orders", "users", "broken")
    left = iter([3, 2, 1, 0])
    world.steps["users"] = lambda: BatchSummary(0, 1, 1, 0, 1, next(left), 0, -1, 0.1)
    world.steps["broken"] = fail(TableError("no"))
    with running(world, once=True) as runner:
        world.wait_for("wrote", "users", 4)
        world.wait_for("wrote", "orders")
        world.wait_for("failed TABLE", "broken")
        until(lambda: runner.is_done)
    assert world.events.count(("wrote", "users")) == 4
    assert world.events.count(("failed TABLE", "broken")) == 1


def test_once_ends_if_the_topics_cannot_be_listed() -> None:
    world = World()
    world.list_error = Unreachable("away")
    with running(world, once=True) as runner:
        until(lambda: runner.is_done)
        assert runner.list_error is world.list_error


def test_a_cluster_that_is_away_at_the_start_is_waited_for() -> None:
    world = World("orders")
    world.list_error = Unreachable("away")
    with running(world):
        world.wait_for("failed OUTAGE", "")
        world.list_error = None
        world.wait_for("wrote", "orders")


def test_upkeep_is_done_beside_the_writers() -> None:
    world = World("orders")
    upkeep = UpkeepSpec(1, compact_every_s=0.01, vacuum_every_s=0.01)
    with running(world, entries=[TopicEntry((), ".*", lambda topic: spec_of(topic, upkeep=upkeep))]):
        world.wait_for("compact", "orders", 2)
        world.wait_for("vacuum", "orders")


class LongStep:
    """A step that lasts until it is let go."""

    def __init__(self, *ends: threading.Event) -> None:
        self.began, self.ends = threading.Event(), ends

    def __call__(self) -> BatchSummary | None:
        self.began.set()
        for end in self.ends:
            assert end.wait(WAIT_S)
        return None


def test_a_stop_finishes_the_batch_under_way() -> None:
    world, finish = World("orders"), threading.Event()
    world.steps["orders"] = step = LongStep(finish)
    runner = JobRunner(world, RunSpec(2, 0.01, False), ALL, world)
    runner.start()
    assert step.began.wait(WAIT_S)
    ended: list[tuple[int, int]] = []
    stopper = threading.Thread(target=lambda: ended.append(runner.stop(WAIT_S)))
    stopper.start()
    finish.set()
    stopper.join(WAIT_S)
    assert ended in ([(1, 0)], [(0, 0)])  # it may have ended before the stop began
    assert ("wrote", "orders") in world.events
    assert not world.cancelled.is_set()
    assert world.closed == ["orders"]


def test_a_stop_gives_a_batch_up_that_takes_too_long() -> None:
    world = World("orders")
    world.steps["orders"] = step = LongStep(world.cancelled)
    runner = JobRunner(world, RunSpec(1, 0.01, False), ALL, world)
    runner.start()
    assert step.began.wait(WAIT_S)
    assert runner.stop(0.01) == (1, 1)
    assert world.closed == ["orders"]


def test_a_stop_leaves_a_thread_alone_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a daemon, and what it did not commit does not count."""
    monkeypatch.setattr(job_runner, "CANCELLED_S", 0.01)
    world, finish = World("orders"), threading.Event()
    world.steps["orders"] = step = LongStep(finish)
    runner = JobRunner(world, RunSpec(1, 0.01, False), ALL, world)
    runner.start()
    assert step.began.wait(WAIT_S)
    assert runner.stop(0.01) == (1, 1)
    finish.set()
    world.wait_for("wrote", "orders")
