"""The replies of one connection, in the order of their requests. Does no IO.

Requests are served one after the other, as in Kafka. The next request waits for a reply that is still being computed,
with one exception: a request that has been carried out, of which only the acknowledgement is missing, such as a produce
whose records the followers have yet to fetch. Then the next requests are served, and their replies wait for this one.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from leadline.wire.primitives import Piece

MAX_QUEUED = 64  # replies that may be queued before no further request is served

Reply = bytes | list[Piece]  # a whole frame, or its pieces


class PendingReply(NamedTuple):
    """A reply that is still being computed."""

    answer: "asyncio.Future[Any]"
    frame: Callable[[Any], Reply | None]  # makes the reply out of the answer
    blocks: bool  # whether the next request has to wait for it


def unchanged(reply: Reply | None) -> Reply | None:
    return reply


class ReplyQueue:
    __slots__ = ("blocking", "queue")

    def __init__(self) -> None:
        self.queue: deque[Reply | PendingReply] = deque()
        self.blocking: asyncio.Future[Any] | None = None  # the answer that the next request has to wait for

    @property
    def answers(self) -> "list[asyncio.Future[Any]]":
        """The replies that are still being computed."""
        return [reply.answer for reply in self.queue if isinstance(reply, PendingReply)]

    def add(self, reply: Reply | PendingReply) -> bool:
        """Queue a reply; whether the next request has to wait now."""
        self.queue.append(reply)
        if isinstance(reply, PendingReply) and reply.blocks:
            self.blocking = reply.answer
            return True
        return len(self.queue) >= MAX_QUEUED

    def move_ready(self, put: Callable[[Reply], None]) -> None:
        """Put the replies that may leave, up to the first that is still being computed, was cancelled or failed."""
        queue = self.queue
        while queue:
            reply = queue[0]
            if isinstance(reply, PendingReply):
                answer = reply.answer
                if not answer.done() or answer.cancelled() or answer.exception() is not None:
                    return
                reply = reply.frame(answer.result()) or b""
            queue.popleft()
            put(reply)

    def cancel(self) -> None:
        """Cancel the replies that are still being computed."""
        for answer in self.answers:
            answer.cancel()
