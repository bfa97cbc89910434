"""The watches of an elected controller. Each reports the path of the node that it watches, and nothing more."""

from collections.abc import Awaitable, Callable, Collection

from leadline.controller import tree_reader
from leadline.controller.tree_events import CHILDREN_EVENTS, NODE_EVENTS
from leadline.coordination import znodes
from leadline.coordination.tree import Event, Tree, TreeWatch


class ControllerWatches:
    def __init__(self, tree: Tree, changed: Callable[[str], None]) -> None:
        self._tree, self._changed = tree, changed
        self._watches: list[TreeWatch] = []
        self._topics: dict[str, TreeWatch] = {}

    async def watch_all(self) -> None:
        """Sets all watches, except those on the nodes of single topics."""
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

    def cancel(self) -> None:
        for watch in (*self._watches, *self._topics.values()):
            watch.cancel()
        self._watches.clear()
        self._topics.clear()
