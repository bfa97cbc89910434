"""Changes of settings: one reader of the notifications, and several parts that follow them."""

from collections.abc import AsyncIterator

from leadline.coordination import znodes
from leadline.coordination.config_changes import ConfigChanges, ConfigFollower
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.tree import Tree
from leadline.runtime.ports import SystemTime
from tests.support.trees import run_on_tree
from tests.support.waiting import eventually

EVERYTHING = "everything"


class Follower:
    """Writes down what it gets."""

    def __init__(self) -> None:
        self.paths = list[str]()
        self.follower = ConfigFollower(self._changed, self._missed, self._listed)

    async def _changed(self, path: str) -> None:
        self.paths.append(path)

    async def _missed(self) -> None:
        self.paths.append(EVERYTHING)

    async def _listed(self) -> AsyncIterator[str]:
        for path in list[str]():
            yield path


async def announce(tree: Tree, *paths: str) -> None:
    for path in paths:
        await tree.create(znodes.CONFIG_CHANGE, znodes.encode_config_change(path), sequential=True)


def test_each_follower_gets_every_change_in_order_until_it_leaves() -> None:
    async def scenario(tree: Tree) -> None:
        await make_persistent_nodes(tree)
        changes, first, second = ConfigChanges(tree, SystemTime()), Follower(), Follower()
        await changes.follow(first.follower)
        await announce(tree, "topics/a")
        await eventually(lambda: first.paths == ["topics/a"])
        await changes.follow(second.follower)
        await announce(tree, "users/u", "brokers/1")
        await eventually(lambda: second.paths == ["users/u", "brokers/1"])
        assert first.paths == ["topics/a", "users/u", "brokers/1"]
        await changes.leave(first.follower)
        await announce(tree, "ips/127.0.0.1")
        await eventually(lambda: second.paths[-1] == "ips/127.0.0.1")
        assert first.paths[-1] == "brokers/1"
        await changes.leave(second.follower)
        await changes.leave(second.follower)  # again: nothing happens

    run_on_tree(scenario)


def test_a_notification_that_cannot_be_read_reaches_nobody() -> None:
    async def scenario(tree: Tree) -> None:
        await make_persistent_nodes(tree)
        changes, part = ConfigChanges(tree, SystemTime()), Follower()
        await changes.follow(part.follower)
        await tree.create(znodes.CONFIG_CHANGE, b"not JSON", sequential=True)
        await announce(tree, "users/u")
        await eventually(lambda: part.paths == ["users/u"])
        await changes.leave(part.follower)

    run_on_tree(scenario)
