"""A connection to another broker: requests go out in their order, and each is answered once, or fails.

Answers come in the order of the requests, as Kafka promises. A channel connects when it is first asked, and again
after it broke; whoever waits on a broken one is told so: what was asked may have been done or not.

    PeerGone    the peer refuses connections: nobody listens there, the process is gone
    PeerLost    the connection broke, or no answer came in time
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple, Protocol, TypeVar

from leadline.ports import Buffer
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.primitives import BUFFERS, MalformedRequest

M = TypeVar("M", bound=Message)
SIZE_BYTES = 4
MAX_ANSWER_BYTES = 256 * 1024 * 1024  # more than a broker ever answers to another

_SIZE = Struct(">i")
_SHARED = memoryview(bytearray(256 * 1024))  # by all connections: what was read is taken out of it at once


class PeerLost(Exception):
    """The way to another broker broke."""


class PeerGone(PeerLost):
    """Nobody listens there: the broker's process has ended."""


class Peer(Protocol):
    """Another broker, as replication and the controller see it."""

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        """Raises PeerLost, PeerGone. Records in the answer are slices of a buffer that is nobody else's."""

    def close(self) -> None: ...


class _Waiting(NamedTuple):
    correlation_id: int
    answer: "asyncio.Future[bytearray]"
    timer: asyncio.TimerHandle


class Channel:
    """A peer at an address. `lost` is told when a connection that stood breaks."""

    def __init__(self, host: str, port: int, client_id: str, lost: Callable[[], None] = lambda: None) -> None:
        self.host, self.port, self.client_id, self._lost = host, port, client_id, lost
        self._line: _Line | None = None
        self._connecting = asyncio.Lock()
        self._correlation_id = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        line, connecting = self._line, self._connecting
        if line is None or line.broken is not None or connecting.locked():
            line = await self._reached(timeout_s)
        what = type(request).__name__
        frame = await line.ask(what, *self._encoded(request, version), timeout_s)
        try:
            return parse_response(kind, frame, version)[1]
        except MalformedRequest as error:
            wrong = PeerLost(f"{self} answered {what} with what is no answer: {error}")
            self._break_off(wrong)
            raise wrong from None

    def _encoded(self, request: Message, version: int) -> tuple[int, list[Buffer]]:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        pieces = request_frame(request, version, self._correlation_id, self.client_id)
        return self._correlation_id, [piece for piece in pieces if isinstance(piece, BUFFERS)]

    async def _reached(self, timeout_s: float) -> "_Line":
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connected()
        except TimeoutError:
            raise PeerLost(f"{self} cannot be reached in {timeout_s:g} s") from None

    async def _connected(self) -> "_Line":
        async with self._connecting:
            if self._closed:
                raise PeerLost(f"the channel to {self} is closed")
            if self._line is None or self._line.broken is not None:
                self._line = await self._connect()
            return self._line

    async def _connect(self) -> "_Line":
        loop = asyncio.get_running_loop()
        try:
            _, line = await loop.create_connection(lambda: _Line(repr(self), self._lost), self.host, self.port)
        except ConnectionRefusedError as error:
            raise PeerGone(f"nobody listens on {self}: {error.strerror}") from None
        except OSError as error:
            raise PeerLost(f"{self} cannot be reached: {error}") from None
        return line

    def _break_off(self, why: PeerLost) -> None:
        if self._line is not None:
            self._line.break_off(why)
            self._line = None

    def close(self) -> None:
        self._closed = True
        self._break_off(PeerLost(f"the channel to {self} is closed"))


class _Line(asyncio.BufferedProtocol):
    """One connection. An answer comes in a buffer of its own, which belongs to who asked.

    What comes is first read into a buffer that all share, so that a small answer takes one read; of a larger one the
    rest is read to where it belongs.
    """

    def __init__(self, name: str, lost: Callable[[], None]) -> None:
        self._name, self._lost = name, lost
        self.broken: PeerLost | None = None
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._size = b""  # of the answer that is due, as far as it has come
        self._answer: bytearray | None = None  # under way; None: its size comes first
        self._filled = 0

    async def ask(self, what: str, correlation_id: int, pieces: list[Buffer], timeout_s: float) -> bytearray:
        if self.broken is not None:
            raise self.broken
        assert self._transport is not None
        loop = asyncio.get_running_loop()
        timer = loop.call_later(timeout_s, self._late, what, timeout_s)
        waiting = _Waiting(correlation_id, loop.create_future(), timer)
        self._waiting.append(waiting)
        self._transport.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        return await waiting.answer

    def _late(self, what: str, timeout_s: float) -> None:
        """The answers behind it would be late, too."""
        self.break_off(PeerLost(f"{self._name} did not answer {what} in {timeout_s:g} s"))

    def break_off(self, why: PeerLost) -> None:
        """Everybody who waits is told."""
        if self.broken is not None:
            return
        self.broken = why
        if self._transport is not None:
            self._transport.abort()
        for waiting in self._waiting:
            waiting.timer.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(why)
        self._waiting.clear()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SHARED if self._answer is None else memoryview(self._answer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None:
            self._cut(_SHARED[:nbytes])
        else:
            self._filled += nbytes
            if self._filled == len(self._answer):
                answer, self._answer = self._answer, None
                self._answered(answer)

    def _cut(self, data: memoryview) -> None:
        """Answers out of what was read; the last may go on in what is read next."""
        if self._size:
            data = memoryview(self._size + data)
        at, end = 0, len(data)
        while end - at >= SIZE_BYTES and self.broken is None:
            (size,) = _SIZE.unpack_from(data, at)
            if not SIZE_BYTES <= size <= MAX_ANSWER_BYTES:
                self.break_off(PeerLost(f"{self._name} sent an answer of {size} bytes"))
                return
            at += SIZE_BYTES
            behind = at + size
            if behind > end:
                self._answer = bytearray(size)
                self._filled = end - at
                self._answer[: self._filled] = data[at:]
                self._size = b""
                return
            self._answered(bytearray(data[at:behind]))
            at = behind
        self._size = bytes(data[at:])

    def _answered(self, answer: bytearray) -> None:
        (correlation_id,) = _SIZE.unpack_from(answer)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            self.break_off(PeerLost(f"{self._name} answered {correlation_id}, which was not asked"))
            return
        waiting = self._waiting.popleft()
        waiting.timer.cancel()
        if not waiting.answer.done():  # whoever gave up waiting left it here
            waiting.answer.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        stood = self.broken is None
        self.break_off(PeerLost(f"the connection to {self._name} broke: {error or 'the peer closed it'}"))
        if stood:
            self._lost()
