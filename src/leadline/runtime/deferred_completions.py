"""Work deferred until the requests of one read have been served.

Three kinds: waits for records are acknowledged, futures are completed, waiting fetches are re-evaluated. This queue is
the only way in which a partition reaches the requests that wait for it.

The requests of one read are served between `hold` and `release`. Acknowledgements and completions run at `release`, so
that the replies to one connection leave together. Fetches are evaluated when the loop iteration ends, so that one
answer covers everything appended in it; at `release` already if no other connection is served in this iteration. What
was appended is kept for them until then, see `runtime/recent_appends.py`.

    nothing is acknowledged, completed or evaluated between `hold` and `release`
    a fetch that several partitions wake is evaluated once
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from leadline.errors import WireError
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.runtime.recent_appends import RecentAppends

OnAcknowledged = Callable[[WireError | None], None]  # None: the records are where they have to be
R = TypeVar("R")


class DeferredCompletions:
    """`serves_one`: whether at most one connection is served in this iteration of the loop."""

    def __init__(self, serves_one: Callable[[], bool] = lambda: False) -> None:
        self.recent = RecentAppends()
        self._serves_one = serves_one
        self._acknowledged: list[tuple[OnAcknowledged, WireError | None]] = []
        self._completed: list[ImmediateFuture[Any]] = []
        self._evaluations: dict[Callable[[], None], None] = {}
        self._is_held = False
        self._is_scheduled = False  # the loop calls `_run_scheduled` in its next iteration

    def hold(self) -> None:
        """Requests are being served."""
        self._is_held = True

    def release(self) -> None:
        """The requests of one read were served."""
        try:
            if self._acknowledged:
                self._run_acknowledgements()
        finally:
            self._is_held = False
            try:
                if self._completed:
                    self._notify()
            finally:
                if self._evaluations or self.recent or self._acknowledged:
                    if self._serves_one() and not self._acknowledged:
                        self._evaluate()
                    else:
                        self._schedule()

    def acknowledge(self, waits: Iterable[OnAcknowledged], error: WireError | None) -> None:
        """Call back those who waited for records."""
        self._acknowledged += [(on_acknowledged, error) for on_acknowledged in waits]
        if not self._is_held:
            self._schedule()

    def complete(self, future: ImmediateFuture[R], result: R) -> None:
        """Set the result of a future, and notify its connection later."""
        future.set_result(result)
        if self._is_held:
            self._completed.append(future)
        else:
            asyncio.get_running_loop().call_soon(future.notify)

    def evaluate(self, evaluation: Callable[[], None]) -> None:
        """Evaluate a waiting fetch."""
        self._evaluations[evaluation] = None
        if not self._is_held:
            self._schedule()

    def recent_appends(self) -> RecentAppends:
        """Where to put what is about to be appended, for the fetches that wait for it."""
        if not self._is_held:
            self._schedule()
        return self.recent

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        if self._acknowledged:
            self.hold()
            self.release()
        self._evaluate()

    # If one callback raises, the loop logs it and the remaining ones still run.

    def _run_acknowledgements(self) -> None:
        acknowledged, self._acknowledged = self._acknowledged[::-1], []
        try:
            while acknowledged:
                on_acknowledged, error = acknowledged.pop()
                on_acknowledged(error)
        finally:
            self._acknowledged += reversed(acknowledged)

    def _notify(self) -> None:
        """Notify each connection once."""
        futures = list({future.on_done: future for future in reversed(self._completed)}.values())
        self._completed = []
        try:
            while futures:
                futures.pop().notify()
        finally:
            for future in reversed(futures):
                asyncio.get_running_loop().call_soon(future.notify)

    def _evaluate(self) -> None:
        """Evaluate the fetches in the order in which they were named."""
        evaluations, self._evaluations = list(self._evaluations)[::-1], {}
        try:
            while evaluations:
                evaluations.pop()()
        finally:
            self.recent.clear()
            for evaluation in reversed(evaluations):
                self.evaluate(evaluation)


def of_running_loop() -> DeferredCompletions:
    """The queue of a broker on the running loop. Only `EventLoop` knows how many connections it serves."""
    loop = asyncio.get_running_loop()
    return DeferredCompletions(loop.serves_one) if isinstance(loop, EventLoop) else DeferredCompletions()
