"""The records of a fetch, as consumers of either isolation level see them."""

from leadline.simulation.fetched_records import committed_values_in, end_of, values_in
from leadline.wire.messages import FetchResponse
from tests.support.logs import at_offset, batch, marker

PRODUCER, OTHER = 7, 8


def fetched() -> bytes:
    """An aborted transaction, a committed one between its batches, and a plain batch."""
    parts = [
        at_offset(batch(1, producer_id=PRODUCER, transactional=True), 0),
        at_offset(batch(1, producer_id=OTHER, transactional=True), 1),
        at_offset(batch(1, producer_id=PRODUCER, sequence=1, transactional=True), 2),
        at_offset(marker(PRODUCER, commit=False), 3),
        at_offset(marker(OTHER, commit=True), 4),
        at_offset(batch(2, producer_id=PRODUCER, sequence=2, transactional=True), 5),
        at_offset(batch(1), 7),
    ]
    return b"".join(map(bytes, parts))


def part(*aborted: tuple[int, int]) -> FetchResponse.PartitionData:
    transactions = [FetchResponse.AbortedTransaction(producer_id=id, first_offset=offset) for id, offset in aborted]
    return FetchResponse.PartitionData(aborted_transactions=transactions or None)


def test_without_isolation_all_records_are_seen_and_no_markers() -> None:
    assert list(values_in(fetched())) == [0, 1, 2, 5, 6, 7]


def test_committed_records_leave_out_aborted_transactions_up_to_their_marker() -> None:
    assert list(committed_values_in(fetched(), part((PRODUCER, 0)))) == [1, 5, 6, 7]
    assert list(committed_values_in(fetched(), part())) == [0, 1, 2, 5, 6, 7]


def test_the_end_is_behind_the_last_batch() -> None:
    assert end_of(fetched(), 3) == 8
    assert end_of(b"", 3) == 3
