"""What follows from requests that were served: who waited for the in-sync replicas is told, who waits for more looks.

Both happen once a connection's requests are served, not in their midst. Those who were told leave together. Those who
look do so when the turn of the loop is over, so that all that was appended in it is told in one answer; what they look
for is still at hand then, see `runtime/recent_appends.py`.

    nothing is told or looked for while it is held
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from leadline.runtime.immediate_future import ImmediateFuture
from leadline.runtime.recent_appends import RecentAppends

Look = Callable[[], None]
R = TypeVar("R")


class DeferredCompletions:
    def __init__(self) -> None:
        self.recent = RecentAppends()
        self.is_alone: Callable[[], bool] = lambda: False  # nobody else is served in this turn
        self._given: list[ImmediateFuture[Any]] = []
        self._due: list[Look] = []
        self._is_held = self._is_called = False  # held; called by the loop, in its next turn

    def hold(self) -> None:
        """Requests are being served."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        try:
            if self._given:
                self._tell_all()
        finally:
            if self._due or self.recent:
                if self.is_alone():
                    self._take_all()
                else:
                    self._call()

    def complete(self, prompt: ImmediateFuture[R], result: R) -> None:
        prompt.set_result(result)
        if self._is_held:
            self._given.append(prompt)
        else:
            asyncio.get_running_loop().call_soon(prompt.notify)

    def evaluate(self, look: Look) -> None:
        self._due.append(look)
        if not self._is_held:
            self._call()

    def recent_appends(self) -> RecentAppends:
        """For what is about to be appended: until those who wait for it have looked."""
        if not self._is_held:
            self._call()
        return self.recent

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._called)

    def _called(self) -> None:
        self._is_called = False
        self._take_all()

    # Should one fail, which is told by the loop, the others come to their right nevertheless.

    def _tell_all(self) -> None:
        """Once for each connection."""
        given, self._given = list({prompt.on_done: prompt for prompt in reversed(self._given)}.values()), []
        try:
            while given:
                given.pop().notify()
        finally:
            for prompt in reversed(given):
                asyncio.get_running_loop().call_soon(prompt.notify)

    def _take_all(self) -> None:
        """In their order."""
        due, self._due = self._due[::-1], []
        try:
            while due:
                due.pop()()
        finally:
            self.recent.clear()
            for look in reversed(due):
                self.evaluate(look)
