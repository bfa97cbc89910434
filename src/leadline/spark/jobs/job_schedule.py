"""When each job of a process is due, and for what: to write, to compact its table, or to vacuum it.

    a job is written by at most one worker at a time, and the one that is due for the longest time comes first
    upkeep is done for one table at a time; it starts when the table has all records of its topic, or is far overdue
    upkeep of a table by key excludes its writer: both rewrite files. In other tables the writer continues
    a job that fails pauses, longer each time; the others do not wait for it

Times are seconds of any clock that does not go back; they are passed in.

Pure: decides only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from leadline.spark.jobs.backoff import BackOff

FIRST_SHARE = 0.1  # of its period after which upkeep runs for the first time: a process may be restarted daily
PATIENCE = 3.0  # periods, after which upkeep no longer waits for a table that is always behind


class StepFailure(Enum):
    """Why a step failed, as far as the pauses between tries depend on it: the first and the longest, in seconds."""

    OUTAGE = (1.0, 30.0)  # of the cluster
    TABLE = (5.0, 300.0)  # of the table or the topic, or a fault of ours
    TAKEN_OVER = (60.0, 300.0)  # another writer has the table: taking it back at once would only start a fight


class Upkeep(Enum):
    COMPACT = "compact"
    VACUUM = "vacuum"
    COUNT = "count"  # the files of the table, for metrics


@dataclass(frozen=True, slots=True)
class UpkeepSpec:
    target_bytes: int  # of a file, after compaction
    compact_every_s: float = 3600.0  # inf: never
    vacuum_every_s: float = 86_400.0  # inf: never
    count_every_s: float = inf
    keep_hours: int = 7 * 24  # that files which the table needs no more are kept, for readers of older versions

    def every_s(self, upkeep: Upkeep) -> float:
        periods_s = {
            Upkeep.COMPACT: self.compact_every_s,
            Upkeep.VACUUM: self.vacuum_every_s,
            Upkeep.COUNT: self.count_every_s,
        }
        return periods_s[upkeep]


@dataclass(slots=True)
class JobSchedule:
    """The state of one job."""

    interval_s: float
    upkeep: UpkeepSpec
    is_by_key: bool
    write_at_s: float
    upkeep_at_s: dict[Upkeep, float] = field(default_factory=dict)
    is_writing: bool = False
    in_upkeep: Upkeep | None = None
    is_behind: bool = True  # the table lacks records, as far as the last step knows
    is_done: bool = False  # with the records that existed, if `once` is set
    failure: StepFailure | None = None  # of the last step; None: it succeeded, or there was none
    back_off: BackOff = field(default_factory=lambda: BackOff(*StepFailure.TABLE.value))
    upkeep_back_off: BackOff = field(default_factory=lambda: BackOff(*StepFailure.TAKEN_OVER.value))

    @classmethod
    def starting(cls, now_s: float, interval_s: float, upkeep: UpkeepSpec, *, is_by_key: bool) -> "JobSchedule":
        first = {kind: now_s + FIRST_SHARE * upkeep.every_s(kind) for kind in Upkeep}
        return cls(interval_s, upkeep, is_by_key, now_s, first)

    @property
    def may_write(self) -> bool:
        is_excluded = self.is_by_key and self.in_upkeep is not None
        return not self.is_writing and not is_excluded and not self.is_done

    def due_upkeep(self, now_s: float) -> Upkeep | None:
        if self.in_upkeep is not None or self.failure is not None or (self.is_by_key and self.is_writing):
            return None
        for kind, at_s in sorted(self.upkeep_at_s.items(), key=lambda item: item[1]):
            overdue_s = PATIENCE * self.upkeep.every_s(kind) if self.is_behind else 0.0
            if at_s + overdue_s <= now_s:
                return kind
        return None

    def wrote(self, now_s: float, began_s: float, *, is_behind: bool) -> None:
        """A step succeeded. A table that is behind continues at once, the others after the rest of the interval."""
        self.is_writing, self.is_behind, self.failure = False, is_behind, None
        self.back_off.succeeded()
        self.write_at_s = now_s if is_behind else max(began_s + self.interval_s, now_s)

    def failed(self, now_s: float, failure: StepFailure) -> float:
        """The seconds until the next try."""
        if failure is not self.failure:
            self.back_off = BackOff(*failure.value)
        self.is_writing, self.failure = False, failure
        pause_s = self.back_off.failed()
        self.write_at_s = now_s + pause_s
        return pause_s

    def upkept(self, now_s: float, *, succeeded: bool) -> None:
        assert self.in_upkeep is not None
        kind, self.in_upkeep = self.in_upkeep, None
        period_s = self.upkeep.every_s(kind)
        if succeeded:
            self.upkeep_back_off.succeeded()
        else:
            period_s = min(period_s, self.upkeep_back_off.failed())
        self.upkeep_at_s[kind] = now_s + period_s


class JobQueue:
    """The jobs of a process, by name."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobSchedule] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self.jobs)

    def take_write(self, now_s: float) -> str | None:
        """The job that is due for the longest time; it is being written from now on. None: no job is due."""
        due = [(job.write_at_s, name) for name, job in self.jobs.items() if job.may_write and job.write_at_s <= now_s]
        if not due:
            return None
        _, name = min(due)
        self.jobs[name].is_writing = True
        return name

    def take_upkeep(self, now_s: float) -> tuple[str, Upkeep] | None:
        """A table that is due for upkeep, unless another one is in upkeep."""
        if any(job.in_upkeep is not None for job in self.jobs.values()):
            return None
        for name, job in self.jobs.items():
            if (kind := job.due_upkeep(now_s)) is not None:
                job.in_upkeep = kind
                return name, kind
        return None

    def retry_outages(self, now_s: float) -> None:
        """The cluster answers again: no job needs to wait for its next try."""
        for job in self.jobs.values():
            if job.failure is StepFailure.OUTAGE and not job.is_writing:
                job.write_at_s = min(job.write_at_s, now_s)

    def next_write_s(self) -> float:
        """When the next job is due to be written; inf: not before something else happens."""
        return min((job.write_at_s for job in self.jobs.values() if job.may_write), default=inf)

    @property
    def is_done(self) -> bool:
        return all(job.is_done for job in self.jobs.values())
