"""The part of a log that a task reads, and the conversion of its rows into columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from leadline.model import Offset
from leadline.spark.files import segments
from leadline.spark.files.segments import LogFiles, SegmentFile

Row = tuple[object, ...]
ROWS = 10_000  # of one Arrow batch


@dataclass(frozen=True, slots=True)
class LogSplit:
    """The part of a log that a task reads: files, or a range of offsets."""

    log: LogFiles
    files: tuple[SegmentFile, ...] = ()
    first: Offset = 0
    until: Offset = 0
    committed: bool = False  # omits records of aborted transactions
    headers: bool = False

    def rows(self) -> Iterator[pa.RecordBatch]:
        aborted = segments.aborted_in(self.log, self.first, self.until) if self.committed else None
        return segments.rows(self.log, self.first, self.until, headers=self.headers, aborted=aborted)


def fields(text: str) -> list[tuple[str, pa.DataType]]:
    """The schema in a text of `name type`, separated by commas or line breaks. Types have Arrow's names."""
    words = [field.split() for field in text.replace("\n", ",").split(",") if field.strip()]
    return [(name, pa.type_for_alias(kind)) for name, kind in words]


def in_columns(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, ROWS)):
        columns = zip(schema, zip(*some, strict=True), strict=True)
        yield pa.record_batch([pa.array(values, field.type) for field, values in columns], schema=schema)
