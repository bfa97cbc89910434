"""How many connections there may be: in all, on one listener, from one address.

Pure: counts in, verdicts out.

    the listener between brokers, if it is not the only one, is protected: max.connections does not hold it up, and
    connections of other listeners give way to those on it
How fast they may come is measured by `security/connection_rates.py`.
"""

from collections import Counter
from dataclasses import dataclass

INT_MAX = (1 << 31) - 1
SEND_BUFFER_BYTES = 307_200  # unless socket.send.buffer.bytes is set: Kafka's default takes twice the turns
LISTEN_BACKLOG = 65_535  # unless socket.listen.backlog.size is set: as many as net.core.somaxconn lets wait


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Kafka's settings for connections."""

    socket_request_max_bytes: int = 104_857_600
    max_connections: int = INT_MAX
    max_connections_of_listeners: tuple[tuple[str, int], ...] = ()
    protected_listener: str | None = None
    capacity: int = INT_MAX  # the share of descriptors; no listener goes beyond it
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    connections_max_idle_ms: int = 600_000
    max_connection_creation_rate: int = INT_MAX
    creation_rates_of_listeners: tuple[tuple[str, int], ...] = ()
    descriptor_limit: int = 0  # 0: connections are bounded by max.connections before it
    queued_max_request_bytes: int = -1
    socket_send_buffer_bytes: int = SEND_BUFFER_BYTES
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = LISTEN_BACKLOG


class ConnectionQuotas:
    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._count = 0
        self._count_per_listener: Counter[str] = Counter()
        self._count_per_ip: Counter[str] = Counter()

    def has_room(self, listener: str) -> bool:
        limits = self.limits
        if self._count >= limits.capacity or self._count_per_listener[listener] >= self._limit_of_listener(listener):
            return False
        return listener == limits.protected_listener or self._count < limits.max_connections

    @property
    def excess(self) -> int:
        """The number of connections to close on listeners that are not protected."""
        unprotected = self._count - self._count_per_listener[self.limits.protected_listener or ""]
        return min(self._count - self.limits.max_connections, unprotected)

    def reached(self, listener: str) -> str:
        """The limit that leaves no room."""
        count, descriptors = self.limits.max_connections, self.limits.descriptor_limit
        if self._count < count and self._count_per_listener[listener] >= self._limit_of_listener(listener):
            return f"max.connections={self._limit_of_listener(listener)} of listener {listener}"
        if descriptors:
            return f"the share of ulimit -n={descriptors}, {count} connections,"
        return f"max.connections={count}"

    def _limit_of_listener(self, listener: str) -> int:
        return dict(self.limits.max_connections_of_listeners).get(listener, INT_MAX)

    def limit_of(self, host: str) -> int:
        return dict(self.limits.max_connections_per_ip_overrides).get(host, self.limits.max_connections_per_ip)

    def admits(self, host: str) -> bool:
        return self._count_per_ip[host] < self.limit_of(host)

    def count_of(self, listener: str) -> int:
        return self._count_per_listener[listener]

    def opened(self, listener: str, host: str) -> None:
        self._count += 1
        self._count_per_listener[listener] += 1
        self._count_per_ip[host] += 1

    def closed(self, listener: str, host: str) -> None:
        self._count -= 1
        self._count_per_listener[listener] -= 1
        self._count_per_ip[host] -= 1
        if not self._count_per_ip[host]:
            del self._count_per_ip[host]
