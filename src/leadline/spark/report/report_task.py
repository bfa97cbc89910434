"""A task of a report: it measures ranges and returns figures, never records."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.errors import CorruptFile, WireError
from leadline.model import Buffer, Offset
from leadline.spark.batches.decode import RecordFilter, pieces
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused, Unreachable
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.range_fetch import FetchOptions, fetch
from leadline.spark.files import segments
from leadline.spark.report.figures import RangeMeasure, TopicFigures
from leadline.spark.report.lag import CommitHistory
from leadline.spark.report.report_plan import ReportRange, Task

EXPECTED = (RequestFailed, CorruptFile, NoSuchTopic, OSError, AccessRefused, Unreachable, WireError)


@dataclass(slots=True)
class ReportOutcome:
    """The figures and errors of one or several tasks."""

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
