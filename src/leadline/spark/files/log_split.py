"""What a task reads of a log, and how the rows that it finds become columns."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from leadline.model import Offset
from leadline.spark.files import segments
from leadline.spark.files.segments import LogFiles, SegmentFile

Row = tuple[object, ...]
ROWS = 10_000  # that become columns at a time


@dataclass(frozen=True, slots=True)
class LogSplit:
    """What a task reads of one log: files, or a range of offsets."""

    log: LogFiles
    files: tuple[SegmentFile, ...] = ()
    first: Offset = 0
    until: Offset = 0
    committed: bool = False  # without the records of aborted transactions
    headers: bool = False

    def rows(self) -> Iterator[pa.RecordBatch]:
        aborted = segments.aborted_in(self.log, self.first, self.until) if self.committed else None
        return segments.rows(self.log, self.first, self.until, headers=self.headers, aborted=aborted)


def fields(text: str) -> list[tuple[str, pa.DataType]]:
    """`name type` a line or a comma, types by the names that Arrow has for them."""
    words = [field.split() for field in text.replace("\n", ",").split(",") if field.strip()]
    return [(name, pa.type_for_alias(kind)) for name, kind in words]


def in_columns(rows: Iterator[Row], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while some := list(islice(rows, ROWS)):
        columns = zip(schema, zip(*some, strict=True), strict=True)
        yield pa.record_batch([pa.array(values, field.type) for field, values in columns], schema=schema)
