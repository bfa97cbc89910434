"""Changes that no notification announces: a broker of Apache Kafka writes a node first and its notification after it,
and may die in between. So each broker compares what it has read of its nodes with the tree, some of them at a time.

    a node is read again if its version in the tree is another than that of the last read
    one check reads `AT_ONCE` nodes, or a part of them all such that `CHECKS` checks reach every node

The nodes of a small cluster are thus compared in each check, and those of a large one within `CHECKS` checks.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

from leadline.coordination.tree import Node, Tree

log = logging.getLogger(__name__)

AT_ONCE = 100  # nodes
CHECKS = 30  # of all nodes


class UnannouncedChanges:
    """`listed`: the paths of all nodes that count. `changed` reads one of them again, by `get`.

    Both may raise TreeError.
    """

    def __init__(
        self, tree: Tree, listed: Callable[[], AsyncIterator[str]], changed: Callable[[str], Awaitable[None]]
    ) -> None:
        self._tree, self._listed, self._changed = tree, listed, changed
        self._versions: dict[str, tuple[int, int]] = {}  # czxid and version of the last read, of nodes that exist
        self._unchecked: AsyncGenerator[str, None] | None = None  # None: a check begins with the first node

    async def get(self, path: str) -> Node | None:
        """The node, whose version counts from now on as the one that is followed."""
        node = await self._tree.get(path)
        self._read(path, node)
        return node

    def _read(self, path: str, node: Node | None) -> None:
        if node is None:
            self._versions.pop(path, None)
        else:
            self._versions[path] = (node.czxid, node.version)

    async def check_some(self) -> None:
        """Raises TreeError; the next check begins with the first node then."""
        unchecked, self._unchecked = self._unchecked or self._paths(), None
        most = max(AT_ONCE, len(self._versions) // CHECKS + 1)
        paths: list[str] = []
        async for path in unchecked:
            paths.append(path)
            if len(paths) == most:
                self._unchecked = unchecked
                break
        try:
            for start in range(0, len(paths), AT_ONCE):
                await asyncio.gather(*map(self._check, paths[start : start + AT_ONCE]))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        unchecked, self._unchecked = self._unchecked, None
        if unchecked is not None:
            await unchecked.aclose()

    async def _paths(self) -> AsyncGenerator[str, None]:
        """What the tree has, and what it had when it was read."""
        listed = set[str]()
        async for path in self._listed():
            listed.add(path)
            yield path
        for path in [path for path in self._versions if path not in listed]:
            yield path

    async def _check(self, path: str) -> None:
        node = await self._tree.get(path)
        followed = self._versions.get(path)
        if (None if node is None else (node.czxid, node.version)) == followed:
            return
        level = logging.DEBUG if node is None else logging.INFO  # a topic's node is always deleted without one
        log.log(level, "%s has changed without a notification", path)
        await self._changed(path)
        if self._versions.get(path) == followed:
            self._read(path, node)  # nobody has read it again: it has no follower, such as the node of a deleted topic
