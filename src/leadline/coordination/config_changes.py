"""The notifications below /config/changes, read once for all parts of a broker that follow settings.

Topics, brokers, users, client ids and addresses share one sequence of notifications.
    each follower gets every change, in the order of the notifications, and passes over what is not its own
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from leadline.coordination import znodes
from leadline.coordination.change_notifications import ChangeNotifications
from leadline.coordination.tree import Tree
from leadline.runtime.ports import Time


class ConfigFollower(NamedTuple):
    """Both may raise TreeError, after which they are called again later."""

    changed: Callable[[str], Awaitable[None]]  # with the path of an entity below /config
    missed: Callable[[], Awaitable[None]]  # reads everything again


class ConfigChanges:
    def __init__(self, tree: Tree, clock: Time) -> None:
        self._followers: list[ConfigFollower] = []
        self._notifications = ChangeNotifications(tree, znodes.CONFIG_CHANGES, self._changed, self._missed, clock)

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
        entity_path = znodes.decode_config_change(path, data)
        for follower in list(self._followers):
            await follower.changed(entity_path)

    async def _missed(self) -> None:
        for follower in list(self._followers):
            await follower.missed()
