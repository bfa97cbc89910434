"""The watches of an elected controller. Each reports a path, and nothing more: that of the node that it watches.

The watch on a registration reports /brokers/ids, since one event reads all brokers.
"""

from collections.abc import Awaitable, Callable, Collection

from leadline.controller import tree_reader
from leadline.controller.tree_events import CHILDREN_EVENTS, NODE_EVENTS
from leadline.coordination import znodes
from leadline.coordination.tree import Event, Tree, TreeWatch, child_of


class ControllerWatches:
    def __init__(self, tree: Tree, changed: Callable[[str], None]) -> None:
        self._tree, self._changed = tree, changed
        self._watches: list[TreeWatch] = []
        self._topics: dict[str, TreeWatch] = {}
        self._brokers: dict[str, TreeWatch] = {}

    async def watch_all(self) -> None:
        """Sets all watches, except those on the nodes of single topics and brokers."""
        tree = self._tree
        watches = [tree.watch_children(path, self._on(path)) for path in (znodes.TOPICS, *CHILDREN_EVENTS)]
        watches += [tree.watch(path, self._on(path)) for path in NODE_EVENTS]
        await tree_reader.gather(self._keep, watches)

    async def _keep(self, watch: Awaitable[TreeWatch]) -> None:
        self._watches.append(await watch)

    def _on(self, path: str) -> Callable[[Event], None]:
        """Reports the path that is watched. The path in the event may be that of another node."""
        return lambda event: self._changed(path)

    async def watch_topics(self, names: Collection[str]) -> None:
        await tree_reader.gather(self._watch_topic, [name for name in names if name not in self._topics])

    async def _watch_topic(self, name: str) -> None:
        path = znodes.topic_path(name)
        self._topics[name] = await self._tree.watch(path, self._on(path))

    def keep_topics(self, names: Collection[str]) -> None:
        """Cancels the watches on all other topics."""
        for name in [name for name in self._topics if name not in names]:
            self._topics.pop(name).cancel()

    async def watch_brokers(self, names: Collection[str]) -> None:
        """`names`: of the nodes of all registered brokers. The watches on others are cancelled."""
        for name in [name for name in self._brokers if name not in names]:
            self._brokers.pop(name).cancel()
        await tree_reader.gather(self._watch_broker, [name for name in names if name not in self._brokers])

    async def _watch_broker(self, name: str) -> None:
        path = child_of(znodes.BROKER_IDS, name)
        self._brokers[name] = await self._tree.watch(path, self._on(znodes.BROKER_IDS))

    def cancel(self) -> None:
        for watch in (*self._watches, *self._topics.values(), *self._brokers.values()):
            watch.cancel()
        self._watches.clear()
        self._topics.clear()
        self._brokers.clear()
