"""One transactional id: every pair of states, every event in every state, and who is fenced when."""

from dataclasses import replace
from itertools import product

import pytest

from leadline.coordinator.transaction import EPOCH_MAX, MAY_FOLLOW, Identity, State, Transaction, TransactionalId
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
ME = Identity(7, 3)

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


def held(state: State = State.EMPTY, **fields: object) -> TransactionalId:
    open_one = state not in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
    txn = Transaction(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=100,
        state=state,
        partitions=frozenset({ONE}) if open_one else frozenset(),
        start_ms=-1 if state is State.EMPTY else 1000,
        last_update_ms=2000,
    )
    return TransactionalId("id", replace(txn, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(("before", "after"), list(product(State, State)))
def test_a_state_follows_another_as_the_table_says(before: State, after: State) -> None:
    allowed = before.label in COMES_FROM[after.label]
    assert (after in MAY_FOLLOW[before]) is allowed
    if allowed:
        assert held(before).txn.to(after).state is after
    else:
        with pytest.raises(AssertionError, match="does not follow"):
            held(before).txn.to(after)


EVENTS = {
    "init": lambda id: id.init(100, None, NOW_MS, None),
    "add": lambda id: id.add(ME, frozenset({TWO}), NOW_MS),
    "add again": lambda id: id.add(ME, frozenset({ONE}), NOW_MS),
    "commit": lambda id: id.end(ME, commit=True, now_ms=NOW_MS),
    "abort": lambda id: id.end(ME, commit=False, now_ms=NOW_MS),
}
OUTCOMES: dict[State, tuple[object, ...]] = {  # in the order of the events; None: nothing is written
    State.EMPTY: (State.EMPTY, State.ONGOING, State.ONGOING, InvalidTxnState, InvalidTxnState),
    State.ONGOING: (State.PREPARE_ABORT, State.ONGOING, None, State.PREPARE_COMMIT, State.PREPARE_ABORT),
    State.PREPARE_COMMIT: (*[ConcurrentTransactions] * 4, InvalidTxnState),
    State.PREPARE_ABORT: (*[ConcurrentTransactions] * 3, InvalidTxnState, ConcurrentTransactions),
    State.COMPLETE_COMMIT: (State.EMPTY, State.ONGOING, State.ONGOING, None, InvalidTxnState),
    State.COMPLETE_ABORT: (State.EMPTY, State.ONGOING, State.ONGOING, InvalidTxnState, None),
}


@pytest.mark.parametrize("state", OUTCOMES)
@pytest.mark.parametrize(("n", "event"), list(enumerate(EVENTS)))
def test_every_event_in_every_state(state: State, n: int, event: str) -> None:
    expected = OUTCOMES[state][n]
    one = held(state)
    if isinstance(expected, type):
        with pytest.raises(expected):
            EVENTS[event](one)
    else:
        told = EVENTS[event](one)
        assert (None if told is None else told.state) is expected
    assert one == held(state)  # deciding changes nothing


@pytest.mark.parametrize("event", EVENTS)
def test_what_is_pending_is_waited_for(event: str) -> None:
    one = held(State.ONGOING)
    one.pending = one.end(ME, commit=True, now_ms=NOW_MS)
    with pytest.raises(ConcurrentTransactions):
        EVENTS[event](one)


@pytest.mark.parametrize(
    ("producer", "error"),
    [(Identity(8, 3), InvalidProducerIdMapping), (Identity(7, 2), ProducerFenced), (Identity(7, 4), ProducerFenced)],
)
@pytest.mark.parametrize("state", OUTCOMES)
def test_another_producer_gets_nothing_through(state: State, producer: Identity, error: type[WireError]) -> None:
    one = held(state)
    with pytest.raises(error):
        one.add(producer, frozenset({ONE}), NOW_MS)
    with pytest.raises(error):
        one.end(producer, commit=True, now_ms=NOW_MS)
    assert isinstance(one.verify(producer, ONE), error)


def test_a_fence_counts_from_the_moment_it_is_decided() -> None:
    one = held(State.ONGOING)
    one.pending = one.fence(NOW_MS)
    with pytest.raises(ProducerFenced):
        one.end(ME, commit=True, now_ms=NOW_MS)
    with pytest.raises(ConcurrentTransactions):
        one.end(Identity(7, 4), commit=False, now_ms=NOW_MS)


def test_who_begins_gets_the_next_epoch_and_its_own_timeout() -> None:
    txn = held(State.COMPLETE_COMMIT).init(77, None, NOW_MS, None)
    assert (txn.producer_id, txn.producer_epoch, txn.timeout_ms, txn.last_update_ms) == (7, 4, 77, NOW_MS)
    assert (txn.last_producer_id, txn.last_producer_epoch, txn.start_ms) == (7, -1, -1)


def test_the_first_epoch_is_0_whoever_asks() -> None:
    fresh = TransactionalId("id", Transaction(producer_id=7, timeout_ms=1))
    assert fresh.init(1, None, NOW_MS, None).producer_epoch == 0
    assert fresh.init(1, Identity(99, 9), NOW_MS, None).producer_epoch == 0


@pytest.mark.parametrize(
    ("expected", "epoch"), [(Identity(7, 3), 4), (Identity(7, 2), 3), (Identity(7, 1), None), (Identity(6, 3), None)]
)
def test_who_goes_on_names_the_last_epoch_or_the_one_before(expected: Identity, epoch: int | None) -> None:
    one = held(State.COMPLETE_ABORT, last_producer_epoch=2)
    if epoch is None:
        with pytest.raises(ProducerFenced):
            one.init(100, expected, NOW_MS, None)
    else:
        assert one.init(100, expected, NOW_MS, None).producer_epoch == epoch


@pytest.mark.parametrize("expected", [None, Identity(7, EPOCH_MAX - 1)])
def test_without_epochs_left_there_is_another_producer_id(expected: Identity | None) -> None:
    one = held(State.COMPLETE_COMMIT, producer_epoch=EPOCH_MAX - 1)
    assert one.needs_producer_id(expected)
    txn = one.init(100, expected, NOW_MS, 8)
    assert (txn.producer_id, txn.producer_epoch, txn.last_producer_id) == (8, 0, 7)
    one.pending = txn
    one.committed()
    if expected is not None:  # did not get its answer, asks again with what it has
        again = one.init(100, expected, NOW_MS, None)
        assert (again.producer_id, again.producer_epoch) == (8, 0)


def test_the_last_epoch_is_kept_to_fence_the_one_before() -> None:
    one = held(State.ONGOING, producer_epoch=EPOCH_MAX - 1)
    one.pending = one.fence(NOW_MS)
    one.committed()
    one.pending = one.complete(NOW_MS)
    one.committed()
    assert one.txn.producer_epoch == EPOCH_MAX
    with pytest.raises(ProducerFenced):
        one.init(100, Identity(7, EPOCH_MAX - 1), NOW_MS, None)
    assert one.init(100, None, NOW_MS, 8).producer_id == 8


def test_behind_the_last_epoch_there_is_none_to_fence_with() -> None:
    """No client ever has it; a journal that says so is of no broker's making."""
    with pytest.raises(UnknownServerError):
        held(State.ONGOING, producer_epoch=EPOCH_MAX).fence(NOW_MS)


def test_partitions_come_together_until_each_has_its_marker() -> None:
    one = held(State.COMPLETE_COMMIT)
    one.pending = one.add(ME, frozenset({ONE}), NOW_MS)
    one.committed()
    one.pending = one.add(ME, frozenset({TWO}), NOW_MS + 5)
    one.committed()
    assert (one.txn.partitions, one.txn.start_ms, one.txn.last_update_ms) == (frozenset({ONE, TWO}), NOW_MS, NOW_MS + 5)
    one.pending = one.end(ME, commit=True, now_ms=NOW_MS + 9)
    one.committed()
    one.marked(ONE)
    assert one.txn.partitions == {TWO}
    one.marked(TWO)
    done = one.complete(NOW_MS + 10)
    assert (done.state, done.partitions, done.start_ms) == (State.COMPLETE_COMMIT, frozenset(), NOW_MS)


def test_a_partition_is_verified_while_it_is_part_of_the_transaction() -> None:
    one = held(State.ONGOING)
    assert one.verify(ME, ONE) is None
    assert isinstance(one.verify(ME, TWO), TransactionAbortable)
    assert isinstance(held(State.COMPLETE_COMMIT).verify(ME, ONE), TransactionAbortable)
    assert isinstance(held(State.PREPARE_COMMIT).verify(ME, ONE), ConcurrentTransactions)


@pytest.mark.parametrize("state", OUTCOMES)
def test_only_what_is_open_times_out_and_only_what_is_not_expires(state: State) -> None:
    one = held(state)
    assert [one.is_timed_out(now) for now in (1100, 1101)] == [False, state is State.ONGOING]
    idle = state.label in COMES_FROM["Dead"]
    assert [one.is_expired(now, 500) for now in (2499, 2500)] == [False, idle]
    if idle:
        one.pending = one.expire()
        assert one.pending.state is State.DEAD
    else:
        one.pending = replace(one.txn)
    assert (one.is_timed_out(9999), one.is_expired(9999, 500)) == (False, False)


def test_until_the_next_one_begins_the_start_that_is_told_is_that_of_the_last() -> None:
    one = held(State.COMPLETE_COMMIT)
    one.pending = one.init(100, None, NOW_MS, None)
    one.committed()
    assert (one.txn.state, one.txn.start_ms) == (State.EMPTY, 1000)
