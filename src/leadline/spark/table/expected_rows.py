"""The rows that a table by key must have, of all records of a topic that are not dead letters.

Pure: records in, offsets out.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from leadline.model import Offset
from leadline.spark.table.change_events import TRUNCATE
from leadline.spark.table.key_history import KeyChange, expected
from leadline.spark.table.payload import ShapedRecords
from leadline.spark.table.row_entries import entries_of, with_validity
from leadline.spark.table.table import DELETED, HistoryColumns, OriginColumns

Spans = Mapping[Offset, tuple[int, int | None]]  # of each row, by its offset: from when and until when it is valid


def _keys_and_entries(
    shaped: Sequence[ShapedRecords], columns: OriginColumns, dead: Collection[Offset]
) -> Iterator[tuple[bytes | None, KeyChange]]:
    for records in shaped:
        rows = pa.Table.from_batches([records.rows.append_column(DELETED, records.deleted)])
        keys = rows[columns.key].to_pylist()
        for key, entry in zip(keys, entries_of(rows, columns, None, are_new=True), strict=True):
            if entry.place.offset not in dead:
                yield key, entry


def truncates(shaped: Sequence[ShapedRecords], columns: OriginColumns, dead: Collection[Offset]) -> list[KeyChange]:
    return [
        KeyChange(entry.at, entry.place, entry.order, entry.position, entry.op, is_delete=True, start_us=entry.start_us)
        for key, entry in _keys_and_entries(shaped, columns, dead)
        if key is None and entry.op == TRUNCATE
    ]


def spans_by_key(
    mode: str,
    shaped: Sequence[ShapedRecords],
    columns: OriginColumns,
    dead: Collection[Offset],
    truncated: Sequence[KeyChange],
) -> Spans:
    by_key: dict[bytes, list[KeyChange]] = {}
    for key, entry in _keys_and_entries(shaped, columns, dead):
        if key is not None:
            by_key.setdefault(key, []).append(entry)
    return {
        entry.place.offset: (entry.start_us, end_us)
        for entries in by_key.values()
        for entry, end_us in expected(mode, [*entries, *truncated])
    }


def with_spans(
    rows: pa.RecordBatch, columns: OriginColumns, history: HistoryColumns | None, spans: Spans
) -> pa.RecordBatch:
    """The rows that are expected, with the columns of their validity."""
    offsets = rows.column(columns.offset).to_numpy(zero_copy_only=False)
    kept = rows.filter(pa.array(np.isin(offsets, np.fromiter(spans, np.int64, len(spans)))))
    if history is None:
        return kept
    table = pa.Table.from_batches([kept])
    valid = with_validity(table, history, [spans[offset] for offset in table[columns.offset].to_pylist()])
    return valid.combine_chunks().to_batches()[0] if valid.num_rows else pa.RecordBatch.from_pylist([], valid.schema)
