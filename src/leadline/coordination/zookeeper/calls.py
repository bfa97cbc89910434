"""Calls to ZooKeeper that are not answered yet: they wait in one queue, and are sent and answered in order.

    at most zookeeper.max.in.flight.requests calls are sent and not answered
    nothing is sent without a connection

When the connection is lost, calls that were not sent yet wait for the next connection. Of the calls that were sent,
reads and creates of a fixed name are repeated; they may see writes that were made after them. All others fail with
ConnectionLost, since they may have taken effect or not.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from leadline.coordination.tree import ConnectionLost, SessionExpired
from leadline.coordination.zookeeper.requests import CONNECTION_ERRORS, Request
from leadline.coordination.zookeeper.session import ZooKeeperSession

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class PendingCall(Generic[T]):
    """A request, and the future of its caller."""

    path: str
    request: Request
    read: Callable[[Any, int], T]  # decodes ZooKeeper's answer, with the id of its transaction
    answered: asyncio.Future[T]
    may_repeat: bool
    repeated: bool = False  # sent before a connection was lost: it may have taken effect then
    refused: Callable[[], None] = lambda: None  # called at once, before later answers and events are processed

    def fail(self, error: Exception) -> None:
        if not self.answered.done():  # the caller may have been cancelled
            self.answered.set_exception(error)


class PendingCalls:
    def __init__(self, max_in_flight: int) -> None:
        self._max_in_flight = max_in_flight
        self._waiting: deque[PendingCall[Any]] = deque()
        self._sent: deque[PendingCall[Any]] = deque()  # in order
        self._session: ZooKeeperSession | None = None  # None: not connected
        self._connection = 0  # counts the connections: answers from an earlier one are ignored

    def add(self, *calls: PendingCall[Any]) -> None:
        self._waiting.extend(calls)
        self._send()

    def add_first(self, calls: Sequence[PendingCall[Any]]) -> None:
        """Adds calls before all that wait."""
        self._waiting.extendleft(reversed(calls))
        self._send()

    def unanswered(self) -> list[asyncio.Future[Any]]:
        return [call.answered for call in (*self._sent, *self._waiting)]

    def connected(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._send()

    def disconnected(self) -> None:
        self._session = None
        self._connection += 1
        sent, self._sent = self._sent, deque()
        for call in sent:
            call.repeated = True
            if not call.may_repeat:
                call.fail(ConnectionLost(call.path, "the connection was lost before an answer came"))
        self.add_first([call for call in sent if call.may_repeat])

    def fail_all(self, reason: str) -> None:
        """Fails all calls. Nothing is sent until the next connection."""
        self.disconnected()
        waiting, self._waiting = self._waiting, deque()
        for call in waiting:
            call.fail(SessionExpired(call.path, reason))

    def _send(self) -> None:
        while self._session is not None and self._waiting and len(self._sent) < self._max_in_flight:
            call = self._waiting.popleft()
            if not call.answered.cancelled():
                self._sent.append(call)
                self._session.ask(call.request, partial(self._answered, self._connection, call))

    def _answered(self, connection: int, call: PendingCall[Any], answer: object, zxid: int) -> None:
        if connection != self._connection or isinstance(answer, CONNECTION_ERRORS):
            return  # `disconnected` handles the calls of a lost connection
        first = self._sent.popleft()
        assert first is call, "ZooKeeper answers in order"
        try:
            result = call.read(answer, zxid)
        except Exception as error:  # noqa: BLE001  the caller gets it
            call.refused()
            call.fail(error)
        else:
            if not call.answered.done():
                call.answered.set_result(result)
        self._send()
