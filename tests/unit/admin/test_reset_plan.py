"""What a reset changes, what it means, and the way back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.admin.partitions import OffsetRange, PartitionOffset
from leadline.admin.reset_plan import (
    NOTE,
    NOTE_BYTES,
    ImpossibleReset,
    OffsetChange,
    changes,
    shifted_offset,
    total,
    undo,
    with_notes,
)
from leadline.model import TopicPartition

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 3)
EDGES = {ORDERS: OffsetRange(10, 100), USERS: OffsetRange(0, 50)}
NOW_MS = 1_700_000_000_000


def reset(
    committed: dict[TopicPartition, PartitionOffset], to: int, now_ms: int = NOW_MS
) -> dict[TopicPartition, PartitionOffset]:
    """What is committed after a reset of everything."""
    planned = with_notes(changes(dict.fromkeys(EDGES, to), committed, EDGES), now_ms)
    return {change.tp: change.after for change in planned if change.after is not None}


@pytest.mark.parametrize(
    ("before", "target", "after", "meaning"),
    [
        (60, 20, 20, "reads 40 again"),
        (20, 60, 60, "skips 40"),
        (60, 60, 60, "no change"),
        (None, 60, 60, "nothing was committed; 40 to read"),
        (60, 5, 10, "reads 50 again; 5 is out of range, so the beginning"),
        (60, -7, 10, "reads 50 again; -7 is out of range, so the beginning"),
        (60, 101, 100, "skips 40; 101 is out of range, so the end"),
        (60, 100, 100, "skips 40"),
        (2, 10, 10, "skips 8"),
    ],
)
def test_a_change_says_what_it_means(before: int | None, target: int, after: int, meaning: str) -> None:
    committed = {ORDERS: PartitionOffset(before)} if before is not None else {}
    (change,) = changes({ORDERS: target}, committed, EDGES)
    assert (change.after, change.meaning) == (PartitionOffset(after), meaning)


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ([(60, 20), (20, 60)], "Of the records, 40 will be read again, 40 will be skipped"),
        ([(2000, 20)], "Of the records, 1,980 will be read again"),
        ([(20, 21)], "Of the records, 1 will be skipped"),
        ([(20, 20)], "No record will be read again or skipped"),
    ],
)
def test_the_total_of_all_changes(offsets: list[tuple[int, int]], text: str) -> None:
    assert (
        total([OffsetChange(ORDERS, PartitionOffset(old), PartitionOffset(new), None) for old, new in offsets]) == text
    )


def test_what_was_never_committed_cannot_be_shifted() -> None:
    assert shifted_offset(ORDERS, PartitionOffset(10), -3) == 7
    with pytest.raises(ImpossibleReset, match="orders-0: no committed offset to shift by -3"):
        shifted_offset(ORDERS, None, -3)


def test_a_note_says_what_was_there_before() -> None:
    after = reset({ORDERS: PartitionOffset(42, 3, "mine")}, to=20)
    assert json.loads(after[ORDERS].metadata) == {
        NOTE: {"at": NOW_MS, "of": "orders:0 users:3", "offset": 42, "epoch": 3, "metadata": "mine"}
    }
    assert json.loads(after[USERS].metadata)[NOTE]["offset"] is None


def test_undo_restores_offset_epoch_and_metadata_and_forgets_what_was_not_there() -> None:
    before = {ORDERS: PartitionOffset(42, 3, 'as "it" was')}
    plan = undo(reset(before, to=20), EDGES)
    assert plan is not None
    assert {change.tp: change.after for change in plan.changes} == {ORDERS: before[ORDERS], USERS: None}
    assert (plan.reset_ms, plan.too_late) == (NOW_MS, {})


def test_undo_is_too_late_where_the_group_has_committed_since() -> None:
    after = reset({ORDERS: PartitionOffset(42)}, to=20) | {USERS: PartitionOffset(33)}
    plan = undo(after, EDGES)
    assert plan is not None
    assert [change.tp for change in plan.changes] == [ORDERS]
    assert plan.too_late == {USERS: PartitionOffset(33)}
    assert undo({ORDERS: PartitionOffset(1), USERS: PartitionOffset(33)}, EDGES) is None


def test_of_two_resets_only_the_last_is_undone() -> None:
    first = reset({ORDERS: PartitionOffset(42, 1, "mine"), USERS: PartitionOffset(7)}, to=20)
    (change,) = with_notes(changes({ORDERS: 30}, first, EDGES), NOW_MS + 1)
    assert change.after is not None
    plan = undo(first | {ORDERS: change.after}, EDGES)
    assert plan is not None
    assert [(change.tp, change.after) for change in plan.changes] == [(ORDERS, PartitionOffset(20, metadata="mine"))]
    assert plan.too_late == {}


def test_a_note_is_never_longer_than_metadata_may_be() -> None:
    long = {ORDERS: PartitionOffset(42, 1, "x" * NOTE_BYTES)}
    (change,) = with_notes(changes({ORDERS: 20}, long, EDGES), NOW_MS)
    assert change.after is not None
    assert len(change.after.metadata) < NOTE_BYTES
    assert change.remark == "an undo will not restore its long metadata"
    plan = undo({ORDERS: change.after}, EDGES)
    assert plan is not None
    assert plan.changes[0].after == PartitionOffset(42, 1, "")


def test_the_partitions_of_a_wide_reset_are_not_listed_in_each_note() -> None:
    many = {TopicPartition(f"topic-{n}", 0): OffsetRange(0, 9) for n in range(100)}
    after = {change.tp: change.after for change in with_notes(changes(dict.fromkeys(many, 5), {}, many), NOW_MS)}
    assert max(len(committed.metadata) for committed in after.values() if committed is not None) < 200
    plan = undo({tp: committed for tp, committed in after.items() if committed is not None}, many)
    assert plan is not None
    assert (len(plan.changes), plan.too_late) == (100, {})


def test_an_undo_shows_what_was_deleted_since_the_reset() -> None:
    after = reset({ORDERS: PartitionOffset(12)}, to=50)
    plan = undo(after, EDGES | {ORDERS: OffsetRange(30, 100)})
    assert plan is not None
    assert plan.changes[0].meaning == "reads 38 again; the partition now has the offsets 30 to 100"


NOTE_WITH_TEXT_OFFSET = f'{{"{NOTE}": {{"at": 1, "of": "", "offset": "9", "epoch": 0}}}}'
HUGE_OFFSET = f'{{"{NOTE}": {{"at": 1, "of": "", "offset": 99999999999999999999, "epoch": 0}}}}'


@pytest.mark.parametrize(
    "metadata", ["", "x", "[]", "7", "null", '{"a": 1}', f'{{"{NOTE}": 7}}', NOTE_WITH_TEXT_OFFSET, HUGE_OFFSET]
)
def test_metadata_of_others_is_no_note(metadata: str) -> None:
    assert undo({ORDERS: PartitionOffset(1, metadata=metadata)}, EDGES) is None


@given(st.text(max_size=200))
def test_no_metadata_breaks_an_undo(metadata: str) -> None:
    assert (
        undo({ORDERS: PartitionOffset(1, metadata=f'{{"{NOTE}": {metadata}}}')}, EDGES) is None or "offset" in metadata
    )


@given(
    st.dictionaries(
        st.sampled_from([ORDERS, USERS]),
        st.builds(PartitionOffset, st.integers(0, 2**63 - 1), st.integers(-1, 9), st.text()),
    ),
    st.integers(-5, 200),
)
def test_an_undo_brings_back_exactly_what_was_committed(
    committed: dict[TopicPartition, PartitionOffset], to: int
) -> None:
    plan = undo(reset(committed, to), EDGES)
    assert plan is not None
    assert {change.tp: change.after for change in plan.changes} == {tp: committed.get(tp) for tp in EDGES}
