"""The content of log files as rows: a view for each kind of file. VIEWS is the table of all views.

Columns have the names that Kafka's tools print, in Python's spelling. Times are ms since 1970, as in the files. A
damaged file does not end a view of files: a row with `error` names the position, and the next file is read. In the view
of records damage is an error, because its readers must not miss a record.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from leadline.config.properties import parse_properties
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC
from leadline.errors import CorruptFile
from leadline.log import checkpoints, names, txn_index
from leadline.log.files import read_file
from leadline.log.index import OffsetIndex, TimeIndex
from leadline.log.producer_snapshots import decode_snapshot
from leadline.model import Offset, format_id
from leadline.records.batch import Header, crc_of, walk
from leadline.records.compression import Codec
from leadline.spark.batches.decode import HEADERS, SPARK_COLUMNS, spark_columns
from leadline.spark.files import segments
from leadline.spark.files.journal_views import OFFSETS, TRANSACTIONS, offsets, transactions
from leadline.spark.files.log_split import LogSplit, Row, fields, in_columns
from leadline.spark.files.segments import FILES

WHERE = "log_dir string, topic string, partition int32"
FILE = f"{WHERE}, file string, position int64"

# Files


BATCHES = pa.schema(
    fields(
        f"""{FILE}, size int32, base_offset int64, last_offset int64, record_count int32, leader_epoch int32
        magic int32, crc int64, crc_valid bool, codec string, is_transactional bool, is_control bool
        timestamp_type int32, base_timestamp_ms int64, max_timestamp_ms int64, delete_horizon_ms int64
        producer_id int64, producer_epoch int32, base_sequence int32, last_sequence int32, error string"""
    )
)


def batches(part: LogSplit) -> Iterator[Row]:
    for segment in part.files:
        where = (part.log.log_dir, *part.log.tp, os.path.basename(segment.path))
        try:
            for position, data in segments.batches_in(segment.path, is_last=segment == part.log.segments[-1]):
                for at, header in walk(data):
                    yield *where, position + at, *_batch(header, crc_of(data, at, header.size) == header.crc), None
        except (CorruptFile, FileNotFoundError) as error:
            yield _broken(where, error, BATCHES)


def _batch(header: Header, crc_valid: bool) -> Row:
    codec = header.attributes & 0b111
    return (
        header.size,
        header.base_offset,
        _long(header.last_offset),
        header.record_count,
        header.leader_epoch,
        header.magic,
        header.crc,
        crc_valid,
        Codec(codec).name.lower() if codec in set(Codec) else f"unknown {codec}",
        header.is_transactional,
        header.is_control,
        int(header.is_log_append_time),
        header.base_timestamp,
        header.max_timestamp,
        header.delete_horizon_ms,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
    )


def _broken(where: Row, error: CorruptFile | OSError, schema: pa.Schema) -> Row:
    """A row with an error and its position."""
    position, reason = (error.position, error.reason) if isinstance(error, CorruptFile) else (None, str(error.strerror))
    return *where, position, *(None for _ in range(len(schema) - len(where) - 2)), reason


INDEXES = pa.schema(
    fields(
        f"""{FILE}, kind string, offset int64, log_position int64, timestamp_ms int64
        producer_id int64, first_offset int64, last_stable_offset int64, error string"""
    )
)


def indexes(part: LogSplit) -> Iterator[Row]:
    for segment in part.files:
        for kind, entries in _INDEX_ENTRIES.items():
            path = segment.beside(kind)
            where = (part.log.log_dir, *part.log.tp, os.path.basename(path))
            try:
                for position, *fields in entries(path, segment.base_offset):
                    yield *where, position, kind.removeprefix("."), *fields, None
            except CorruptFile as error:
                yield _broken(where, error, INDEXES)
            except FileNotFoundError:
                continue  # a segment without aborted transactions has no transaction index


def _offset_entries(path: str, base: Offset) -> Iterator[Row]:
    for at, (relative, position) in _entries(path, OffsetIndex.ENTRY.size, OffsetIndex.ENTRY.iter_unpack):
        yield at, base + relative, position, None, None, None, None


def _time_entries(path: str, base: Offset) -> Iterator[Row]:
    for at, (timestamp, relative) in _entries(path, TimeIndex.ENTRY.size, TimeIndex.ENTRY.iter_unpack):
        yield at, base + relative, None, timestamp, None, None, None


def _txn_entries(path: str, base: Offset) -> Iterator[Row]:
    for at, entry in _entries(path, txn_index.ENTRY_BYTES, lambda data: txn_index.decode(path, data)):
        producer_id, first, last, last_stable = entry
        yield at, last, None, None, producer_id, first, last_stable


_INDEX_ENTRIES = {names.INDEX: _offset_entries, names.TIME_INDEX: _time_entries, names.TXN_INDEX: _txn_entries}


def _entries(
    path: str, size: int, decode: Callable[[bytes], Iterable[tuple[int, ...]]]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each entry with its position. Zeros at the end are space that a running broker reserved."""
    data = read_file(FILES, path)
    whole = len(data) // size * size
    for n, entry in enumerate(decode(data[:whole])):
        if n > 0 and not any(entry) and not any(data[n * size :]):
            return
        yield n * size, entry
    if whole < len(data):
        raise CorruptFile(path, whole, f"an entry is cut off: {len(data) - whole} of {size} bytes")


PRODUCERS = pa.schema(
    fields(
        f"""{FILE}, snapshot_offset int64, producer_id int64, producer_epoch int32, coordinator_epoch int32
        last_sequence int32, last_offset int64, last_timestamp_ms int64, txn_first_offset int64, error string"""
    )
)


def producers(part: LogSplit) -> Iterator[Row]:
    log = part.log
    for offset in segments.snapshots_in(log.directory):
        name = names.file_name(offset, names.SNAPSHOT)
        where, path = (log.log_dir, *log.tp, name), os.path.join(log.directory, name)
        try:
            for producer_id, entry in decode_snapshot(path, read_file(FILES, path)):
                epochs = entry.epoch, entry.coordinator_epoch
                last = entry.last_sequence, entry.last_offset, entry.last_timestamp
                yield *where, None, offset, producer_id, *epochs, *last, entry.txn_first_offset, None
        except CorruptFile as error:
            yield _broken(where, error, PRODUCERS)
        except FileNotFoundError:
            continue


CHECKPOINTS = pa.schema(fields(f"{FILE}, epoch int64, offset int64, name string, value string, error string"))


def _long(number: int) -> int:
    """Damaged files and texts may hold numbers of any size: they are cut to 64 bits."""
    return max(min(number, segments.EVERYTHING), -segments.EVERYTHING)


def checkpoints_of(log_dir: str) -> Iterator[Row]:
    """The checkpoints of a log directory, for all its partitions."""
    for name in names.OFFSET_FILES:
        path = os.path.join(log_dir, name)
        try:
            for tp, offset in checkpoints.read_offsets(FILES, path).items():
                yield log_dir, *tp, name, None, None, _long(offset), None, None, None
        except CorruptFile as error:
            yield _broken((log_dir, None, None, name), error, CHECKPOINTS)
    for name in (names.META_PROPERTIES_FILE, names.CLEAN_SHUTDOWN_FILE):
        try:
            text = read_file(FILES, os.path.join(log_dir, name)).decode("utf-8", "replace")
        except FileNotFoundError:
            continue
        fields = parse_properties(text) if name == names.META_PROPERTIES_FILE else {"json": text}
        for field, value in fields.items():
            yield log_dir, None, None, name, None, None, None, field, value, None


def partition_checkpoints(part: LogSplit) -> Iterator[Row]:
    """The checkpoints in the folder of a partition."""
    log = part.log
    try:
        for epoch, start in checkpoints.read_epochs(FILES, os.path.join(log.directory, names.EPOCHS_FILE)):
            yield log.log_dir, *log.tp, names.EPOCHS_FILE, None, _long(epoch), _long(start), None, None, None
    except CorruptFile as error:
        yield _broken((log.log_dir, *log.tp, names.EPOCHS_FILE), error, CHECKPOINTS)
    if log.topic_id is not None:
        where = (log.log_dir, *log.tp, names.PARTITION_METADATA_FILE, None)
        yield *where, None, None, "topic_id", format_id(log.topic_id), None


# Records

_LOG_DIR = pa.field("log_dir", pa.string())
RECORDS = pa.schema([_LOG_DIR, *SPARK_COLUMNS])
RECORDS_WITH_HEADERS = pa.schema([*RECORDS, pa.field("headers", HEADERS)])


def records(part: LogSplit) -> Iterator[pa.RecordBatch]:
    schema = RECORDS_WITH_HEADERS if part.headers else RECORDS
    for batch in part.rows():
        columns = spark_columns(batch, *part.log.tp)
        log_dir = pa.repeat(pa.scalar(part.log.log_dir), batch.num_rows)
        yield pa.record_batch([log_dir, *columns.columns], schema=schema)


# All views


class SplitBy(Enum):
    """The part of a log that a task reads."""

    FILES = "some of its files"
    LOG = "all of it"
    OFFSETS = "a range of offsets"


@dataclass(frozen=True, slots=True)
class View:
    schema: pa.Schema
    read: Callable[[LogSplit], Iterator[pa.RecordBatch]]
    by: SplitBy
    topic: str | None = None  # the view reads only this topic


def _of_rows(
    schema: pa.Schema, rows: Callable[[LogSplit], Iterator[Row]], by: SplitBy, topic: str | None = None
) -> View:
    return View(schema, lambda part: in_columns(rows(part), schema), by, topic)


VIEWS = {
    "records": View(RECORDS, records, SplitBy.OFFSETS),
    "batches": _of_rows(BATCHES, batches, SplitBy.FILES),
    "indexes": _of_rows(INDEXES, indexes, SplitBy.FILES),
    "checkpoints": _of_rows(CHECKPOINTS, partition_checkpoints, SplitBy.LOG),
    "producers": _of_rows(PRODUCERS, producers, SplitBy.LOG),
    "offsets": _of_rows(OFFSETS, offsets, SplitBy.OFFSETS, OFFSETS_TOPIC),
    "transactions": _of_rows(TRANSACTIONS, transactions, SplitBy.OFFSETS, TRANSACTIONS_TOPIC),
}
