"""The states of a connection: the table has every state, and no state enters one that may not follow."""

from enum import Enum
from itertools import product
from typing import Any, cast

import pytest

from leadline.broker.connection import Connection
from leadline.broker.connection_state import RECEIVE_MAY_FOLLOW, SEND_MAY_FOLLOW, ReceiveState, SendState
from leadline.broker.sender import Sender

RECEIVE = {
    "READING": "SCHEDULED BLOCKED STARVED CLOSED",
    "SCHEDULED": "READING BLOCKED CLOSED",
    "BLOCKED": "READING CLOSED",
    "STARVED": "READING BLOCKED CLOSED",
    "CLOSED": "",
}
SEND = {
    "READY": "AWAITING_ROOM AWAITING_STEP AWAITING_DISK CLOSED",
    "AWAITING_ROOM": "READY AWAITING_ROOM AWAITING_STEP AWAITING_DISK CLOSED",
    "AWAITING_STEP": "READY AWAITING_ROOM AWAITING_STEP AWAITING_DISK CLOSED",
    "AWAITING_DISK": "READY AWAITING_ROOM AWAITING_STEP AWAITING_DISK CLOSED",
    "CLOSED": "",
}


def entered(shell: Any, attribute: str, before: Enum, after: Enum) -> bool:
    """Whether a connection or a sender in one state enters another."""
    setattr(shell, attribute, before)
    try:
        shell._enter(after)
    except AssertionError:
        assert getattr(shell, attribute) is before
        return False
    assert getattr(shell, attribute) is after
    return True


@pytest.mark.parametrize(("before", "after"), list(product(ReceiveState, ReceiveState)))
def test_a_connection_enters_only_states_that_may_follow(before: ReceiveState, after: ReceiveState) -> None:
    connection = Connection.__new__(Connection)
    assert entered(connection, "receive_state", before, after) is (after.name in RECEIVE[before.name].split())


@pytest.mark.parametrize(("before", "after"), list(product(SendState, SendState)))
def test_a_sender_enters_only_states_that_may_follow(before: SendState, after: SendState) -> None:
    sender = Sender.__new__(Sender)
    assert entered(sender, "state", before, after) is (after.name in SEND[before.name].split())


@pytest.mark.parametrize("table", [RECEIVE_MAY_FOLLOW, SEND_MAY_FOLLOW])
def test_every_state_can_be_reached_and_closed(table: dict[Enum, tuple[Enum, ...]]) -> None:
    states = list(type(next(iter(table))))
    closed = cast(Any, type(states[0])).CLOSED
    assert list(table) == states
    assert all(closed in successors for state, successors in table.items() if state is not closed)
    assert {state for successors in table.values() for state in successors} == set(states)
