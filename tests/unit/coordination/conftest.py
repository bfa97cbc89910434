"""A loop that lasts for a test, and a tree on it in each of its homes: embedded, and in a real ZooKeeper."""

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import Tree
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.runtime.ports import SystemTime
from tests.conformance.kafka.broker import ZooKeeper, zookeeper

T = TypeVar("T")


class Run(Protocol):
    def __call__(self, awaitable: Coroutine[Any, Any, T], /) -> T: ...


class Home(Protocol):
    """Where a tree is stored while it is closed."""

    async def open(self) -> Tree: ...


class Embedded:
    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def open(self) -> Tree:
        return await EmbeddedTree.open(str(self.directory), SystemTime())


class InZooKeeper:
    def __init__(self, connect: str, session_timeout_ms: int = 10_000) -> None:
        self.connect, self.session_timeout_ms = connect, session_timeout_ms

    async def open(self) -> ZooKeeperTree:
        return await ZooKeeperTree.open(
            self.connect,
            session_timeout_ms=self.session_timeout_ms,
            connection_timeout_ms=60_000,
            max_in_flight=10,
        )


@pytest.fixture
def run() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def in_zookeeper(server: ZooKeeper, tmp_path: Path) -> InZooKeeper:
    """Below a path of its own: the tree is empty."""
    return InZooKeeper(f"{server.connect}/tests/{tmp_path.name}")


@pytest.fixture(params=["embedded", "zookeeper"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    if request.param == "embedded":
        return Embedded(tmp_path)
    home: InZooKeeper = request.getfixturevalue("in_zookeeper")
    return home


@pytest.fixture
def tree(run: Run, home: Home) -> Iterator[Tree]:
    tree = run(home.open())
    yield tree
    run(tree.close())
