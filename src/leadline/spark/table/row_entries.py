"""Rows as entries of their keys' history, and the validity of entries as columns of rows.

The time of a change is that in the database, or that of its record.

Pure: columns in, entries out.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from leadline.spark.table.change_events import OP, SOURCE_MS, SOURCE_POSITION
from leadline.spark.table.key_history import KeyChange
from leadline.spark.table.source_order import Place, order_of
from leadline.spark.table.table import DELETED, HistoryColumns, OriginColumns

MOMENT = pa.timestamp("us", "UTC")


def entries_of(
    rows: pa.Table, columns: OriginColumns, history: HistoryColumns | None, *, are_new: bool = False
) -> Iterator[KeyChange]:
    """`are_new`: they are records, of which those without a value are tombstones."""

    def values(name: str) -> list[object]:
        return rows[name].to_pylist() if name in rows.column_names else [None] * rows.num_rows

    times = rows[columns.timestamp].cast(MOMENT).cast(pa.int64()).to_pylist()
    partitions, offsets = rows[columns.partition].to_pylist(), rows[columns.offset].to_pylist()
    ops, starts_ms, positions, deleted = values(OP), values(SOURCE_MS), values(SOURCE_POSITION), values(DELETED)
    ends: list[object] = [None] * rows.num_rows
    if history is not None and history.valid_to in rows.column_names:
        ends = rows[history.valid_to].cast(MOMENT).cast(pa.int64()).to_pylist()
    is_change = OP in rows.column_names
    for at, time in enumerate(times):
        start_ms, position, op = starts_ms[at], positions[at], ops[at]
        assert position is None or isinstance(position, str)
        yield KeyChange(
            at,
            Place(time, partitions[at], offsets[at]),
            order_of(position),
            position,
            op,  # type: ignore[arg-type]
            bool(deleted[at]),
            are_new and is_change and op is None,
            start_ms * 1000 if isinstance(start_ms, int) else time,
            ends[at],  # type: ignore[arg-type]
        )


def with_validity(rows: pa.Table, history: HistoryColumns, spans_us: Sequence[tuple[int, int | None]]) -> pa.Table:
    """`spans_us`: of each row, the time from which and until which it is valid; None: it is current."""
    starts, ends = [start_us for start_us, _ in spans_us], [end_us for _, end_us in spans_us]
    arrays = [
        pa.array(starts, pa.int64()).cast(MOMENT),
        pa.array(ends, pa.int64()).cast(MOMENT),
        pa.array([end_us is None for end_us in ends], pa.bool_()),
    ]
    for column, array in zip(history.fields, arrays, strict=True):
        at = rows.schema.get_field_index(column.name)
        rows = rows.append_column(column, array) if at < 0 else rows.set_column(at, column, array)
    return rows
