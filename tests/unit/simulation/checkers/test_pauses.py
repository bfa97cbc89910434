"""The law about clean stops is broken by a long pause alone."""

import pytest

from leadline.model import TopicPartition
from leadline.simulation.checkers.pauses import CleanStop, paused_acknowledgements
from leadline.simulation.client_history import Attempt, ClientHistory, Delivery, TransactionAttempt

STOP = CleanStop("broker-1", 10.0, 20.0)


def attempt(sent_s: float, acknowledged_s: float | None) -> Attempt:
    return Attempt("p", 0, b"v", TopicPartition("records", 0), sent_s=sent_s, acknowledged_s=acknowledged_s)


def lines(of: Attempt) -> list[str]:
    return list(paused_acknowledgements(ClientHistory([of]), STOP))


def test_an_acknowledgement_that_takes_longer_than_a_second_breaks_it() -> None:
    (line,) = lines(attempt(12.5, 14.0))
    assert line == "paused acknowledgements: b'v' waited for 1.5 s, 2.500 s after the clean stop of broker-1 began"


def test_a_record_that_was_never_acknowledged_breaks_it() -> None:
    (line,) = lines(attempt(12.0, None))
    assert "waited for 8.0 s" in line


@pytest.mark.parametrize(
    ("sent_s", "acknowledged_s"), [(12.0, 13.0), (9.9, 15.0), (19.5, None)], ids=["soon", "before", "at the end"]
)
def test_a_short_wait_or_one_at_another_time_keeps_it(sent_s: float, acknowledged_s: float | None) -> None:
    assert lines(attempt(sent_s, acknowledged_s)) == []


def test_records_without_a_promise_of_an_acknowledgement_do_not_count() -> None:
    given_up, unsafe, transactional = (attempt(12.0, None) for _ in range(3))
    given_up.is_given_up = True
    unsafe.delivery = Delivery.AT_MOST_ONCE
    transactional.transaction = TransactionAttempt("t", "p")
    assert [lines(history) for history in (given_up, unsafe, transactional)] == [[], [], []]
