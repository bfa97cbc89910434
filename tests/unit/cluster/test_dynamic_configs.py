"""Settings in the tree: written, announced, and read by others."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from leadline.cluster.dynamic_configs import DynamicConfigs
from leadline.coordination import znodes
from leadline.coordination.change_notifications import KEPT_MS
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.tree import SessionExpired, SessionState, Tree
from leadline.errors import UnknownServerError
from leadline.runtime.ports import SystemTime
from tests.support import in_memory
from tests.support.ahead_clock import AheadClock
from tests.support.waiting import eventually

Pair = tuple[DynamicConfigs, DynamicConfigs]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


@asynccontextmanager
async def two_brokers(tree: Tree) -> AsyncIterator[Pair]:
    await make_persistent_nodes(tree)
    brokers = DynamicConfigs(tree, 0, AheadClock()), DynamicConfigs(tree, 1, AheadClock())
    for broker in brokers:
        await broker.start()
    yield brokers
    for broker in brokers:
        await broker.stop()


def run(path: Path, test: Callable[[Tree, Pair], Awaitable[None]]) -> None:
    async def main() -> None:
        tree = await EmbeddedTree.open(str(path), SystemTime())
        async with asyncio.timeout(120), two_brokers(tree) as pair:
            await test(tree, pair)
        await tree.close()

    asyncio.run(main())


async def notification_after(configs: DynamicConfigs, change: Awaitable[None]) -> tuple[str, str]:
    """The notification that follows a change."""
    notified: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()

    async def note(kind: str, name: str) -> None:
        if not notified.done():
            notified.set_result((kind, name))

    configs.on_change.append(note)
    await change
    change_seen = await notified
    configs.on_change.remove(note)
    return change_seen


def test_what_one_broker_sets_the_others_hear_of(tmp_path: Path) -> None:
    async def test(tree: Tree, pair: Pair) -> None:
        one, other = pair
        assert await other.of_topic("t") == {}
        change = one.alter_topic("t", lambda before: {**before, "flush.ms": "7"})
        assert await notification_after(other, change) == ("topics", "t")
        assert one.topics["t"] == other.topics["t"] == {"flush.ms": "7"}
        node = await tree.get("/config/changes/config_change_0000000000")
        assert node is not None
        assert node.data == b'{"version":2,"entity_path":"topics/t"}'
        change = one.alter_broker(lambda: {"log.cleaner.threads": "2"}, of_all=True)
        assert await notification_after(other, change) == ("brokers", "<default>")
        assert (other.default, other.broker) == ({"log.cleaner.threads": "2"}, {})

    run(tmp_path, test)


def test_changes_at_once_all_count(tmp_path: Path) -> None:
    async def test(tree: Tree, pair: Pair) -> None:
        one, _ = pair

        def adding(name: str) -> Awaitable[None]:
            return one.alter_topic("t", lambda before: {**before, name: "1"})

        await asyncio.gather(*map(adding, "abcde"))
        assert set(one.topics["t"]) == set("abcde")

    run(tmp_path, test)


class AnyOrder:
    """A tree that names children in no order, as ZooKeeper does."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree

    async def children(self, path: str) -> list[str] | None:
        return sorted(await self._tree.children(path) or [], reverse=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)


def test_announcements_are_read_in_their_order_whatever_that_of_the_nodes(tmp_path: Path) -> None:
    async def test(tree: Tree, pair: Pair) -> None:
        one, other = pair
        other._changes._notifications._tree = cast(Tree, AnyOrder(tree))
        for topic in "tuv":
            await other.of_topic(topic)
        change = asyncio.gather(*(one.alter_topic(topic, lambda before: {"flush.ms": "7"}) for topic in "tuv"))
        await eventually(lambda: all(other.topics[topic] == {"flush.ms": "7"} for topic in "tuv"))
        await change

    run(tmp_path, test)


def test_after_a_time_without_connection_everything_is_read_again(tmp_path: Path) -> None:
    async def test(tree: Tree, pair: Pair) -> None:
        other = pair[1]
        await other.of_topic("t")
        await tree.create(znodes.config_path("topics", "t"), znodes.encode_config({"flush.ms": "7"}))
        await tree.create(znodes.config_path("brokers", "1"), znodes.encode_config({"log.cleaner.threads": "2"}))
        other._changes._notifications._session(SessionState.CONNECTED)
        await eventually(lambda: (other.topics["t"], other.broker) == ({"flush.ms": "7"}, {"log.cleaner.threads": "2"}))

    run(tmp_path, test)


def test_announcements_that_are_long_past_are_removed(tmp_path: Path) -> None:
    async def test(tree: Tree, pair: Pair) -> None:
        one, other = pair
        for topic in "tuv":
            await other.of_topic(topic)
            await notification_after(other, one.alter_topic(topic, lambda before: {"flush.ms": "7"}))
        clock = other._changes._notifications._clock
        assert isinstance(clock, AheadClock)
        clock.ahead_ms = 2 * KEPT_MS
        await notification_after(other, one.alter_topic("t", lambda before: {"flush.ms": "8"}))
        await other.stop()
        left = [znodes.sequence(name) for name in await tree.children(znodes.CONFIG_CHANGES) or []]
        assert left[-1] == 3
        assert 0 not in left

    run(tmp_path, test)


def test_settings_that_cannot_be_read_are_the_defaults(tmp_path: Path) -> None:
    async def test(tree: Tree, pair: Pair) -> None:
        await tree.create(znodes.config_path("topics", "t"), b"no json")
        assert await pair[0].of_topic("t") == {}

    run(tmp_path, test)


def test_settings_that_cannot_be_read_are_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def expired(path: str) -> None:
        raise SessionExpired(path, "the session has expired")

    async def test(tree: Tree, pair: Pair) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(tree, "get", expired)
            with pytest.raises(UnknownServerError, match=r"the settings of orders cannot be read: .* has expired"):
                await pair[0].of_topic("orders")
        assert await pair[0].of_topic("orders") == {}

    run(tmp_path, test)
