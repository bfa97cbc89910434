"""Change notifications: each is handled once and in order, and a broker that may have missed one reads everything."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from leadline.coordination import change_notifications
from leadline.coordination.change_notifications import KEPT_MS, ChangeNotifications
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import Tree
from leadline.coordination.unannounced_changes import UnannouncedChanges
from leadline.runtime.ports import SystemTime
from tests.support.trees import run_on_tree
from tests.support.waiting import eventually

PATH, NODES = "/changes", "/nodes"
EVERYTHING = b"everything"


class LateClock(SystemTime):
    """A clock on which all notifications are old."""

    def now_ms(self) -> int:
        return super().now_ms() + KEPT_MS + 1


class Reader:
    """Writes down which notifications it has handled."""

    def __init__(self, tree: Tree, clock: SystemTime) -> None:
        self.tree, self.handled = tree, list[bytes]()
        self.unannounced = UnannouncedChanges(tree, self.listed, self.node_changed)
        self.notifications = ChangeNotifications(tree, PATH, self.changed, self.missed, clock, self.unannounced)

    async def changed(self, path: str, data: bytes) -> None:
        await asyncio.sleep(0)
        if data == b"malformed":
            raise MalformedNode(path, "malformed")
        if data == b"a bug":
            raise ZeroDivisionError
        self.handled.append(data)

    async def missed(self) -> None:
        self.handled.append(EVERYTHING)

    async def listed(self) -> AsyncIterator[str]:
        for name in await self.tree.children(NODES) or []:
            yield f"{NODES}/{name}"

    async def node_changed(self, path: str) -> None:
        node = await self.unannounced.get(path)
        self.handled.append(b"gone" if node is None else node.data)


@asynccontextmanager
async def reader(tree: Tree, clock: SystemTime | None = None) -> AsyncIterator[Reader]:
    started = Reader(tree, clock or SystemTime())
    await started.notifications.start()
    try:
        yield started
    finally:
        await started.notifications.stop()


async def notify(tree: Tree, *contents: bytes) -> list[str]:
    return [(await tree.create(f"{PATH}/change_", data, sequential=True)).path for data in contents]


def test_notifications_are_handled_once_and_in_order_and_those_before_the_start_are_not() -> None:
    async def scenario(tree: Tree) -> None:
        await tree.create(PATH)
        await notify(tree, b"before")
        async with reader(tree) as started:
            await notify(tree, *(b"%d" % n for n in range(5)))
            await eventually(lambda: len(started.handled) == 5)
            await notify(tree, b"last")
            await eventually(lambda: b"last" in started.handled)
            assert started.handled == [b"0", b"1", b"2", b"3", b"4", b"last"]

    run_on_tree(scenario)


@pytest.mark.parametrize(
    ("data", "line"), [(b"malformed", "a notification is ignored"), (b"a bug", "a bug: the notification /changes/")]
)
def test_a_notification_that_cannot_be_handled_is_ignored_and_logged(
    data: bytes, line: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(tree: Tree) -> None:
        await tree.create(PATH)
        async with reader(tree) as started:
            await notify(tree, data, b"next")
            await eventually(lambda: started.handled == [b"next"])

    with caplog.at_level(logging.ERROR):
        run_on_tree(scenario)
    (message,) = caplog.messages
    assert message.startswith(line)


def test_everything_is_read_again_where_a_number_is_missing() -> None:
    async def scenario(tree: Tree) -> None:
        await tree.create(PATH)
        await notify(tree, b"first")
        async with reader(tree) as started:
            await tree.create(f"{PATH}/change_0000000007", b"jump")
            await eventually(lambda: started.handled == [EVERYTHING, b"jump"])

    run_on_tree(scenario)


def test_old_notifications_are_deleted_once_they_are_handled() -> None:
    async def scenario(tree: Tree) -> None:
        await tree.create(PATH)
        await notify(tree, b"before the start")
        async with reader(tree, LateClock()) as started:
            await notify(tree, b"new")
            while await tree.children(PATH):
                pass  # each read is a step of the tree; the test as a whole has a bound
            assert started.handled == [b"new"]

    run_on_tree(scenario)


def test_a_node_without_a_number_is_no_notification() -> None:
    async def scenario(tree: Tree) -> None:
        await tree.create(PATH)
        async with reader(tree) as started:
            await tree.create(f"{PATH}/somebody's", b"own")
            await notify(tree, b"next")
            await eventually(lambda: started.handled == [b"next"])
        async with reader(tree) as started:
            assert started.notifications._last == 1

    run_on_tree(scenario)


@pytest.mark.parametrize("is_shared", [True, False])
def test_a_node_that_changed_without_a_notification_is_read_where_others_write(
    is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_notifications, "CHECK_MS", 1)
    monkeypatch.setattr(EmbeddedTree, "is_shared", is_shared)

    async def scenario(tree: Tree) -> None:
        for path in (PATH, NODES):
            await tree.create(path)
        async with reader(tree) as started:
            await tree.create(f"{NODES}/a", b"new")
            if is_shared:
                await eventually(lambda: started.handled == [b"new"])
            await notify(tree, b"next")
            await eventually(lambda: started.handled[-1:] == [b"next"])
        assert (b"new" in started.handled) is is_shared

    run_on_tree(scenario)
