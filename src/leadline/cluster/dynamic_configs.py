"""The dynamic settings of topics and brokers, as the tree has them.

A change is written together with a notification, a node under /config/changes, which makes all brokers read the
settings again. At the broker that writes, a change holds when the call returns.

Passwords of brokers are encoded in the tree, and plain here (`security/dynamic_passwords.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from leadline.coordination import znodes
from leadline.coordination.config_changes import ConfigChanges, ConfigFollower
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import BadVersion, Create, NodeExists, Operation, SetData, Tree, TreeError
from leadline.errors import UnknownServerError
from leadline.model import BrokerId
from leadline.runtime.ports import Time
from leadline.security.dynamic_passwords import DynamicPasswords

log = logging.getLogger(__name__)

Altered = Callable[[Mapping[str, str]], dict[str, str]]
TOPICS, BROKERS = "topics", "brokers"


class DynamicConfigs:
    """`await start()`; then `topics` has the topics read so far, and `on_change` is called for each change."""

    def __init__(
        self,
        tree: Tree,
        me: BrokerId,
        clock: Time,
        passwords: DynamicPasswords | None = None,
        changes: ConfigChanges | None = None,
    ) -> None:
        self.tree, self.me = tree, me
        self._passwords = passwords or DynamicPasswords()
        self.topics: dict[str, dict[str, str]] = {}  # overrides by topic, of the topics read so far
        self.unreadable: set[str] = set()  # topics whose settings cannot be read
        self.broker: dict[str, str] = {}  # of this broker
        self.default: dict[str, str] = {}  # and of all brokers
        self.on_change: list[Callable[[str, str], Awaitable[None]]] = []  # called with type and name of any entity
        self._writing = asyncio.Lock()
        self._changes = changes or ConfigChanges(tree, clock)
        self._follower = ConfigFollower(self._changed, self._read_everything, self._listed)

    async def start(self) -> None:
        await self._changes.follow(self._follower)
        await self._read_brokers()

    async def load(self) -> None:
        """Reads the settings of this broker and of all. Before that, passwords of an old secret are encoded again."""
        await self._reencode()
        await self._read_brokers()

    async def _reencode(self) -> None:
        path = znodes.config_path(BROKERS, str(self.me))
        while (node := await self.tree.get(path)) is not None:
            try:
                reencoded = self._passwords.reencoded(znodes.decode_config(path, node.data))
            except MalformedNode:
                return  # reading it raises the error
            if reencoded is None:
                return
            with suppress(BadVersion):  # a tool wrote first: read again
                await self.tree.set(path, znodes.encode_config(reencoded), node.version)
                log.info("the passwords of broker %s are now encoded with password.encoder.secret", self.me)
                return

    async def stop(self) -> None:
        await self._changes.leave(self._follower)

    async def of_topic(self, name: str) -> dict[str, str]:
        """The overrides of a topic, read from the tree unless they are cached. UnknownServerError if that fails."""
        if name not in self.topics:
            try:
                await self._read(TOPICS, name)
            except TreeError as error:
                raise UnknownServerError(f"the settings of {name} cannot be read: {error}") from error
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
        notification = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(f"{kind}/{name}"), sequential=True)
        while True:
            node = await self.tree.get(path)
            config = altered({} if node is None else znodes.decode_config(path, node.data))
            stored = config
            if kind == BROKERS:
                stored = self._passwords.encoded(config, of_all=name == znodes.DEFAULT_ENTITY)
            data = znodes.encode_config(stored)
            change: Operation = Create(path, data) if node is None else SetData(path, data, node.version)
            with suppress(BadVersion, NodeExists):  # another broker wrote first: read again
                await self.tree.multi([change, notification])
                break
        await self._put(kind, name, config)

    async def _read(self, kind: str, name: str) -> None:
        path = znodes.config_path(kind, name)
        node = await self._changes.get(path)
        try:
            config = {} if node is None else znodes.decode_config(path, node.data)
            await self._put(kind, name, config if kind == TOPICS else self._decoded(name, config))
        except MalformedNode as error:
            log.error("the settings of %s %s cannot be read; using the defaults: %s", kind, name, error)
            if kind == TOPICS:
                self.unreadable.add(name)
            await self._put(kind, name, {})

    def _decoded(self, name: str, config: dict[str, str]) -> dict[str, str]:
        decoded = self._passwords.decoded(config)
        for password in decoded.unreadable:
            log.error("%s of brokers %s cannot be decoded with password.encoder.secret, and is ignored", password, name)
        return decoded.config

    async def _put(self, kind: str, name: str, config: dict[str, str]) -> None:
        if kind == TOPICS:
            self.topics[name] = config
        elif name == znodes.DEFAULT_ENTITY:
            self.default = config
        elif name == str(self.me):
            self.broker = config
        await self._notify(kind, name)

    async def _notify(self, kind: str, name: str) -> None:
        for notify in self.on_change:
            await notify(kind, name)

    # Changes by other brokers

    async def _read_brokers(self) -> None:
        for entity in (str(self.me), znodes.DEFAULT_ENTITY):
            await self._read(BROKERS, entity)

    async def _read_everything(self) -> None:
        await self._read_brokers()
        await asyncio.gather(*(self._read(TOPICS, name) for name in list(self.topics)))

    async def _listed(self) -> AsyncIterator[str]:
        for kind in (BROKERS, TOPICS):
            for name in await self.tree.children(f"{znodes.CONFIG}/{kind}") or []:
                if self._is_ours(kind, name):
                    yield f"{kind}/{name}"

    async def _changed(self, entity_path: str) -> None:
        kind, _, name = entity_path.partition("/")
        if self._is_ours(kind, name):
            await self._read(kind, name)
        else:
            await self._notify(kind, name)

    def _is_ours(self, kind: str, name: str) -> bool:
        if kind == TOPICS:
            return name in self.topics
        return kind == BROKERS and name in (str(self.me), znodes.DEFAULT_ENTITY)
