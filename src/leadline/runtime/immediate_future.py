"""A future that notifies its connection synchronously; ordinary future callbacks run one loop iteration later."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


class ImmediateFuture(asyncio.Future[R]):
    """The setter of its result calls `notify`, or leaves that to `DeferredCompletions`."""

    on_done: Callable[[asyncio.Future[R]], None] | None = None  # called by `notify`
    on_cancel: Callable[[], None] | None = None  # called when it is cancelled

    def notify(self) -> None:
        if self.on_done is not None:
            self.on_done(self)

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.on_cancel is not None:
            self.on_cancel()
        return is_cancelled
