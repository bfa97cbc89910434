"""The connections of a broker: accepts them, bounds them, closes idle ones, and closes all of them in the end.

`acceptor` accepts, `connection` serves one client, `connection_quotas` counts and `security/connection_rates` measures.
`authentication` and `tls_socket` protect listeners that are not PLAINTEXT.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection

from leadline.broker.acceptor import Acceptor
from leadline.broker.authentication import Logins
from leadline.broker.closing_sockets import MAX_REFUSED, ClosingSockets, LingeringSockets
from leadline.broker.connection import Connection, ServeFrame
from leadline.broker.connection_quotas import ConnectionLimits, ConnectionQuotas
from leadline.broker.frame_memory import FrameMemory
from leadline.broker.readahead import Readahead
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.network import Network, Socket
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.periodic import spawn
from leadline.runtime.step_scheduler import StepScheduler
from leadline.security.connection_rates import ConnectionRates
from leadline.security.hosts import host_address

log = logging.getLogger(__name__)

GRACE_SECONDS = 2.0  # for requests under way, before their connections are closed
LATE_LOGINS_SECONDS = 5.0  # between two looks for logins that take too long, and for idle connections, at most


class Net:
    serve: ServeFrame  # there once it is started
    completions: DeferredCompletions

    def __init__(
        self,
        limits: ConnectionLimits,
        network: Network,
        now: Callable[[], float],
        logins: Logins,
        rates: ConnectionRates,
    ) -> None:
        self.limits, self.network, self.now, self.logins, self.rates = limits, network, now, logins, rates
        self._limit_rates()
        self.connections: OrderedSet[Connection] = OrderedSet()
        self.memory = FrameMemory(asyncio.get_running_loop().call_soon)
        self.memory.configure(limits.socket_request_max_bytes, limits.queued_max_request_bytes)
        self.scheduler = StepScheduler(asyncio.get_running_loop())
        self.readahead = Readahead()
        self._quotas = ConnectionQuotas(limits)
        self._acceptor = Acceptor(network, self._quotas, rates, now, self.scheduler.is_quiet, logins.steps)
        self._refused = ClosingSockets(MAX_REFUSED)  # connections that came too fast
        self.lingering = LingeringSockets(self.memory.scratch, self.logins.steps)  # peers still read why they ended
        self._closing: OrderedSet[asyncio.Task[None]] = OrderedSet()  # connections of removed listeners
        self._idle_timer: asyncio.TimerHandle | None = None
        self.opened_connections: Counter[str] = Counter()  # by listener, since the start
        self.expired_connections = 0  # closed because they were idle

    def listen(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Bind a listener. As in Kafka, an empty host means all addresses. The address that it is bound to."""
        address = self._acceptor.listen(name, host, port)
        self.rates.add_listener(name)
        return address

    def check_address(self, name: str, host: str, port: int) -> None:
        """OSError if a listener could not be bound to it now."""
        self._acceptor.check_address(name, host, port)

    def stop_listening_on(self, name: str) -> None:
        """Connections of the listener stay, so that it can be opened again."""
        self._acceptor.stop_listening_on(name)

    def forget_listener(self, name: str) -> None:
        """Closes a listener and its connections. Requests under way may finish for a moment."""
        self._acceptor.stop_listening_on(name)
        self.rates.remove_listener(name)
        for connection in [connection for connection in self.connections if connection.listener == name]:
            spawn(self._close_answered([connection], f"listener {name} is removed"), self._closing)

    def start(self, serve: ServeFrame, completions: DeferredCompletions | None = None) -> None:
        """`completions`: the work that is deferred until the requests of one read are served."""
        self.serve = serve
        self.completions = completions or DeferredCompletions()
        self._acceptor.start(self._accepted)
        self._schedule_idle_check()

    def reconfigure(self, limits: ConnectionLimits) -> None:
        """Obey other limits from now on. If fewer connections are allowed, those are closed that were idle longest."""
        self.limits = self._quotas.limits = limits
        self.memory.configure(limits.socket_request_max_bytes, limits.queued_max_request_bytes)
        self._limit_rates()
        self._acceptor.update()
        self._close_excess()

    def _limit_rates(self) -> None:
        self.rates.broker_limit = self.limits.max_connection_creation_rate
        self.rates.listener_limits = dict(self.limits.creation_rates_of_listeners)

    def _close_excess(self) -> None:
        """Connections of protected listeners stay."""
        excess, limits = self._quotas.excess, self.limits
        if excess > 0:
            others = [connection for connection in self.connections if connection.listener != limits.protected_listener]
            for connection in sorted(others, key=lambda other: (other.is_served, other.last_active))[:excess]:
                connection.close(f"max.connections={limits.max_connections} is exceeded")

    def _accepted(self, sock: Socket, host: str, port: int, listener: str) -> None:
        if delay_ms := self.rates.address_delay_ms(listener, host_address(host), int(self.now() * 1000)):
            self._refused.add(sock, delay_ms / 1000)  # nothing is read from it meanwhile, as in Kafka
            return
        if not self._quotas.admits(host):
            limit = self._quotas.limit_of(host)
            log.warning("connection from %s refused: max.connections.per.ip=%d is reached", host, limit)
            sock.close()
            return
        sock.set_buffers(self.limits.socket_send_buffer_bytes, self.limits.socket_receive_buffer_bytes)
        connection = Connection(self, self.logins.protect(sock, listener), host, port, listener)
        self.connections.add(connection)
        self._quotas.opened(listener, host)
        self.opened_connections[listener] += 1
        self._close_excess()
        self.logins.begin(connection)
        try:
            connection.start()
        except OSError as error:  # the loop cannot watch it
            connection.close(f"it cannot be served: {error}")

    def logged_in(self, connection: Connection) -> None:
        self.logins.ended(connection)

    def closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.logins.ended(connection)
        self._quotas.closed(connection.listener, connection.host)
        self._acceptor.try_again()

    def connection_count(self, listener: str) -> int:
        return self._quotas.count_of(listener)

    # Idle connections

    def _schedule_idle_check(self) -> None:
        delay_s = min(max(self.limits.connections_max_idle_ms / 10_000, 0.05), LATE_LOGINS_SECONDS)
        self._idle_timer = asyncio.get_running_loop().call_later(delay_s, self._close_idle)

    def _close_idle(self) -> None:
        max_idle_ms = self.limits.connections_max_idle_ms
        if max_idle_ms > 0:
            oldest = self.now() - max_idle_ms / 1000
            idle = [
                connection
                for connection in self.connections
                if not connection.is_served and connection.last_active < oldest
            ]
            self.expired_connections += len(idle)
            for connection in idle:
                connection.close(f"idle; connections.max.idle.ms={max_idle_ms}", quiet=True)
        self.logins.close_late()
        self._schedule_idle_check()

    # The end

    def stop_listening(self) -> None:
        self._acceptor.close()

    async def close(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """No new connections. Requests under way may finish for a moment; then all connections are closed."""
        self.stop_listening()
        self._refused.close_all()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self._close_answered(self.connections, "the broker stops", grace_seconds)
        for closing in self._closing:
            closing.cancel()
        await all_ended(*self._closing)
        self.lingering.close_all()
        self.logins.close()
        self.readahead.close()

    async def _close_answered(
        self, connections: Collection[Connection], why: str, grace_seconds: float = GRACE_SECONDS
    ) -> None:
        answers = [answer for connection in connections for answer in connection.answers]
        if answers:
            await asyncio.wait(answers, timeout=grace_seconds)
        for connection in list(connections):
            connection.close(why, quiet=True)
