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
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from leadline.model import Offset
from leadline.spark.errors import JobFailed, without_credentials

if TYPE_CHECKING:
    from leadline.spark.table.data_directory import DataDirectory
    from leadline.spark.table.live_file import ColumnNames

NO_BATCH = -1
TARGET_BYTES = 256 << 20  # of a file, after compaction
PREFIX = "kafka_"  # of the columns of a document's record that are not fields of it; no reader reserves such names
PROPERTY = "leadline."  # in front of the names under which a table keeps its origin


UPSERT, HISTORY = "upsert", "scd2"
BY_KEY = (UPSERT, HISTORY)  # modes in which a record replaces others
OPTIONAL = ("history_columns", "masks", "rules")  # of a table's origin


class TableError(JobFailed):
    """A table, or the topic that it follows, is wrong. The text is one line."""


class WriterRefused(TableError):
    """Another writer writes to the table, or has taken it over."""


class FilesChanged(TableError):
    """The table has other files than those for which a merge was prepared: it was compacted meanwhile."""


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """The names of the columns that say when a row is, or was, valid."""

    valid_from: str = "valid_from"
    valid_to: str = "valid_to"  # null: it is current
    is_current: str = "is_current"

    @property
    def names(self) -> tuple[str, str, str]:
        return self.valid_from, self.valid_to, self.is_current

    @property
    def fields(self) -> list[pa.Field]:
        moment = pa.timestamp("us", "UTC")
        types = (moment, moment, pa.bool_())
        return [pa.field(name, kind) for name, kind in zip(self.names, types, strict=True)]


@dataclass(frozen=True, slots=True)
class TableOrigin:
    """The topic and options that a table is made from. Only the mode can change after the creation."""

    topic: str
    topic_id: str  # a topic that was deleted and created again has another one
    format: str  # raw, json, avro, protobuf, debezium or debezium-avro
    mode: str  # append, upsert or scd2
    partition_by: str  # day, hour or none
    isolation: str  # read_committed or read_uncommitted
    history_columns: str = ""  # of scd2: the names of the columns of validity, with commas between them
    masks: str = ""  # of columns, with commas between them
    rules: str = ""  # of a table of dead letters: those that its last writer had

    def properties(self) -> dict[str, str]:
        named = {PROPERTY + name.replace("_", "."): value for name, value in asdict(self).items()}
        return {name: value for name, value in named.items() if value}

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "TableOrigin | None":
        names = {name: PROPERTY + name.replace("_", ".") for name in cls.__dataclass_fields__}
        if not all(key in properties for name, key in names.items() if name not in OPTIONAL):
            return None
        return cls(**{name: properties[key] for name, key in names.items() if key in properties})

    @property
    def is_by_key(self) -> bool:
        return self.mode in BY_KEY

    @property
    def history(self) -> "HistoryColumns | None":
        return HistoryColumns(*self.history_columns.split(",")) if self.mode == HISTORY else None


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
class LiveFile:
    """A Parquet file that is part of the table."""

    uri: str
    path: str  # as the table's commits name it
    size: int
    slot: Mapping[str, str | None] = field(default_factory=dict)  # of time, if it is not in the file
    deletes: tuple[str, ...] = ()  # URIs of files with the positions of its rows that are deleted

    @property
    def version(self) -> tuple[str, tuple[str, ...]]:
        return self.path, self.deletes


@dataclass(frozen=True, slots=True)
class Removal:
    """Rows that a file of the table loses. Without either of the last two it loses all."""

    file: LiveFile
    rewritten: tuple[DataFile, ...] = ()  # the rows that remain
    positions: DataFile | None = None  # of all its rows that are deleted; it replaces the earlier files of that kind


@dataclass(frozen=True, slots=True)
class TableMerge:
    """The files that a batch by key adds and removes, in one commit."""

    added: Sequence[DataFile]
    removals: Sequence[Removal] = ()
    versions: frozenset[tuple[str, tuple[str, ...]]] = frozenset()  # of all files, when it was prepared
    notes: Mapping[str, int] = field(default_factory=dict)  # counts for the summary of the commit

    @property
    def new_files(self) -> list[DataFile]:
        rewritten = [file for removal in self.removals for file in removal.rewritten]
        positions = [removal.positions for removal in self.removals if removal.positions is not None]
        return [*self.added, *rewritten, *positions]


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
        prefix = "" if format == "raw" else PREFIX
        return cls(*(prefix + name for name in ("key", "partition", "offset", "timestamp")))


@dataclass(frozen=True, slots=True)
class OffsetSlice:
    """Rows that come from some offsets of one partition."""

    columns: OriginColumns
    partition: int
    first: Offset
    until: Offset  # exclusive


def renamed_columns(state: TableState) -> dict[str, str]:
    """The new names of the columns of a table of documents that still has the old ones; empty if it has the new ones.

    Iceberg reserves _partition, so Spark could not read such a table.
    """
    if state.origin.format == "raw" or "_offset" not in state.schema.names or f"{PREFIX}offset" in state.schema.names:
        return {}
    names = ("_key", "_partition", "_offset", "_timestamp", "_headers", f"_{state.origin.partition_by}")
    return {name: PREFIX + name.removeprefix("_") for name in names if name in state.schema.names}


def check_column_names(state: TableState, uri: str) -> None:
    if renamed_columns(state):
        raise TableError(
            f"{uri} has columns with names that readers reserve, such as _partition: run `leadline pipeline table` "
            "first, which renames them"
        )


class Table(Protocol):
    """A table in one format. A commit is all or nothing, and refused if another writer took over."""

    uri: str

    @property
    def options(self) -> Mapping[str, str]:
        """What another process needs, beside the URI, to open the table. They may hold secrets."""

    def beside(self, suffix: str) -> "Table":
        """Another table in the same place, whose name ends with the suffix."""

    @property
    def in_catalog(self) -> bool:
        """Whether a catalog places the table: it has a data directory once it exists."""

    @property
    def data_directory(self) -> "DataDirectory":
        """The directory of files that are to be appended."""

    def slot(self, origin: TableOrigin) -> str | None:
        """The column that the table is partitioned by, which is not in the files; None: the format derives it."""

    def state(self) -> TableState | None:
        """None: there is no table. TableError: there is one, and it follows no topic."""

    def create(self, origin: TableOrigin, schema: pa.Schema, progress: TableProgress) -> None: ...

    def take_over(self, origin: TableOrigin) -> TableState:
        """Starts a new writer's epoch. Commits of the previous writer are refused from now on."""

    def add_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None: ...

    def widen_columns(self, fields: Sequence[pa.Field], before: TableProgress) -> None:
        """Gives columns their new types, in one commit. TableError, and no commit, if a value does not fit."""

    def rename_columns(self, names: Mapping[str, str], before: TableProgress) -> None:
        """Renames columns at the top level: all of them, in one commit."""

    def append(self, files: Sequence[DataFile], before: TableProgress, after: TableProgress) -> None:
        """TableError, and no commit, if a file is not where readers look for it."""

    @property
    def has_position_deletes(self) -> bool:
        """Whether a commit can delete rows of a file by their positions. If not, the file is written again."""

    def live_files(self) -> list[LiveFile]: ...

    def column_names(self) -> "ColumnNames":
        """How the columns are named in the files."""

    def merge(self, merge: TableMerge, before: TableProgress, after: TableProgress) -> None:
        """FilesChanged, and no commit, if the table has other files than those that the merge was prepared for."""

    def rewrite(self, rows: pa.RecordBatchReader, before: TableProgress) -> None:
        """Replaces all rows by these."""

    def columns(self, names: Sequence[str] | None = None, where: OffsetSlice | None = None) -> pa.RecordBatchReader:
        """All rows, or the rows of a slice, in any order."""

    def file_sizes(self) -> list[int]:
        """The bytes of each file that the newest version consists of."""

    def compact(self, target_bytes: int = TARGET_BYTES) -> Mapping[str, int]:
        """Joins small files into files of about that size."""

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
    check_masks(existing, requested.masks, uri)
    names = ["format", "partition_by", "isolation"]
    if HISTORY in (existing.mode, requested.mode):  # its rows are neither records nor the last ones of keys
        names += ["mode", "history_columns"]
    for name in names:
        if getattr(existing, name) != getattr(requested, name):
            option = "--" + name.replace("_", "-")
            raise TableError(
                f"{uri} was created with {option} {getattr(existing, name)}, not {getattr(requested, name)}"
            )


def check_masks(existing: TableOrigin, masks: str, uri: str) -> None:
    """TableError if other columns are masked than when the table was created, or under another key."""
    if existing.masks != masks:
        was, now = (f"--mask {text}" if text else "no --mask" for text in (existing.masks, masks))
        raise TableError(f"{uri} was created with {was}, not with {now}: the number after @ names the key")


def check_writer(uri: str, epoch: int, batch: int, before: TableProgress) -> None:
    """WriterRefused unless the epoch and batch of the table are those of the writer's last commit."""
    if epoch != before.epoch:
        raise WriterRefused(f"{uri} has another writer now: it began epoch {epoch}, and this one has {before.epoch}")
    if batch != before.batch:
        raise WriterRefused(f"{uri} is at batch {batch}, not at {before.batch}: others wrote to it")


def check_versions(uri: str, merge: TableMerge, files: Sequence[LiveFile]) -> None:
    if merge.versions != frozenset(file.version for file in files):
        raise FilesChanged(f"{uri} was changed by others, such as a compaction, while a batch was merged into it")


def one_line(error: Exception) -> str:
    """The message of a library's error, without its line breaks, colours and passwords."""
    return without_credentials(" ".join(re.sub(r"\x1b\[\d+m|\u21b3", " ", str(error)).split()))
