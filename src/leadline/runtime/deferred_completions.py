"""Work deferred until the requests of one read have been served.

Two kinds: waits for records are acknowledged, waiting fetches are evaluated again. This queue is the only way in which
a partition reaches the requests that wait for it.

While the requests of one read are served, the queue `is_held`; `release` ends that. Waits are acknowledged at
`release`, and each connection is notified once, so that its replies leave together. Fetches are evaluated when the loop
iteration ends, so that one answer covers everything appended in it; at `release` already if no other connection is
served in this iteration. Appended batches are kept for them until then, see `runtime/recent_appends.py`.

    nothing is acknowledged or evaluated while the queue is held
    a fetch that several partitions wake is evaluated once
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from leadline.errors import WireError
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.runtime.recent_appends import RecentAppends

# Called with None if the records are where they have to be. Returns the future that it completed, for a connection.
OnAcknowledged = Callable[[WireError | None], ImmediateFuture[Any] | None]


class DeferredCompletions:
    """`serves_one`: whether at most one connection is served in this iteration of the loop.

    The setter of `is_held` calls `release` afterwards.
    """

    def __init__(self, serves_one: Callable[[], bool] = lambda: False) -> None:
        self.recent = RecentAppends()
        self._serves_one = serves_one
        self._acknowledged: list[tuple[OnAcknowledged, WireError | None]] = []
        self._completed: list[ImmediateFuture[Any]] = []  # their connections are still to be notified
        self._evaluations: dict[Callable[[], None], None] = {}
        self.is_held = False  # requests are being served
        self._is_scheduled = False  # the loop calls `_run_scheduled` in its next iteration

    def release(self) -> None:
        """The requests of one read were served."""
        try:
            if self._acknowledged:
                self._run_acknowledgements()
        finally:
            self.is_held = False
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
        """Call back the waiters for records."""
        self._acknowledged += [(on_acknowledged, error) for on_acknowledged in waits]
        if not self.is_held:
            self._schedule()

    def evaluate(self, evaluations: Iterable[Callable[[], None]]) -> None:
        """Evaluate waiting fetches."""
        for evaluation in evaluations:
            self._evaluations[evaluation] = None
        if not self.is_held:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._is_scheduled = False
        if self._acknowledged:
            self.is_held = True
            self.release()
        self._evaluate()

    # If one callback raises, the loop logs it and the remaining ones still run.

    def _run_acknowledgements(self) -> None:
        acknowledged, self._acknowledged = self._acknowledged[::-1], []
        try:
            while acknowledged:
                on_acknowledged, error = acknowledged.pop()
                if (future := on_acknowledged(error)) is not None:
                    self._completed.append(future)
        finally:
            self._acknowledged += reversed(acknowledged)

    def _notify(self) -> None:
        """Notify each connection once."""
        futures = list({future.on_done: future for future in reversed(self._completed)}.values())
        self._completed = []
        try:
            while futures:
                future = futures.pop()
                if future.on_done is not None:
                    future.on_done(future)
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
            if evaluations:
                self.evaluate(reversed(evaluations))


def of_running_loop() -> DeferredCompletions:
    """The queue of a broker on the running loop. Only `EventLoop` knows how many connections it serves."""
    loop = asyncio.get_running_loop()
    return DeferredCompletions(loop.serves_one) if isinstance(loop, EventLoop) else DeferredCompletions()
