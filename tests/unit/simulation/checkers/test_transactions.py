"""Each law about transactions is broken by a history that was made for it."""

import pytest

from leadline.model import TopicPartition
from leadline.simulation.checkers.transactions import dependency_cycles, not_transformed_once, torn_transactions
from leadline.simulation.client_history import Attempt, ClientHistory, TransactionAttempt

TP, OUTPUT = TopicPartition("records", 0), TopicPartition("transformed", 0)


def transaction(*offsets: int, committed: bool = True, requested: bool = True) -> TransactionAttempt:
    attempts = [Attempt("p", n, b"%d" % n, TP, offset=n) for n in offsets]
    return TransactionAttempt("t", "p", requested, committed, attempts)


@pytest.mark.parametrize(
    ("committed", "requested", "shown", "violation"),
    [
        (True, True, (0, 1), None),
        (True, True, (0,), "lost commit"),
        (True, True, (), "lost commit"),
        (False, True, (0, 1), None),
        (False, True, (), None),
        (False, True, (1,), "torn transaction"),
        (False, False, (), None),
        (False, False, (0, 1), "visible abort"),
    ],
)
def test_a_transaction_is_visible_as_a_whole_or_not_at_all(
    committed: bool, requested: bool, shown: tuple[int, ...], violation: str | None
) -> None:
    history = ClientHistory(transactions=[transaction(0, 1, committed=committed, requested=requested)])
    lines = list(torn_transactions(history, {TP: {n: b"%d" % n for n in shown}}))
    assert [line.split(":")[0] for line in lines] == ([] if violation is None else [violation])


def test_a_record_that_was_deleted_does_not_tear_its_transaction() -> None:
    history = ClientHistory(transactions=[transaction(0, 1)], deleted_before={TP: 1})
    assert list(torn_transactions(history, {TP: {1: b"1"}})) == []


def test_transactions_that_have_read_each_others_writes_are_a_cycle() -> None:
    first, second, third = transaction(0), transaction(1), transaction(2)
    first.reads, second.reads, third.reads = [b"2"], [b"0"], [b"1"]
    (line,) = dependency_cycles(ClientHistory(transactions=[first, second, third]))
    assert line.startswith("cycle of transactions")


def test_reading_from_earlier_transactions_and_from_oneself_is_no_cycle() -> None:
    first, second, third = transaction(0), transaction(1), transaction(2)
    first.reads, second.reads, third.reads = [b"0"], [b"0"], [b"0", b"1", b"unknown"]
    assert list(dependency_cycles(ClientHistory(transactions=[third, second, first]))) == []


def test_a_cycle_through_a_transaction_that_is_not_committed_does_not_count() -> None:
    first, second = transaction(0), transaction(1, committed=False)
    first.reads, second.reads = [b"1"], [b"0"]
    assert list(dependency_cycles(ClientHistory(transactions=[first, second]))) == []


def transformed(*sources: int) -> ClientHistory:
    work = TransactionAttempt("group", "p")
    attempts = [
        Attempt("p", n, b"%d" % n, OUTPUT, offset=n, transaction=work, source=(TP, source))
        for n, source in enumerate(sources)
    ]
    return ClientHistory(attempts, transactions=[work])


@pytest.mark.parametrize(
    ("sources", "violation"),
    [
        ((0, 1), None),
        ((0,), "records-0 @ 1 was transformed 0 times; group committed 2"),
        ((0, 1, 1), "records-0 @ 1 was transformed 2 times; group committed 2"),
        ((0, 1, 2), "records-0 @ 2 was transformed 1 times; group committed 2"),
        ((0, 1, 9), "records-0 @ 9 was transformed, and is not visible itself"),
    ],
)
def test_each_record_below_the_committed_offset_is_transformed_once(
    sources: tuple[int, ...], violation: str | None
) -> None:
    visible = {TP: {0: b"a", 1: b"b", 2: b"c"}, OUTPUT: {n: b"%d" % n for n in range(len(sources))}}
    lines = list(not_transformed_once(transformed(*sources), "group", {TP: 2}, visible))
    assert lines == ([] if violation is None else [f"not exactly once: {violation}"])
