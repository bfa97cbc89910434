"""An answer of which a connection is told at once: with a future's callbacks it would be another turn of the loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from leadline.wire.primitives import Piece

R = TypeVar("R", bound=bytes | list[Piece])


class Prompt(asyncio.Future[R]):
    """`told` is called when it is given, with itself; `given_up` when it is cancelled. As nobody's callback waits for
    the loop, it is not to be given while another request is being served."""

    told: Callable[[asyncio.Future[R]], None] | None = None
    given_up: Callable[[], None] | None = None

    def give(self, reply: R) -> None:
        self.set_result(reply)
        if self.told is not None:
            self.told(self)

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        if is_cancelled and self.given_up is not None:
            self.given_up()
        return is_cancelled
