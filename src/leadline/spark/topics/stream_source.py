"""Topics as streams: the reader of a streaming query.

The driver asks for the offsets of the topics before each batch, and plans its tasks as for a read that is no stream.
The progress of a stream is in its checkpoint, and in a consumer group, where other tools see it.

Before Spark 4.2, a source in Python is not told where a batch begins. It begins where the batch before it ends; of a
stream that resumes, Spark plans the tasks from the end of its last batch to the same end, before it asks for another.
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from leadline.model import Offset, TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.failures import RequestFailed
from leadline.spark.positions import (
    BadCheckpoint,
    ClusterOffsets,
    Positions,
    data_loss,
    is_recreated,
    losses,
    resume_offsets,
)
from leadline.spark.ranges import Range, admit
from leadline.spark.topics import resolution
from leadline.spark.topics.options import AssignedPartitions, ReadOptions, SubscribedTopics, TopicSelection
from leadline.spark.topics.read_tasks import CLUSTERS, planned, read_task
from leadline.spark.topics.stream_interfaces import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    check_limits,
)

log = logging.getLogger(__name__)

SIZES_S = 60.0  # after which the average size of records is computed again


def names(topics: TopicSelection) -> set[str]:
    """Of the topics, where they are named."""
    match topics:
        case SubscribedTopics(topic_names):
            return set(topic_names)
        case AssignedPartitions(partitions):
            return {tp.topic for tp in partitions}
    return set()


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """On the driver it exists as long as the query. Tasks get a copy, which can only read."""

    def __init__(self, options: ReadOptions) -> None:
        check_limits(options)
        self.options = options
        self._forget()

    def _forget(self) -> None:
        self._latest: Positions | None = None  # when the cluster was last read
        self._committed: Positions | None = None  # to the group
        self._batch = (Positions({}), Positions({}))  # start and end of the last; equal where the stream only begins
        self._target: Mapping[TopicPartition, Offset] | None = None  # the end of a run with the trigger availableNow
        self._new_group = self.options.group or f"{self.options.group_prefix}-{uuid.uuid4()}"
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_since_s: float | None = None
        self._last_batch_s = time.monotonic()

    def __getstate__(self) -> dict[str, object]:
        return {"options": self.options}

    @property
    def _cluster(self) -> ClusterClient:
        return CLUSTERS.get(self.options.client)

    def _now(self, *, all_of_them: bool) -> ClusterOffsets:
        topics = resolution.resolve_topics(self._cluster, self.options.topics, all_of_them=all_of_them)
        at = resolution.current_offsets(self._cluster, topics, committed=self.options.committed)
        self._latest = Positions(at.latest, "", at.ids)
        if self._target is None:
            return at
        bounded = {tp: min(until, self._target[tp]) for tp, until in at.latest.items() if tp in self._target}
        return ClusterOffsets(at.earliest, bounded, at.ids)

    def initialOffset(self) -> dict[str, object]:
        at = self._now(all_of_them=True)
        start = Positions(resolution.start_offsets(self._cluster, at, self.options), self._new_group, at.ids)
        self._batch = start, start
        return start.to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._now(all_of_them=False).latest

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit of one batch, from the options."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, object] | None = None, limit: ReadLimit | None = None) -> dict[str, object]:
        """Without arguments: before Spark 4.2."""
        before = self._batch[1] if start is None else Positions.from_json(start)
        at = self._now(all_of_them=False)
        self._check(before, at)
        if start is not None or self._batch[0] != before:
            self._commit(before)  # all batches before it are done; Spark calls `commit` only when another batch starts
        starts = resume_offsets(before, at)
        end = at.latest
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            end = self._admitted(starts, at)
        group = self.options.group or before.group or self._new_group
        if end == starts or self._is_too_little(starts, end):
            end = starts
        else:
            self._last_batch_s = time.monotonic()
        return Positions(end, group, at.ids).to_json()

    def _admitted(self, starts: Mapping[TopicPartition, Offset], at: ClusterOffsets) -> dict[TopicPartition, Offset]:
        sizes = self._bytes_per_offset(at) if self.options.max_bytes is not None else {}
        return admit(starts, at.latest, sizes, max_offsets=self.options.max_offsets, max_bytes=self.options.max_bytes)

    def _is_too_little(self, starts: Mapping[TopicPartition, Offset], end: Mapping[TopicPartition, Offset]) -> bool:
        """Whether to wait for minOffsetsPerTrigger: at most for maxTriggerDelay, and not at the end of a run."""
        if self.options.min_offsets is None or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._last_batch_s) * 1000
        return (
            sum(end[tp] - starts[tp] for tp in end) < self.options.min_offsets and waited_ms < self.options.max_delay_ms
        )

    def _check(self, before: Positions, at: ClusterOffsets) -> None:
        requested = names(self.options.topics)
        if requested and before.topics and before.topics.isdisjoint(requested):
            raise BadCheckpoint(
                f"the checkpoint is of {', '.join(sorted(before.topics))}, and the query reads "
                f"{', '.join(sorted(requested))}: it needs a checkpointLocation of its own"
            )
        if lost := losses(before, at):
            if self.options.fail_on_data_loss:
                raise data_loss(lost)
            for loss in lost:
                log.warning("%s", loss)

    def reportLatestOffset(self) -> dict[str, object] | None:
        return None if self._latest is None else self._latest.to_json()

    def partitions(self, start: dict[str, object], end: dict[str, object]) -> Sequence[InputPartition]:
        before, after = self._batch = Positions.from_json(start), Positions.from_json(end)
        cluster = self._cluster
        planned_offsets = ClusterOffsets({}, after.offsets, after.ids)
        new = [
            tp for tp in after.offsets if tp not in before.offsets or is_recreated(before, planned_offsets, tp.topic)
        ]
        starts = {**before.offsets, **cluster.earliest(new)}
        end_of = {tp: until for tp, until in after.offsets.items() if starts[tp] < until}
        if not end_of:
            return []
        at = self._now(all_of_them=False)
        self._check(
            Positions(end_of, after.group, after.ids), ClusterOffsets(dict.fromkeys(at.latest, 0), at.latest, at.ids)
        )
        ranges = [Range(tp, starts[tp], min(until, at.latest.get(tp, 0))) for tp, until in sorted(end_of.items())]
        return planned(self.options, ranges, self._bytes_per_offset(at))

    def _bytes_per_offset(self, at: ClusterOffsets) -> dict[TopicPartition, float]:
        now_s = time.monotonic()
        if self._sizes_since_s is None or now_s - self._sizes_since_s > SIZES_S:
            self._sizes, self._sizes_since_s = resolution.bytes_per_offset(self._cluster, at.earliest, at.latest), now_s
        return self._sizes

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self.options, partition)

    def commit(self, end: dict[str, object]) -> None:
        self._commit(Positions.from_json(end))

    def _commit(self, done: Positions) -> None:
        there = {} if self._latest is None else self._latest.offsets
        offsets = {tp: offset for tp, offset in done.offsets.items() if tp in there}
        if not self.options.commit_progress or not done.group or done == self._committed or not offsets:
            return
        try:
            self._cluster.commit(done.group, offsets)
        except RequestFailed as error:
            raise RequestFailed(
                f"the progress cannot be committed to group {done.group} (kafka.group.id names another, "
                "commitProgress=false commits none)",
                error.code,
            ) from None
        self._committed = done

    def stop(self) -> None:
        self._cluster.close()
