"""Committed offsets: what counts, and when it is forgotten."""

import pytest

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_offsets import GroupOffsets, OffsetAndMetadata, is_longer
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_state import GroupState
from leadline.model import TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
HOUR = 3_600_000


def commit(offset: int, at: int, commit_ms: int = 0, expire_ms: int | None = None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", commit_ms, expire_ms=expire_ms, record_offset=at)


def test_a_commit_counts_once_it_is_safe() -> None:
    offsets = GroupOffsets()
    offsets.stage({TP: commit(5, at=1)})
    assert (offsets.is_unstable(TP), offsets.committed) == (True, {})
    offsets.commit({TP: commit(5, at=1)})
    assert (offsets.is_unstable(TP), offsets.committed[TP].offset) == (False, 5)


def test_of_two_commits_the_later_one_counts_whichever_is_safe_first() -> None:
    offsets = GroupOffsets()
    first, second = {TP: commit(5, at=1)}, {TP: commit(6, at=2)}
    offsets.stage(first)
    offsets.stage(second)
    offsets.commit(second)
    offsets.commit(first)
    assert offsets.committed[TP].offset == 6


def test_a_commit_that_failed_leaves_what_was_there() -> None:
    offsets = GroupOffsets({TP: commit(4, at=0)})
    offsets.stage({TP: commit(5, at=1)})
    offsets.unstage({TP: commit(5, at=1)})
    assert (offsets.is_unstable(TP), offsets.committed[TP].offset) == (False, 4)


@pytest.mark.parametrize(("committed", "offset"), [(True, 7), (False, 4)])
def test_commits_of_a_transaction_count_if_it_does(committed: bool, offset: int) -> None:
    offsets = GroupOffsets({TP: commit(4, at=0)})
    offsets.add_pending(9, {TP: commit(7, at=1)})
    assert offsets.is_unstable(TP)
    assert not offsets.is_unstable(OTHER)
    offsets.end_transaction(9, committed=committed)
    assert (offsets.is_unstable(TP), offsets.committed[TP].offset) == (False, offset)


def test_a_transaction_that_ends_late_does_not_undo_what_came_after_its_commit() -> None:
    offsets = GroupOffsets()
    offsets.add_pending(9, {TP: commit(7, at=1)})
    offsets.stage({TP: commit(8, at=2)})
    offsets.commit({TP: commit(8, at=2)})
    offsets.end_transaction(9, committed=True)
    assert offsets.committed[TP].offset == 8


def test_what_is_forgotten_does_not_come_back() -> None:
    offsets = GroupOffsets({TP: commit(4, at=0)})
    offsets.add_pending(9, {TP: commit(7, at=1)})
    offsets.stage({TP: commit(8, at=2)})
    assert offsets.partitions() == {TP}
    offsets.delete([TP])
    offsets.commit({TP: commit(8, at=2)})
    offsets.end_transaction(9, committed=True)
    assert not offsets


def test_commits_that_could_not_be_made_are_withdrawn() -> None:
    offsets = GroupOffsets()
    offsets.add_pending(9, {TP: commit(7, at=1)})
    offsets.withdraw(9, {TP: commit(7, at=1)})
    assert not offsets


@pytest.mark.parametrize(
    ("committed", "now_ms", "options", "expired"),
    [
        (commit(1, 0, commit_ms=0), HOUR - 1, {}, False),
        (commit(1, 0, commit_ms=0), HOUR, {}, True),
        (commit(1, 0, commit_ms=0), HOUR, {"empty_since_ms": 1}, False),
        (commit(1, 0, commit_ms=10 * HOUR), HOUR, {"empty_since_ms": 0}, True),
        (commit(1, 0, commit_ms=0), 9 * HOUR, {"subscribed": {"t"}}, False),
        (commit(1, 0, commit_ms=0), 9 * HOUR, {"subscribed": {"u"}}, True),
        (commit(1, 0, commit_ms=0, expire_ms=5), 4, {}, False),
        (commit(1, 0, commit_ms=0, expire_ms=5), 5, {"empty_since_ms": 5}, True),
        (commit(1, 0, commit_ms=0, expire_ms=9 * HOUR), 8 * HOUR, {}, False),
    ],
)
def test_an_offset_expires_after_its_retention_unless_a_commit_is_pending(
    committed: OffsetAndMetadata, now_ms: int, options: dict[str, int], expired: bool
) -> None:
    offsets = GroupOffsets({TP: committed})
    assert offsets.expired(now_ms, HOUR, **options) == ([TP] if expired else [])  # type: ignore[arg-type]
    offsets.stage({TP: commit(2, at=3)})
    assert offsets.expired(now_ms, HOUR, **options) == []  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "protocol_type", "subscribed", "expired"),
    [
        (GroupState.EMPTY, None, None, True),  # commits without members: from the commit
        (GroupState.EMPTY, "consumer", frozenset(), False),  # from when the last one left
        (GroupState.STABLE, "consumer", frozenset({"t"}), False),
        (GroupState.STABLE, "consumer", frozenset({"u"}), True),
        (GroupState.STABLE, "consumer", None, False),
        (GroupState.STABLE, "connect", None, False),
        (GroupState.PREPARING, "consumer", frozenset({"u"}), False),
    ],
)
def test_offsets_expire_by_the_state_of_their_group(
    state: GroupState, protocol_type: str | None, subscribed: frozenset[str] | None, expired: bool
) -> None:
    group = ClassicGroup("g", GroupLimits(1, 0), now_ms=5 * HOUR)
    group.state, group.protocol_type, group.subscribed = state, protocol_type, subscribed
    group.offsets.committed[TP] = commit(1, at=0, commit_ms=0)
    assert group.expired(5 * HOUR + 1, HOUR) == ([TP] if expired else [])


@pytest.mark.parametrize(("text", "length"), [("", 0), ("abc", 3), ("\u00fc", 1), ("\U0001f980", 2)])
def test_metadata_is_as_long_as_java_says(text: str, length: int) -> None:
    assert not is_longer(text, length)
    assert is_longer(text, length - 1)


def test_metadata_must_fit_its_record_whatever_the_setting_says() -> None:
    assert is_longer("x" * 32_768, 100_000)
    assert not is_longer("x" * 32_767, 100_000)
