"""Timers by name. To put one off, as each heartbeat does, costs next to nothing: it rings in vain and is set anew."""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Alarm:
    due: float  # by the loop's clock, which nobody turns back; at or after its handle's
    handle: asyncio.TimerHandle


class Timers(Generic[K]):
    """`ring` is called with the name of each timer that has run out."""

    def __init__(self, ring: Callable[[K], None]) -> None:
        self._ring = ring
        self._alarms: dict[K, _Alarm] = {}
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._alarms)

    def set(self, name: K, after_ms: int) -> None:
        """In place of the one of that name, if there is one."""
        due = self._loop.time() + after_ms / 1000
        alarm = self._alarms.get(name)
        if alarm is not None and alarm.handle.when() <= due:
            alarm.due = due
            return
        if alarm is not None:
            alarm.handle.cancel()
        self._alarms[name] = _Alarm(due, self._loop.call_at(due, self._rang, name))

    def cancel(self, name: K) -> None:
        if (alarm := self._alarms.pop(name, None)) is not None:
            alarm.handle.cancel()

    def cancel_all(self) -> None:
        for name in list(self._alarms):
            self.cancel(name)

    def _rang(self, name: K) -> None:
        alarm = self._alarms[name]
        if alarm.due > alarm.handle.when():
            alarm.handle = self._loop.call_at(alarm.due, self._rang, name)
            return
        del self._alarms[name]
        self._ring(name)
