"""Accepts the connections of all listeners, as many as the quotas admit and as fast as the loop can afford.

A connection that is not accepted yet waits in the queue of its listener: while max.connections is reached, until the
next second while max.connection.creation.rate is reached, or while descriptors or memory are short.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from functools import partial

from leadline.broker.connection_quotas import ConnectionQuotas
from leadline.log.files import CACHE
from leadline.runtime.network import ListeningSocket, Network, Socket
from leadline.runtime.ports import shortage

log = logging.getLogger(__name__)

ACCEPT_SECONDS = 0.002  # in one turn of the loop; a burst of connections is accepted in a few turns
SHORTAGE_SECONDS = 0.5  # until accept is tried again after it failed, unless a connection ends before
SHORTAGE_LOG_SECONDS = 10.0  # between two log lines about it

# accept reports that one connection failed before it was accepted. The next one may be fine.
_ONE_FAILED = frozenset(
    (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN,
     errno.EHOSTUNREACH, errno.ENONET, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ETIMEDOUT)
)  # fmt: skip

Accepted = Callable[[Socket, str, int, str], None]  # a connection, the host and port of its peer, the listener's name


class Acceptor:
    def __init__(
        self, network: Network, quotas: ConnectionQuotas, now: Callable[[], float], accepted: Accepted
    ) -> None:
        self._network, self._quotas, self._now, self._accepted = network, quotas, now, accepted
        self._listeners: list[tuple[ListeningSocket, str]] = []
        self._is_started = self._is_watching = False
        self._next_second: asyncio.TimerHandle | None = None  # set while max.connection.creation.rate is reached
        self._shortage: asyncio.TimerHandle | None = None  # set while accept fails
        self._shortage_logged_s = -SHORTAGE_LOG_SECONDS

    def listen(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Bind a listener. As in Kafka, an empty host means all addresses. The address that it is bound to."""
        try:
            sock = self._network.listen(host, port, max(self._quotas.limits.socket_listen_backlog_size, 1))
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror}") from None
        self._listeners.append((sock, name))
        return sock.address

    def start(self) -> None:
        self._is_started = True
        self.update()

    def update(self) -> None:
        """Watch the listeners, or stop watching them, as the quotas now say."""
        has_room = self._quotas.has_room
        should_watch = self._is_started and has_room and self._next_second is None and self._shortage is None
        if self._is_watching and not has_room:
            log.warning("%s is reached: new connections have to wait", self._quotas.reached())
        if should_watch is not self._is_watching:
            self._is_watching = should_watch
            for sock, name in self._listeners:
                sock.on_readable(partial(self._accept, sock, name) if should_watch else None)

    def try_again(self) -> None:
        """A connection has ended: there may be room now."""
        if self._shortage is not None:
            self._shortage.cancel()
            self._shortage = None
        self.update()

    def close(self) -> None:
        for sock, _ in self._listeners:
            if self._is_watching:
                sock.on_readable(None)
            sock.close()
        self._listeners.clear()
        self._is_started = self._is_watching = False
        for timer in (self._next_second, self._shortage):
            if timer is not None:
                timer.cancel()

    def _accept(self, listening: ListeningSocket, listener: str) -> None:
        """Accept all connections that wait, as far as they fit into this turn of the loop."""
        ends_s = self._now() + ACCEPT_SECONDS
        while self._quotas.has_room and self._may_create():
            try:
                sock, host, port = listening.accept_connection()
            except OSError as error:
                if not self._is_passing(error):
                    break
                continue
            self._quotas.created()
            self._accepted(sock, host, port, listener)
            if self._now() > ends_s:
                break
        self.update()

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
            log.error("connections cannot be accepted for now, and have to wait: %s", shortage(error) or error)
        self._shortage = asyncio.get_running_loop().call_later(SHORTAGE_SECONDS, self.try_again)

    def _may_create(self) -> bool:
        delay_s = self._quotas.seconds_to_wait(self._now())
        if delay_s > 0 and self._next_second is None:
            self._next_second = asyncio.get_running_loop().call_later(delay_s, self._begin_second)
        return delay_s <= 0

    def _begin_second(self) -> None:
        self._next_second = None
        self.update()
