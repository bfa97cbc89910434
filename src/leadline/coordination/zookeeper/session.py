"""One session with ZooKeeper, through kazoo: it connects again by itself until it has expired or is ended.

kazoo reads its socket in a thread. This file alone knows of it: in that thread, whatever was read is handed over to the
loop at once, so answers, events and states arrive there in the order in which ZooKeeper sent them. Else kazoo would
call back from two threads, one for answers and one for events, and a read could overtake the event that goes with it.
"""

import asyncio
import select
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.hosts import collect_hosts
from kazoo.protocol.states import EventType, KazooState, WatchedEvent
from kazoo.retry import KazooRetry

from leadline.config.values import InvalidSetting
from leadline.coordination.tree import ROOT, Change, Event, SessionState, check_path

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0  # between two attempts to connect: grows from one to the other

CHANGES = {
    EventType.CREATED: Change.CREATED,
    EventType.CHANGED: Change.SET,
    EventType.DELETED: Change.DELETED,
    EventType.CHILD: Change.CHILDREN,
}


class ConnectString(NamedTuple):
    """What zookeeper.connect says: `host:port,host:port/chroot`."""

    hosts: str
    host_count: int
    chroot: str  # the node below which all lies; empty: the root

    @classmethod
    def parse(cls, connect: str) -> "ConnectString":
        """InvalidSetting if it makes no sense."""
        hosts, _, below = connect.partition("/")
        chroot = f"/{below.rstrip('/')}" if below.rstrip("/") else ""
        try:
            check_path(chroot or ROOT)
            count = len(collect_hosts(hosts)[0])
        except ValueError as error:
            raise InvalidSetting(f"zookeeper.connect={connect}: {error}; expected host:port,host:port/path") from None
        return cls(hosts, count, chroot)


class ZooKeeperSession:
    """`on_state` and `on_event` are called on the loop, and so is whoever asks. Paths are whole, chroot included."""

    def __init__(
        self,
        address: ConnectString,
        timeout_ms: int,
        on_state: "Callable[[ZooKeeperSession, SessionState], None]",
        on_event: Callable[[Event], None],
    ) -> None:
        self.id = 0  # 0: it was never connected
        self.is_connected = False
        self._loop = asyncio.get_running_loop()
        self._on_state, self._on_event = on_state, on_event
        self._last_event: WatchedEvent | None = None
        self._handler = _InlineHandler(connect_s=timeout_ms / 1000 / address.host_count)
        self._client = KazooClient(
            address.hosts,
            timeout=timeout_ms / 1000,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=FIRST_RETRY_S, max_delay=LAST_RETRY_S),
        )
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    def ask(self, request: Any, on_answer: Callable[[object, int], None]) -> None:
        """`done` is handed the answer, or kazoo's error, and the id of the last transaction that it reflects."""
        if getattr(request, "watcher", None):
            request = request._replace(watcher=self._event_received)
        self._client._call(request, _InlineResult(self, on_answer))

    async def end(self) -> None:
        """Close it, if ZooKeeper can be reached; else it is left to its time-out, and nobody waits for that."""
        ended = asyncio.Event()
        threading.Thread(target=self._stop, args=(ended,), name="end of a session", daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), None if self.is_connected else LAST_RETRY_S)

    def _connected(self, id: int) -> None:
        self.id, self.is_connected = id, True
        self._on_state(self, SessionState.CONNECTED)

    def _disconnected(self, state: SessionState) -> None:
        self.is_connected = False
        self._on_state(self, state)

    # From here on in kazoo's threads.

    def _stop(self, ended: asyncio.Event) -> None:
        try:
            self._client.stop()
            self._client.close()
        finally:
            self._call_on_loop(ended.set)

    def _state_changed(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._call_on_loop(self._connected, self._client.client_id[0])
        elif state == KazooState.SUSPENDED:
            self._call_on_loop(self._disconnected, SessionState.SUSPENDED)
        else:
            self._handler.is_over = True
            self._call_on_loop(self._disconnected, SessionState.EXPIRED)

    def _event_received(self, event: WatchedEvent) -> None:
        """A deletion that ends two watches comes as one event, for which kazoo calls back twice."""
        is_new, self._last_event = event is not self._last_event, event
        if is_new and event.type in CHANGES:  # else it is about the connection, which is told otherwise
            self._call_on_loop(self._on_event, Event(CHANGES[event.type], event.path))

    def _answer_received(self, on_answer: Callable[[object, int], None], answer: object) -> None:
        self._call_on_loop(on_answer, answer, self._client.last_zxid)

    def _call_on_loop(self, call: Callable[..., None], *args: object) -> None:
        with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
            self._loop.call_soon_threadsafe(call, *args)


class _InlineResult:
    """Where kazoo puts an answer."""

    def __init__(self, session: ZooKeeperSession, done: Callable[[object, int], None]) -> None:
        self._session, self._done = session, done

    def set(self, answer: object) -> None:
        self._session._answer_received(self._done, answer)

    set_exception = set


class _InlineHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Calls back in the thread that reads, and connects no more once the session is over: each has its own client.

    A client that went on with a new session would carry into it what was asked in the old one.
    """

    def __init__(self, connect_s: float) -> None:
        super().__init__()
        self._connect_s, self.is_over = connect_s, False

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        callback.func(*callback.args)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout_s: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """One call of the kernel instead of kazoo's five, several times for each request."""
        poller = select.poll()
        for reader in readers:
            poller.register(reader, select.POLLIN)
        for writer in writers:
            poller.register(writer, select.POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout_s is None else timeout_s * 1000)}
        return [a for a in readers if a.fileno() in ready], [a for a in writers if a.fileno() in ready], []

    def create_connection(self, *args: Any, **options: Any) -> Any:
        if self.is_over:
            raise ConnectionRefusedError("the session is over")
        return super().create_connection(*args, **options | {"timeout": self._connect_s})
