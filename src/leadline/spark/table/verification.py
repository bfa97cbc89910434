"""Compares a topic with its table, record by record: missing, additional and duplicate rows.

It accounts for the offsets of each partition that the log still has, up to the table's next offset:

    records that readers see    each is a row of the table or a dead letter, once
    control, aborted            offsets that no reader sees: rows with them are wrong
    compacted                   offsets whose record compaction removed: rows with them were written before

A checksum of all records that both must have is computed from the topic and from the table. It covers offset, time, key
and, if the table has it, value, and does not depend on the order.
In a table by key, the row of a key must be its last record that is not a dead letter. A tombstone leaves no row.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from crc32c import crc32c
from pyspark.sql import SparkSession

from leadline.model import Offset, TopicPartition, format_id
from leadline.records.batch import walk
from leadline.spark.batches.decode import RecordFilter, decode
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.range_fetch import FetchedBatches, FetchOptions, fetch
from leadline.spark.ranges import Range, plan
from leadline.spark.session import run_tasks
from leadline.spark.table.table import OffsetSlice, OriginColumns, Table, TableError, TableOrigin, TableState
from leadline.spark.table.table_format import open_table

Longs = npt.NDArray[np.int64]

SHOWN = 10  # offsets of each kind of error
NONE = np.empty(0, np.int64)
MIX = 0x9E37_79B9_7F4A_7C15
MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for a partition, or for a range of it. Lists hold the first wrong offsets; counts count all."""

    partition: int
    first: Offset
    until: Offset
    records: int = 0  # of the topic, that readers see
    rows: int = 0  # of the table
    dead: int = 0
    replaced: int = 0  # records that the table has no row for, because a later one has the same key
    control: int = 0
    aborted: int = 0
    compacted: int = 0
    older: int = 0  # rows whose record compaction has removed
    missing: int = 0
    repeated: int = 0
    wrong: int = 0  # rows, or dead letters, with an offset at which no reader sees a record
    different: int = 0  # 1: the checksums differ although the offsets agree
    topic_checksum: int = 0
    table_checksum: int = 0
    missing_at: tuple[Offset, ...] = ()
    repeated_at: tuple[Offset, ...] = ()
    wrong_at: tuple[Offset, ...] = ()

    @property
    def is_good(self) -> bool:
        return not (self.missing or self.repeated or self.wrong or self.different)

    def and_then(self, other: "Verdict") -> "Verdict":
        """The sum of two results for adjacent ranges of a partition, of which `other` is the second."""
        assert self.partition == other.partition
        sums = {
            name: getattr(self, name) + getattr(other, name)
            for name in self.__dataclass_fields__
            if name not in ("partition", "first", "until", "topic_checksum", "table_checksum")
        }
        for name in ("missing_at", "repeated_at", "wrong_at"):
            sums[name] = sums[name][:SHOWN]
        return Verdict(
            self.partition,
            self.first,
            other.until,
            topic_checksum=(self.topic_checksum + other.topic_checksum) & MASK,
            table_checksum=(self.table_checksum + other.table_checksum) & MASK,
            **sums,
        )


@dataclass(frozen=True, slots=True)
class VerifyTask:
    properties: Mapping[str, str]
    kind: str  # of the table's format
    uri: str
    dead_uri: str | None
    origin: TableOrigin


def verify(
    spark: SparkSession, cluster: ClusterClient, kind: str, uri: str, dead_uri: str
) -> tuple[TableState, list[Verdict]]:
    """The results, by partition."""
    state = open_table(kind, uri).state()
    if state is None:
        raise TableError(f"there is no {kind} table at {uri}")
    tps = check_topic(cluster, state.origin, uri)
    has_dead = open_table(kind, dead_uri).state() is not None
    job = VerifyTask(dict(cluster.properties), kind, uri, dead_uri if has_dead else None, state.origin)
    ranges = ranges_of(cluster, tps, state)
    tasks = (
        [(range_,) for range_ in ranges] if state.origin.mode == "upsert" else plan(ranges, {}, min_tasks=len(ranges))
    )
    results: list[list[Verdict]] = []
    if tasks:
        results = run_tasks(spark, partial(verify_ranges, job), tasks)
    by_partition: dict[int, list[Verdict]] = {range_.tp.partition: [] for range_ in ranges}
    for verdict in sorted((verdict for part in results for verdict in part), key=lambda verdict: verdict.first):
        by_partition[verdict.partition].append(verdict)
    return state, [reduce(Verdict.and_then, parts) for parts in by_partition.values()]


def check_topic(cluster: ClusterClient, origin: TableOrigin, uri: str) -> list[TopicPartition]:
    topic = cluster.existing_topics([origin.topic])[origin.topic]
    if format_id(topic.id) != origin.topic_id:
        raise TableError(
            f"{uri} follows a topic {origin.topic} with the id {origin.topic_id}, not {format_id(topic.id)}"
        )
    return topic.partitions


def ranges_of(cluster: ClusterClient, tps: Sequence[TopicPartition], state: TableState) -> list[Range]:
    """The offsets below the table's next offsets that the log still has."""
    earliest = cluster.earliest(tps)
    ends = {tp: state.progress.offsets.get(tp.partition, 0) for tp in tps}
    return [Range(tp, min(earliest[tp], end), end) for tp, end in ends.items() if end > earliest[tp]]


# Tasks


@dataclass(slots=True)
class LogContent:
    """The records of a range that readers see, and the offsets of control records and of aborted transactions."""

    visible: list[pa.RecordBatch] = field(default_factory=list)
    control: list[Longs] = field(default_factory=list)
    aborted: list[Longs] = field(default_factory=list)

    def add(self, fetched: FetchedBatches, range_: Range) -> None:
        visible = decode(fetched.data, RecordFilter(fetched.first, range_.until, False, fetched.aborted))
        self.visible.append(visible)
        if fetched.aborted:
            every = decode(fetched.data, RecordFilter(fetched.first, range_.until))
            self.aborted.append(np.setdiff1d(_longs(every, "offset"), _longs(visible, "offset")))
        for _, header in walk(fetched.data):
            if header.is_control:
                offsets = np.arange(header.base_offset, header.last_offset + 1)
                self.control.append(offsets[(offsets >= fetched.first) & (offsets < range_.until)])


def verify_ranges(job: VerifyTask, task: Sequence[Range]) -> list[Verdict]:
    with ClusterClient(job.properties) as cluster:
        return [_verify_range(job, range_, _read(cluster, job, range_)) for range_ in task]


def _read(cluster: ClusterClient, job: VerifyTask, range_: Range) -> LogContent:
    log = LogContent()
    for fetched in fetch(cluster, range_, FetchOptions(committed=job.origin.isolation == "read_committed")):
        log.add(fetched, range_)
    return log


def _verify_range(job: VerifyTask, range_: Range, log: LogContent) -> Verdict:
    columns = OriginColumns.of(job.origin.format)
    table = list(_rows(open_table(job.kind, job.uri), columns, range_, value=job.origin.format == "raw"))
    rows, dead, visible = _all(table, columns.offset), _dead(job, range_), _all(log.visible, "offset")
    control, aborted = _joined(log.control), _joined(log.aborted)
    expected = _expected_by_key(log, visible, dead) if job.origin.mode == "upsert" else visible
    once, counts = np.unique(np.concatenate([rows, dead]), return_counts=True)
    repeated, missing = once[counts > 1], np.setdiff1d(expected, once)
    beside = np.setdiff1d(once, expected)
    wrong = np.intersect1d(beside, np.concatenate([visible, control, aborted]))
    both = np.intersect1d(expected, np.setdiff1d(rows, dead))
    names = (columns.offset, columns.timestamp, columns.key, "value" if job.origin.format == "raw" else None)
    of_topic = _checksum(log.visible, ("offset", "timestamp", "key", names[3]), both)
    of_table = _checksum(table, names, both)
    exact = not (len(missing) or len(repeated) or len(wrong))
    return Verdict(
        range_.tp.partition,
        range_.first,
        range_.until,
        records=len(visible),
        rows=len(rows),
        dead=len(dead),
        replaced=len(visible) - len(expected),
        control=len(control),
        aborted=len(aborted),
        compacted=range_.length - len(visible) - len(control) - len(aborted),
        older=len(beside) - len(wrong),
        missing=len(missing),
        repeated=len(repeated),
        wrong=len(wrong),
        different=int(exact and of_topic != of_table),
        topic_checksum=of_topic,
        table_checksum=of_table,
        missing_at=_shown(missing),
        repeated_at=_shown(repeated),
        wrong_at=_shown(wrong),
    )


def _expected_by_key(log: LogContent, visible: Longs, dead: Longs) -> Longs:
    """The expected offsets of a whole partition: the last record of each key unless it is a tombstone; dead letters."""
    letters, last = set(dead.tolist()), dict[bytes | None, tuple[Offset, bool]]()
    for batch in log.visible:
        columns = batch.column("key"), batch.column("offset"), batch.column("value").is_null()
        for key, offset, gone in zip(*(column.to_pylist() for column in columns), strict=True):
            if offset not in letters:
                last[key] = offset, bool(gone)
    kept = np.array([offset for offset, gone in last.values() if not gone], np.int64)
    return np.union1d(kept, np.intersect1d(visible, dead))


def _rows(table: Table, columns: OriginColumns, range_: Range, *, value: bool) -> Iterator[pa.RecordBatch]:
    names = [*columns.names, *(["value"] if value else [])]
    yield from table.columns(names, OffsetSlice(columns, range_.tp.partition, range_.first, range_.until))


def _dead(job: VerifyTask, range_: Range) -> Longs:
    if job.dead_uri is None:
        return NONE
    columns = OriginColumns.of("raw")
    return _all(_rows(open_table(job.kind, job.dead_uri), columns, range_, value=False), columns.offset)


def _all(batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch], name: str) -> Longs:
    return _joined([_longs(batch, name) for batch in batches])


def _longs(batch: pa.RecordBatch, name: str) -> Longs:
    column: Longs = batch.column(name).to_numpy(zero_copy_only=False)
    return column


def _joined(parts: Sequence[Longs]) -> Longs:
    return np.concatenate(parts) if parts else NONE


def _shown(offsets: Longs) -> tuple[Offset, ...]:
    return tuple(offsets[:SHOWN].tolist())


def _checksum(batches: Sequence[pa.RecordBatch], names: tuple[str, str, str, str | None], offsets: Longs) -> int:
    """The sum of one number for each record with one of these offsets. Each offset counts once."""
    offset, timestamp, key, value = names
    total = 0
    for batch in batches:
        chosen = batch.filter(pa.array(np.isin(_longs(batch, offset), offsets)))
        times = chosen.column(timestamp).cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_pylist()
        values = chosen.column(value).to_pylist() if value is not None else [b""] * chosen.num_rows
        records = zip(chosen.column(offset).to_pylist(), times, chosen.column(key).to_pylist(), values, strict=True)
        total += sum(_number(*record) for record in records)
    return total & MASK


def _number(offset: Offset, time_ms: int, key: bytes | None, value: bytes | None) -> int:
    crc = crc32c(b"\1" if key is None else b"\2" + key, time_ms & 0xFFFF_FFFF)
    return ((crc32c(b"\1" if value is None else b"\2" + value, crc) | 1) * (offset + MIX)) & MASK
