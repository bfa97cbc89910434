"""What a person reads about transactions."""

import io

import pytest

from leadline.admin.formatting import moment_text
from leadline.admin.open_transactions import (
    NOT_OPEN,
    BlockedPartition,
    OpenTransaction,
    TransactionDescription,
)
from leadline.admin.transaction_text import blocked_json, ending_text, transaction_json
from leadline.cli.terminal import TextStyles
from leadline.cli.transactions.transaction_text import blocked_lines, hanging_row, marker_text, transaction_lines
from leadline.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
THEN_MS = NOW_MS - 200_000
PLAIN = TextStyles(io.StringIO())
HELD = OpenTransaction(ORDERS, 4001, 3, -1, 42, THEN_MS)
BEHIND = OpenTransaction(ORDERS, 4002, 0, 5, 50, THEN_MS)


def shop(
    state: str = "Ongoing", *partitions: TopicPartition, started_ms: int | None = THEN_MS
) -> TransactionDescription:
    return TransactionDescription("shop-1", 1, state, 4001, 3, 60_000, started_ms, frozenset(partitions))


@pytest.mark.parametrize(
    ("transaction", "state", "started"),
    [
        (shop("Ongoing", ORDERS), "Ongoing", f"{moment_text(THEN_MS)}, 3 min 20 s ago"),
        (
            shop("CompleteCommit"),
            "CompleteCommit",
            f"none under way; the last one {moment_text(THEN_MS)}, 3 min 20 s ago",
        ),
        (shop("Empty", started_ms=None), "Empty", "none yet"),
    ],
)
def test_a_transaction_is_shown_with_its_age(transaction: TransactionDescription, state: str, started: str) -> None:
    assert transaction_lines(transaction, NOW_MS, PLAIN) == [
        f"shop-1: {state}",
        "  producer     4001, epoch 3",
        "  coordinator  broker 1",
        "  time-out     1 min",
        f"  started      {started}",
        f"  partitions   {'orders:0' if transaction.partitions else 'none'}",
    ]
    assert transaction_json(transaction)["state"] == state  # type: ignore[index, call-overload]


def test_a_blocking_transaction_is_shown_with_producer_age_and_remedy() -> None:
    blocked = BlockedPartition(ORDERS, 42, 60, (HELD, BEHIND))
    assert blocked_lines(blocked, {4001: shop("Ongoing", ORDERS)}, NOW_MS, PLAIN) == [
        "orders-0: 18 records wait",
        "  last stable offset  42",
        "  high watermark      60",
        "  held by             producer 4001, epoch 3, with a transaction from 42 on",
        f"  its last record     {moment_text(THEN_MS)}, 3 min 20 s ago",
        "  transactional id    shop-1, Ongoing",
        f"  started             {moment_text(THEN_MS)}, 3 min 20 s ago",
        "  how it ends         by its producer, or by broker 1 after its time-out of 1 min",
        "  also open           producer 4002 from 50 on",
    ]


@pytest.mark.parametrize(
    ("transaction", "text"),
    [
        (None, "it hangs and does not end by itself: leadline transactions abort orders:0 --start-offset 42"),
        (
            shop("Ongoing"),
            "it hangs and does not end by itself: leadline transactions abort orders:0 --start-offset 42",
        ),
        (shop("PrepareCommit", ORDERS), "broker 1 is about to write its marker"),
    ],
)
def test_how_an_open_transaction_ends(transaction: TransactionDescription | None, text: str) -> None:
    assert ending_text(HELD, transaction) == text


@pytest.mark.parametrize(
    ("blocked", "lines"),
    [
        (
            BlockedPartition(ORDERS, 60, 60, ()),
            ["orders-0: no record waits; the last stable offset is the high watermark, 60"],
        ),
        (
            BlockedPartition(ORDERS, 59, 60, ()),
            [
                "orders-0: 1 record waits",
                "  last stable offset  59",
                "  high watermark      60",
                "  held by             no open transaction; the marker of one is being replicated: try again",
            ],
        ),
    ],
)
def test_a_partition_that_no_transaction_blocks(blocked: BlockedPartition, lines: list[str]) -> None:
    assert blocked_lines(blocked, {}, NOW_MS, PLAIN) == lines


def test_a_program_gets_every_open_transaction_of_a_partition() -> None:
    assert blocked_json(BlockedPartition(ORDERS, 42, 60, (BEHIND,)), {}) == {
        "topic": "orders",
        "partition": 0,
        "last_stable_offset": 42,
        "high_watermark": 60,
        "waiting": 18,
        "transactions": [
            {
                "topic": "orders",
                "partition": 0,
                "producer_id": 4002,
                "producer_epoch": 0,
                "coordinator_epoch": 5,
                "start_offset": 50,
                "last_timestamp": THEN_MS,
                "transactional_id": None,
                "started_ms": None,
                "hangs": True,
            }
        ],
    }


def test_a_hanging_one_is_a_row_and_an_abort_says_what_it_ends() -> None:
    row = ["orders", "0", "4001", "3", "-1", "42", moment_text(THEN_MS), "3 min 20 s"]
    assert hanging_row(HELD, NOW_MS) == row
    marker = "An abort marker in orders-0 for producer 4001, epoch 3, coordinator epoch 0"
    assert marker_text(HELD) == f"{marker}: it aborts the transaction that starts at 42"
    unknown = OpenTransaction(ORDERS, 4001, 3, 0, NOT_OPEN, 0)
    assert marker_text(unknown) == f"{marker}: the leader has no open transaction of this producer"
