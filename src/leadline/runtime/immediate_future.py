"""An answer of which a connection is told at once: a future's callbacks would have to wait for the loop's next turn."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


class ImmediateFuture(asyncio.Future[R]):
    """Who gives a result tells of it, too, once nobody is being served."""

    on_done: Callable[[asyncio.Future[R]], None] | None = None  # is called then
    on_cancel: Callable[[], None] | None = None  # is called when it is cancelled

    def notify(self) -> None:
        if self.on_done is not None:
            self.on_done(self)

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.on_cancel is not None:
            self.on_cancel()
        return is_cancelled
