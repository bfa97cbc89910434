"""The plan of a report: the ranges to read, split into tasks, and the limits of the topics.

The ranges come from brokers, or from the files of log directories, where the fullest replica of each partition counts.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.model import TopicPartition, by_topic
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused, BlockingConnection
from leadline.spark.client.failures import RequestFailed
from leadline.spark.errors import JobFailed
from leadline.spark.files import segments
from leadline.spark.files.segments import LogFiles
from leadline.spark.ranges import Range, plan
from leadline.spark.report.forecast import TopicLimits
from leadline.spark.topics import resolution
from leadline.spark.topics.options import SubscribedTopics
from leadline.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

LEAST_TASKS = 8  # if there is enough to read: several tasks use all cores and show progress
TOPIC_RESOURCE = 2
SETTINGS = ("retention.ms", "retention.bytes", "cleanup.policy")


class NothingToReport(JobFailed):
    """No such topic exists, or no topic has a record."""


@dataclass(frozen=True, slots=True)
class ReportRange:
    """A range for a task, in the files of a log or at the brokers."""

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


def plan_from_brokers(properties: Mapping[str, str], topics: Sequence[str]) -> ReportPlan:
    """Topics by name; none: all but the internal ones."""
    with ClusterClient(properties) as cluster:
        existing = cluster.topics()
        chosen = sorted(topics or (name for name, topic in existing.items() if not topic.is_internal))
        read = [*chosen, *([OFFSETS_TOPIC] if OFFSETS_TOPIC in existing and OFFSETS_TOPIC not in chosen else [])]
        at = resolution.current_offsets(
            cluster, resolution.resolve_topics(cluster, SubscribedTopics(tuple(read))), committed=False
        )
        average = resolution.bytes_per_offset(cluster, at.earliest, at.latest)
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
        pass  # without permission to describe topics, a report shows no limits
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
    """The free and the total bytes of the disk of each partition."""
    topics = [
        DescribeLogDirsRequest.DescribableLogDirTopic(
            topic=name, partitions=[tp.partition for tp in partitions_of_topic]
        )
        for name, partitions_of_topic in by_topic(partitions).items()
    ]
    answer = connection.ask(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
    unknown = dict.fromkeys(partitions, (answer.error_code, (-1, -1)))
    return unknown | {
        TopicPartition(topic.name, part.partition_index): (0, (log_dir.usable_bytes, log_dir.total_bytes))
        for log_dir in answer.results
        for topic in log_dir.topics
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
    fullest = _fullest_replicas(paths)
    names = {tp.topic for tp in fullest}
    if missing := sorted(set(topics) - names):
        raise NothingToReport(f"no topic {missing[0]} in {', '.join(paths)}: there are {', '.join(sorted(names))}")
    chosen = frozenset(topics or (name for name in names if not name.startswith("__")))
    logs = {tp: log for tp, log in sorted(fullest.items()) if tp.topic in chosen or tp.topic == OFFSETS_TOPIC}
    partitions = [tp for tp in logs if tp.topic in chosen]
    size = sum(log.size for log in logs.values())
    return ReportPlan(", ".join(paths), _file_tasks(logs), partitions, _limits_of_files(logs, chosen), size)


def _fullest_replicas(paths: Sequence[str]) -> dict[TopicPartition, LogFiles]:
    fullest: dict[TopicPartition, LogFiles] = {}
    for log in segments.logs_in(paths):
        if log.tp not in fullest or log.size > fullest[log.tp].size:
            fullest[log.tp] = log
    return fullest


def _file_tasks(logs: Mapping[TopicPartition, LogFiles]) -> list[Task]:
    ranges = [Range(tp, log.log_start, segments.readable_until(log, committed=False)) for tp, log in logs.items()]
    average = {range_.tp: logs[range_.tp].size / max(range_.length, 1) for range_ in ranges}
    tasks = plan(ranges, average, min_tasks=LEAST_TASKS)
    return [tuple(ReportRange(range_, logs[range_.tp]) for range_ in task) for task in tasks]


def _limits_of_files(logs: Mapping[TopicPartition, LogFiles], topics: frozenset[str]) -> dict[str, TopicLimits]:
    return {topic: _limits_of_logs([log for tp, log in logs.items() if tp.topic == topic]) for topic in topics}


def _limits_of_logs(logs: Sequence[LogFiles]) -> TopicLimits:
    """Files do not hold the retention; the disk reports its free space."""
    disks = [os.statvfs(log.log_dir) for log in logs]
    free, total = min((disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize) for disk in disks)
    policy = "compact" if any(log.cleaned_until is not None for log in logs) else "unknown"
    return TopicLimits(None, None, policy, free, total)
