"""The dynamic settings of topics and brokers, as the tree has them.

A change is written together with an announcement, a node under /config/changes, which makes all brokers read the
settings again. The announcements of the last quarter of an hour are kept. At the broker that writes, a change holds
when the call returns.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import (
    BadVersion,
    Create,
    Event,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SessionState,
    SetData,
    Tree,
    TreeError,
    TreeWatch,
)
from leadline.model import BrokerId
from leadline.runtime.ports import Time

log = logging.getLogger(__name__)

KEPT_MS = 15 * 60 * 1000  # for announcements; a broker reads everything again after it was out of reach

Altered = Callable[[Mapping[str, str]], dict[str, str]]
TOPICS, BROKERS = "topics", "brokers"


class DynamicConfigs:
    """`await start()`; then `topics` has the topics read so far, and `on_change` is called for each change."""

    def __init__(self, tree: Tree, me: BrokerId, clock: Time) -> None:
        self.tree, self.me, self.clock = tree, me, clock
        self.topics: dict[str, dict[str, str]] = {}  # overrides by topic, of the topics read so far
        self.unreadable: set[str] = set()  # topics whose settings cannot be read
        self.broker: dict[str, str] = {}  # of this broker
        self.default: dict[str, str] = {}  # and of all brokers
        self.on_change: list[Callable[[str, str], None]] = []  # called with type and name of any entity
        self._writing = asyncio.Lock()
        self._last = -1  # the number of the last announcement that was seen
        self._watches: list[TreeWatch] = []
        self._reading: asyncio.Task[None] | None = None
        self._has_more = False
        self._missed_changes = False  # perhaps: there was no connection for a while

    async def start(self) -> None:
        self._watches = [
            await self.tree.watch_children(znodes.CONFIG_CHANGES, self._announced),
            self.tree.watch_session(self._session),
        ]
        names = await self.tree.children(znodes.CONFIG_CHANGES) or []
        self._last = max((znodes.sequence(name) for name in names), default=-1)
        for entity in (str(self.me), znodes.DEFAULT_ENTITY):
            await self._read(BROKERS, entity)

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def of_topic(self, name: str) -> dict[str, str]:
        """The overrides of a topic, read from the tree unless they are cached."""
        if name not in self.topics:
            await self._read(TOPICS, name)
        return self.topics[name]

    async def of_topics(self, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in self.topics]
        await asyncio.gather(*(self._read(TOPICS, name) for name in unknown))

    def forget(self, topic: str) -> None:
        self.topics.pop(topic, None)

    async def alter_topic(self, name: str, altered: Altered) -> None:
        """`altered` returns the new overrides, given the current ones. No other write comes between."""
        async with self._writing:
            await self._write(TOPICS, name, altered)

    async def alter_broker(self, altered: Callable[[], dict[str, str]], *, of_all: bool) -> None:
        async with self._writing:
            await self._write(BROKERS, znodes.DEFAULT_ENTITY if of_all else str(self.me), lambda _: altered())

    async def _write(self, kind: str, name: str, altered: Altered) -> None:
        path = znodes.config_path(kind, name)
        announcement = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(f"{kind}/{name}"), sequential=True)
        while True:
            node = await self.tree.get(path)
            config = altered({} if node is None else znodes.decode_config(path, node.data))
            data = znodes.encode_config(config)
            change: Operation = Create(path, data) if node is None else SetData(path, data, node.version)
            with suppress(BadVersion, NodeExists):  # another broker wrote first: read again
                await self.tree.multi([change, announcement])
                break
        self._put(kind, name, config)

    async def _read(self, kind: str, name: str) -> None:
        path = znodes.config_path(kind, name)
        node = await self.tree.get(path)
        try:
            self._put(kind, name, {} if node is None else znodes.decode_config(path, node.data))
        except MalformedNode as error:
            log.error("the settings of %s %s cannot be read, so the defaults hold: %s", kind, name, error)
            if kind == TOPICS:
                self.unreadable.add(name)
            self._put(kind, name, {})

    def _put(self, kind: str, name: str, config: dict[str, str]) -> None:
        if kind == TOPICS:
            self.topics[name] = config
        elif name == znodes.DEFAULT_ENTITY:
            self.default = config
        elif name == str(self.me):
            self.broker = config
        self._notify(kind, name)

    def _notify(self, kind: str, name: str) -> None:
        for notify in self.on_change:
            notify(kind, name)

    # Announcements of other brokers

    def _session(self, state: SessionState) -> None:
        """Announcements may be deleted while there is no connection: then everything is read again."""
        if state is SessionState.CONNECTED:
            self._missed_changes = True
            self._read_soon()

    def _announced(self, event: Event) -> None:
        self._read_soon()

    def _read_soon(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_announcements(), name="settings")
        else:
            self._has_more = True

    async def _read_announcements(self) -> None:
        more = True
        while more:
            self._has_more = False
            try:
                if self._missed_changes:
                    await self._read_everything()
                names = await self.tree.children(znodes.CONFIG_CHANGES) or []
                for name in sorted(names, key=znodes.sequence):
                    await self._read_announcement(f"{znodes.CONFIG_CHANGES}/{name}")
            except TreeError as error:
                log.warning("changes of settings cannot be read now: %s", error)
            more = self._has_more

    async def _read_everything(self) -> None:
        self._missed_changes = False
        try:
            for entity in (str(self.me), znodes.DEFAULT_ENTITY):
                await self._read(BROKERS, entity)
            await asyncio.gather(*(self._read(TOPICS, name) for name in list(self.topics)))
        except TreeError:
            self._missed_changes = True
            raise

    async def _read_announcement(self, path: str) -> None:
        number = znodes.sequence(path)
        node = await self.tree.get(path)
        if node is None:
            return
        if number > self._last:
            await self._apply(path, node)
            self._last = number
        elif self.clock.now_ms() - node.ctime_ms > KEPT_MS:
            with suppress(NoNode):  # another broker has deleted it
                await self.tree.delete(path)

    async def _apply(self, path: str, node: Node) -> None:
        try:
            kind, _, name = znodes.decode_config_change(path, node.data).partition("/")
        except MalformedNode as error:
            log.error("a change of settings is ignored: %s", error)
            return
        if self._is_ours(kind, name):
            await self._read(kind, name)
        else:
            self._notify(kind, name)

    def _is_ours(self, kind: str, name: str) -> bool:
        if kind == TOPICS:
            return name in self.topics
        return kind == BROKERS and name in (str(self.me), znodes.DEFAULT_ENTITY)
