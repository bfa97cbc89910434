"""How a connection authenticates its peer, before it serves requests.

Until then `Connection.serve` is one of the logins below; afterwards it is that of the requests.

    PLAINTEXT        there is no login: the peer is ANONYMOUS
    SSL              the certificate names it, once the handshake is over
    SASL_*           the peer logs in: see `security/sasl_authenticator.py`

    no request is served before the peer is authenticated; bytes received after a failed login are never read
    a login that fails is answered after connection.failed.authentication.delay.ms, and closed a moment later
    nothing is read until then; a peer that still sends can read the answer: see `closing_sockets`
    a login has `LOGIN_SECONDS`; of more than `MAX_LOGINS` at a time, the oldest gives way
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.broker.connection_state import CloseConnection
from leadline.broker.frame_memory import LoginMemory
from leadline.broker.reply_queue import PendingReply, Reply
from leadline.broker.tls_socket import ReadFile, TlsBuffers, TlsSocket
from leadline.config.listeners import SecurityProtocol
from leadline.runtime.network import Socket
from leadline.runtime.ports import Time, monotonic_ms
from leadline.runtime.step_scheduler import StepScheduler
from leadline.runtime.worker_threads import WorkerThreads
from leadline.security.principal import ANONYMOUS, Principal
from leadline.security.sasl_authenticator import (
    Admission,
    LoginFailure,
    LoginStep,
    SaslAuthenticator,
    SaslListener,
    SaslSession,
)
from leadline.security.sasl_mechanisms import Outcome, ThreadWork
from leadline.wire.frames import FRONT

if TYPE_CHECKING:
    from leadline.broker.connection import Connection

LOGIN_SECONDS = 30.0
MAX_LOGINS = 1000
HANDSHAKE_THREADS = 1  # unauthenticated peers get one core at most
ANSWER_SECONDS = 0.1  # from the answer to a login that failed to the end: some clients forget the one over the other

Served = Reply | PendingReply | Awaitable[Reply | None] | None


@dataclass(slots=True, kw_only=True)
class ListenerSecurity:
    """How connections of one listener are protected. A new connection uses the values of that moment."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: ssl.SSLContext | None = None
    principal_of: Callable[[bytes | None], Principal] = lambda certificate: ANONYMOUS  # ValueError: no rule matches
    sasl: SaslListener | None = None
    failure_delay_s: float = 0.1
    max_receive_bytes: int = 524_288
    in_thread: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread  # runs what a login may block for


class CertificateLogin:
    """On an SSL listener: the end of the handshake is the end of the login. Kafka's limits of a login are SASL's."""

    def __init__(self, connection: "Connection", sock: TlsSocket, security: ListenerSecurity) -> None:
        self._connection, self._sock, self._security = connection, sock, security
        sock.on_open = self._opened

    def serve(self, connection: "Connection", frame: memoryview) -> Served:
        raise AssertionError("a frame cannot arrive before the handshake is over")

    def _opened(self) -> None:
        try:
            principal = self._security.principal_of(self._sock.peer_certificate)
        except ValueError as error:
            raise CloseConnection(f"its certificate names no user: {error}") from None
        self._connection.logged_in(principal)


class SaslLogin:
    """On a SASL listener: drives the login, and each time the peer logs in again."""

    def __init__(self, connection: "Connection", security: ListenerSecurity, time: Time) -> None:
        assert security.sasl is not None
        self._connection, self._security, self._time = connection, security, time
        self._authenticator = SaslAuthenticator(security.sasl)

    def serve(self, connection: "Connection", frame: memoryview) -> Served:
        step = self._authenticator.receive(bytes(frame), self._time.now_ms(), monotonic_ms(self._time))
        if step.work is not None:
            return self._work(step.work)
        if step.failure is not None:
            return self._fail(step.failure)
        return self._carry_out(step)

    async def _work(self, work: ThreadWork[Outcome]) -> Reply | None:
        outcome = await self._security.in_thread(work.run)
        step = self._authenticator.resume(outcome, self._time.now_ms(), monotonic_ms(self._time))
        if step.failure is not None:
            return await self._fail(step.failure)
        return self._carry_out(step)

    def _carry_out(self, step: LoginStep) -> Reply | None:
        if step.session is not None:
            self._logged_in(step.session)
        return step.send or None

    def _logged_in(self, session: SaslSession) -> None:
        self._connection.logged_in(session.principal)
        if session.expires_monotonic_ms is not None:
            self._connection.serve = self._serve_session

    def _serve_session(self, connection: "Connection", frame: memoryview) -> Served:
        """The login has an end: each request is held against it."""
        api_key = FRONT.unpack_from(frame)[0] if len(frame) >= FRONT.size else -1
        admission = self._authenticator.admit(api_key, monotonic_ms(self._time))
        if admission is Admission.CLOSE:
            raise CloseConnection("its login has expired")
        if admission is Admission.REAUTHENTICATE:
            connection.serve = self.serve
            return self.serve(connection, frame)
        return connection.net.serve(connection, frame)

    async def refuse_size(self, reason: str) -> Reply | None:
        """A frame was announced that is too large. The login fails for this reason, after the delay."""
        step = self._authenticator.refuse_size(reason)
        assert step.failure is not None
        return await self._fail(step.failure)

    async def _fail(self, failure: LoginFailure) -> Reply | None:
        if failure.delayed:
            await asyncio.sleep(self._security.failure_delay_s)
        if failure.response:
            self._connection.send_last(failure.response)
            await asyncio.sleep(ANSWER_SECONDS)
        raise CloseConnection(f"its login failed: {failure.reason}")


class Logins:
    """The connections whose peers are not known yet.

    `by_listener` says how listeners are protected. One that is not in it is PLAINTEXT.
    """

    def __init__(self, time: Time, read_file: ReadFile, by_listener: Mapping[str, ListenerSecurity]) -> None:
        self._time, self._read_file = time, read_file
        self.steps = StepScheduler(asyncio.get_running_loop())  # for unauthenticated peers
        self._threads = WorkerThreads(HANDSHAKE_THREADS, "handshake")
        self._buffers: TlsBuffers | None = None  # there is no protected listener yet
        self._memories: dict[str, LoginMemory] = {}
        self.use(by_listener)
        self.successful: Counter[str] = Counter()  # logins, by listener
        self.failed: Counter[str] = Counter()
        self._waiting: dict[Connection, float] = {}  # with the time at which they came, the first one first

    def use(self, by_listener: Mapping[str, ListenerSecurity]) -> None:
        """New connections are protected like this."""
        self.by_listener = dict(by_listener)
        if by_listener and self._buffers is None:
            self._buffers = TlsBuffers()
        call_soon = asyncio.get_running_loop().call_soon
        self._memories = {
            name: self._memories.get(name) or LoginMemory(call_soon, security.max_receive_bytes)
            for name, security in by_listener.items()
        }

    def protect(self, sock: Socket, listener: str) -> Socket:
        """The socket through which a new connection speaks."""
        security = self.by_listener.get(listener)
        if security is None or security.tls is None:
            return sock
        assert self._buffers is not None
        return TlsSocket(sock, security.tls, self._buffers, self.steps, self._threads, self._read_file)

    def begin(self, connection: "Connection") -> None:
        """Have a new connection authenticate its peer."""
        security, sock = self.by_listener.get(connection.listener), connection.sock
        if security is None or security.protocol is SecurityProtocol.PLAINTEXT:
            return
        if security.sasl is not None:
            login = SaslLogin(connection, security, self._time)
            connection.serve, connection.refuse_size = login.serve, login.refuse_size
        else:
            assert isinstance(sock, TlsSocket)
            connection.serve = CertificateLogin(connection, sock, security).serve
        connection.await_login(self._memories[connection.listener])
        self._waiting[connection] = self._time.monotonic_s()
        if len(self._waiting) > MAX_LOGINS:
            oldest = next(iter(self._waiting))
            oldest.close(f"more than {MAX_LOGINS} connections are not logged in, and this one is the oldest")

    def ended(self, connection: "Connection") -> None:
        """It is logged in, or closed."""
        if self._waiting.pop(connection, None) is not None:
            outcomes = self.successful if connection.is_logged_in else self.failed
            outcomes[connection.listener] += 1

    def close_late(self) -> None:
        """Closes logins that take too long. Call it every few seconds."""
        oldest_s = self._time.monotonic_s() - LOGIN_SECONDS
        for connection in [connection for connection, came_s in self._waiting.items() if came_s < oldest_s]:
            connection.close(f"its login took longer than {LOGIN_SECONDS:.0f} s")

    def close(self) -> None:
        self._threads.close()
