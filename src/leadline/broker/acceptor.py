"""Accepts the connections of all listeners, as many as the quotas admit and as fast as the loop can afford.

A connection that is not accepted yet waits in the queue of its listener: while max.connections is reached, while the
one before it waits because max.connection.creation.rate is reached, or while descriptors or memory are short. Listeners
do not wait for each other.

    connected clients come first: connections are accepted after the sockets that are ready in the same turn
    while small requests come, a connection is accepted in a step for unauthenticated peers: a turn has one at most
    while none come, a turn accepts many
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial

from leadline.broker.connection_quotas import ConnectionQuotas
from leadline.log.open_files import CACHE
from leadline.runtime.network import ListeningSocket, Network, Socket
from leadline.runtime.ports import shortage
from leadline.runtime.step_scheduler import StepScheduler
from leadline.security.connection_rates import ConnectionRates

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 0.002  # in one turn of the loop; a burst of connections is accepted in a few turns
SHORTAGE_SECONDS = 0.5  # until accept is tried again after it failed, unless a connection ends before
SHORTAGE_LOG_SECONDS = 10.0  # between two log lines about it

# accept reports that one connection failed before it was accepted. The next one may be fine.
_ONE_FAILED = frozenset(
    (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN,
     errno.EHOSTUNREACH, getattr(errno, "ENONET", errno.ENETDOWN), errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ETIMEDOUT)
)  # fmt: skip

Accepted = Callable[[Socket, str, int, str], None]  # a connection, the host and port of its peer, the listener's name


class BoundListener:
    """A listener, and the connection on it that came too fast, if there is one."""

    def __init__(self, sock: ListeningSocket, name: str) -> None:
        self.sock, self.name = sock, name
        self.is_watched = False
        self.is_due = False  # accepting, later in this turn
        self.delayed: tuple[Socket, str, int] | None = None  # continues when its timer has run, and there is room
        self.timer: asyncio.TimerHandle | None = None


class Acceptor:
    _accepted: Accepted  # there once it is started

    def __init__(
        self,
        network: Network,
        quotas: ConnectionQuotas,
        rates: ConnectionRates,
        now: Callable[[], float],
        is_quiet: Callable[[float], bool],
        steps: StepScheduler,
    ) -> None:
        """`is_quiet`: whether no small request has come for a while."""
        self._network, self._quotas, self._rates, self._now = network, quotas, rates, now
        self._is_quiet, self._steps = is_quiet, steps
        self._listeners: list[BoundListener] = []
        self._is_started = self._is_closed = False
        self._shortage: asyncio.TimerHandle | None = None  # set while accept fails
        self._shortage_logged_s = -SHORTAGE_LOG_SECONDS

    def listen(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Bind a listener. As in Kafka, an empty host means all addresses. The address that it is bound to."""
        sock = self._bind(name, host, port)
        self._listeners.append(BoundListener(sock, name))
        self.update()
        return sock.address

    def check_address(self, name: str, host: str, port: int) -> None:
        """OSError if a listener could not be bound to it now."""
        self._bind(name, host, port).close()

    def _bind(self, name: str, host: str, port: int) -> ListeningSocket:
        try:
            if self._is_closed:
                raise OSError(errno.ESHUTDOWN, "the broker stops")
            return self._network.listen(host, port, max(self._quotas.limits.socket_listen_backlog_size, 1))
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror}") from None

    def stop_listening_on(self, name: str) -> None:
        """Closes a listener. Connections that it has accepted stay."""
        for listening in [listening for listening in self._listeners if listening.name == name]:
            self._listeners.remove(listening)
            self._close(listening)

    def start(self, accepted: Accepted) -> None:
        """`accepted` is called for each connection."""
        self._accepted, self._is_started = accepted, True
        self.update()

    def update(self) -> None:
        """Watch the listeners, or stop watching them, by the current quotas."""
        for listening in self._listeners:
            has_room = self._quotas.has_room(listening.name)
            if has_room and listening.delayed is not None and listening.timer is None:
                self._admit_delayed(listening)
                has_room = self._quotas.has_room(listening.name)
            if listening.is_watched and not has_room:
                log.warning("%s is reached: new connections have to wait", self._quotas.reached(listening.name))
            is_free = listening.delayed is None and self._shortage is None
            self._watch(listening, self._is_started and has_room and is_free)

    def _watch(self, listening: BoundListener, is_watched: bool) -> None:
        if is_watched is not listening.is_watched:
            listening.is_watched = is_watched
            listening.sock.on_readable(partial(self._schedule, listening) if is_watched else None)

    def try_again(self) -> None:
        """A connection has ended: there may be room now."""
        if self._shortage is not None:
            self._shortage.cancel()
            self._shortage = None
        self.update()

    def close(self) -> None:
        self._is_started, self._is_closed = False, True
        for listening in self._listeners:
            self._close(listening)
        self._listeners.clear()
        if self._shortage is not None:
            self._shortage.cancel()

    def _close(self, listening: BoundListener) -> None:
        self._watch(listening, False)
        listening.sock.close()
        if listening.timer is not None:
            listening.timer.cancel()
        if listening.delayed is not None:
            listening.delayed[0].close()

    def _schedule(self, listening: BoundListener) -> None:
        if listening.is_due:
            return
        listening.is_due = True
        if self._is_quiet(self._now()):
            asyncio.get_running_loop().call_soon(self._accept, listening, ACCEPT_SECONDS)
        else:
            self._steps.schedule(partial(self._accept, listening, 0.0))

    def _accept(self, listening: BoundListener, seconds: float) -> None:
        """Accept the connections that wait, until the time is over: one at least."""
        listening.is_due = False
        if not listening.is_watched:
            return
        ends_s = self._now() + seconds
        while self._quotas.has_room(listening.name):
            try:
                sock, host, port = listening.sock.accept_connection()
            except OSError as error:
                if not self._is_passing(error):
                    break
                continue
            delay_ms = self._rates.listener_delay_ms(listening.name, int(self._now() * 1000))
            if delay_ms:
                listening.delayed = sock, host, port
                listening.timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._delay_ended, listening)
                break
            self._accepted(sock, host, port, listening.name)
            if self._now() > ends_s:
                break
        self.update()

    def _delay_ended(self, listening: BoundListener) -> None:
        listening.timer = None
        self.update()

    def _admit_delayed(self, listening: BoundListener) -> None:
        assert listening.delayed is not None
        (sock, host, port), listening.delayed = listening.delayed, None
        self._accepted(sock, host, port, listening.name)

    def _is_passing(self, error: OSError) -> bool:
        """Whether the next accept may succeed right away."""
        if error.errno in _ONE_FAILED:
            log.debug("a connection was not accepted: %s", error)
            return True
        if error.errno in (errno.EMFILE, errno.ENFILE) and CACHE.make_room():
            return True
        if not isinstance(error, BlockingIOError | InterruptedError):
            self._wait_for_resources(error)
        return False

    def _wait_for_resources(self, error: OSError) -> None:
        """Descriptors or memory are short. Connections wait in their queue until that is over."""
        if self._now() - self._shortage_logged_s >= SHORTAGE_LOG_SECONDS:
            self._shortage_logged_s = self._now()
            log.error("connections have to wait, since they cannot be accepted for now: %s", shortage(error) or error)
        self._shortage = asyncio.get_running_loop().call_later(SHORTAGE_SECONDS, self.try_again)
