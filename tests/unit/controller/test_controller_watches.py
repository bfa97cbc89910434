"""The watches of a controller: a change reports the path that is watched, until the watch is cancelled."""

from leadline.controller.controller_watches import ControllerWatches
from leadline.controller.tree_events import NODE_EVENTS
from leadline.coordination import znodes
from leadline.coordination.tree import Tree
from tests.support.trees import run_on_tree

# A watch is called before the call that made the change returns, so these tests wait for nothing.


def test_each_change_reports_the_path_that_is_watched() -> None:
    async def scenario(tree: Tree) -> None:
        changed: list[str] = []
        watches = ControllerWatches(tree, changed.append)
        await watches.watch_all()
        for parent in (
            znodes.TOPICS,
            znodes.BROKER_IDS,
            znodes.DELETE_TOPICS,
            znodes.ISR_CHANGES,
            znodes.LOG_DIR_EVENTS,
        ):
            changed.clear()
            await tree.create(f"{parent}/1")
            assert changed == [parent]
        for path in NODE_EVENTS:
            changed.clear()
            await tree.create(path)
            await tree.set(path, b"1")
            await tree.delete(path)
            assert changed == [path] * 3

    run_on_tree(scenario)


def test_a_topic_is_watched_once_and_until_it_is_no_longer_kept() -> None:
    async def scenario(tree: Tree) -> None:
        changed: list[str] = []
        watches = ControllerWatches(tree, changed.append)
        paths = [znodes.topic_path(name) for name in ("a", "b")]
        for path in paths:
            await tree.create(path)
        for _ in range(2):
            await watches.watch_topics(["a", "b"])
        for path in paths:
            await tree.set(path, b"1")
        assert changed == paths
        watches.keep_topics({"b"})
        for path in paths:
            await tree.set(path, b"2")
        assert changed == [*paths, paths[1]]
        await watches.watch_topics(["a"])
        await tree.set(paths[0], b"3")
        assert changed[-1] == paths[0], "a topic of the same name is watched again"

    run_on_tree(scenario)


def test_a_registration_that_changes_reports_that_the_brokers_did_until_the_broker_has_left() -> None:
    async def scenario(tree: Tree) -> None:
        changed: list[str] = []
        watches = ControllerWatches(tree, changed.append)
        paths = [znodes.broker_path(id) for id in (1, 2)]
        for path in paths:
            await tree.create(path)
        for _ in range(2):
            await watches.watch_brokers(["1", "2"])
        for path in paths:
            await tree.set(path, b"1")
        assert changed == [znodes.BROKER_IDS] * 2
        await watches.watch_brokers(["2"])
        for path in paths:
            await tree.set(path, b"2")
        assert changed == [znodes.BROKER_IDS] * 3
        watches.cancel()
        await tree.set(paths[1], b"3")
        assert changed == [znodes.BROKER_IDS] * 3

    run_on_tree(scenario)


def test_nothing_is_reported_after_the_watches_are_cancelled() -> None:
    async def scenario(tree: Tree) -> None:
        changed: list[str] = []
        watches = ControllerWatches(tree, changed.append)
        await tree.create(znodes.topic_path("a"))
        await watches.watch_all()
        await watches.watch_topics(["a"])
        watches.cancel()
        await tree.set(znodes.topic_path("a"), b"1")
        await tree.create(znodes.topic_path("b"))
        assert changed == []

    run_on_tree(scenario)
