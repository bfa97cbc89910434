"""Jobs of `leadline pipeline run` whose steps a test decides, and an observer that keeps what it is told."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import cast

from leadline.model import NO_ID
from leadline.spark.client.cluster import ClusterClient, TopicMetadata
from leadline.spark.jobs.job_schedule import StepFailure, Upkeep
from leadline.spark.jobs.job_statistics import JobStatistics
from leadline.spark.jobs.table_job import TableJob, TableJobSpec
from leadline.spark.table.table_writer import BatchSummary

WAIT_S = 300


class World:
    """Topics, and what a step of each does. It is an environment, a cluster's client and an observer at once."""

    def __init__(self, *topics: str) -> None:
        self.topics_there = set(topics)
        self.steps: dict[str, Callable[[], BatchSummary | None]] = {}
        self.changed = threading.Condition()
        self.events: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self.cancelled = threading.Event()
        self.list_error: Exception | None = None

    # As an environment

    def connect(self) -> ClusterClient:
        return cast(ClusterClient, self)

    def job(self, spec: TableJobSpec) -> TableJob:
        return cast(TableJob, ScriptedJob(self, spec))

    def begin_worker(self, name: str) -> None: ...

    def cancel(self) -> None:
        self.cancelled.set()

    # As a client

    def __enter__(self) -> "World":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def topics(self) -> dict[str, TopicMetadata]:
        if self.list_error is not None:
            raise self.list_error
        names = {name: TopicMetadata(name, NO_ID, {0: 1}) for name in self.topics_there}
        return names | {"__offsets": TopicMetadata("__offsets", NO_ID, {0: 1}, is_internal=True)}

    # As an observer

    def _add(self, kind: str, what: str) -> None:
        with self.changed:
            self.events.append((kind, what))
            self.changed.notify_all()

    def added(self, job: TableJobSpec) -> None:
        self._add("added", job.spec.topic)

    def removed(self, job: TableJobSpec) -> None:
        self._add("removed", job.spec.topic)

    def conflict(self, text: str) -> None:
        self._add("conflict", text)

    def wrote(self, job: TableJobSpec, summary: BatchSummary | None) -> None:
        self._add("wrote", job.spec.topic)

    def failed(self, job: TableJobSpec | None, error: Exception, failure: StepFailure, pause_s: float) -> None:
        self._add(f"failed {failure.name}", "" if job is None else job.spec.topic)

    def listed(self) -> None: ...

    def upkept(self, job: TableJobSpec, upkeep: Upkeep, done: Mapping[str, int]) -> None:
        self._add(upkeep.value, job.spec.topic)

    def upkeep_failed(self, job: TableJobSpec, upkeep: Upkeep, error: Exception) -> None: ...

    # As a test

    def wait_for(self, kind: str, topic: str, count: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.events.count((kind, topic)) >= count, WAIT_S), self.events


class ScriptedJob:
    def __init__(self, world: World, spec: TableJobSpec) -> None:
        self.world, self.job = world, spec
        self.statistics = JobStatistics(spec.spec.topic, spec.name, 0)

    def write(self, _: object) -> BatchSummary | None:
        return self.world.steps.get(self.job.spec.topic, lambda: None)()

    def maintain(self, upkeep: Upkeep) -> Mapping[str, int]:
        return {"removed": 3, "added": 1}

    def close(self) -> None:
        self.world.closed.append(self.job.spec.topic)
