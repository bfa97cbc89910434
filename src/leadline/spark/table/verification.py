"""Compares a topic with its table, record by record: missing, additional and duplicate rows.

It accounts for the offsets of each partition that the log still has, up to the table's next offset:

    records that readers see    each is a row of the table or a dead letter, once
    control, aborted            offsets that no reader sees: rows with them are wrong
    compacted                   offsets whose record compaction removed: rows with them were written before

A checksum of all records that both must have is computed from the topic and from the table. It covers offset, time,
key, headers and value, and does not depend on the order. The value of a document is the fields that the table has
columns for: the records of the topic are shaped again, as a writer would shape them.
In a table by key, the rows of a key must be those that the changes of that key leave (key_history.py), in scd2 with the
times of their validity. What compaction removed of a topic may have ended a row, so these times are not compared then.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import NamedTuple

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
from leadline.spark.table.change_events import OP, TRUNCATE
from leadline.spark.table.expected_rows import spans_by_key, truncates, with_spans
from leadline.spark.table.key_history import KeyChange
from leadline.spark.table.payload import BROKEN_RULES, NEED_REGISTRY, ShapedRecords, record_schema
from leadline.spark.table.quality import DEAD_LETTER, REFUSE, Quality, check_quality, shape_with
from leadline.spark.table.table import (
    PREFIX,
    OffsetSlice,
    OriginColumns,
    Table,
    TableError,
    TableOrigin,
    TableState,
    check_column_names,
    check_masks,
)
from leadline.spark.table.table_format import TablePlace

Longs = npt.NDArray[np.int64]

SHOWN = 10  # offsets of each kind of error
NONE = np.empty(0, np.int64)
MIX = 0x9E37_79B9_7F4A_7C15
MASK = (1 << 64) - 1
ANY = Quality()
NO_VALUES: tuple[object, ...] = (None, [], {})


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
    different: int = 0  # rows with another time, key, value or headers than their record
    topic_checksum: int = 0
    table_checksum: int = 0
    missing_at: tuple[Offset, ...] = ()
    repeated_at: tuple[Offset, ...] = ()
    wrong_at: tuple[Offset, ...] = ()
    different_at: tuple[Offset, ...] = ()

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
        for name in ("missing_at", "repeated_at", "wrong_at", "different_at"):
            sums[name] = sums[name][:SHOWN]
        return Verdict(
            self.partition,
            self.first,
            other.until,
            topic_checksum=(self.topic_checksum + other.topic_checksum) & MASK,
            table_checksum=(self.table_checksum + other.table_checksum) & MASK,
            **sums,
        )


class TableVerification(NamedTuple):
    state: TableState
    verdicts: list[Verdict]  # by partition
    lag_offsets: int  # of the topic, after the table's next offsets; they were not compared


@dataclass(frozen=True, slots=True)
class VerifyTask:
    properties: Mapping[str, str]
    table: TablePlace
    dead: TablePlace | None  # None: there are no dead letters
    origin: TableOrigin
    schema: pa.Schema  # of the table
    registry: str  # of schemas, for formats that need one
    quality: Quality = field(default_factory=Quality)
    truncates: Sequence[KeyChange] = ()  # of the topic, that a table by key has to obey


def verify(
    spark: SparkSession, cluster: ClusterClient, place: TablePlace, registry: str = "", quality: Quality = ANY
) -> TableVerification:
    table = place.open()
    state = table.state()
    if state is None:
        raise TableError(f"there is no {place.kind} table at {place.uri}")
    check_column_names(state, place.uri)
    check_quality(quality, state.origin.format, state.origin.mode)
    check_masks(state.origin, quality.masks_text, place.uri)
    if quality.on_violation == REFUSE:
        quality = replace(quality, on_violation=DEAD_LETTER)  # a row that breaks a rule is a difference
    if state.origin.format in NEED_REGISTRY and not registry:
        raise TableError(
            f"{place.uri} has --format {state.origin.format}: its values can be compared with --registry only"
        )
    tps = check_topic(cluster, state.origin, place.uri)
    place = replace(place, options=table.options)  # tasks may lack this process's configuration
    has_dead = place.dead_letters.open().state() is not None
    dead = place.dead_letters if has_dead else None
    job = VerifyTask(dict(cluster.properties), place, dead, state.origin, record_schema(state), registry, quality)
    ranges = ranges_of(cluster, tps, state)
    lag_offsets = _lag(cluster, tps, state)
    if lag_offsets and not state.progress.offsets:
        raise TableError(
            f"{place.uri} is empty, and {state.origin.topic} has {lag_offsets:,} offsets: nothing to compare"
        )
    whole = [(range_,) for range_ in ranges]
    tasks = whole if state.origin.is_by_key else plan(ranges, {}, min_tasks=len(ranges))
    results: list[list[Verdict]] = []
    if ranges and state.origin.is_by_key and _has_truncates(place):
        parts = run_tasks(spark, partial(truncates_in, job), whole)
        job = replace(job, truncates=[entry for part in parts for entry in part])
    if tasks:
        results = run_tasks(spark, partial(verify_ranges, job), tasks)
    by_partition: dict[int, list[Verdict]] = {range_.tp.partition: [] for range_ in ranges}
    for verdict in sorted((verdict for part in results for verdict in part), key=lambda verdict: verdict.first):
        by_partition[verdict.partition].append(verdict)
    return TableVerification(state, [reduce(Verdict.and_then, parts) for parts in by_partition.values()], lag_offsets)


def _has_truncates(place: TablePlace) -> bool:
    deletes = place.deletes.open()
    if deletes.state() is None:
        return False
    return any(TRUNCATE in batch.column(OP).to_pylist() for batch in deletes.columns([OP]))


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


def _lag(cluster: ClusterClient, tps: Sequence[TopicPartition], state: TableState) -> int:
    earliest, latest = cluster.earliest(tps), cluster.latest(tps, committed=state.origin.isolation == "read_committed")
    offsets = state.progress.offsets
    return sum(max(latest[tp] - max(offsets.get(tp.partition, 0), earliest[tp]), 0) for tp in tps)


# Tasks


@dataclass(slots=True)
class LogContent:
    """The records of a range that readers see, and the offsets of control records and of aborted transactions."""

    visible: list[pa.RecordBatch] = field(default_factory=list)
    control: list[Longs] = field(default_factory=list)
    aborted: list[Longs] = field(default_factory=list)

    def add(self, fetched: FetchedBatches, range_: Range) -> None:
        visible = decode(fetched.data, RecordFilter(fetched.first, range_.until, True, fetched.aborted))
        self.visible.append(visible)
        if fetched.aborted:
            every = decode(fetched.data, RecordFilter(fetched.first, range_.until))
            self.aborted.append(np.setdiff1d(_longs(every, "offset"), _longs(visible, "offset")))
        for _, header in walk(fetched.data):
            if header.is_control:
                offsets = np.arange(header.base_offset, header.last_offset + 1)
                self.control.append(offsets[(offsets >= fetched.first) & (offsets < range_.until)])


def verify_ranges(job: VerifyTask, task: Sequence[Range]) -> list[Verdict]:
    if job.registry:
        from leadline.spark.table.registry import forget_missing

        forget_missing()  # a schema may have come after a writer, in this process, missed it
    with ClusterClient(job.properties) as cluster:
        return [_verify_range(job, range_, _read(cluster, job, range_)) for range_ in task]


def truncates_in(job: VerifyTask, task: Sequence[Range]) -> list[KeyChange]:
    with ClusterClient(job.properties) as cluster:
        entries = []
        for range_ in task:
            shaped = _shaped(job, range_, _read(cluster, job, range_))
            entries += truncates(shaped, OriginColumns.of(job.origin.format), set(_dead(job, range_).tolist()))
        return entries


def _read(cluster: ClusterClient, job: VerifyTask, range_: Range) -> LogContent:
    log = LogContent()
    for fetched in fetch(cluster, range_, FetchOptions(committed=job.origin.isolation == "read_committed")):
        log.add(fetched, range_)
    return log


def _verify_range(job: VerifyTask, range_: Range, log: LogContent) -> Verdict:
    columns = OriginColumns.of(job.origin.format)
    table = list(_rows(job.table.open(), columns, range_))
    rows, dead, visible = _all(table, columns.offset), _dead(job, range_), _all(log.visible, "offset")
    control, aborted = _joined(log.control), _joined(log.aborted)
    shaped = _shaped(job, range_, log)
    topic, expected = [records.rows for records in shaped], visible
    if job.origin.is_by_key:
        spans = spans_by_key(job.origin.mode, shaped, columns, set(dead.tolist()), job.truncates)
        topic = [with_spans(rows_of_topic, columns, job.origin.history, spans) for rows_of_topic in topic]
        bad = _all([records.bad for records in shaped if records.bad is not None], "offset")
        kept = np.fromiter(spans, np.int64, len(spans))
        expected = np.union1d(np.union1d(kept, bad), np.intersect1d(visible, dead))
    compacted = range_.length - len(visible) - len(control) - len(aborted)
    once, counts = np.unique(np.concatenate([rows, dead]), return_counts=True)
    repeated, missing = once[counts > 1], np.setdiff1d(expected, once)
    beside = np.setdiff1d(once, expected)
    wrong = np.intersect1d(beside, np.concatenate([visible, control, aborted]))
    both = np.intersect1d(expected, np.setdiff1d(rows, dead))
    history = job.origin.history
    left_out = list(history.names) if history is not None and compacted else []
    if not job.quality.marks:
        left_out.append(BROKEN_RULES.name)
    of_topic, of_table = _checksums(topic, columns, both, left_out), _checksums(table, columns, both, left_out)
    different = np.array([n for n in both.tolist() if of_topic.get(n) != of_table.get(n)], np.int64)
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
        compacted=compacted,
        older=len(beside) - len(wrong),
        missing=len(missing),
        repeated=len(repeated),
        wrong=len(wrong),
        different=len(different),
        topic_checksum=sum(of_topic.values()) & MASK,
        table_checksum=sum(of_table.values()) & MASK,
        missing_at=_shown(missing),
        repeated_at=_shown(repeated),
        wrong_at=_shown(wrong),
        different_at=_shown(different),
    )


def _shaped(job: VerifyTask, range_: Range, log: LogContent) -> list[ShapedRecords]:
    """The rows that a writer makes of the records, without those of bad ones."""
    shape = shape_with(job.quality, job.origin.format, job.registry, by_key=False)
    return [shape(batch, range_.tp.topic, range_.tp.partition, job.schema) for batch in log.visible if batch.num_rows]


def _rows(
    table: Table, columns: OriginColumns, range_: Range, names: Sequence[str] | None = None
) -> Iterator[pa.RecordBatch]:
    yield from table.columns(names, OffsetSlice(columns, range_.tp.partition, range_.first, range_.until))


def _dead(job: VerifyTask, range_: Range) -> Longs:
    if job.dead is None:
        return NONE
    columns = OriginColumns.of("raw")
    return _all(_rows(job.dead.open(), columns, range_, columns.names), columns.offset)


def _all(batches: Iterator[pa.RecordBatch] | Sequence[pa.RecordBatch], name: str) -> Longs:
    return _joined([_longs(batch, name) for batch in batches])


def _longs(batch: pa.RecordBatch, name: str) -> Longs:
    column: Longs = batch.column(name).to_numpy(zero_copy_only=False)
    return column


def _joined(parts: Sequence[Longs]) -> Longs:
    return np.concatenate(parts) if parts else NONE


def _shown(offsets: Longs) -> tuple[Offset, ...]:
    return tuple(offsets[:SHOWN].tolist())


def _checksums(
    batches: Sequence[pa.RecordBatch], columns: OriginColumns, offsets: Longs, without: Sequence[str]
) -> dict[Offset, int]:
    """A number for each row with one of these offsets."""
    prefix = "" if columns == OriginColumns.of("raw") else PREFIX
    left_out = {columns.offset, f"{prefix}day", f"{prefix}hour", *without}  # the format derives these from the time
    numbers: dict[Offset, int] = {}
    for batch in batches:
        chosen = batch.filter(pa.array(np.isin(_longs(batch, columns.offset), offsets)))
        names = sorted(set(batch.schema.names) - left_out)
        values = [_comparable(chosen.column(name)) for name in names]
        if f"{prefix}headers" in names:  # a record without any has an empty list, or null if it was a dead letter
            at = names.index(f"{prefix}headers")
            values[at] = [headers or None for headers in values[at]]
        for offset, *fields in zip(chosen.column(columns.offset).to_pylist(), *values, strict=True):
            numbers[offset] = _number(offset, names, fields)
    return numbers


def _comparable(column: pa.Array) -> list[object]:
    """The values, the same whichever types of equal meaning a table's format gives them."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values


def _number(offset: Offset, names: Sequence[str], fields: Sequence[object]) -> int:
    """Fields without a value do not count: a column may be younger than its row.

    Nor do empty arrays and objects: they give a column no type, so a row before the column has none of them.
    """
    crc = 0
    for name, value in zip(names, map(_text, fields), strict=True):
        if value not in NO_VALUES:
            crc = crc32c(f"{name}={value!r};".encode(errors="surrogatepass"), crc)
    return ((crc | 1) * (offset + MIX)) & MASK


def _text(value: object) -> object:
    """Structs without the fields that do not count: a field may be younger than its row."""
    if isinstance(value, dict):
        members = {name: _text(member) for name, member in sorted(value.items())}
        return {name: member for name, member in members.items() if member not in NO_VALUES}
    if isinstance(value, list | tuple):  # a map is a list of pairs
        return [_text(member) for member in value]
    return value
