"""A coroutine that awaits another one, and closes it if it is never started.

A task that is cancelled before its first step drops its coroutine. What that one would have awaited is then reported as
"never awaited", though nothing went wrong.
"""

from collections.abc import Awaitable, Coroutine, Generator
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class ChainedCoroutine(Coroutine[Any, Any, T]):
    __slots__ = ("_coroutine", "_inner", "_started")

    def __init__(self, coroutine: Coroutine[Any, Any, T], inner: Awaitable[Any]) -> None:
        self._coroutine, self._inner, self._started = coroutine, inner, False

    def __await__(self) -> Generator[Any, Any, T]:
        self._started = True
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._started = True
        return self._coroutine.send(value)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        self._close_inner()
        return self._coroutine.throw(kind)

    def close(self) -> None:
        self._close_inner()
        self._coroutine.close()

    def _close_inner(self) -> None:
        if not self._started and isinstance(self._inner, Coroutine):
            self._inner.close()
