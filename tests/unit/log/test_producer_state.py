"""What a partition knows of its producers: duplicates, order, epochs, transactions."""

import pytest

from leadline.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from leadline.log.producer_entry import SEQUENCE_MAX
from leadline.log.producer_state import AppendOrigin, ProducerState
from leadline.records.control import ControlType, EndMarker
from tests.support.logs import START_MS, TP
from tests.support.producers import DAY_MS, header, write


def end(producers: ProducerState, offset: int, *, producer: int = 1, commit: bool = True, coordinator: int = 0) -> None:
    marker = EndMarker(ControlType.COMMIT if commit else ControlType.ABORT, coordinator, START_MS)
    pending = producers.prepare(producer, AppendOrigin.COORDINATOR)
    done = pending.end_txn(marker, 0, offset)
    producers.update(pending)
    if done is not None:
        producers.complete(done)


@pytest.fixture
def producers() -> ProducerState:
    return ProducerState(TP, DAY_MS)


def test_any_of_the_last_five_batches_is_known_again_and_no_older_one(producers: ProducerState) -> None:
    written = [header(n * 2, n * 2, 2) for n in range(7)]
    write(producers, *written)
    producer = producers.by_id[1]
    repeated = [producer.duplicate_of(one) for one in written]
    assert [duplicate.first_offset if duplicate else None for duplicate in repeated] == [None, None, 4, 6, 8, 10, 12]
    assert producer.duplicate_of(header(99, 4, 3)) is None, "the same first sequence, but another last one"
    assert producer.duplicate_of(header(99, 12, 2, epoch=1)) is None, "of another epoch"


@pytest.mark.parametrize("sequence", [1, 2, 4, 9])
def test_a_sequence_that_is_not_the_next_one_is_refused_with_what_was_due(
    producers: ProducerState, sequence: int
) -> None:
    write(producers, header(0, 0, 3))
    with pytest.raises(OutOfOrderSequence, match=f"{sequence} .epoch 0. came, 3 was due"):
        write(producers, header(3, sequence))
    write(producers, header(3, 3))


def test_sequences_start_over_behind_the_largest(producers: ProducerState) -> None:
    write(producers, header(0, SEQUENCE_MAX - 1, 4))  # ends at 1
    assert producers.by_id[1].last_sequence == 1
    write(producers, header(4, 2))
    write(ProducerState(TP, DAY_MS), header(0, SEQUENCE_MAX), header(1, 0))


def test_a_batch_across_the_largest_sequence_is_known_again(producers: ProducerState) -> None:
    across = header(0, SEQUENCE_MAX - 1, 4)
    write(producers, across)
    duplicate = producers.by_id[1].duplicate_of(across)
    assert duplicate is not None
    assert (duplicate.first_sequence, duplicate.last_sequence) == (SEQUENCE_MAX - 1, 1)


def test_an_unknown_producer_may_start_anywhere(producers: ProducerState) -> None:
    write(producers, header(0, 55))
    assert producers.by_id[1].last_sequence == 55


def test_a_new_epoch_starts_at_zero_and_fences_the_old_one(producers: ProducerState) -> None:
    write(producers, header(0, 0))
    with pytest.raises(OutOfOrderSequence):
        write(producers, header(1, 1, epoch=1))
    write(producers, header(1, 0, epoch=1))
    with pytest.raises(InvalidProducerEpoch, match=r"epoch 0 .*smaller than the last seen epoch 1"):
        write(producers, header(2, 1, epoch=0))


def test_what_the_leader_took_a_follower_does_not_question(producers: ProducerState) -> None:
    write(
        producers, header(0, 5, epoch=3), header(1, 99, epoch=3), header(2, 0, epoch=1), origin=AppendOrigin.REPLICATION
    )
    assert producers.by_id[1].epoch == 1


def test_writing_outside_of_an_open_transaction_is_refused(producers: ProducerState) -> None:
    write(producers, header(0, 0, transactional=True))
    with pytest.raises(InvalidTxnState):
        write(producers, header(1, 1))


def test_a_marker_of_an_older_coordinator_is_refused(producers: ProducerState) -> None:
    write(producers, header(0, 0, transactional=True))
    end(producers, 1, coordinator=4)
    with pytest.raises(TransactionCoordinatorFenced, match="epoch 3, but 4 is known"):
        end(producers, 2, coordinator=3)


def test_a_marker_without_a_transaction_completes_none(producers: ProducerState) -> None:
    end(producers, 0)
    assert producers.first_unstable_offset() is None
    assert producers.by_id[1].last_sequence == -1


def test_what_is_unstable_starts_at_the_first_open_or_unreplicated_transaction(producers: ProducerState) -> None:
    write(producers, header(0, 0, producer=1, transactional=True), header(1, 0, producer=2, transactional=True))
    assert producers.first_unstable_offset() == 0
    end(producers, 2, producer=1)
    assert producers.first_unstable_offset() == 0, "its marker is not replicated yet"
    assert not producers.high_watermark_moved(2)
    assert producers.high_watermark_moved(3)
    assert producers.first_unstable_offset() == 1
    end(producers, 3, producer=2, commit=False)
    assert producers.high_watermark_moved(4)
    assert producers.first_unstable_offset() is None


def test_idle_producers_are_forgotten_but_not_in_a_transaction(producers: ProducerState) -> None:
    write(producers, header(0, 0, producer=1), header(1, 0, producer=2, transactional=True))
    assert producers.expire(START_MS + DAY_MS - 1) == 0
    assert producers.expire(START_MS + DAY_MS) == 1
    assert set(producers.by_id) == {2}
