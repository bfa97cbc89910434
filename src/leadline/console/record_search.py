"""Records of a topic: the newest ones, or those from an offset or a time on, with a key or a text.

A search reads until it has enough records, has read MAX_READ of them or has taken MAX_S. Then it says where it stopped,
and continues there.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.offsets import list_offsets, offset_ranges
from leadline.admin.partitions import OffsetRange
from leadline.admin.record_format import TIME_TYPES, headers_of
from leadline.admin.session import ClusterSession
from leadline.model import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

MAX_READ = 20_000
MAX_S = 4.0
POLL_S = 0.2
BATCH = 500


class ShownRecord(NamedTuple):
    partition: int
    offset: Offset
    timestamp_ms: int | None
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Which records to show."""

    start: str = "newest"  # newest, earliest, offset or time
    position: int = 0  # an offset, or ms since 1970
    partition: int | None = None  # None: all
    key: str = ""
    text: str = ""
    count: int = 50
    committed_only: bool = False
    at: Mapping[int, Offset] = field(default_factory=dict)  # where an earlier search stopped

    def matches(self, record: ShownRecord) -> bool:
        if self.key and self.key.encode() != (record.key or b""):
            return False
        if not self.text:
            return True
        needle = self.text.encode()
        headers = (part or b"" for name, value in record.headers for part in (name.encode(), value))
        return any(needle in part for part in (record.value or b"", record.key or b"", *headers))


@dataclass(slots=True)
class SearchResult:
    records: list[ShownRecord] = field(default_factory=list)
    read: int = 0
    next_offsets: dict[int, Offset] = field(default_factory=dict)  # empty: everything was read
    ranges: dict[int, OffsetRange] = field(default_factory=dict)


def search(session: ClusterSession, topic: str, query: RecordQuery, partitions: Sequence[int]) -> SearchResult:
    """`partitions`: those with a leader that answers."""
    chosen = [TopicPartition(topic, n) for n in partitions if query.partition is None or n == query.partition]
    ranges = {tp.partition: held for tp, held in offset_ranges(session.connection, session.admin, chosen).items()}
    starts = _starts(session, chosen, query, ranges)
    result = SearchResult(ranges=ranges)
    open_ends = {n: ranges[n].end for n, start in starts.items() if start < ranges[n].end}
    if open_ends:
        _read(session, topic, query, {n: starts[n] for n in open_ends}, open_ends, result)
    if query.start == "newest" and not query.at:
        result.records.sort(key=lambda record: (record.timestamp_ms or 0, record.offset), reverse=True)
        del result.records[query.count :]
        result.next_offsets = {}
    return result


def _starts(
    session: ClusterSession, chosen: Sequence[TopicPartition], query: RecordQuery, ranges: Mapping[int, OffsetRange]
) -> dict[int, Offset]:
    if query.at:
        return {tp.partition: query.at[tp.partition] for tp in chosen if tp.partition in query.at}
    if query.start == "newest":
        reach = MAX_READ // max(len(chosen), 1) if query.key or query.text else query.count
        return {n: max(held.start, held.end - reach) for n, held in ranges.items()}
    if query.start == "offset":
        return {n: min(max(query.position, held.start), held.end) for n, held in ranges.items()}
    if query.start == "time":
        offsets = list_offsets(session.connection, session.admin, chosen, query.position)
        return {tp.partition: offset if offset >= 0 else ranges[tp.partition].end for tp, offset in offsets.items()}
    return {n: held.start for n, held in ranges.items()}


def _read(
    session: ClusterSession,
    topic: str,
    query: RecordQuery,
    starts: Mapping[int, Offset],
    ends: dict[int, Offset],
    result: SearchResult,
) -> None:
    from confluent_kafka import KafkaError
    from confluent_kafka import TopicPartition as Theirs

    consumer = session.connection.consumer(
        {
            "group.id": "leadline-console",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if query.committed_only else "read_uncommitted",
            "fetch.wait.max.ms": "100",
        }
    )
    positions = dict(starts)
    newest = query.start == "newest" and not query.at
    deadline_s = time.monotonic() + MAX_S
    try:
        consumer.assign([Theirs(topic, n, offset) for n, offset in starts.items()])
        while ends and result.read < MAX_READ and time.monotonic() < deadline_s:
            for message in consumer.consume(BATCH, POLL_S):
                partition, offset = message.partition() or 0, message.offset() or 0
                if partition not in ends or (not newest and len(result.records) >= query.count):
                    continue
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        positions[partition] = ends.pop(partition)  # the last offsets may have no record
                    continue
                result.read += 1
                positions[partition] = offset + 1
                if query.matches(record := _record(message)):
                    result.records.append(record)
                if offset >= ends[partition] - 1:
                    del ends[partition]
            if not newest and len(result.records) >= query.count:
                break
    finally:
        consumer.close()
    result.next_offsets = {n: offset for n, offset in positions.items() if offset < result.ranges[n].end}


def _record(message: "Message") -> ShownRecord:
    kind, timestamp = message.timestamp()
    value, key = message.value(), message.key()
    return ShownRecord(
        message.partition() or 0,
        message.offset() or 0,
        timestamp if kind in TIME_TYPES else None,
        TIME_TYPES.get(kind, ""),
        key.encode() if isinstance(key, str) else key,
        value.encode() if isinstance(value, str) else value,
        headers_of(message),
    )
