"""A loop that lasts for a test, and an embedded tree on it."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from leadline.coordination.embedded import EmbeddedTree
from leadline.ports import SystemClock

T = TypeVar("T")


class Run(Protocol):
    def __call__(self, awaitable: Coroutine[Any, Any, T], /) -> T: ...


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def tree(run: Run, tmp_path: Path) -> Iterator[EmbeddedTree]:
    tree = run(EmbeddedTree.open(str(tmp_path), SystemClock()))
    yield tree
    run(tree.close())
