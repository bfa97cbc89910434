"""Long work in steps: a generator that yields between them, and whose result is that of the work.

Pure: `turns` runs steps beside the requests of clients, `exhaust` runs them at once.
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]

PORTION = 100  # elements in one step


def portions(elements: Iterable[T], size: int = PORTION) -> Iterator[list[T]]:
    iterator = iter(elements)
    while portion := list(islice(iterator, size)):
        yield portion


def one_step(call: Callable[[], T]) -> Steps[T]:
    yield
    result = call()
    assert not isinstance(result, Generator), "these are steps, which a caller has to run"
    return result


def exhaust(steps: Steps[T]) -> T:
    """Runs all steps, and returns the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
