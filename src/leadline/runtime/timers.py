"""Timers by name.

A heartbeat postpones a timer, and most timers are postponed many times before they expire. So postponing only notes the
new deadline: the loop still calls at the old one, and the timer is then scheduled again.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Timer:
    deadline: float  # by the loop's monotonic clock; at or after the handle's
    handle: asyncio.TimerHandle


class Timers(Generic[K]):
    """`on_expired` is called with the name of each timer that expires."""

    def __init__(self, on_expired: Callable[[K], None]) -> None:
        self._on_expired = on_expired
        self._timers: dict[K, _Timer] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._timers)

    def set(self, name: K, after_ms: int) -> None:
        """Start a timer, or replace the one of that name."""
        deadline = self._loop.time() + after_ms / 1000
        timer = self._timers.get(name)
        if timer is not None and timer.handle.when() <= deadline:
            timer.deadline = deadline
            return
        if timer is not None:
            timer.handle.cancel()
        self._timers[name] = _Timer(deadline, self._loop.call_at(deadline, self._called, name))

    def cancel(self, name: K) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.handle.cancel()

    def cancel_all(self) -> None:
        for name in list(self._timers):
            self.cancel(name)

    def _called(self, name: K) -> None:
        timer = self._timers[name]
        if timer.deadline > timer.handle.when():
            timer.handle = self._loop.call_at(timer.deadline, self._called, name)
            return
        del self._timers[name]
        self._on_expired(name)
