"""The notifications below /config/changes, read once for all parts of a broker that follow settings.

Topics, brokers, users, client ids and addresses share one sequence of notifications.
    each follower gets every change, in the order of the notifications, and ignores those of other entities
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from leadline.coordination import znodes
from leadline.coordination.change_notifications import ChangeNotifications
from leadline.coordination.tree import Node, Tree
from leadline.coordination.unannounced_changes import UnannouncedChanges
from leadline.runtime.ports import Time


class ConfigFollower(NamedTuple):
    """All may raise TreeError, after which they are called again later."""

    changed: Callable[[str], Awaitable[None]]  # with the path of an entity below /config
    missed: Callable[[], Awaitable[None]]  # reads everything again
    listed: Callable[[], AsyncIterator[str]]  # the paths of all entities in the tree that it follows


class ConfigChanges:
    def __init__(self, tree: Tree, clock: Time) -> None:
        self._followers: list[ConfigFollower] = []
        self._unannounced = UnannouncedChanges(tree, self._listed, self._entity_changed)
        self._notifications = ChangeNotifications(
            tree, znodes.CONFIG_CHANGES, self._changed, self._missed, clock, self._unannounced
        )

    async def get(self, path: str) -> Node | None:
        """The node of an entity. Followers read it by this, so that a change without a notification is noticed."""
        return await self._unannounced.get(path)

    async def follow(self, follower: ConfigFollower) -> None:
        """Load after this: no later change is missed."""
        self._followers.append(follower)
        if len(self._followers) == 1:
            await self._notifications.start()

    async def leave(self, follower: ConfigFollower) -> None:
        if follower in self._followers:
            self._followers.remove(follower)
            if not self._followers:
                await self._notifications.stop()

    async def _changed(self, path: str, data: bytes) -> None:
        await self._entity_changed(znodes.decode_config_change(path, data))

    async def _entity_changed(self, path: str) -> None:
        for follower in list(self._followers):
            await follower.changed(path.removeprefix(f"{znodes.CONFIG}/"))

    async def _listed(self) -> AsyncIterator[str]:
        for follower in list(self._followers):
            async for path in follower.listed():
                yield f"{znodes.CONFIG}/{path}"

    async def _missed(self) -> None:
        for follower in list(self._followers):
            await follower.missed()
