"""Changes without a notification: what is compared, what is read again, and how much at a time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from leadline.coordination import unannounced_changes
from leadline.coordination.tree import ConnectionLost, Node
from leadline.coordination.unannounced_changes import UnannouncedChanges
from tests.support.memory_tree import CountingTree

NODES = "/nodes"


class Store:
    """Keeps the data of all nodes below a path, and writes down which of them it has read."""

    def __init__(self, tree: CountingTree) -> None:
        self.tree, self.data, self.read_again = tree, dict[str, bytes](), list[str]()
        self.unannounced = UnannouncedChanges(tree, self.listed, self.changed)

    async def listed(self) -> AsyncIterator[str]:
        for name in await self.tree.children(NODES) or []:
            yield f"{NODES}/{name}"

    async def changed(self, path: str) -> None:
        self.read_again.append(path.removeprefix(f"{NODES}/"))
        await self.read(path)

    async def read(self, path: str) -> None:
        if (node := await self.unannounced.get(path)) is None:
            self.data.pop(path, None)
        else:
            self.data[path] = node.data

    async def load(self) -> None:
        async for path in self.listed():
            await self.read(path)

    async def check(self, checks: int = 1) -> list[str]:
        """What these checks made it read again."""
        self.read_again.clear()
        for _ in range(checks):
            await self.unannounced.check_some()
        return sorted(self.read_again)


def run_on_store(test: Callable[[Store, CountingTree], Awaitable[None]], names: str = "abc") -> None:
    async def run() -> None:
        tree = CountingTree()
        await tree.create(NODES)
        for name in names:
            await tree.create(f"{NODES}/{name}", b"0")
        store = Store(tree)
        await store.load()
        await test(store, tree)
        await store.unannounced.stop()

    asyncio.run(run())


def test_what_has_not_changed_is_not_read_again() -> None:
    async def test(store: Store, tree: CountingTree) -> None:
        assert await store.check(3) == []

    run_on_store(test)


def test_a_node_without_a_follower_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(store: Store, tree: CountingTree) -> None:
        async def read_nothing(_: str) -> None: ...

        monkeypatch.setattr(store, "read", read_nothing)
        await tree.delete(f"{NODES}/a")
        await tree.set(f"{NODES}/b", b"1")
        assert await store.check() == ["a", "b"]
        assert await store.check(2) == []

    run_on_store(test)


def test_nodes_that_are_set_created_deleted_or_replaced_are_read_again_once() -> None:
    async def test(store: Store, tree: CountingTree) -> None:
        await tree.set(f"{NODES}/a", b"1")
        await tree.delete(f"{NODES}/b")
        await tree.delete(f"{NODES}/c")
        await tree.create(f"{NODES}/c", b"2")  # with the version that it had
        await tree.create(f"{NODES}/d", b"3")
        assert await store.check() == ["a", "b", "c", "d"]
        assert store.data == {f"{NODES}/a": b"1", f"{NODES}/c": b"2", f"{NODES}/d": b"3"}
        assert await store.check(2) == []

    run_on_store(test)


def test_a_change_that_was_read_for_another_reason_is_not_read_again() -> None:
    async def test(store: Store, tree: CountingTree) -> None:
        await tree.set(f"{NODES}/a", b"1")
        await store.read(f"{NODES}/a")
        assert await store.check() == []

    run_on_store(test)


def test_a_check_costs_no_more_with_more_nodes_and_all_are_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unannounced_changes, "AT_ONCE", 2)

    async def test(store: Store, tree: CountingTree) -> None:
        for name in "abcde":
            await tree.set(f"{NODES}/{name}", b"1")
        for expected in ("ab", "cd", "e", ""):
            tree.counts.clear()
            assert await store.check() == list(expected)
            assert tree.counts["get"] - len(expected) <= 2
            assert tree.counts["children"] <= 1

    run_on_store(test, "abcde")


def test_a_large_tree_is_compared_within_a_number_of_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unannounced_changes, "AT_ONCE", 1)
    monkeypatch.setattr(unannounced_changes, "CHECKS", 3)

    async def test(store: Store, tree: CountingTree) -> None:
        for name in "abcdefgh":
            await tree.set(f"{NODES}/{name}", b"1")
        assert await store.check(3) == list("abcdefgh")

    run_on_store(test, "abcdefgh")


def test_after_a_lost_connection_the_next_check_begins_with_the_first_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(path: str) -> Node | None:
        raise ConnectionLost(path, "cut")

    monkeypatch.setattr(unannounced_changes, "AT_ONCE", 1)

    async def test(store: Store, tree: CountingTree) -> None:
        await tree.set(f"{NODES}/a", b"1")
        with monkeypatch.context() as cut:
            cut.setattr(tree, "get", lost)
            with pytest.raises(ConnectionLost):
                await store.check()
        assert await store.check() == ["a"]

    run_on_store(test)
