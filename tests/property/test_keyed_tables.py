"""Delta and Iceberg tables by key equal the model, for random changes, batches, repeats, and crashes between commits.

The model applies all changes in the order of the database to a dict.
"""

import tempfile
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.spark.table.table import HISTORY, UPSERT
from leadline.spark.table.table_format import TABLE_FORMATS, TablePlace
from tests.support.keyed_table import Change, Interrupted, KeyedTable

KEYS = [b"a", b"b", b"c"]
OPS = ["c", "u", "d", "u", "t"]

# What happens at a position is fixed, so that a change that comes twice is the same one.
positions = st.integers(0, 30)
batches = st.lists(st.lists(positions, min_size=1, max_size=6), min_size=1, max_size=4)


def change(offset: int, position: int) -> Change:
    op = OPS[position * 7 % 11 % 5]
    return Change(offset, None if op == "t" else KEYS[position % 3], op, position)


def model(events: set[int]) -> tuple[dict[bytes, int], list[tuple[bytes, int, int, int | None, bool]]]:
    """The rows by key, and all versions of them."""
    rows: dict[bytes, int] = {}
    versions: dict[tuple[bytes, int], int | None] = {}
    for event in (change(0, position) for position in sorted(events)):
        assert event.position is not None
        for key in KEYS if event.key is None else [event.key]:
            if key in rows:
                versions[key, rows.pop(key)] = event.position
        if event.key is not None and event.op != "d":
            rows[event.key] = event.position
            versions[event.key, event.position] = None
    table = [(key, position, position, end, end is None) for (key, position), end in versions.items()]
    return rows, sorted(table, key=str)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
@pytest.mark.parametrize("mode", [UPSERT, HISTORY])
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches, st.lists(st.integers(0, 6), max_size=3))
def test_a_table_is_that_of_the_database(
    scratch: Path, kind: str, mode: str, events: list[list[int]], cuts: list[int]
) -> None:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        table = KeyedTable(TablePlace(kind, f"{folder}/users"), mode)
        offsets, commits, deaths = count(), count(), set(cuts)

        def cut() -> None:
            if next(commits) in deaths:
                raise Interrupted

        table.cut = cut
        for batch in events:
            changes = [change(next(offsets), position) for position in batch]
            while True:
                try:
                    table.write(changes)
                    break
                except Interrupted:
                    continue
        rows, versions = model({position for batch in events for position in batch})
        if mode == UPSERT:
            assert table.values() == rows
        else:
            assert table.validity() == versions
