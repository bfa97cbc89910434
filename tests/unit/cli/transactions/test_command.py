"""Which transaction is meant by what one types."""

import argparse

import pytest

from leadline.admin.errors import Failure
from leadline.admin.open_transactions import NOT_OPEN, OpenTransaction
from leadline.cli.transactions.command import choose_transaction
from leadline.model import TopicPartition

ORDERS = TopicPartition("orders", 0)
HANGING = [OpenTransaction(ORDERS, 7, 2, 4, 42, 0), OpenTransaction(ORDERS, 8, 0, -1, 50, 0)]


def typed(
    start: int | None = None, producer: int | None = None, epoch: int | None = None, coordinator: int | None = None
) -> argparse.Namespace:
    return argparse.Namespace(
        start_offset=start, producer_id=producer, producer_epoch=epoch, coordinator_epoch=coordinator
    )


def test_a_transaction_is_chosen_by_where_it_begins_or_by_its_producer() -> None:
    assert choose_transaction(ORDERS, HANGING, typed(start=50)) is HANGING[1]
    assert choose_transaction(ORDERS, HANGING, typed(producer=7, epoch=2, coordinator=4)) == HANGING[0]
    assert choose_transaction(ORDERS, HANGING, typed(producer=9, epoch=2, coordinator=4)) == OpenTransaction(
        ORDERS, 9, 2, 4, NOT_OPEN, 0
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (typed(), "needed: --start-offset, or --producer-id"),
        (typed(producer=7, epoch=2), "needed: --start-offset, or --producer-id"),
        (typed(start=42, producer=7), "cannot be combined"),
        (typed(start=43), "no open transaction of orders-0 starts at 43; open transactions start at 42, 50"),
    ],
)
def test_what_names_none_or_two_is_refused(options: argparse.Namespace, message: str) -> None:
    with pytest.raises(Failure, match=message):
        choose_transaction(ORDERS, HANGING, options)
