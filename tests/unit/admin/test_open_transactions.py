"""Which transaction holds the last stable offset, and which ones nobody will end."""

import pytest

from leadline.admin.open_transactions import (
    BlockedPartition,
    OpenTransaction,
    TransactionDescription,
    hanging,
    hangs,
)
from leadline.model import TopicPartition

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 3)
NOW_MS, MINUTE_MS = 1_700_000_000_000, 60_000


def opened(start: int = 42, producer: int = 7, age_ms: int = MINUTE_MS, coordinator_epoch: int = -1) -> OpenTransaction:
    return OpenTransaction(ORDERS, producer, 2, coordinator_epoch, start, NOW_MS - age_ms)


def described(*partitions: TopicPartition, state: str = "Ongoing") -> TransactionDescription:
    return TransactionDescription("shop", 1, state, 7, 2, MINUTE_MS, NOW_MS, frozenset(partitions))


@pytest.mark.parametrize(
    ("transaction", "expected"),
    [
        (None, True),
        (described(), True),
        (described(USERS), True),
        (described(ORDERS, USERS), False),
        (described(ORDERS, state="PrepareCommit"), False),
    ],
)
def test_one_hangs_where_no_coordinator_is_going_to_write_a_marker(
    transaction: TransactionDescription | None, expected: bool
) -> None:
    assert hangs(opened(), transaction) is expected


def test_only_what_is_older_than_a_transaction_may_become_counts_as_hanging() -> None:
    young, old = opened(1, producer=8, age_ms=15 * MINUTE_MS), opened(2, producer=9, age_ms=15 * MINUTE_MS + 1)
    fine = opened(3, producer=7, age_ms=99 * MINUTE_MS)
    assert hanging([young, old, fine], {7: described(ORDERS)}, NOW_MS, 15 * MINUTE_MS) == [old]


def test_a_marker_of_hand_has_a_coordinator_epoch_that_every_leader_takes() -> None:
    assert [opened(coordinator_epoch=epoch).marker_epoch for epoch in (-1, 0, 5)] == [0, 0, 5]


def test_the_first_open_transaction_holds_the_last_stable_offset() -> None:
    first, second = opened(42), opened(50, producer=8)
    blocked = BlockedPartition(ORDERS, 42, 60, (second, first))
    assert (blocked.holder, blocked.waiting) == (first, 18)


@pytest.mark.parametrize(
    ("stable", "high", "open_ones"),
    [(60, 60, (opened(60),)), (42, 60, ()), (42, 60, (opened(50),))],
    ids=["nothing waits", "its end is not replicated yet", "it began later"],
)
def test_nothing_else_holds_it(stable: int, high: int, open_ones: tuple[OpenTransaction, ...]) -> None:
    assert BlockedPartition(ORDERS, stable, high, open_ones).holder is None
