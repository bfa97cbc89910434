"""Nothing opens a transaction in a partition that its coordinator was not asked about."""

from pathlib import Path

import pytest

from leadline.errors import InvalidTxnState, OutOfOrderSequence
from leadline.log.log import Log
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.model import NO_SEQUENCE
from tests.support.logs import LogBench, batch, marker


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return LogBench(tmp_path).open()


def write(log: Log, sequence: int, verified: Verification | None, *, transactional: bool = True) -> None:
    data = batch(producer_id=1, sequence=sequence, transactional=transactional)
    log.append_as_leader(data, 0, AppendOrigin.CLIENT, verified)


def begin(log: Log, sequence: int = 0, epoch: int = 0, now_ms: int = 0) -> Verification | None:
    return log.producer_state.begin_verification(1, epoch, sequence, now_ms)


def test_what_was_verified_opens_a_transaction(log: Log) -> None:
    verified = begin(log)
    assert verified is not None
    write(log, 0, verified)
    assert begin(log, 1) is None  # open: nobody needs to be asked
    write(log, 1, None)


def test_what_was_not_does_not(log: Log) -> None:
    with pytest.raises(InvalidTxnState):
        write(log, 0, None)
    begin(log)
    with pytest.raises(InvalidTxnState):
        write(log, 0, None)
    with pytest.raises(InvalidTxnState):
        write(log, 0, Verification(0, 0, 0))
    assert log.log_end == 0


def test_what_was_verified_before_a_marker_comes_too_late(log: Log) -> None:
    verified = begin(log)
    log.append_as_leader(marker(1, commit=False), 0, AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidTxnState):
        write(log, 0, verified)
    again = begin(log)
    assert again is not verified
    with pytest.raises(InvalidTxnState):
        write(log, 0, verified)
    write(log, 0, again)


def test_a_transaction_that_ended_while_its_next_write_was_on_the_way(log: Log) -> None:
    write(log, 0, begin(log))
    verified = begin(log, 1)
    assert verified is None
    log.append_as_leader(marker(1, commit=False), 0, AppendOrigin.COORDINATOR)
    with pytest.raises(InvalidTxnState):
        write(log, 1, verified)


def test_what_comes_behind_the_first_write_waits_for_it(log: Log) -> None:
    verified = begin(log, 5)
    assert begin(log, 3) is verified
    with pytest.raises(OutOfOrderSequence):
        write(log, 5, verified)
    write(log, 3, verified)
    write(log, 4, None)


def test_a_new_epoch_counts_its_sequences_anew(log: Log) -> None:
    verified = begin(log, 5)
    begin(log, 9, epoch=1)
    begin(log, 2, epoch=0)
    assert verified is not None
    assert (verified.epoch, verified.lowest_sequence) == (1, 9)


def test_offsets_of_groups_have_no_sequence(log: Log) -> None:
    verified = begin(log, NO_SEQUENCE)
    data = batch(producer_id=1, sequence=NO_SEQUENCE, transactional=True)
    log.append_as_leader(data, 0, AppendOrigin.COORDINATOR, verified)
    assert log.log_end == 1


def test_other_records_need_no_verification(log: Log) -> None:
    write(log, 0, None, transactional=False)
    log.append_as_leader(batch(), 0, AppendOrigin.CLIENT, None)
    write(log, 1, TRUSTED)
    assert log.log_end == 3


def test_an_unfinished_verification_expires(log: Log) -> None:
    verified = begin(log, 0, now_ms=10)
    log.producer_state.expire(10 + log.producer_state.expiration_ms - 1)
    assert begin(log, 0) is verified
    log.producer_state.expire(10 + log.producer_state.expiration_ms)
    assert begin(log, 0) is not verified
