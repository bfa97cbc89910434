"""An answer of which a connection is told at once: a future's callbacks would have to wait for the loop's next turn."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

R = TypeVar("R")


class Prompt(asyncio.Future[R]):
    """Who gives a result tells of it, too, once nobody is being served."""

    told: Callable[[asyncio.Future[R]], None] | None = None  # is called then
    given_up: Callable[[], None] | None = None  # is called when it is cancelled

    def tell(self) -> None:
        if self.told is not None:
            self.told(self)

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.given_up is not None:
            self.given_up()
        return is_cancelled
