"""The clock of a cluster in a test: it runs like the real one, and the test can move it forward.

It is the time port of all brokers and of their loops, so timers follow. The clocks of clients are not moved.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def moment_text(at_ms: int) -> str:
    """As 2026-11-16 18:52:37.287, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


class ClusterClock:
    """`advance` is what a test calls. `on_advance` moves the clock in a way that the brokers survive."""

    def __init__(self, on_advance: Callable[[float], None]) -> None:
        self._ahead_s = 0.0
        self._on_advance = on_advance

    def __repr__(self) -> str:
        return f"<clock of a cluster, {timedelta(seconds=self._ahead_s)} ahead>"

    # The time port

    def now_ms(self) -> int:
        return int((time.time() + self._ahead_s) * 1000)

    def monotonic_s(self) -> float:
        return time.monotonic() + self._ahead_s

    # For tests

    @property
    def now(self) -> datetime:
        """The time of day, as the brokers see it."""
        return datetime.fromtimestamp(self.now_ms() / 1000, UTC)

    @property
    def ahead(self) -> timedelta:
        """How far it is ahead of the real clock."""
        return timedelta(seconds=self._ahead_s)

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Move it forward. Time-outs of brokers that are due then have run when this returns."""
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if step <= timedelta(0):
            raise ValueError(f"a clock can only be moved forward, not by {step}: pass hours=1, seconds=30 or the like")
        self._on_advance(step.total_seconds())

    def jump(self, seconds: float) -> None:
        """For the cluster: move it in one step, without protecting sessions."""
        self._ahead_s += seconds
