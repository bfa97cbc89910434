"""Each law about writes is broken by a history that was made for it, and by no other."""

from collections.abc import Callable, Iterator

import pytest

from leadline.model import TopicPartition
from leadline.simulation.checkers import writes
from leadline.simulation.checkers.writes import Stored
from leadline.simulation.client_history import Attempt, ClientHistory, Delivery

TP = TopicPartition("records", 0)
Check = Callable[[ClientHistory, Stored], Iterator[str]]
CHECKS = [writes.lost_writes, writes.doubled_writes, writes.unordered_writes, writes.unsent_writes]


def attempt(number: int, offset: int | None, delivery: Delivery = Delivery.EXACTLY_ONCE) -> Attempt:
    return Attempt("p", number, b"%d" % number, TP, offset, delivery=delivery)


def violations(history: ClientHistory, *values: bytes) -> dict[str, list[str]]:
    """By law, those that are broken."""
    stored = {TP: dict(enumerate(values))}
    return {check.__name__: lines for check in CHECKS if (lines := list(check(history, stored)))}


def test_a_history_that_keeps_all_laws() -> None:
    history = ClientHistory([attempt(0, 0), attempt(1, 1), attempt(2, None)])
    assert violations(history, b"0", b"1") == {}
    assert violations(history, b"0", b"1", b"2") == {}


def test_an_acknowledged_record_that_is_not_stored_is_lost() -> None:
    (line,) = violations(ClientHistory([attempt(0, 0), attempt(1, 1)]), b"0")["lost_writes"]
    assert line == "lost write: records-0 @ 1 is None, acknowledged was b'1'"


def test_a_record_that_the_leader_alone_acknowledged_may_be_lost() -> None:
    assert violations(ClientHistory([attempt(0, 0, Delivery.AT_MOST_ONCE)])) == {}


def test_a_deleted_record_is_not_lost() -> None:
    history = ClientHistory([attempt(0, 0), attempt(1, 1)], deleted_before={TP: 1})
    assert list(writes.lost_writes(history, {TP: {1: b"1"}})) == []
    assert list(writes.lost_writes(history, {TP: {}})) != []


@pytest.mark.parametrize(("delivery", "broken"), [(Delivery.EXACTLY_ONCE, True), (Delivery.AT_LEAST_ONCE, False)])
def test_a_record_of_an_idempotent_producer_is_stored_once(delivery: Delivery, broken: bool) -> None:
    history = ClientHistory([attempt(0, 0, delivery)])
    assert ("doubled_writes" in violations(history, b"0", b"0")) == broken


def test_records_are_stored_in_the_order_of_their_producer() -> None:
    history = ClientHistory([attempt(0, None), attempt(1, 0)])
    assert list(violations(history, b"1", b"0")) == ["unordered_writes"]


def test_the_offsets_that_a_producer_gets_grow() -> None:
    history = ClientHistory([attempt(0, 5), attempt(1, 4)])
    assert any("unordered send" in line for line in writes.unordered_writes(history, {TP: {}}))


def test_a_value_that_nobody_sent_is_noticed() -> None:
    assert list(violations(ClientHistory(), b"x")) == ["unsent_writes"]


def test_an_internal_error_is_a_violation() -> None:
    errors = {"Produce: UnknownServerError": 2, "Produce: NotEnoughReplicas": 1, "DeleteTopics: UnknownServerError": 1}
    history = ClientHistory(errors=errors)
    assert list(writes.internal_errors(history)) == ["internal error: 2 answers were Produce: UnknownServerError"]
