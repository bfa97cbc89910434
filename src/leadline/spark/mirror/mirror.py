"""A mirror copies topics from one cluster to another: it keeps partitions, copies each record once, and maps offsets.

A round copies the records that arrived since the last round. Tasks stage batches, and the driver sends them in one
transaction. The same transaction holds the runs of the offset map and, as committed offsets of a group, the positions
in the source:
    the copied records, the offset map and the start of the next round always agree
There is no other state: a mirror resumes after the transaction of its last round, on any machine. A second mirror of
the same name takes over: the transaction of the first one is fenced.

    in the target cluster           holds
    group leadline-mirror-NAME      {"source": offset, "id": id of the source topic} for each partition
    topic leadline-mirror-NAME      the offset map (see offset_map)
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from pyspark.sql import SparkSession

from leadline.errors import UnknownMemberId
from leadline.model import NO_TIMESTAMP, Offset, TopicPartition
from leadline.records.compression import Codec
from leadline.spark.batches.encode import BatchEncoder, RecordColumns
from leadline.spark.client.cluster import ClusterClient, GroupOffset
from leadline.spark.client.failures import RequestFailed
from leadline.spark.client.range_fetch import FetchOptions, rows
from leadline.spark.client.transaction import ClientTransaction, StagedBatch
from leadline.spark.errors import JobFailed
from leadline.spark.mirror.copy_task import CopyOutput, CopyTask, run_copy_task
from leadline.spark.mirror.offset_map import OffsetMap, OffsetRun
from leadline.spark.mirror.topic_clone import clone_topic, consumer_groups, create_topic
from leadline.spark.positions import ClusterOffsets, Positions, data_loss, losses, resume_offsets
from leadline.spark.ranges import Range, admit, plan
from leadline.spark.session import run_tasks
from leadline.spark.topics import resolution
from leadline.spark.topics.options import TopicSelection
from leadline.spark.topics.sink import TaskStaged, staged_batches
from leadline.spark.topics.staging import Staging

BATCH_BYTES = 256 << 20  # of one round
TRANSACTION_MS = 600_000
UNCHANGED = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class BadMirror(JobFailed):
    """The group at the target holds offsets that no mirror committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorSpec:
    """The mirror that a user requests."""

    name: str
    source: Mapping[str, str]  # properties of a client
    target: Mapping[str, str]
    topics: TopicSelection
    prefix: str = ""  # of the topic names in the target cluster
    groups: str | None = None  # a regular expression: the groups whose committed offsets are translated
    batch_bytes: int = BATCH_BYTES
    fail_on_data_loss: bool = True
    staging: str | None = None
    min_tasks: int = 1


@dataclass(frozen=True, slots=True)
class RoundSummary:
    """The records that a round copied, and those that remain."""

    records: int
    size: int
    lag_offsets: int
    lag_bytes: int
    newest_ms: int  # the latest time of a copied record; -1: no record was copied
    seconds: float
    groups: int = 0  # groups whose offsets changed in the target cluster
    busy_groups: tuple[str, ...] = ()  # groups that have members in the target cluster, and are skipped


@dataclass(frozen=True, slots=True)
class CopyPosition:
    """How far a partition is copied."""

    source: Offset
    target: Offset
    id: str

    @property
    def note(self) -> GroupOffset:
        return GroupOffset(self.target, json.dumps({"source": self.source, "id": self.id}))

    @classmethod
    def of(cls, note: GroupOffset, group: str) -> "CopyPosition":
        try:
            fields = json.loads(note.metadata)
            return cls(int(fields["source"]), note.offset, str(fields["id"]))
        except (KeyError, TypeError, ValueError):
            raise BadMirror(
                f"group {group} has committed {note}, which is not of a mirror: choose another name"
            ) from None


RunTasks = Callable[[Sequence[CopyTask]], list[CopyOutput]]


def on_spark(spark: SparkSession) -> RunTasks:
    return partial(run_tasks, spark, run_copy_task)


@dataclass(slots=True)
class Mirror:
    spec: MirrorSpec
    run: RunTasks  # on Spark
    source: ClusterClient
    target: ClusterClient
    map: OffsetMap = field(default_factory=OffsetMap)
    _ready_topics: set[str] = field(default_factory=set)  # source topics that exist in the target cluster

    @property
    def id(self) -> str:
        """The name of the transactional id, the group and the topic of the offset map."""
        return f"leadline-mirror-{self.spec.name}"

    @property
    def map_tp(self) -> TopicPartition:
        return TopicPartition(self.id, 0)

    def load(self) -> None:
        """Loads the offset map of earlier rounds."""
        create_topic(self.target, self.id, 1, UNCHANGED)
        range_ = Range(
            self.map_tp,
            self.target.earliest([self.map_tp])[self.map_tp],
            self.target.latest([self.map_tp], committed=True)[self.map_tp],
        )
        for batch in rows(self.target, range_, FetchOptions(committed=True), headers=False):
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                self.map.take(key, value)

    def round(self) -> RoundSummary:
        started = time.monotonic()
        at = resolution.current_offsets(
            self.source, resolution.resolve_topics(self.source, self.spec.topics), committed=True
        )
        if self._start_offsets(self._positions(at), at) == at.latest:
            moved, busy = self._translate(at)
            return RoundSummary(0, 0, 0, 0, NO_TIMESTAMP, time.monotonic() - started, moved, busy)
        self._prepare(at)
        transaction = ClientTransaction(self.target, self.id, TRANSACTION_MS)
        transaction.begin()  # from here on no other mirror can commit positions
        places = self._positions(at)
        start = self._start_offsets(places, at)
        sizes = resolution.bytes_per_offset(self.source, at.earliest, at.latest)
        end = admit(start, at.latest, sizes, max_bytes=self.spec.batch_bytes)
        copied = self._run_tasks([Range(tp, start[tp], end[tp]) for tp in sorted(end)], sizes)
        self._commit(transaction, copied, places, at, end)
        left = {tp: at.latest[tp] - end[tp] for tp in end}
        moved, busy = self._translate(at)
        return RoundSummary(
            sum(piece.count for output in copied for piece in output.staged.pieces),
            sum(output.staged.bytes for output in copied),
            sum(left.values()),
            int(sum(count * sizes.get(tp, 0.0) for tp, count in left.items())),
            max((output.newest_ms for output in copied), default=NO_TIMESTAMP),
            time.monotonic() - started,
            moved,
            busy,
        )

    def _target_of(self, tp: TopicPartition) -> TopicPartition:
        return TopicPartition(self.spec.prefix + tp.topic, tp.partition)

    def _positions(self, at: ClusterOffsets) -> dict[TopicPartition, CopyPosition]:
        """The positions, by target partition."""
        committed = self.target.committed(self.id, [self._target_of(tp) for tp in at.latest])
        return {tp: CopyPosition.of(note, self.id) for tp, note in committed.items()}

    def _prepare(self, at: ClusterOffsets) -> None:
        for name in {tp.topic for tp in at.latest} - self._ready_topics:
            clone_topic(self.target, self.spec.prefix + name, self.source, self.source.existing_topics([name])[name])
            self._ready_topics.add(name)

    def _start_offsets(
        self, places: Mapping[TopicPartition, CopyPosition], at: ClusterOffsets
    ) -> dict[TopicPartition, Offset]:
        """Where each partition resumes; a new one starts at its earliest offset."""
        copied = {tp: places[self._target_of(tp)] for tp in at.latest if self._target_of(tp) in places}
        ids = {tp.topic: place.id for tp, place in copied.items() if place.id}
        before = Positions({tp: place.source for tp, place in copied.items()}, "", ids)
        lost = losses(before, at)
        if lost and self.spec.fail_on_data_loss:
            raise data_loss(lost)
        return resume_offsets(before, at)

    def _run_tasks(self, ranges: list[Range], sizes: Mapping[TopicPartition, float]) -> list[CopyOutput]:
        how = FetchOptions(committed=True, fail_on_data_loss=self.spec.fail_on_data_loss)
        staging = Staging.of(self.spec.staging, self.id)
        tasks = plan(ranges, sizes, min_tasks=self.spec.min_tasks)
        jobs = [CopyTask(self.spec.source, task, self.spec.prefix, how, staging) for task in tasks]
        return self.run(jobs) if jobs else []

    def _commit(
        self,
        transaction: ClientTransaction,
        copied: Sequence[CopyOutput],
        places: Mapping[TopicPartition, CopyPosition],
        at: ClusterOffsets,
        end: Mapping[TopicPartition, Offset],
    ) -> None:
        """Commits records, offset map and positions in the transaction."""
        news = OffsetMap()
        staging = Staging.of(self.spec.staging, self.id)
        transaction.on_stored = self._offset_recorder(news)
        try:
            lefts = [TaskStaged(staging, output.staged, None) for output in copied]
            pieces = {piece.tp for output in copied for piece in output.staged.pieces}
            if pieces:
                transaction.add({*pieces, self.map_tp})
                with staged_batches(lefts, [span for output in copied for span in output.spans]) as batches:
                    transaction.send(batches)
                transaction.on_stored = None
                transaction.send(self._map_batches(news))
            transaction.commit_offsets(self.id, self._notes(transaction, places, at, end))
            transaction.commit()
        except Exception:
            transaction.abort()
            raise
        for tp, runs in news.runs().items():
            self.map.take_runs(tp, runs)
        staging.clear()

    def _offset_recorder(self, news: OffsetMap) -> Callable[[StagedBatch, Offset], None]:
        def stored(batch: StagedBatch, base_offset: Offset) -> None:
            assert isinstance(batch.tag, tuple)
            for first, length in batch.tag:
                news.add(batch.tp, OffsetRun(first, base_offset, length))
                base_offset += length

        return stored

    def _map_batches(self, news: OffsetMap) -> list[StagedBatch]:
        records = list(news.to_records())
        now_ms = time.time_ns() // 1_000_000
        columns = RecordColumns(
            self.id,
            [key.encode() for key, _ in records],
            [value.encode() for _, value in records],
            None,
            [now_ms] * len(records),
            np.zeros(len(records), np.int64),
        )
        packing = BatchEncoder(Codec.LZ4, 256 << 10)
        batches = [*packing.add(columns), *packing.rest()]
        return [StagedBatch(batch.tp, len(batch.data), batch.count, partial(bytes, batch.data)) for batch in batches]

    def _notes(
        self,
        transaction: ClientTransaction,
        places: Mapping[TopicPartition, CopyPosition],
        at: ClusterOffsets,
        end: Mapping[TopicPartition, Offset],
    ) -> dict[TopicPartition, GroupOffset]:
        notes: dict[TopicPartition, GroupOffset] = {}
        for tp, until in end.items():
            copy = self._target_of(tp)
            target = transaction.ends.get(copy, places[copy].target if copy in places else 0)
            notes[copy] = CopyPosition(until, target, at.ids.get(tp.topic, "")).note
        return notes

    # Groups

    def _translate(self, at: ClusterOffsets) -> tuple[int, tuple[str, ...]]:
        """Commits the translated offsets of the source's groups for groups of the same name. Offsets never decrease."""
        if self.spec.groups is None:
            return 0, ()
        pattern = re.compile(self.spec.groups)
        moved, busy = 0, []
        for group in consumer_groups(self.source):
            if not pattern.fullmatch(group) or group.startswith("leadline-mirror-"):
                continue
            try:
                moved += self._translate_group(group, at)
            except RequestFailed as error:
                if error.code != UnknownMemberId.code:
                    raise
                busy.append(group)
        return moved, tuple(busy)

    def _translate_group(self, group: str, at: ClusterOffsets) -> bool:
        source_offsets = self.source.committed(group, list(at.latest))
        targets = [self._target_of(tp) for tp in source_offsets]
        target_offsets = self.target.committed(group, targets) if targets else {}
        ahead = {}
        for tp, committed in source_offsets.items():
            target = self._target_of(tp)
            offset = self.map.translate(target, committed.offset)
            if offset is not None and (target not in target_offsets or target_offsets[target].offset < offset):
                ahead[target] = offset
        if ahead:
            self.target.commit(group, ahead)
        return bool(ahead)
