"""A connection to another broker: requests are sent in order, and each is answered once, or fails.

Answers come in the order of the requests, as Kafka guarantees. A client connects at its first request, and again after
the connection broke. When a connection breaks, its waiting requests fail: they may have taken effect or not.

A connection to a protected listener begins with TLS, a login, or both (`broker_login.py`). While a login is repeated,
requests wait: they are sent when it is complete.

    PeerGone    the peer refuses connections: its process has ended
    PeerLost    the connection broke, or no answer came in time
    PeerLocked  the peer refuses the login, or this broker does not trust its certificate: its process runs
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from struct import Struct
from typing import Protocol, TypeVar

from leadline.cluster.broker_login import BrokerLogin, PeerSecurity
from leadline.cluster.failure_detector import ProbeOutcome
from leadline.errors import ClusterAuthorizationFailed
from leadline.model import NONE, Buffer
from leadline.runtime.network import Network
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.periodic import end_now
from leadline.runtime.ports import shortage
from leadline.runtime.thread_buffer import ThreadBuffer
from leadline.security.sasl_client_authenticator import MAX_LOGIN_ANSWER_BYTES, LoginRefused
from leadline.security.tls import failure_reason
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_bytes
from leadline.wire.primitives import MalformedRequest

log = logging.getLogger(__name__)

M = TypeVar("M", bound=Message)
SIZE_BYTES = 4
MAX_DOUBLINGS = 10  # of the time limit for connecting
MAX_ANSWER_BYTES = 256 * 1024 * 1024  # more than any answer between brokers has
CLOSED = "the peer closed the connection"

EncodeRequest = Callable[[int, str], Buffer]  # from correlation id and client id to the frame of a request
NextRequest = Callable[
    [memoryview], EncodeRequest | None
]  # takes an answer, a view that is valid during the call; returns the next request, or None

_SIZE = Struct(">i")
_SHARED = ThreadBuffer(256 * 1024)  # by all connections of a loop: each takes its data out at once


class PeerLost(Exception):
    """Another broker cannot be reached, or the connection to it broke."""


class PeerGone(PeerLost):
    """The connection was refused: the broker's process has ended."""


class PeerLocked(PeerLost):
    """The broker runs, but does not let this one in, or cannot be trusted."""


def probe_outcome(error: PeerLost) -> ProbeOutcome:
    """A failed attempt, for a failure detector."""
    if isinstance(error, PeerLocked):
        return ProbeOutcome.LOCKED
    return ProbeOutcome.REFUSED if isinstance(error, PeerGone) else ProbeOutcome.LOST


class BrokerClient(Protocol):
    """A client of another broker."""

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        """Raises PeerLost, PeerGone. Records in the answer are slices of a buffer that only the caller holds."""

    def close(self) -> None: ...


class LeaderClient(BrokerClient, Protocol):
    """A client of a broker that a follower fetches from."""

    async def converse(
        self, name: str, first: EncodeRequest, next_request: NextRequest, timeout_s: float, /
    ) -> bytearray:
        """Sends the first request, then after each answer the one that `next_request` returns.

        Returns the answer after which it returned None. Raises as `ask`; each answer has its own time limit.
        """


class _WaitingRequest:
    """A request that waits for its answer. `next_request` may return another one, which then waits in its place."""

    __slots__ = ("answer", "correlation_id", "deadline_s", "name", "next_request", "timeout_s", "timer")

    timer: asyncio.TimerHandle

    def __init__(
        self, name: str, answer: "asyncio.Future[bytearray]", timeout_s: float, next_request: NextRequest | None
    ) -> None:
        self.name, self.answer, self.timeout_s, self.next_request = name, answer, timeout_s, next_request
        self.correlation_id, self.deadline_s = 0, 0.0  # of the last request


class TcpBrokerClient:
    """A broker at an address. `lost` is called when an open connection breaks."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        network: Network,
        lost: Callable[[], None] = lambda: None,
        setup_timeout_s: tuple[float, float] = (10.0, 30.0),
        security: PeerSecurity | None = None,
    ) -> None:
        (self.host, self.port), self.client_id, self._lost = address, client_id, lost
        self.network, self._security = network, security
        self._setup_timeout_s = setup_timeout_s  # for the first attempt to connect, and for later ones
        self._timed_out = 0  # attempts in a row
        self._connection: _BrokerConnection | None = None
        self._connecting = asyncio.Lock()
        self._reaching: OrderedSet[asyncio.Timeout] = OrderedSet()  # of callers that wait for a connection
        self._refused: set[str] = set()  # names of requests that the peer does not allow
        self._ids = map((0x7FFF_FFFF).__and__, count(1))
        self._closed = False

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        connection = await self._connection_within(timeout_s)
        name = type(request).__name__
        frame = await connection.ask(name, partial(request_bytes, request, version), timeout_s)
        try:
            response = parse_response(kind, frame, version)[1]
        except MalformedRequest as error:
            lost = PeerLost(f"{self} answered {name} with a malformed response: {error}")
            self._break_off(lost)
            raise lost from None
        self._report_refusal(name, getattr(response, "error_code", NONE))
        return response

    def _report_refusal(self, name: str, error_code: int) -> None:
        """Log once that the peer's authorizer does not accept this broker as a broker."""
        if error_code != ClusterAuthorizationFailed.code:
            self._refused.discard(name)
        elif name not in self._refused:
            self._refused.add(name)
            log.warning("%s refuses %s: the user of this broker needs ClusterAction on the cluster", self, name)

    async def converse(
        self, name: str, first: EncodeRequest, next_request: NextRequest, timeout_s: float, /
    ) -> bytearray:
        connection = await self._connection_within(timeout_s)
        return await connection.ask(name, first, timeout_s, next_request)

    async def _connection_within(self, timeout_s: float) -> "_BrokerConnection":
        connection = self._connection
        if connection is not None and connection.broken is None and not self._connecting.locked():
            return connection
        first_s, longest_s = self._setup_timeout_s
        setup_s = min(timeout_s, longest_s, first_s * 2 ** min(self._timed_out, MAX_DOUBLINGS))
        deadline = asyncio.timeout(setup_s)
        self._reaching.add(deadline)
        try:
            async with deadline:
                connection = await self._connected()
        except TimeoutError:
            self._timed_out += 1
            bound = "before the client was closed" if self._closed else f"in {setup_s:g} s"
            raise PeerLost(f"{self} cannot be reached {bound}") from None
        finally:
            self._reaching.discard(deadline)
        self._timed_out = 0
        return connection

    async def _connected(self) -> "_BrokerConnection":
        async with self._connecting:
            if self._closed:
                raise PeerLost(f"the client of {self} is closed")
            if self._connection is None or self._connection.broken is not None:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> "_BrokerConnection":
        try:
            if self._security is None:
                return await self._open()
            return await self._log_in(self._security)
        except ConnectionRefusedError as error:
            raise PeerGone(f"{self} refuses connections: {error.strerror}") from None
        except (OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and shortage(error) is None:
                raise
            raise PeerLost(f"{self} cannot be reached: {shortage(error) or error}") from None

    async def _open(self, tls: ssl.SSLContext | None = None, login: BrokerLogin | None = None) -> "_BrokerConnection":
        return await self.network.connect(
            lambda: _BrokerConnection(self, self._ids, self._lost, login), self.host, self.port, tls
        )

    async def _log_in(self, security: PeerSecurity) -> "_BrokerConnection":
        login = BrokerLogin(security, self.host, self.port, self._setup_timeout_s[1])
        try:
            login.check_backoff()
            connection = await self._open(security.tls, login)
            await connection.log_in()
        except ssl.SSLError as error:
            raise PeerLocked(f"{self}: {login.failed(failure_reason(error))}") from None
        except LoginRefused as error:
            raise PeerLocked(f"{self}: {error}") from None
        except ValueError as error:  # a host that no certificate can name
            raise PeerLocked(f"{self}: {login.failed(str(error))}") from None
        except ConnectionResetError:
            raise PeerLost(f"{self}: {login.failed(CLOSED, is_refusal=False)}") from None
        return connection

    def _break_off(self, why: PeerLost) -> None:
        if self._connection is not None:
            self._connection.break_off(why)
            self._connection = None

    def close(self) -> None:
        self._closed = True
        for deadline in self._reaching:
            end_now(deadline)
        self._break_off(PeerLost(f"the client of {self} is closed"))


class _BrokerConnection(asyncio.BufferedProtocol):
    """One connection. Each answer gets a buffer of its own, which belongs to the caller.

    Data is first read into a buffer that all connections share, so that a small answer takes one read. The rest of a
    larger answer is read directly into its own buffer.
    """

    def __init__(
        self, client: TcpBrokerClient, ids: Iterator[int], lost: Callable[[], None], login: BrokerLogin | None
    ) -> None:
        self._name, self._client_id, self._ids, self._lost = repr(client), client.client_id, ids, lost
        self._loop, self._network = asyncio.get_running_loop(), client.network
        self.broken: PeerLost | None = None
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_WaitingRequest] = deque()
        self._size = b""  # the size of the next answer, as far as it was received
        self._answer: bytearray | None = None  # partly received; None: the size of the next one comes first
        self._filled = 0
        self._login = login
        self._is_logged_in = login is None
        self._held: list[tuple[_WaitingRequest, EncodeRequest]] | None = None  # requests that wait for a new login
        self._next_login: asyncio.TimerHandle | asyncio.Task[None] | None = None

    # Logins

    async def log_in(self) -> None:
        """The first login, or a new one. If it fails, the connection breaks. Raises LoginRefused, PeerLost."""
        assert self._login is not None
        try:
            again_s = await self._login.run(partial(self.ask, is_of_login=True))
        except BaseException as error:
            if isinstance(error, LoginRefused):
                self.break_off(PeerLocked(f"{self._name}: {error}"))
            self.break_off(PeerLost(f"a login to {self._name} was broken off"))
            raise
        self._is_logged_in = True
        if again_s is not None:
            self._next_login = self._loop.call_later(again_s, self._begin_login)

    def _begin_login(self) -> None:
        if self.broken is None:
            self._held = []
            self._next_login = self._loop.create_task(self._log_in_again(), name=f"login to {self._name}")

    async def _log_in_again(self) -> None:
        with suppress(LoginRefused, PeerLost):  # all waiting requests have failed with it
            await self.log_in()
            held, self._held = self._held or [], None
            for waiting, encode in held:
                if waiting.answer.done():  # the caller was cancelled
                    waiting.timer.cancel()
                else:
                    self._send_now(waiting, encode)

    # Requests

    async def ask(
        self,
        name: str,
        encode: EncodeRequest,
        timeout_s: float,
        next_request: NextRequest | None = None,
        *,
        is_of_login: bool = False,
    ) -> bytearray:
        """A request of a login does not wait for one."""
        if self.broken is not None:
            raise self.broken
        waiting = _WaitingRequest(name, self._loop.create_future(), timeout_s, next_request)
        (self._send_now if is_of_login else self._send)(waiting, encode)
        waiting.timer = self._loop.call_at(waiting.deadline_s, self._check_deadline, waiting)
        return await waiting.answer

    def _send(self, waiting: _WaitingRequest, encode: EncodeRequest) -> None:
        if self._held is None:
            self._send_now(waiting, encode)
        else:
            waiting.deadline_s = self._loop.time() + waiting.timeout_s
            self._held.append((waiting, encode))

    def _send_now(self, waiting: _WaitingRequest, encode: EncodeRequest) -> None:
        assert self._transport is not None
        waiting.correlation_id = correlation_id = next(self._ids)
        frame = encode(correlation_id, self._client_id)
        waiting.deadline_s = self._loop.time() + waiting.timeout_s
        self._waiting.append(waiting)
        self._transport.write(frame)

    def _check_deadline(self, waiting: _WaitingRequest) -> None:
        """If one answer is late, all after it are late, too: the connection breaks."""
        if self._loop.time() < waiting.deadline_s:
            waiting.timer = self._loop.call_at(waiting.deadline_s, self._check_deadline, waiting)
        else:
            self.break_off(PeerLost(f"{self._name} did not answer {waiting.name} in {waiting.timeout_s:g} s"))

    def break_off(self, why: PeerLost) -> None:
        """All waiting requests fail."""
        if self.broken is not None:
            return
        self.broken = why
        if self._next_login is not None and self._next_login is not asyncio.current_task():
            self._next_login.cancel()
        if self._transport is not None:
            if self._waiting:  # otherwise the kernel still sends them, and they may arrive after the next ones
                self._network.reset(self._transport)
            else:
                self._transport.abort()
        for waiting in (*self._waiting, *(waiting for waiting, _ in self._held or ())):
            waiting.timer.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(why)
        self._waiting.clear()

    # Callbacks of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return _SHARED.view if self._answer is None else memoryview(self._answer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._answer is None:
            self._split(_SHARED.view[:nbytes])
        else:
            self._filled += nbytes
            if self._filled == len(self._answer):
                answer, self._answer = self._answer, None
                self._answered(memoryview(answer), answer)

    def _split(self, data: memoryview) -> None:
        """Splits data into answers. The last one may be incomplete."""
        if self._size:
            data = memoryview(self._size + data)
        at, end = 0, len(data)
        while end - at >= SIZE_BYTES and self.broken is None:
            (size,) = _SIZE.unpack_from(data, at)
            if not SIZE_BYTES <= size <= (MAX_ANSWER_BYTES if self._is_logged_in else MAX_LOGIN_ANSWER_BYTES):
                self.break_off(PeerLost(f"{self._name} sent an answer of {size} bytes"))
                return
            at += SIZE_BYTES
            after = at + size
            if after > end:
                self._answer = bytearray(size)
                self._filled = end - at
                self._answer[: self._filled] = data[at:]
                self._size = b""
                return
            self._answered(data[at:after])
            at = after
        self._size = bytes(data[at:])

    def _answered(self, view: memoryview, answer: bytearray | None = None) -> None:
        """`answer`: the buffer of `view`, if nothing else uses it."""
        (correlation_id,) = _SIZE.unpack_from(view)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            self.break_off(PeerLost(f"{self._name} answered {correlation_id}, which is not the oldest request"))
            return
        waiting = self._waiting[0]
        is_over = waiting.answer.done()  # the caller was cancelled
        encode = None if is_over or waiting.next_request is None else waiting.next_request(view)
        self._waiting.popleft()
        if encode is not None:
            self._send(waiting, encode)
            return
        waiting.timer.cancel()
        if not is_over:
            waiting.answer.set_result(bytearray(view) if answer is None else answer)

    def connection_lost(self, error: Exception | None) -> None:
        was_open = self.broken is None and self._is_logged_in
        self.break_off(self._lost_by(error))
        if was_open:
            self._lost()

    def _lost_by(self, error: Exception | None) -> PeerLost:
        if self._login is not None and not self._is_logged_in and self.broken is None:
            if isinstance(error, ssl.SSLError):
                return PeerLocked(f"{self._name}: {self._login.failed(failure_reason(error))}")
            return PeerLost(f"{self._name}: {self._login.failed(CLOSED, is_refusal=False)}")
        return PeerLost(f"the connection to {self._name} broke: {error or 'the peer closed it'}")
