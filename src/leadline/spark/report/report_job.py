"""The report job: topics measured by Spark in one pass over their batches (figures.py, lag.py, forecast.py).

Read from brokers, or from the files of log directories, of which the fullest replica of each partition counts. Tasks
hand back figures, never records; the figures of all tasks are merged on the way to the driver. The journal of the
groups is read along with the topics: it yields the lag of each group.
    errors of reading are listed beside the figures, which then lack those records
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.errors import CorruptFile, WireError
from leadline.model import Buffer, Offset, TopicPartition, by_topic
from leadline.spark.batches.decode import RecordFilter, pieces
from leadline.spark.client.cluster import ClusterClient, NoSuchTopic, RequestFailed
from leadline.spark.client.connection import AccessRefused, BlockingConnection, Unreachable
from leadline.spark.client.range_fetch import FetchOptions, fetch
from leadline.spark.errors import JobFailed
from leadline.spark.files import segments
from leadline.spark.files.segments import LogFiles
from leadline.spark.ranges import Range, plan
from leadline.spark.report.figures import RangeMeasure, TopicFigures
from leadline.spark.report.forecast import TopicLimits, forecast
from leadline.spark.report.lag import CommitHistory, histories
from leadline.spark.report.topic_report import Report, TopicReport
from leadline.spark.topics import resolution
from leadline.spark.topics.options import SubscribedTopics
from leadline.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

LEAST_TASKS = 8  # if there is enough to read: uses all cores, and lets the progress move
TOPIC_RESOURCE = 2
SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy")
EXPECTED = (RequestFailed, CorruptFile, NoSuchTopic, OSError, AccessRefused, Unreachable, WireError)


class NothingToReport(JobFailed):
    """No such topic exists, or no topic has a record."""


@dataclass(frozen=True, slots=True)
class ReportRange:
    """A range for a task, and where it lies: in files, or else at the brokers."""

    range: Range
    log: LogFiles | None = None


Task = tuple[ReportRange, ...]


@dataclass(frozen=True, slots=True)
class ReportPlan:
    """The ranges to read, split into tasks."""

    where: str  # for a person
    tasks: list[Task]
    partitions: Sequence[TopicPartition]  # that are reported, also those without a record
    limits: Mapping[str, TopicLimits]
    size: int  # bytes, about

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(tp.topic for tp in self.partitions)


# What there is to read


def plan_from_brokers(properties: Mapping[str, str], topics: Sequence[str]) -> ReportPlan:
    """Topics by name; none: all but the internal ones."""
    with ClusterClient(properties) as cluster:
        existing = cluster.topics()
        chosen = sorted(topics or (name for name, topic in existing.items() if not topic.is_internal))
        read = [*chosen, *([OFFSETS_TOPIC] if OFFSETS_TOPIC in existing and OFFSETS_TOPIC not in chosen else [])]
        at = resolution.current_offsets(
            cluster, resolution.resolve_topics(cluster, SubscribedTopics(tuple(read))), committed=False
        )
        average = resolution.bytes_per_offset(cluster, at)
        ranges = [Range(tp, at.earliest[tp], until) for tp, until in sorted(at.latest.items())]
        tasks = [tuple(map(ReportRange, task)) for task in plan(ranges, average, min_tasks=LEAST_TASKS)]
        size = sum(range_.length * average.get(range_.tp, 0.0) for range_ in ranges)
        partitions = [range_.tp for range_ in ranges if range_.tp.topic in chosen]
        return ReportPlan(cluster.servers, tasks, partitions, _limits(cluster, chosen, partitions), round(size))


def _limits(
    cluster: ClusterClient, topics: Sequence[str], partitions: Sequence[TopicPartition]
) -> dict[str, TopicLimits]:
    """The limits that the brokers report."""
    disks: dict[TopicPartition, tuple[int, int]] = {}
    settings: dict[str, dict[str, str]] = {}
    try:
        disks = cluster.ask_leaders(partitions, _disks)
        settings = _settings(cluster, topics)
    except (RequestFailed, AccessRefused):
        pass  # without the permission to describe, a report shows no limits
    limits = {}
    for topic in topics:
        of_topic = [disk for tp, disk in disks.items() if tp.topic == topic and disk[1] > 0]
        free, total = min(of_topic, default=(None, None))
        configs = settings.get(topic, {})
        keep_ms, keep_bytes = (int(configs[name]) if name in configs else None for name in SETTINGS[:2])
        limits[topic] = TopicLimits(keep_ms, keep_bytes, configs.get("cleanup.policy", "unknown"), free, total)
    return limits


def _disks(
    connection: BlockingConnection, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, tuple[int, int]]]:
    """Of the disk that each of them lies on: free and whole."""
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[tp.partition for tp in each])
        for name, each in by_topic(partitions).items()
    ]
    answer = connection.ask(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    unknown = dict.fromkeys(partitions, (answer.error_code, (-1, -1)))
    return unknown | {
        TopicPartition(topic.name, part.partition_index): (0, (each.usable_bytes, each.total_bytes))
        for each in answer.results
        for topic in each.topics
        for part in topic.partitions
    }


def _settings(cluster: ClusterClient, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=list(SETTINGS)
        )
        for topic in topics
    ]
    answer = cluster.ask_any_broker(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse)
    return {
        resource.resource_name: {config.name: config.value for config in resource.configs if config.value is not None}
        for resource in answer.results
        if not resource.error_code
    }


def plan_from_files(paths: Sequence[str], topics: Sequence[str]) -> ReportPlan:
    """Topics by name; none: all but the internal ones."""
    fullest: dict[TopicPartition, LogFiles] = {}
    for log in segments.logs_in(paths):
        if log.tp not in fullest or log.size > fullest[log.tp].size:
            fullest[log.tp] = log
    there = {tp.topic for tp in fullest}
    if missing := sorted(set(topics) - there):
        raise NothingToReport(f"no topic {missing[0]} in {', '.join(paths)}: there are {', '.join(sorted(there))}")
    chosen = frozenset(topics or (name for name in there if not name.startswith("__")))
    logs = {tp: log for tp, log in sorted(fullest.items()) if tp.topic in chosen or tp.topic == OFFSETS_TOPIC}
    ranges = [Range(tp, log.log_start, segments.readable_until(log, committed=False)) for tp, log in logs.items()]
    average = {range_.tp: logs[range_.tp].size / max(range_.length, 1) for range_ in ranges}
    tasks = [
        tuple(ReportRange(range_, logs[range_.tp]) for range_ in task)
        for task in plan(ranges, average, min_tasks=LEAST_TASKS)
    ]
    limits = {topic: _limits_of_files([log for tp, log in logs.items() if tp.topic == topic]) for topic in chosen}
    partitions = [tp for tp in logs if tp.topic in chosen]
    return ReportPlan(", ".join(paths), tasks, partitions, limits, sum(log.size for log in logs.values()))


def _limits_of_files(logs: Sequence[LogFiles]) -> TopicLimits:
    """Files do not hold the retention; the disk reports its free space."""
    disks = [os.statvfs(log.log_dir) for log in logs]
    free, total = min((disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize) for disk in disks)
    policy = "compact" if any(log.cleaned_until is not None for log in logs) else "unknown"
    return TopicLimits(None, None, policy, free, total)


# What tasks do


@dataclass(slots=True)
class ReportOutcome:
    """Of a task, or of several."""

    topics: dict[str, TopicFigures] = field(default_factory=dict)
    commits: CommitHistory = field(default_factory=CommitHistory)
    errors: list[str] = field(default_factory=list)

    def merge(self, other: "ReportOutcome") -> "ReportOutcome":
        for topic, figures in other.topics.items():
            self.topics.setdefault(topic, TopicFigures()).merge(figures)
        self.commits.merge(other.commits)
        self.errors += other.errors
        return self


def run_report_task(properties: Mapping[str, str], topics: frozenset[str], task: Task) -> ReportOutcome:
    outcome = ReportOutcome()
    with ClusterClient(properties) as cluster:
        for piece in task:
            try:
                _measure(cluster, topics, piece, outcome)
            except EXPECTED as error:
                outcome.errors.append(f"{piece.range.tp}: {error}")
    return outcome


def _measure(cluster: ClusterClient, topics: frozenset[str], piece: ReportRange, outcome: ReportOutcome) -> None:
    range_ = piece.range
    measuring = RangeMeasure(range_.tp.partition, range_.first, range_.until)
    if range_.tp.topic in topics:
        outcome.topics.setdefault(range_.tp.topic, TopicFigures())
    try:
        for data in _bytes_of(cluster, piece):
            if range_.tp.topic in topics:
                measuring.add(data)
            if range_.tp.topic == OFFSETS_TOPIC:
                _add_commits(data, range_.first, range_.until, topics, outcome.commits)
    finally:
        if range_.tp.topic in topics:
            outcome.topics[range_.tp.topic].merge(measuring.figures)


def _bytes_of(cluster: ClusterClient, piece: ReportRange) -> Iterator[Buffer]:
    if piece.log is None:
        for fetched in fetch(cluster, piece.range, FetchOptions(fail_on_data_loss=False)):
            yield fetched.data
    else:
        for _, _, data in segments.batches_of(piece.log, piece.range.first, piece.range.until):
            yield data


def _add_commits(data: Buffer, first: Offset, until: Offset, topics: frozenset[str], commits: CommitHistory) -> None:
    for rows in pieces(data, RecordFilter(first, until)):
        times = rows.column("timestamp").view(pa.int64())
        columns = (rows.column("offset"), times, rows.column("key"), rows.column("value"))
        for at, ms, key, value in zip(*(column.to_pylist() for column in columns), strict=True):
            commits.add(at, ms, key, value, topics)


# The whole


def make_report(spark: SparkSession, work: ReportPlan, properties: Mapping[str, str]) -> Report:
    """Runs the tasks. NothingToReport if there is no record anywhere."""
    outcome = ReportOutcome()
    if work.tasks:
        tasks = spark.sparkContext.parallelize(work.tasks, len(work.tasks))
        do: Callable[[Task], ReportOutcome] = partial(run_report_task, dict(properties), work.topics)
        outcome = tasks.map(do).treeReduce(ReportOutcome.merge)
    return finished_report(work, outcome)


def finished_report(work: ReportPlan, outcome: ReportOutcome) -> Report:
    for tp in work.partitions:
        outcome.topics.setdefault(tp.topic, TopicFigures()).part(tp.partition)
    topics = [_of_topic(name, figures, work, outcome.commits) for name, figures in outcome.topics.items()]
    if not any(topic.figures.records for topic in topics) and not outcome.errors:
        raise NothingToReport(f"there is no record in any topic of {work.where}")
    return Report(work.where, sorted(topics, key=lambda topic: (-topic.figures.stored, topic.name)), outcome.errors)


def _of_topic(name: str, figures: TopicFigures, work: ReportPlan, commits: CommitHistory) -> TopicReport:
    width = max((part.slots.width_ms for part in figures.parts.values()), default=0)
    for part in figures.parts.values():
        part.slots.widen(width)
    limits = work.limits.get(name, TopicLimits())
    slots = {partition: part.slots for partition, part in figures.parts.items()}
    return TopicReport(name, figures, limits, forecast(figures.parts, limits), histories(commits, name, slots))
