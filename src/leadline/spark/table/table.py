"""A table that follows a topic: its origin, its progress, and what each table format (Delta, Iceberg) can do.

One commit of the table holds the files of a batch, the next offset of every partition, the batch's number and the
epoch of its writer. The table is its own checkpoint: there is no other place that could contradict it or get lost.
    a record is in the table once if its offset lies below the table's next offset, and not at all otherwise
    the writer has the highest epoch; a commit under a lower one is refused

Pure: values and their text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from leadline.model import Offset
from leadline.spark.errors import JobFailed

NO_BATCH = -1
PROPERTY = "leadline."  # in front of the names under which a table keeps its origin


class TableError(JobFailed):
    """A table, or the topic that it follows, is wrong. The text is one line."""


class WriterRefused(TableError):
    """Another writer writes to the table, or has taken it over."""


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The topic and options that a table is made from. Only the mode can change after the creation."""

    topic: str
    topic_id: str  # a topic that was deleted and created again has another one
    format: str  # raw, json, avro or protobuf
    mode: str  # append or upsert
    partition_by: str  # day, hour or none
    isolation: str  # read_committed or read_uncommitted

    def properties(self) -> dict[str, str]:
        return {PROPERTY + name.replace("_", "."): value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "TableOrigin | None":
        names = {name: PROPERTY + name.replace("_", ".") for name in cls.__dataclass_fields__}
        if not all(key in properties for key in names.values()):
            return None
        return cls(**{name: properties[key] for name, key in names.items()})


@dataclass(frozen=True, slots=True)
class TableProgress:
    """The progress of a table in its topic."""

    batch: int = NO_BATCH  # the last one that is in it
    offsets: Mapping[int, Offset] = field(default_factory=dict)  # of each partition, the next one to be read
    epoch: int = 0  # of its writer

    def after(self, ends: Mapping[int, Offset]) -> "TableProgress":
        return replace(self, batch=self.batch + 1, offsets={**self.offsets, **ends})


@dataclass(frozen=True, slots=True)
class TableState:
    """A table as of one of its versions."""

    origin: TableOrigin
    progress: TableProgress
    schema: pa.Schema


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that lies in the table's directory and is not part of the table yet."""

    path: str  # within that directory
    size: int
    rows: int
    slot: Mapping[str, str]  # of time: the column that the table is partitioned by, and its value in all rows
    lowest: Mapping[str, int]  # of the columns that a reader may skip files by
    highest: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OriginColumns:
    """The names of the columns that hold the partition, offset and time of a record."""

    key: str
    partition: str
    offset: str
    timestamp: str

    @property
    def names(self) -> list[str]:
        return [self.key, self.partition, self.offset, self.timestamp]

    @classmethod
    def of(cls, format: str) -> "OriginColumns":
        prefix = "" if format == "raw" else "_"
        return cls(*(prefix + name for name in ("key", "partition", "offset", "timestamp")))


@dataclass(frozen=True, slots=True)
class OffsetSlice:
    """Rows that come from some offsets of one partition."""

    columns: OriginColumns
    partition: int
    first: Offset
    until: Offset  # exclusive


class Table(Protocol):
    """A table in one format. A commit is all or nothing, and refused if another writer took over."""

    uri: str

    @property
    def data_directory(self) -> str:
        """The directory of files that are to be appended."""

    def slot(self, origin: TableOrigin) -> str | None:
        """The column that the table is partitioned by, which is not in the files; None: the format derives it."""

    def state(self) -> TableState | None:
        """None: there is no table. TableError: there is one, and it follows no topic."""

    def create(self, origin: TableOrigin, schema: pa.Schema, progress: TableProgress) -> None: ...

    def take_over(self, origin: TableOrigin) -> TableState:
        """Starts a new writer's epoch. Commits of the previous writer are refused from now on."""

    def add_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None: ...

    def append(self, files: Sequence[DataFile], before: TableProgress, after: TableProgress) -> None: ...

    def upsert(self, rows: pa.Table, key: str, before: TableProgress, after: TableProgress) -> None:
        """Rows with the column DELETED, one for each key. A row replaces the table's row of that key."""

    def rewrite(self, rows: pa.RecordBatchReader, before: TableProgress) -> None:
        """Replaces all rows by these."""

    def columns(self, names: Sequence[str] | None = None, where: OffsetSlice | None = None) -> pa.RecordBatchReader:
        """All rows, or the rows of a slice, in any order."""

    def compact(self) -> Mapping[str, int]: ...

    def vacuum(self, older_than_hours: int, dry_run: bool) -> list[str]: ...


DELETED = "_deleted"


def check_origin(existing: TableOrigin, requested: TableOrigin, uri: str) -> None:
    """TableError if the table follows another topic, or was created with other options."""
    if existing.topic != requested.topic:
        raise TableError(f"{uri} follows the topic {existing.topic}, not {requested.topic}")
    if existing.topic_id != requested.topic_id:
        raise TableError(
            f"{uri} follows a topic {existing.topic} with the id {existing.topic_id}, but {requested.topic} has the id "
            f"{requested.topic_id} now: it was deleted and created again; choose another table"
        )
    for name in ("format", "partition_by", "isolation"):
        if getattr(existing, name) != getattr(requested, name):
            option = "--" + name.replace("_", "-")
            raise TableError(
                f"{uri} was created with {option} {getattr(existing, name)}, not {getattr(requested, name)}"
            )


def check_writer(uri: str, epoch: int, batch: int, before: TableProgress) -> None:
    """WriterRefused unless the epoch and batch of the table are those of the writer's last commit."""
    if epoch != before.epoch:
        raise WriterRefused(f"{uri} has another writer now: it began epoch {epoch}, and this one has {before.epoch}")
    if batch != before.batch:
        raise WriterRefused(f"{uri} is at batch {batch}, not at {before.batch}: others wrote to it")


def one_line(error: Exception) -> str:
    """The message of a library's error, without its line breaks and colours."""
    return " ".join(re.sub(r"\x1b\[\d+m|\u21b3", " ", str(error)).split())
