"""A table by key is a function of the changes: their order in the topic, repeats and batches leave no trace in it.

The model applies all changes in the order of the database to a dict. The table is a list of rows and of remembered
deletes that `merged` changes batch after batch; a batch may be interrupted after its deletes are remembered.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from leadline.spark.table.change_events import TRUNCATE
from leadline.spark.table.key_history import KeyChange, KeyEntries, merged
from leadline.spark.table.source_order import Place, SourceOrder
from leadline.spark.table.table import HISTORY, UPSERT

OPS = ["c", "u", "d", TRUNCATE]
Change = tuple[int, str]  # position, op


class KeyTable:
    """Rows and remembered deletes of one key."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.rows: list[KeyChange] = []
        self.deletes: list[KeyChange] = []
        self.truncates: list[KeyChange] = []
        self.late = self.repeated = 0

    def write(self, batch: Sequence[KeyChange], *, is_interrupted: bool = False) -> None:
        rows = [replace(row, at=at) for at, row in enumerate(self.rows)]
        truncates = [entry for entry in batch if entry.op == TRUNCATE]
        new = [entry for entry in batch if entry.op != TRUNCATE]
        plan = merged(self.mode, KeyEntries(new, rows, self.deletes, [*self.truncates, *truncates]))
        if not any(delete.place == entry.place for delete in self.deletes for entry in plan.remembered):
            self.deletes += plan.remembered
        if is_interrupted:
            return
        self.truncates += truncates
        removed = {entry.at for entry in plan.removed}
        self.rows = [row for row in rows if row.at not in removed]
        self.rows += [replace(version.entry, end_us=version.end_us) for version in plan.added]
        self.late += plan.late
        self.repeated += plan.repeated


def entry(offset: int, change: Change, partitions: int = 1) -> KeyChange:
    position, op = change
    place = Place(offset, offset % partitions, offset)
    return KeyChange(
        offset, place, SourceOrder("number", (position,)), None, op, op in ("d", TRUNCATE), start_us=position
    )


def batches_of(entries: Sequence[KeyChange], cuts: Sequence[int]) -> list[list[KeyChange]]:
    edges = sorted({0, len(entries), *(cut % (len(entries) + 1) for cut in cuts)})
    return [list(entries[first:until]) for first, until in pairwise(edges)]


def model(mode: str, changes: Sequence[Change]) -> list[tuple[int, int | None]]:
    """(position, end) of each row, by applying each change once, in the order of the database."""
    rows: list[tuple[int, int | None]] = []
    for position, op in sorted(set(changes)):
        if mode == UPSERT:
            rows.clear()
        elif rows and rows[-1][1] is None:
            rows[-1] = rows[-1][0], position
        if op in ("c", "u"):
            rows.append((position, None))
    return rows


def content(table: KeyTable) -> list[tuple[int, int | None]]:
    return sorted((row.order.numbers[0], row.end_us) for row in table.rows)


# The operation follows from the position: no two changes of a database are at one position.
changes = st.lists(st.integers(0, 12).map(lambda position: (position, OPS[position * 7 % 5 % 4])), max_size=14)


@given(changes, st.lists(st.integers(0, 20)), st.sampled_from([UPSERT, HISTORY]), st.integers(1, 3), st.integers(0, 9))
def test_the_table_is_that_of_the_database(
    events: list[Change], cuts: list[int], mode: str, partitions: int, interrupted: int
) -> None:
    table = KeyTable(mode)
    entries = [entry(offset, change, partitions) for offset, change in enumerate(events)]
    for number, batch in enumerate(batches_of(entries, cuts)):
        if number == interrupted:
            table.write(batch, is_interrupted=True)
        table.write(batch)
    assert content(table) == model(mode, events)


@given(changes, st.lists(st.integers(0, 20)), st.sampled_from([UPSERT, HISTORY]), st.integers(0, 9))
def test_late_and_repeated_changes_are_counted_alike_in_all_batches(
    events: list[Change], cuts: list[int], mode: str, interrupted: int
) -> None:
    once, many = KeyTable(mode), KeyTable(mode)
    entries = [entry(offset, change) for offset, change in enumerate(events) if change[1] != TRUNCATE]
    once.write(entries)
    for number, batch in enumerate(batches_of(entries, cuts)):
        if number == interrupted:
            many.write(batch, is_interrupted=True)
        many.write(batch)
    assert (once.late, once.repeated) == (many.late, many.repeated)


@given(st.lists(st.sampled_from(["row", "tombstone"]), max_size=10), st.lists(st.integers(0, 20)))
def test_without_positions_the_last_record_of_the_topic_counts(kinds: list[str], cuts: list[int]) -> None:
    table, history = KeyTable(UPSERT), KeyTable(HISTORY)
    entries = [
        KeyChange(at, Place(at, 0, at), is_delete=kind == "tombstone", start_us=at) for at, kind in enumerate(kinds)
    ]
    for batch in batches_of(entries, cuts):
        table.write(batch)
        history.write(batch)
    assert [row.place.offset for row in table.rows] == ([len(kinds) - 1] if kinds[-1:] == ["row"] else [])
    assert sum(row.end_us is None for row in history.rows) == (kinds[-1:] == ["row"])
    assert len(history.rows) == kinds.count("row")
    assert (table.late, table.repeated, history.late, history.repeated) == (0, 0, 0, 0)


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["c", "d", "none"])), max_size=10), st.lists(st.integers())
)
def test_a_tombstone_follows_what_came_before_it(events: list[tuple[int, str]], cuts: list[int]) -> None:
    """Each delete may be compacted away: then the tombstone behind it deletes the row."""
    once, many = KeyTable(UPSERT), KeyTable(UPSERT)
    entries = [
        KeyChange(at, Place(at, 0, at), is_delete=True, is_tombstone=True, start_us=at)
        if op == "none"
        else KeyChange(at, Place(at, 0, at), SourceOrder("number", (position,)), None, op, op == "d", start_us=at)
        for at, (position, op) in enumerate(events)
    ]
    once.write(entries)
    for batch in batches_of(entries, cuts):
        many.write(batch)
    assert [row.place for row in once.rows] == [row.place for row in many.rows]
    if events and events[-1][1] == "none":
        assert once.rows == []
