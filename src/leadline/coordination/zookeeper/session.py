"""One session with ZooKeeper, through kazoo. It reconnects by itself until it expires or is ended.

kazoo reads its socket in a thread, and nothing outside this module sees that thread. Answers, events and states go from
there to the loop at once, so they arrive in the order in which ZooKeeper sent them. By default kazoo calls back from
two threads, one for answers and one for events, and an answer could overtake an event that precedes it.

With a login, a connection counts as connected once ZooKeeper has accepted it. No call is sent before: ZooKeeper
answers a login out of order. kazoo has a place for a login, in which it would use a library that is not here.
"""

import asyncio
import logging
import select
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.serialization import SASL
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from leadline.config.values import InvalidSetting
from leadline.coordination.tree import ROOT, Change, Event, SessionState, check_path
from leadline.coordination.zookeeper.access import PLAIN_ACCESS, ZooKeeperAccess
from leadline.coordination.zookeeper.digest_md5 import DigestLogin, DigestRefused

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0  # pauses between attempts to connect: they grow from the first to the last

_SIZE, _STEP = Struct(">i"), Struct(">ii")  # of a request; its number and type

_kazoo_log = logging.getLogger("kazoo.client")
# At DEBUG it has whole requests, and with them passwords and credentials.
_kazoo_log.addFilter(lambda record: record.levelno >= logging.INFO)

CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.CHANGED: Change.SET,
    EventType.DELETED: Change.DELETED,
    EventType.CHILD: Change.CHILDREN,
}


class ConnectString(NamedTuple):
    """The value of zookeeper.connect: `host:port,host:port/chroot`."""

    hosts: str
    host_count: int
    chroot: str  # the node that is the root of our tree; empty: ZooKeeper's root

    @classmethod
    def parse(cls, connect: str) -> "ConnectString":
        """Raises InvalidSetting if the value is malformed."""
        hosts, _, below = connect.partition("/")
        chroot = f"/{below.rstrip('/')}" if below.rstrip("/") else ""
        try:
            check_path(chroot or ROOT)
            count = len(collect_hosts(hosts)[0])
        except ValueError as error:
            raise InvalidSetting(f"zookeeper.connect={connect}: {error}; expected host:port,host:port/path") from None
        return cls(hosts, count, chroot)


class ZooKeeperSession:
    """All callbacks run on the loop. Paths are absolute: they begin with the chroot."""

    def __init__(
        self,
        address: ConnectString,
        timeout_ms: int,
        on_state: "Callable[[ZooKeeperSession, SessionState], None]",
        on_event: Callable[[Event], None],
        access: ZooKeeperAccess = PLAIN_ACCESS,
    ) -> None:
        self.id = 0  # 0: not connected yet
        self.is_connected = False
        self.on_refusal: Callable[[str], None] = lambda reason: None  # of the login
        self._login = access.login
        self._loop = asyncio.get_running_loop()
        self._on_state, self._on_event = on_state, on_event
        self._last_event: WatchedEvent | None = None
        self._handler = _InlineHandler(timeout_ms / 1000 / address.host_count, access.tls)
        self._client = KazooClient(
            address.hosts,
            timeout=timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=FIRST_RETRY_S, max_delay=LAST_RETRY_S),
            logger=_kazoo_log,
        )
        if access.login is not None:
            connection = self._client._connection
            connection.sasl_options = {}  # not None: kazoo logs in
            connection._authenticate_with_sasl = partial(self._log_in, access.login)
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    @property
    def problem(self) -> str:
        """What last kept it from connecting; empty: nothing that helps."""
        return self._handler.problem

    def ask(self, request: Any, on_answer: Callable[[object, int], None]) -> None:
        """`on_answer` gets the answer, or kazoo's error, and the id of the last transaction that it reflects."""
        if getattr(request, "watcher", None):
            request = request._replace(watcher=self._event_received)
        self._client._call(request, _InlineResult(self, on_answer))

    async def end(self) -> None:
        """Closes the session. If ZooKeeper is out of reach, this does not wait: the session expires later."""
        ended = asyncio.Event()
        threading.Thread(target=self._stop, args=(ended,), name="end of a session", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), None if self.is_connected else LAST_RETRY_S)

    def _connected(self, id: int) -> None:
        self.id, self.is_connected = id, True
        self._on_state(self, SessionState.CONNECTED)

    def _disconnected(self, state: SessionState) -> None:
        if state is SessionState.SUSPENDED and not self.is_connected:
            return  # it had not logged in
        self.is_connected = False
        self._on_state(self, state)

    # Everything below runs in kazoo's threads.

    def _stop(self, ended: asyncio.Event) -> None:
        try:
            self._client.stop()
            self._client.close()
        finally:
            self._call_on_loop(ended.set)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            if self._login is None:
                self._call_on_loop(self._connected, self._client.client_id[0])
        elif state == KazooState.SUSPENDED:
            self._call_on_loop(self._disconnected, SessionState.SUSPENDED)
        else:
            self._handler.is_over = True
            self._call_on_loop(self._disconnected, SessionState.EXPIRED)

    def _log_in(self, login: DigestLogin, _: str, timeout_s: float) -> None:
        """kazoo calls it with each connection, before it sends any call."""
        exchange, xid = login.begin(), 0
        response: bytes | None = b""
        try:
            while response is not None:
                xid += 1
                response = exchange.respond(self._challenge(SASL(response), xid, timeout_s))
        except DigestRefused as error:
            self._call_on_loop(self.on_refusal, str(error))
            raise ConnectionDropped("the login was refused") from None
        except ConnectionDropped:
            self._handler.problem = "The connection was closed during the login. Are user and password right?"
            raise
        self._handler.problem = ""
        self._call_on_loop(self._connected, self._client.client_id[0])

    def _challenge(self, request: SASL, xid: int, timeout_s: float) -> bytes:
        """ZooKeeper's answer to a step of the login. kazoo would write the step to its log."""
        body = _STEP.pack(xid, request.type) + bytes(request.serialize())
        connection = self._client._connection
        connection._write(_SIZE.pack(len(body)) + body, timeout_s)
        header, buffer, offset = connection._read_header(timeout_s)
        if header.err:
            raise DigestRefused("ZooKeeper refuses the user or the password")
        challenge, _ = SASL.deserialize(buffer, offset)
        if header.xid != xid or not challenge:
            raise DigestRefused("ZooKeeper asks for no login: is its JAAS section Server set up?")
        return bytes(challenge)

    def _event_received(self, event: WatchedEvent) -> None:
        """If a deletion fires two watches, kazoo calls back twice with the same event."""
        is_new, self._last_event = event is not self._last_event, event
        if is_new and event.type in CHANGES:  # other types concern the connection: `_state_changed` gets these
            self._call_on_loop(self._on_event, Event(CHANGES[event.type], event.path))

    def _answer_received(self, on_answer: Callable[[object, int], None], answer: object) -> None:
        self._call_on_loop(on_answer, answer, self._client.last_zxid)

    def _call_on_loop(self, call: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(call, *args)


class _InlineResult:
    """Receives an answer from kazoo."""

    def __init__(self, session: ZooKeeperSession, done: Callable[[object, int], None]) -> None:
        self._session, self._done = session, done

    def set(self, answer: object) -> None:
        self._session._answer_received(self._done, answer)

    set_exception = set


class _InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Calls back in the thread that reads the socket. Does not reconnect once the session has expired.

    Each session has its own client: a client that began a new session would repeat calls of the old one in it.
    """

    def __init__(self, connect_s: float, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._connect_s, self._tls, self.is_over = connect_s, tls, False
        self.problem = ""  # why the last handshake failed

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """One system call where kazoo makes five. It is called several times for each request.

        TLS may hold decrypted bytes back that no poll shows.
        """
        pending = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        if pending:
            timeout_s = 0
        poller = select.poll()
        for reader in readers:
            poller.register(reader, select.POLLIN)
        for writer in writers:
            poller.register(writer, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)}
        readable = [reader for reader in readers if reader.fileno() in ready or reader in pending]
        return readable, [writer for writer in writers if writer.fileno() in ready], []

    def create_connection(self, *args: Any, **options: Any) -> Any:
        if self.is_over:
            raise ConnectionRefusedError("the session has expired")
        host = options.pop("hostname", None)
        sock = super().create_connection(*args, **options | {"timeout": self._connect_s})
        return sock if self._tls is None else self._encrypted(self._tls, sock, host)

    def _encrypted(self, tls: ssl.SSLContext, sock: Any, host: str | None) -> ssl.SSLSocket:
        sock.settimeout(self._connect_s)
        try:
            encrypted = tls.wrap_socket(sock, server_hostname=host)
        except OSError as error:
            sock.close()
            self.problem = f"The TLS handshake failed: {getattr(error, 'verify_message', '') or error}"
            raise
        self.problem = ""
        return encrypted
