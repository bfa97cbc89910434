"""Throttles: replication of partitions that are moved stays below a rate, for the sake of network and disks.

A rate is taken over windows of time, as Kafka does: the bytes of the last replication.quota.window.num windows of
replication.quota.window.size.seconds each, by the time since the oldest of them began. Above the limit nothing more is
sent or fetched until the rate has come down: one response may exceed the limit, the average does not.

    a topic's setting names the throttled replicas: * for all, or partition:broker, separated by commas
    an in-sync replica is never held back, but its bytes count

Pure: adds up bytes; the caller passes the time.
"""

from collections import deque
from dataclasses import dataclass
from functools import lru_cache

from leadline.config.values import LONG_MAX
from leadline.model import BrokerId

ALL = "*"


@dataclass(slots=True)
class _Window:
    began_ms: int
    last_ms: int
    bytes: int = 0


class Throttle:
    """`limit`: bytes per second; unlimited by default."""

    def __init__(self, windows: int = 11, window_ms: int = 1000) -> None:
        self.limit = LONG_MAX
        self.windows, self.window_ms = windows, window_ms
        self._kept: deque[_Window] = deque()  # the newest last; one more than counts, as it may reach into the first

    def record(self, count: int, now_ms: int) -> None:
        if not self._kept or now_ms - self._kept[-1].began_ms >= self.window_ms:
            self._kept.append(_Window(now_ms, now_ms))
            if len(self._kept) > self.windows + 1:
                self._kept.popleft()
        newest = self._kept[-1]
        newest.bytes += count
        newest.last_ms = now_ms

    def bytes_per_second(self, now_ms: int) -> float:
        while self._kept and now_ms - self._kept[0].last_ms >= self.windows * self.window_ms:
            self._kept.popleft()
        if not self._kept:
            return 0.0
        elapsed_ms = max(now_ms - self._kept[0].began_ms, self.window_ms)
        return sum(window.bytes for window in self._kept) * 1000 / elapsed_ms

    def is_exceeded(self, now_ms: int) -> bool:
        return self.limit < LONG_MAX and self.bytes_per_second(now_ms) > self.limit


class Throttles:
    """The throttles of one broker: as a leader, as a follower, and between its own log directories."""

    def __init__(self) -> None:
        self.leader, self.follower, self.moves = Throttle(), Throttle(), Throttle()


def is_named(replicas: str, partition: int, broker: BrokerId) -> bool:
    """Whether a topic's setting names the replica of a partition on a broker."""
    if not replicas:
        return False
    named = _named(replicas, broker)
    return named is None or partition in named


@lru_cache(maxsize=10_000)
def _named(replicas: str, broker: BrokerId) -> frozenset[int] | None:
    """None: all of them."""
    if replicas == ALL:
        return None
    pairs = (replica.partition(":") for replica in replicas.split(",") if ":" in replica)
    return frozenset(int(partition) for partition, _, number in pairs if int(number) == broker)
