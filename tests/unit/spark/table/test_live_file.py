"""A file of a table as tasks read it: columns by id or name, bounds of row groups, rows that are deleted."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from leadline.spark.table.live_file import FIELD_ID, POSITION_DELETES, ColumnNames, LiveRows
from leadline.spark.table.table import LiveFile, TableError

NAMES = ColumnNames({"key": 1, "n": 2}, {"key": ["key", "_key"], "n": ["n"]})


def written(path: Path, *names: str, ids: tuple[int, ...] = (), keys: tuple[bytes | None, ...] = (b"a", b"c")) -> str:
    """Two columns, a key and a number, with a row group for each row."""
    metadata = [{FIELD_ID: str(number).encode()} for number in ids] or [{}, {}]
    types = (pa.binary(), pa.int64())
    fields = [pa.field(*column, metadata=ids_) for *column, ids_ in zip(names, types, metadata, strict=True)]
    rows = pa.table([pa.array(keys, pa.binary()), pa.array(range(len(keys)), pa.int64())], schema=pa.schema(fields))
    pq.write_table(rows, path, row_group_size=1)
    return path.as_uri()


@pytest.mark.parametrize(
    ("names", "ids"), [(("key", "n"), ()), (("_key", "n"), ()), (("old", "older"), (1, 2)), (("n", "key"), (1, 2))]
)
def test_columns_are_those_of_their_ids_or_else_of_their_names(
    tmp_path: Path, names: tuple[str, ...], ids: tuple[int, ...]
) -> None:
    uri = written(tmp_path / "file.parquet", *names, ids=ids)
    with LiveRows(LiveFile(uri, uri, 1), {}, NAMES) as live:
        assert live.read(1).to_pylist() == [{"key": b"c", "n": 1}]
        assert live.read(0, ["key", "absent"]).to_pylist() == [{"key": b"a"}]
        assert live.row_groups == [(0, 0), (1, 1)]
        assert live.bounds(1, "key") == (b"c", b"c")


def test_a_row_group_with_a_null_has_no_bounds(tmp_path: Path) -> None:
    uri = written(tmp_path / "file.parquet", "key", "n", keys=(b"a", None))
    with LiveRows(LiveFile(uri, uri, 1), {}, NAMES) as live:
        assert [live.bounds(number, "key") for number in (0, 1)] == [(b"a", b"a"), None]
        assert live.bounds(0, "absent") is None


def test_deleted_positions_are_those_of_this_file(tmp_path: Path) -> None:
    uri = written(tmp_path / "file.parquet", "key", "n")
    deletes = pa.table([[uri, uri, "file:///other"], [1, 0, 7]], schema=POSITION_DELETES)
    pq.write_table(deletes, tmp_path / "deletes.parquet")
    place = (tmp_path / "deletes.parquet").as_uri()
    with LiveRows(LiveFile(uri, uri, 1, deletes=(place,)), {}, NAMES) as live:
        assert live.deleted().tolist() == [0, 1]
    with (
        LiveRows(LiveFile(uri, uri, 1, deletes=("file:///x.puffin",)), {}, NAMES) as live,
        pytest.raises(TableError, match=r"x\.puffin is a kind of delete file that is not supported"),
    ):
        live.deleted()
