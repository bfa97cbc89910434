"""The states of a connection, which state may follow which, and the error that ends a connection.

A connection receives and sends independently, so it has two states.

    ReceiveState    what the connection waits for before it serves its next request
    SendState       what the connection waits for before it sends the rest of its replies

It receives only while READING. It leaves READING when a request or its reply is in the way, and comes back when that is
over. CLOSED is final for both.

Authentication is not a state: until the peer is known, `Connection.serve` is the authenticator's. Neither is a quota: a
connection that is muted is BLOCKED, and a timer ends it.

Pure: states and a table.
"""

from enum import Enum, auto


class ReceiveState(Enum):
    __hash__ = object.__hash__  # Python's own goes through the name, and costs more than the rest of a change

    READING = auto()  # for bytes of the next request
    SCHEDULED = auto()  # for its next step: a large request, or many that arrived together, give way to small ones
    BLOCKED = auto()  # for a reply that must be computed, or leave, or for the end of a throttle time
    STARVED = auto()  # for memory: requests of others hold all of queued.max.request.bytes
    CLOSED = auto()


class SendState(Enum):
    __hash__ = object.__hash__

    READY = auto()  # for nothing: queued replies can be sent
    AWAITING_ROOM = auto()  # for room in the socket
    AWAITING_STEP = auto()  # for its next step: large replies give way to small requests
    AWAITING_DISK = auto()  # for a part of a file that is not in memory
    CLOSED = auto()


RECEIVE_MAY_FOLLOW: dict[ReceiveState, tuple[ReceiveState, ...]] = {
    ReceiveState.READING: (
        ReceiveState.SCHEDULED, ReceiveState.BLOCKED, ReceiveState.STARVED, ReceiveState.CLOSED
    ),
    ReceiveState.SCHEDULED: (ReceiveState.READING, ReceiveState.BLOCKED, ReceiveState.CLOSED),
    ReceiveState.BLOCKED: (ReceiveState.READING, ReceiveState.CLOSED),
    ReceiveState.STARVED: (ReceiveState.READING, ReceiveState.BLOCKED, ReceiveState.CLOSED),
    ReceiveState.CLOSED: (),
}  # fmt: skip

SEND_MAY_FOLLOW: dict[SendState, tuple[SendState, ...]] = {
    SendState.READY: (
        SendState.AWAITING_ROOM, SendState.AWAITING_STEP, SendState.AWAITING_DISK, SendState.CLOSED
    ),
    SendState.AWAITING_ROOM: (
        SendState.READY, SendState.AWAITING_ROOM, SendState.AWAITING_STEP, SendState.AWAITING_DISK, SendState.CLOSED
    ),
    SendState.AWAITING_STEP: (
        SendState.READY, SendState.AWAITING_ROOM, SendState.AWAITING_STEP, SendState.AWAITING_DISK, SendState.CLOSED
    ),
    SendState.AWAITING_DISK: (
        SendState.READY, SendState.AWAITING_ROOM, SendState.AWAITING_STEP, SendState.AWAITING_DISK, SendState.CLOSED
    ),
    SendState.CLOSED: (),
}  # fmt: skip


class CloseConnection(Exception):
    """The peer sent something invalid. The message has the reason; only its connection is closed."""


class InvalidFrameSize(CloseConnection):
    """The peer announced a frame that is larger than it may be, or of a negative size."""
