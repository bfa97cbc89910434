"""How many connections there may be: in all, from one address, and new ones in a second.

Pure: counts in, verdicts out.
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
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    connections_max_idle_ms: int = 600_000
    max_connection_creation_rate: int = INT_MAX
    descriptor_limit: int = 0  # 0: connections are bounded by max.connections before it
    queued_max_request_bytes: int = -1
    socket_send_buffer_bytes: int = SEND_BUFFER_BYTES
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = LISTEN_BACKLOG


class ConnectionQuotas:
    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._count = 0
        self._count_per_ip: Counter[str] = Counter()
        self._second_s, self._created = 0.0, 0  # connections that were created since this second began

    @property
    def has_room(self) -> bool:
        return self._count < self.limits.max_connections

    def reached(self) -> str:
        """The limit that leaves no room."""
        count, descriptors = self.limits.max_connections, self.limits.descriptor_limit
        if descriptors:
            return f"the share of ulimit -n={descriptors}, {count} connections,"
        return f"max.connections={count}"

    def limit_of(self, host: str) -> int:
        return dict(self.limits.max_connections_per_ip_overrides).get(host, self.limits.max_connections_per_ip)

    def admits(self, host: str) -> bool:
        return self._count_per_ip[host] < self.limit_of(host)

    def opened(self, host: str) -> None:
        self._count += 1
        self._count_per_ip[host] += 1

    def closed(self, host: str) -> None:
        self._count -= 1
        self._count_per_ip[host] -= 1
        if not self._count_per_ip[host]:
            del self._count_per_ip[host]

    def seconds_to_wait(self, now_s: float) -> float:
        """Until max.connection.creation.rate allows another connection. 0: now."""
        if now_s - self._second_s >= 1.0:
            self._second_s, self._created = now_s, 0
        return 0.0 if self._created < self.limits.max_connection_creation_rate else self._second_s + 1.0 - now_s

    def created(self) -> None:
        self._created += 1
