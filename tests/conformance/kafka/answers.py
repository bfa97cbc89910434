"""What the oracle answers with: batches, appends, reads, a log's state, errors.

Kafka's words, and Kafka's -1 for "none".
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict

Header = tuple[str, bytes | None]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
TimestampType = Literal["CreateTime", "LogAppendTime"]
Origin = Literal["CLIENT", "COORDINATOR", "REPLICATION", "RAFT_LEADER"]
Isolation = Literal["LOG_END", "HIGH_WATERMARK", "TXN_COMMITTED"]


class KafkaError(Exception):
    """What Kafka threw, with the error code that a client would receive for it."""

    def __init__(
        self,
        code: int,
        name: str,
        message: str | None,
        exception: str = "",
        record_errors: list[tuple[int, str]] | None = None,
    ) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.code = code
        self.name = name
        self.message = message
        self.exception = exception  # the Java class
        self.record_errors = record_errors or []  # index within the batch and what is wrong with that record


class Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    offset: int | None = None  # None when building: the one after the record before


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch's header, field by field, and its records, decompressed."""

    base_offset: int
    last_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    valid: bool  # size and CRC agree with the content
    codec: Codec
    timestamp_type: str
    base_timestamp: int | None  # None before magic 2
    max_timestamp: int
    delete_horizon_ms: int | None
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    count: int | None  # None before magic 2
    transactional: bool
    control: bool
    records: list[Record]


@dataclass(frozen=True, slots=True)
class Appended:
    first_offset: int
    last_offset: int
    log_append_time: int  # -1 where the batches keep their own timestamps
    max_timestamp: int
    log_start_offset: int
    shallow_offset_of_max_timestamp: int


@dataclass(frozen=True, slots=True)
class Read:
    data: bytes  # may end inside a batch
    offset: int
    segment_base_offset: int  # -1 where nothing was looked up
    position: int  # in the segment's file, of the first byte; -1 as above
    first_entry_incomplete: bool
    aborted: list[tuple[int, int]] | None  # producer id and first offset; None unless TXN_COMMITTED


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class Cleaned:
    end_offset: int  # the next run's first dirty offset
    bytes_read: int
    bytes_written: int
    map_bytes_read: int
    map_messages_read: int
    messages_read: int
    invalid_messages_read: int
    messages_written: int
    buffer_utilization: float


class Segment(TypedDict):
    base_offset: int
    size: int
    largest_timestamp: int  # as retention sees it: the file's mtime if no record has a timestamp
    max_timestamp: int
    max_timestamp_offset: int


class ProducerBatch(TypedDict):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class Producer(TypedDict):
    id: int
    epoch: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    batches: list[ProducerBatch]  # at most five, oldest first


class State(TypedDict):
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    first_unstable_offset: int | None
    recovery_point: int
    producer_state_end_offset: int
    topic_id: str | None
    segments: list[Segment]
    epochs: list[tuple[int, int]]  # epoch and start offset
    producers: list[Producer]  # in the order of Kafka's hash map, which is the order of a snapshot file
