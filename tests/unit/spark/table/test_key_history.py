"""What the changes of one key leave in a table. tests/property/test_key_history.py has the laws."""

import pytest

from leadline.spark.table.change_events import TRUNCATE
from leadline.spark.table.key_history import KeyChange, KeyEntries, Version, expected, merged
from leadline.spark.table.source_order import Place, SourceOrder
from leadline.spark.table.table import HISTORY, UPSERT


def change(offset: int, position: int, op: str = "u", end_us: int | None = None) -> KeyChange:
    order, is_delete = SourceOrder("number", (position,)), op in ("d", TRUNCATE)
    return KeyChange(offset, Place(offset, 0, offset), order, str(position), op, is_delete, False, position, end_us)


def tombstone(offset: int) -> KeyChange:
    return KeyChange(offset, Place(offset, 0, offset), is_delete=True, is_tombstone=True)


def test_a_newer_row_takes_the_place_of_the_older_one() -> None:
    old, new = change(0, 1), change(1, 2)
    plan = merged(UPSERT, KeyEntries([new], [old]))
    assert (plan.removed, plan.added, plan.remembered) == ([old], [Version(new, is_new=True)], [])


def test_a_version_ends_when_the_next_one_begins() -> None:
    old, new = change(0, 1), change(1, 5)
    plan = merged(HISTORY, KeyEntries([new], [old]))
    assert (plan.removed, plan.added) == ([old], [Version(old, False, 5), Version(new, True, None)])


def test_a_version_that_does_not_change_is_left_alone() -> None:
    first, second, new = change(0, 1, end_us=5), change(1, 5), change(2, 9)
    assert merged(HISTORY, KeyEntries([new], [first, second])).removed == [second]


@pytest.mark.parametrize("mode", [UPSERT, HISTORY])
def test_a_delete_is_remembered(mode: str) -> None:
    delete = change(1, 2, "d")
    plan = merged(mode, KeyEntries([delete], [change(0, 1)]))
    assert plan.remembered == [delete]
    assert [version.end_us for version in plan.added] == ([2] if mode == HISTORY else [])


def test_a_late_row_does_not_come_back_after_its_delete() -> None:
    plan = merged(UPSERT, KeyEntries([change(9, 1)], deletes=[change(1, 2, "d")]))
    assert (plan.added, plan.late, plan.repeated) == ([], 1, 0)


def test_a_tombstone_does_nothing_behind_a_delete_and_deletes_behind_a_row() -> None:
    assert merged(UPSERT, KeyEntries([tombstone(2)], deletes=[change(1, 2, "d")])).remembered == []
    plan = merged(UPSERT, KeyEntries([tombstone(2)], [change(1, 2)]))
    assert [entry.position for entry in plan.remembered] == ["2"]
    assert plan.added == []
    assert merged(HISTORY, KeyEntries([tombstone(2)])).added == []


def test_a_truncate_is_a_delete_of_what_is_older() -> None:
    truncated = [change(3, 5, TRUNCATE)]
    assert merged(UPSERT, KeyEntries([], [change(0, 4)], truncates=truncated)).removed == [change(0, 4)]
    assert merged(UPSERT, KeyEntries([], [change(0, 6)], truncates=truncated)).removed == []


def test_a_version_does_not_end_before_it_begins() -> None:
    """The clock of the database went back."""
    first, second = change(0, 1), change(1, 2)
    early = KeyChange(1, second.place, second.order, start_us=-7)
    assert [end_us for _, end_us in expected(HISTORY, [first, early])] == [1, None]
