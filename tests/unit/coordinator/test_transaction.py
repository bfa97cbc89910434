"""One transactional id: every pair of states, every event in every state, and who is fenced when."""

from dataclasses import replace
from itertools import product

import pytest

from leadline.coordinator.transaction import (
    EPOCH_MAX,
    MAY_FOLLOW,
    ProducerIdAndEpoch,
    TransactionalId,
    TransactionMetadata,
    TransactionState,
)
from leadline.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
    UnknownServerError,
    WireError,
)
from leadline.model import TopicPartition

NOW_MS = 5000
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
ME = ProducerIdAndEpoch(7, 3)

# Which states each one may come from, as Kafka has it.
COMES_FROM = {
    "Empty": {"Empty", "CompleteCommit", "CompleteAbort"},
    "Ongoing": {"Ongoing", "Empty", "CompleteCommit", "CompleteAbort"},
    "PrepareCommit": {"Ongoing"},
    "PrepareAbort": {"Ongoing", "PrepareEpochFence"},
    "CompleteCommit": {"PrepareCommit"},
    "CompleteAbort": {"PrepareAbort"},
    "Dead": {"Empty", "CompleteAbort", "CompleteCommit"},
    "PrepareEpochFence": {"Ongoing"},
}


def held(state: TransactionState = TransactionState.EMPTY, **fields: object) -> TransactionalId:
    open_one = state not in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    txn = TransactionMetadata(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=100,
        state=state,
        partitions=frozenset({ONE}) if open_one else frozenset(),
        start_ms=-1 if state is TransactionState.EMPTY else 1000,
        last_update_ms=2000,
    )
    return TransactionalId("id", replace(txn, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), list(product(TransactionState, TransactionState)))
def test_a_state_follows_another_as_the_table_says(before: TransactionState, after: TransactionState) -> None:
    allowed = before.label in COMES_FROM[after.label]
    assert (after in MAY_FOLLOW[before]) is allowed
    if allowed:
        assert held(before).metadata.to(after).state is after
    else:
        with pytest.raises(AssertionError, match="does not follow"):
            held(before).metadata.to(after)


EVENTS = {
    "init": lambda id: id.init(100, None, NOW_MS, None),
    "add": lambda id: id.add(ME, frozenset({TWO}), NOW_MS),
    "add again": lambda id: id.add(ME, frozenset({ONE}), NOW_MS),
    "commit": lambda id: id.end(ME, commit=True, now_ms=NOW_MS),
    "abort": lambda id: id.end(ME, commit=False, now_ms=NOW_MS),
}
OUTCOMES: dict[TransactionState, tuple[object, ...]] = {  # in the order of the events; None: nothing is written
    TransactionState.EMPTY: (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.ONGOING,
        InvalidTxnState,
        InvalidTxnState,
    ),
    TransactionState.ONGOING: (
        TransactionState.PREPARE_ABORT,
        TransactionState.ONGOING,
        None,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
    ),
    TransactionState.PREPARE_COMMIT: (*[ConcurrentTransactions] * 4, InvalidTxnState),
    TransactionState.PREPARE_ABORT: (*[ConcurrentTransactions] * 3, InvalidTxnState, ConcurrentTransactions),
    TransactionState.COMPLETE_COMMIT: (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.ONGOING,
        None,
        InvalidTxnState,
    ),
    TransactionState.COMPLETE_ABORT: (
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.ONGOING,
        InvalidTxnState,
        None,
    ),
}


@pytest.mark.parametrize("state", OUTCOMES)
@pytest.mark.parametrize(("n", "event"), list(enumerate(EVENTS)))
def test_every_event_in_every_state(state: TransactionState, n: int, event: str) -> None:
    expected = OUTCOMES[state][n]
    one = held(state)
    if isinstance(expected, type):
        with pytest.raises(expected):
            EVENTS[event](one)
    else:
        transition = EVENTS[event](one)
        assert (None if transition is None else transition.state) is expected
    assert one == held(state)  # deciding changes nothing


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_pending_is_waited_for(event: str) -> None:
    one = held(TransactionState.ONGOING)
    one.pending = one.end(ME, commit=True, now_ms=NOW_MS)
    with pytest.raises(ConcurrentTransactions):
        EVENTS[event](one)


@pytest.mark.parametrize(
    ("producer", "error"),
    [
        (ProducerIdAndEpoch(8, 3), InvalidProducerIdMapping),
        (ProducerIdAndEpoch(7, 2), ProducerFenced),
        (ProducerIdAndEpoch(7, 4), ProducerFenced),
    ],
)
@pytest.mark.parametrize("state", OUTCOMES)
def test_another_producer_gets_nothing_through(
    state: TransactionState, producer: ProducerIdAndEpoch, error: type[WireError]
) -> None:
    one = held(state)
    with pytest.raises(error):
        one.add(producer, frozenset({ONE}), NOW_MS)
    with pytest.raises(error):
        one.end(producer, commit=True, now_ms=NOW_MS)
    assert isinstance(one.verify(producer, ONE), error)


def test_a_fence_counts_from_the_moment_it_is_decided() -> None:
    one = held(TransactionState.ONGOING)
    one.pending = one.fence(NOW_MS)
    with pytest.raises(ProducerFenced):
        one.end(ME, commit=True, now_ms=NOW_MS)
    with pytest.raises(ConcurrentTransactions):
        one.end(ProducerIdAndEpoch(7, 4), commit=False, now_ms=NOW_MS)


def test_a_producer_that_begins_gets_the_next_epoch_and_its_own_timeout() -> None:
    txn = held(TransactionState.COMPLETE_COMMIT).init(77, None, NOW_MS, None)
    assert (txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.last_update_ms) == (7, 4, 77, NOW_MS)
    assert (txn.last_producer_id, txn.last_producer_epoch, txn.start_ms) == (7, -1, -1)


def test_the_first_epoch_is_0_for_every_producer() -> None:
    fresh = TransactionalId("id", TransactionMetadata(producer_id=7, timeout_ms=1))
    assert fresh.init(1, None, NOW_MS, None).producer_epoch == 0
    assert fresh.init(1, ProducerIdAndEpoch(99, 9), NOW_MS, None).producer_epoch == 0


@pytest.mark.parametrize(
    ("expected", "epoch"),
    [
        (ProducerIdAndEpoch(7, 3), 4),
        (ProducerIdAndEpoch(7, 2), 3),
        (ProducerIdAndEpoch(7, 1), None),
        (ProducerIdAndEpoch(6, 3), None),
    ],
)
def test_a_producer_that_resumes_names_the_last_epoch_or_the_one_before(
    expected: ProducerIdAndEpoch, epoch: int | None
) -> None:
    one = held(TransactionState.COMPLETE_ABORT, last_producer_epoch=2)
    if epoch is None:
        with pytest.raises(ProducerFenced):
            one.init(100, expected, NOW_MS, None)
    else:
        assert one.init(100, expected, NOW_MS, None).producer_epoch == epoch


@pytest.mark.parametrize("expected", [None, ProducerIdAndEpoch(7, EPOCH_MAX - 1)])
def test_without_epochs_left_there_is_another_producer_id(expected: ProducerIdAndEpoch | None) -> None:
    one = held(TransactionState.COMPLETE_COMMIT, producer_epoch=EPOCH_MAX - 1)
    assert one.needs_producer_id(expected)
    txn = one.init(100, expected, NOW_MS, 8)
    assert (txn.producer_id, txn.producer_epoch, txn.last_producer_id) == (8, 0, 7)
    one.pending = txn
    one.committed()
    if expected is not None:  # did not get its answer, asks again with what it has
        again = one.init(100, expected, NOW_MS, None)
        assert (again.producer_id, again.producer_epoch) == (8, 0)


def test_the_last_epoch_is_kept_to_fence_the_one_before() -> None:
    one = held(TransactionState.ONGOING, producer_epoch=EPOCH_MAX - 1)
    one.pending = one.fence(NOW_MS)
    one.committed()
    one.pending = one.complete(NOW_MS)
    one.committed()
    assert one.metadata.producer_epoch == EPOCH_MAX
    with pytest.raises(ProducerFenced):
        one.init(100, ProducerIdAndEpoch(7, EPOCH_MAX - 1), NOW_MS, None)
    assert one.init(100, None, NOW_MS, 8).producer_id == 8


def test_behind_the_last_epoch_there_is_none_to_fence_with() -> None:
    """No client ever has this epoch, and no broker writes it to its journal."""
    with pytest.raises(UnknownServerError):
        held(TransactionState.ONGOING, producer_epoch=EPOCH_MAX).fence(NOW_MS)


def test_partitions_come_together_until_each_has_its_marker() -> None:
    one = held(TransactionState.COMPLETE_COMMIT)
    one.pending = one.add(ME, frozenset({ONE}), NOW_MS)
    one.committed()
    one.pending = one.add(ME, frozenset({TWO}), NOW_MS + 5)
    one.committed()
    assert (one.metadata.partitions, one.metadata.start_ms, one.metadata.last_update_ms) == (
        frozenset({ONE, TWO}),
        NOW_MS,
        NOW_MS + 5,
    )
    one.pending = one.end(ME, commit=True, now_ms=NOW_MS + 9)
    one.committed()
    one.marked(ONE)
    assert one.metadata.partitions == {TWO}
    one.marked(TWO)
    done = one.complete(NOW_MS + 10)
    assert (done.state, done.partitions, done.start_ms) == (TransactionState.COMPLETE_COMMIT, frozenset(), NOW_MS)


def test_a_partition_is_verified_while_it_is_part_of_the_transaction() -> None:
    one = held(TransactionState.ONGOING)
    assert one.verify(ME, ONE) is None
    assert isinstance(one.verify(ME, TWO), TransactionAbortable)
    assert isinstance(held(TransactionState.COMPLETE_COMMIT).verify(ME, ONE), TransactionAbortable)
    assert isinstance(held(TransactionState.PREPARE_COMMIT).verify(ME, ONE), ConcurrentTransactions)


@pytest.mark.parametrize("state", OUTCOMES)
def test_only_what_is_open_times_out_and_only_what_is_not_expires(state: TransactionState) -> None:
    one = held(state)
    assert [one.is_timed_out(now) for now in (1100, 1101)] == [False, state is TransactionState.ONGOING]
    idle = state.label in COMES_FROM["Dead"]
    assert [one.is_expired(now, 500) for now in (2499, 2500)] == [False, idle]
    if idle:
        one.pending = one.expire()
        assert one.pending.state is TransactionState.DEAD
    else:
        one.pending = replace(one.metadata)
    assert (one.is_timed_out(9999), one.is_expired(9999, 500)) == (False, False)


def test_the_described_start_is_that_of_the_last_transaction_until_the_next_begins() -> None:
    one = held(TransactionState.COMPLETE_COMMIT)
    one.pending = one.init(100, None, NOW_MS, None)
    one.committed()
    assert (one.metadata.state, one.metadata.start_ms) == (TransactionState.EMPTY, 1000)
