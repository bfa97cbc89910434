"""A file of a table, as tasks read it: which rows it has, by their positions, and which of them are deleted.

A row's position is its number in the file, from 0. A file is named as the table names it. Its columns are found by the
field ids of Iceberg if the file has them, and by their names otherwise; a column may have had other names before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from leadline.spark.table.data_directory import DataDirectory
from leadline.spark.table.table import LiveFile, TableError

Positions = npt.NDArray[np.int64]

FIELD_ID = b"PARQUET:field_id"
# Iceberg's position deletes, with the ids that its specification reserves.
PATH, POSITION, PATH_ID = "file_path", "pos", 2147483546
POSITION_DELETES = pa.schema(
    [
        pa.field(PATH, pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_ID).encode()}),
        pa.field(POSITION, pa.int64(), nullable=False, metadata={FIELD_ID: b"2147483545"}),
    ]
)


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """How the columns of a table are named in its files."""

    ids: Mapping[str, int] = field(default_factory=dict)  # of Iceberg
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)  # that a column has, or had

    def in_file(self, schema: pa.Schema) -> dict[str, str]:
        """The names in the table, by the names in a file."""
        by_id = {str(number).encode(): name for name, number in self.ids.items()}
        by_name = {other: name for name, others in self.names.items() for other in others}
        columns = {}
        for column in schema:
            number = (column.metadata or {}).get(FIELD_ID)
            columns[column.name] = by_id.get(number) if number else by_name.get(column.name, column.name)
        return {name: in_table for name, in_table in columns.items() if in_table is not None}


class LiveRows:
    """The rows of a file, row group by row group."""

    def __init__(self, file: LiveFile, options: Mapping[str, str], columns: ColumnNames) -> None:
        self._file, self._options = file, options
        filesystem, path = DataDirectory(file.uri, options).open()
        self._parquet = pq.ParquetFile(filesystem.open_input_file(path))
        self._names = columns.in_file(self._parquet.schema_arrow)
        self.names = list(self._names.values())
        self.rows: int = self._parquet.metadata.num_rows

    def __enter__(self) -> "LiveRows":
        return self

    def __exit__(self, *_: object) -> None:
        self._parquet.close(force=True)

    @property
    def row_groups(self) -> list[tuple[int, int]]:
        """The number of each row group, and the position of its first row."""
        counts = [self._parquet.metadata.row_group(number).num_rows for number in range(self._parquet.num_row_groups)]
        return list(enumerate(np.concatenate([[0], np.cumsum(counts)])[:-1].astype(int).tolist()))

    def bounds(self, row_group: int, name: str) -> tuple[object, object] | None:
        """The lowest and the highest value of a column; None: the file does not say, or some values are null."""
        physical = next((inside for inside, outside in self._names.items() if outside == name), None)
        group = self._parquet.metadata.row_group(row_group)
        for number in range(group.num_columns):
            column = group.column(number)
            if column.path_in_schema == physical and column.is_stats_set and column.statistics.has_min_max:
                without_null = column.statistics.has_null_count and not column.statistics.null_count
                return (column.statistics.min, column.statistics.max) if without_null else None
        return None

    def read(self, row_group: int, names: Iterable[str] | None = None) -> pa.Table:
        """The columns that the file has, of these or of all, under the names of the table."""
        chosen = None if names is None else set(names)
        inside = [name for name, outside in self._names.items() if chosen is None or outside in chosen]
        rows = self._parquet.read_row_group(row_group, columns=inside)
        plain = [column.remove_metadata().with_name(self._names[column.name]) for column in rows.schema]
        return pa.table(rows.columns, schema=pa.schema(plain))

    def deleted(self) -> Positions:
        return positions_in(self._file.deletes, self._file.uri, self._options)


def positions_in(uris: Iterable[str], data_file: str, options: Mapping[str, str]) -> Positions:
    """The positions that these delete files have of a data file."""
    parts = [np.empty(0, np.int64)]
    for uri in uris:
        filesystem, path = DataDirectory(uri, options).open()
        if not path.endswith(".parquet"):
            raise TableError(f"{uri} is a kind of delete file that is not supported")
        rows = pq.read_table(path, filesystem=filesystem, partitioning=None)
        mine = rows.filter(pa.compute.equal(rows[PATH].cast(pa.string()), data_file))
        parts.append(mine[POSITION].to_numpy())
    return np.unique(np.concatenate(parts))
