"""The options of the format `leadline`: those of Spark's own Kafka connector, under its names, and a few more.

    beyond the connector      means
    maxBytesPerTrigger        as maxOffsetsPerTrigger, in bytes as they lie in the log
    startingOffsets           also `10 minutes ago`, `last 100`, `committed` (of kafka.group.id)
    commitProgress            whether a stream's progress is committed to a group (true)
    includeTimestamp          of a write: records get the time of the column `timestamp`
    stagingLocation           of a write: the directory of staged batches; default: the checkpoint's directory

Names are case-insensitive, as Spark passes them in lower case. An unknown name is refused with the nearest known one,
and one error names all that are refused.

Pure: text in, options out.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from leadline.model import Offset, TopicPartition
from leadline.records.compression import Codec
from leadline.spark.topics.source_options import (
    ACCESS,
    BATCH_ONLY,
    READ,
    READING,
    STREAM_ONLY,
    WRITE,
    WRITING,
    BadOption,
    SourceOptions,
    number,
)

EARLIEST, LATEST = -2, -1  # in the JSON of offsets
ASSIGN_EXAMPLE = '{"topic": [0, 1]}'


# Topics


@dataclass(frozen=True, slots=True)
class SubscribedTopics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    pattern: str  # of whole names, in Python's syntax, which equals Java's for the characters of topic names


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    partitions: tuple[TopicPartition, ...]


TopicSelection = SubscribedTopics | TopicPattern | AssignedPartitions


# Start and end


class Edge(Enum):
    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class StartingOffsets:
    by_partition: Mapping[TopicPartition, Offset]  # or EARLIEST, or LATEST


@dataclass(frozen=True, slots=True)
class StartingTimes:
    by_partition: Mapping[TopicPartition, int]  # ms since 1970


@dataclass(frozen=True, slots=True)
class StartingTime:
    ms: int


@dataclass(frozen=True, slots=True)
class StartingAgo:
    ms: int


@dataclass(frozen=True, slots=True)
class LastOffsets:
    offsets: int  # of each partition


@dataclass(frozen=True, slots=True)
class StartingGroup:
    name: str  # where it has committed nothing: earliest


OffsetBound = Edge | StartingOffsets | StartingTimes | StartingTime | StartingAgo | LastOffsets | StartingGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    topics: TopicSelection
    start: OffsetBound
    end: OffsetBound
    no_later_record_is_latest: bool = False  # else it is an error: startingOffsetsByTimestampStrategy
    max_offsets: int | None = None  # of one batch of a stream
    max_bytes: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 15 * 60_000  # the longest that a stream waits for min_offsets
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    committed: bool = False  # isolation.level=read_committed
    group: str | None = None  # None: a group of the stream's own, whose name starts with group_prefix
    group_prefix: str = "leadline-spark"
    commit_progress: bool = True
    client: Mapping[str, str]  # properties without the prefix `kafka.`


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    topic: str | None  # None: that of the column
    timestamps: bool = False
    staging: str | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = 600_000
    codec: Codec = Codec.LZ4
    batch_bytes: int = 256 << 10  # of one batch, before it is compressed
    client: Mapping[str, str]


def _servers(client: Mapping[str, str]) -> None:
    if not client.get("bootstrap.servers", "").strip():
        raise BadOption("kafka.bootstrap.servers is missing: host:port of one broker or more")


# Reading


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    others, use = (BATCH_ONLY, "batch reads only") if streaming else (STREAM_ONLY, "streams only")
    elsewhere = dict.fromkeys([*WRITE, *(f"kafka.{name}" for name in WRITING)], "writes only")
    names = [name for name in READ if name not in others]
    source = SourceOptions(options, names, ACCESS + READING, elsewhere | dict.fromkeys(others, use))
    _servers(source.client)
    isolation = source.client.get("isolation.level", "read_uncommitted")
    if isolation not in ("read_uncommitted", "read_committed"):
        raise BadOption(f"kafka.isolation.level={isolation}: expected read_uncommitted or read_committed")
    _check_numbers(source.client, "request.timeout.ms default.api.timeout.ms max.partition.fetch.bytes")
    start = _starting(source, streaming)
    delay = source.text("maxTriggerDelay")
    return ReadOptions(
        topics=_topics(source),
        start=start,
        end=_ending(source),
        no_later_record_is_latest=_strategy(source),
        max_offsets=source.count("maxOffsetsPerTrigger"),
        max_bytes=source.count("maxBytesPerTrigger"),
        min_offsets=source.count("minOffsetsPerTrigger"),
        max_delay_ms=15 * 60_000 if delay is None else _duration("maxTriggerDelay", delay),
        min_partitions=source.count("minPartitions"),
        max_records_per_partition=source.count("maxRecordsPerPartition"),
        fail_on_data_loss=source.flag("failOnDataLoss", True),
        headers=source.flag("includeHeaders", False),
        committed=isolation == "read_committed",
        group=source.client.get("group.id"),
        group_prefix=source.text("groupIdPrefix") or "leadline-spark",
        commit_progress=source.flag("commitProgress", True),
        client=source.client,
    )


def _check_numbers(client: Mapping[str, str], names: str) -> None:
    for name in names.split():
        if name in client:
            number(f"kafka.{name}", client[name], 1)


def _topics(source: SourceOptions) -> TopicSelection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if source.has(name)]
    if len(ways) != 1:
        raise BadOption(f"expected one of subscribe, subscribePattern and assign, not {' and '.join(ways) or 'none'}")
    (way,) = ways
    text = source.text(way) or ""
    if way == "assign":
        return AssignedPartitions(_assigned(text))
    if way == "subscribe":
        names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not names:
            raise BadOption(f"subscribe={text}: expected topics, separated by commas")
        return SubscribedTopics(names)
    try:
        re.compile(text)
    except re.error as error:
        raise BadOption(f"subscribePattern={text}: {error}") from None
    if not text.strip():
        raise BadOption("subscribePattern is empty: expected a regular expression")
    return TopicPattern(text)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    assigned: dict[TopicPartition, None] = {}
    for topic, partitions in _json("assign", text, ASSIGN_EXAMPLE).items():
        for partition in partitions if isinstance(partitions, list) else [partitions]:
            if type(partition) is not int or partition < 0:
                raise BadOption(f"assign={text}: expected JSON such as {ASSIGN_EXAMPLE}")
            assigned[TopicPartition(topic, partition)] = None
    if not assigned:
        raise BadOption(f"assign={text}: expected JSON such as {ASSIGN_EXAMPLE}")
    return tuple(assigned)


def _json(name: str, text: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise BadOption(f"{name}={text}: expected JSON such as {example}")
    return value


def _by_partition(name: str, text: str, least: int) -> dict[TopicPartition, int]:
    example = '{"topic": {"0": 23, "1": -2}}' if least < 0 else '{"topic": {"0": 1700000000000}}'
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in _json(name, text, example).items():
        if not isinstance(partitions, dict):
            raise BadOption(f"{name}={text}: expected JSON such as {example}")
        for partition, value in partitions.items():
            if not re.fullmatch(r"\d{1,9}", str(partition)) or type(value) is not int or value < least:
                raise BadOption(f"{name}={text}: {topic}, {partition}: {value} is not one of the values of {example}")
            numbers[TopicPartition(topic, int(partition))] = value
    if not numbers:
        raise BadOption(f"{name}={text}: expected JSON such as {example}")
    return numbers


def _starting(source: SourceOptions, streaming: bool) -> OffsetBound:
    """A time for all partitions has precedence, then times by partition, then offsets, as in the connector."""
    if (text := source.text("startingTimestamp")) is not None:
        return StartingTime(number("startingTimestamp", text))
    if (text := source.text("startingOffsetsByTimestamp")) is not None:
        return StartingTimes(_by_partition("startingOffsetsByTimestamp", text, 0))
    text = (source.text("startingOffsets") or ("latest" if streaming else "earliest")).strip()
    where: OffsetBound | None = _edge(text) or _relative(text) or _of_group(text, source)
    if where is None:
        where = StartingOffsets(_by_partition("startingOffsets", text, EARLIEST))
    latest = where is Edge.LATEST or (isinstance(where, StartingOffsets) and LATEST in where.by_partition.values())
    if latest and not streaming:
        raise BadOption(f"startingOffsets={text}: a batch read cannot start at the latest offset")
    return where


def _ending(source: SourceOptions) -> OffsetBound:
    if (text := source.text("endingTimestamp")) is not None:
        return StartingTime(number("endingTimestamp", text))
    if (text := source.text("endingOffsetsByTimestamp")) is not None:
        return StartingTimes(_by_partition("endingOffsetsByTimestamp", text, 0))
    text = (source.text("endingOffsets") or "latest").strip()
    where: OffsetBound | None = _edge(text)
    if where is None:
        where = StartingOffsets(_by_partition("endingOffsets", text, EARLIEST))
    if where is Edge.EARLIEST or (isinstance(where, StartingOffsets) and EARLIEST in where.by_partition.values()):
        raise BadOption(f"endingOffsets={text}: a read cannot end at the earliest offset")
    return where


def _edge(text: str) -> Edge | None:
    return Edge[text.upper()] if text.lower() in ("earliest", "latest") else None


def _relative(text: str) -> StartingAgo | LastOffsets | None:
    if match := re.fullmatch(r"last\s+(\d{1,18})", text, re.IGNORECASE):
        return LastOffsets(int(match[1]))
    if match := re.fullmatch(r"(.+)\s+ago", text, re.IGNORECASE):
        return StartingAgo(_duration("startingOffsets", match[1]))
    return None


def _of_group(text: str, source: SourceOptions) -> StartingGroup | None:
    if text.lower() != "committed":
        return None
    if "group.id" not in source.client:
        raise BadOption("startingOffsets=committed: kafka.group.id is missing: it names the group")
    return StartingGroup(source.client["group.id"])


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def _duration(name: str, text: str) -> int:
    """1h, 90 s, 10 minutes; a unit goes by its first letter."""
    match = re.fullmatch(
        r"(\d{1,12})\s*(ms|millis\w*|s|sec\w*|m|min\w*|h|hours?|d|days?|w|weeks?)", text.strip().lower()
    )
    if match is None:
        raise BadOption(f"{name}={text}: expected a length of time such as 10 minutes, 90 s or 2 h")
    unit = "ms" if match[2].startswith(("ms", "milli")) else match[2][0]
    return int(match[1]) * _UNITS_MS[unit]


def _strategy(source: SourceOptions) -> bool:
    text = (source.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if text not in ("error", "latest"):
        raise BadOption(f"startingOffsetsByTimestampStrategy={text}: expected error or latest")
    return text == "latest"


# Writing


def write_options(options: Mapping[str, str]) -> WriteOptions:
    elsewhere = dict.fromkeys([*READ, *(f"kafka.{name}" for name in READING)], "reads only")
    source = SourceOptions(options, WRITE, ACCESS + WRITING, elsewhere)
    _servers(source.client)
    client = source.client
    _check_numbers(client, "request.timeout.ms default.api.timeout.ms transaction.timeout.ms batch.size")
    if client.get("acks", "all") not in ("all", "-1"):
        raise BadOption(f"kafka.acks={client['acks']}: a transaction needs acks=all")
    if client.get("enable.idempotence", "true").lower() != "true":
        raise BadOption("kafka.enable.idempotence=false: a transaction is idempotent")
    return WriteOptions(
        topic=source.text("topic"),
        timestamps=source.flag("includeTimestamp", False),
        staging=source.text("stagingLocation") or source.text("checkpointLocation"),
        transactional_id=client.get("transactional.id"),
        transaction_timeout_ms=int(client.get("transaction.timeout.ms", 600_000)),
        codec=_codec(client.get("compression.type", "lz4")),
        batch_bytes=int(client.get("batch.size", 256 << 10)),
        client=client,
    )


def _codec(name: str) -> Codec:
    try:
        return Codec.named("uncompressed" if name == "none" else name)
    except ValueError as error:
        raise BadOption(f"kafka.compression.type={name}: {error}") from None
