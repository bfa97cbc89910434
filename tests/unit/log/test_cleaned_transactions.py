"""Transactions while a log is compacted: aborted batches, and markers whose transaction has no batch left."""

from leadline.log.cleaned_transactions import CleanedTransactions
from leadline.log.txn_index import AbortedTxn
from leadline.records.batch import Header, header_at
from tests.support.logs import at_offset, batch, marker

PRODUCER, OTHER = 7, 8
ABORTED = AbortedTxn(PRODUCER, 0, 1, 0)


def data_batch(offset: int, producer_id: int = PRODUCER, *, transactional: bool = True) -> Header:
    return header_at(at_offset(batch(1, producer_id=producer_id, transactional=transactional), offset))


def is_empty(transactions: CleanedTransactions, offset: int, *, commit: bool, producer_id: int = PRODUCER) -> bool:
    data = at_offset(marker(producer_id, commit=commit), offset)
    return transactions.is_empty_marker(data, 0, header_at(data))


def test_batches_of_an_aborted_transaction_are_aborted_until_its_marker() -> None:
    transactions = CleanedTransactions([ABORTED])
    assert transactions.is_aborted(data_batch(0))
    assert not is_empty(transactions, 1, commit=False)
    assert not transactions.is_aborted(data_batch(2))


def test_other_producers_and_plain_batches_are_not_aborted() -> None:
    transactions = CleanedTransactions([ABORTED])
    assert not transactions.is_aborted(data_batch(0, OTHER))
    assert not transactions.is_aborted(data_batch(0, PRODUCER, transactional=False))


def test_a_transaction_is_aborted_from_its_first_offset_on() -> None:
    transactions = CleanedTransactions([AbortedTxn(PRODUCER, 5, 6, 5)])
    assert not transactions.is_aborted(data_batch(4))
    assert transactions.is_aborted(data_batch(5))


def test_an_abort_marker_without_batches_is_empty() -> None:
    assert is_empty(CleanedTransactions([ABORTED]), 1, commit=False)
    assert is_empty(CleanedTransactions(), 1, commit=False)


def test_a_commit_marker_is_empty_unless_a_batch_came_before_it() -> None:
    transactions = CleanedTransactions()
    transactions.is_aborted(data_batch(0))
    assert is_empty(transactions, 1, commit=True, producer_id=OTHER)
    assert not is_empty(transactions, 1, commit=True)
    assert is_empty(transactions, 2, commit=True)


def test_transactions_of_later_segments_are_added_in_any_order() -> None:
    transactions = CleanedTransactions([AbortedTxn(PRODUCER, 20, 21, 20)])
    transactions.add([AbortedTxn(OTHER, 10, 11, 10)])
    assert transactions.is_aborted(data_batch(10, OTHER))
    assert not transactions.is_aborted(data_batch(12, PRODUCER))
    assert transactions.is_aborted(data_batch(20, PRODUCER))
