"""The pipeline's client of a cluster, stopped between two of its steps: a request that goes out, an answer taken."""

from collections.abc import Callable

import pytest

from leadline.spark.client.connection import BlockingConnection


class Died(BaseException):
    """As if the process were killed: nothing is cleaned up."""


def die() -> None:
    raise Died


class Steps:
    """Calls something before a step, counted from 1 on, over all connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.step, self.count = 0, 0
        self.call: Callable[[], object] = die
        send, answer = BlockingConnection.send, BlockingConnection.answer

        def sending(connection: BlockingConnection, *args: object) -> object:
            self._counted()
            return send(connection, *args)  # type: ignore[arg-type]

        def answering(connection: BlockingConnection, *args: object) -> object:
            self._counted()
            return answer(connection, *args)  # type: ignore[arg-type]

        monkeypatch.setattr(BlockingConnection, "send", sending)
        monkeypatch.setattr(BlockingConnection, "answer", answering)

    def _counted(self) -> None:
        self.count += 1
        if self.count == self.step:
            self.call()

    def before(self, step: int, call: Callable[[], object] = die) -> None:
        """From now on; 0: no step."""
        self.step, self.count, self.call = step, 0, call
