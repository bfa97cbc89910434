"""The settings of users, client ids and addresses in the tree: quotas, and the SCRAM credentials beside them.

A change is worked out from what the node holds and written on condition of its version, together with the notification,
in one transaction: of two changes at once, both count. A node that is left empty is deleted, and the empty ones above.
This broker follows the change when the call returns, others when they see the notification below /config/changes.
Readers of other values of these nodes, such as SCRAM credentials, register in `on_change`.

    an unreadable node is logged, and the previous quotas stay in force
    an address may be the name of a host, which is looked up when its quota takes force, as in Kafka
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address

from leadline.coordination import znodes
from leadline.coordination.config_changes import ConfigChanges, ConfigFollower
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SetData,
    Tree,
    TreeError,
    check_path,
    parent_of,
)
from leadline.errors import NotController, UnknownServerError
from leadline.runtime.network import Network
from leadline.runtime.ports import Time
from leadline.security.client_quotas import DEFAULT, ClientQuotas, QuotaEntity
from leadline.security.connection_rates import UNLIMITED, ConnectionRates
from leadline.security.hosts import host_address
from leadline.security.quota_nodes import (
    CLIENTS,
    IPS,
    USERS,
    ConfigEntity,
    IpEntity,
    client_quotas_in,
    connection_rate_in,
    entity_of,
    entity_path,
    node_path,
)

log = logging.getLogger(__name__)

Config = dict[str, str]
MOST_TRIES = 10


class QuotaStore:
    """`await start()`, and in the end `await stop()`. In between, quotas and rates follow the tree."""

    def __init__(
        self,
        tree: Tree,
        quotas: ClientQuotas,
        connection_rates: ConnectionRates,
        clock: Time,
        network: Network,
        changes: ConfigChanges | None = None,
    ) -> None:
        self.quotas, self.connection_rates = quotas, connection_rates
        self.on_change: list[Callable[[ConfigEntity, Mapping[str, str]], None]] = []  # with all settings of an entity
        self._tree, self._network = tree, network
        self._writing = asyncio.Lock()
        self._in_force = set[ConfigEntity]()
        self._changes = changes or ConfigChanges(tree, clock)
        self._follower = ConfigFollower(self._changed, self._load, self._listed)

    async def start(self) -> None:
        await self._changes.follow(self._follower)
        await self._load()

    async def stop(self) -> None:
        await self._changes.leave(self._follower)

    async def _load(self) -> None:
        """All entities of the tree and all that are in force: either may lack some of the other."""
        stored = set[ConfigEntity]()
        async for path in self._listed():
            entity = entity_of(path)
            assert entity is not None
            await self._read(entity)
            stored.add(entity)
        for entity in self._in_force - stored:
            await self._read(entity)

    async def _changed(self, path: str) -> None:
        if (entity := entity_of(path)) is not None:
            await self._read(entity)

    async def alter(self, entity: ConfigEntity, change: Callable[[Mapping[str, str]], Config]) -> None:
        """The settings of a user, a client id or an address. What `change` raises is raised, and nothing is written."""
        try:
            check_path(node_path(entity))
        except ValueError as error:  # a user or client id called `.` or `..`
            raise UnknownServerError(str(error)) from None
        async with self._writing:
            try:
                for _ in range(MOST_TRIES):
                    with suppress(BadVersion, NodeExists, NoNode, NotEmpty):  # another was quicker: again
                        await self._hold(entity, await self._write(entity, change))
                        return
            except (TreeError, MalformedNode) as error:
                raise UnknownServerError(f"failed to change {entity_path(entity)}: {error}") from error
        raise UnknownServerError(f"others changed {entity_path(entity)} {MOST_TRIES} times in between")

    async def config(self, entity: ConfigEntity) -> Config:
        """As the tree has it."""
        return _decoded(entity, await self._tree.get(node_path(entity)))

    async def entities(self) -> AsyncIterator[tuple[ConfigEntity, Config]]:
        """All that have a node, with their settings; those that cannot be read are left out, with a line in the log."""
        async for path in self._listed():
            entity = entity_of(path)
            assert entity is not None
            try:
                yield entity, await self.config(entity)
            except MalformedNode as error:
                log.error("ignoring an unreadable quota: %s", error)

    # The tree

    async def _listed(self) -> AsyncIterator[str]:
        """The paths of all entities that have a node."""
        for kind in (USERS, CLIENTS, IPS):
            for name in await self._tree.children(f"{znodes.CONFIG}/{kind}") or []:
                yield f"{kind}/{name}"
                if kind == USERS:
                    clients = f"{kind}/{name}/{CLIENTS}"
                    for client in await self._tree.children(f"{znodes.CONFIG}/{clients}") or []:
                        yield f"{clients}/{client}"

    async def _write(self, entity: ConfigEntity, change: Callable[[Mapping[str, str]], Config]) -> Config:
        path = node_path(entity)
        node = await self._tree.get(path)
        config = change(_decoded(entity, node))
        operations = [*await self._guard(), *await self._change(path, node, config)]
        announcement = znodes.encode_config_change(entity_path(entity))
        await self._tree.multi([*operations, Create(znodes.CONFIG_CHANGE, announcement, sequential=True)])
        return config

    async def _guard(self) -> list[Operation]:
        """The controller must not have moved to KRaft in the meantime."""
        node = await self._tree.get(znodes.CONTROLLER)
        if node is None:
            return []
        if znodes.decode_controller(node.data).kraft_epoch > 0:
            raise NotController("settings are written by the KRaft controller now")
        return [Check(znodes.CONTROLLER, node.version)]

    async def _change(self, path: str, node: Node | None, config: Config) -> list[Operation]:
        if not config and not await self._tree.children(path):
            return [] if node is None else await self._removal(path, node)
        data = znodes.encode_config(config)
        if node is not None:
            return [SetData(path, data, node.version)]
        return [*await self._parents(path), Create(path, data)]

    async def _parents(self, path: str) -> list[Operation]:
        """The operations that create missing parents, from the top."""
        missing: list[Operation] = []
        while not await self._tree.exists(path := parent_of(path)):
            missing.insert(0, Create(path))
        return missing

    async def _removal(self, path: str, node: Node) -> list[Operation]:
        """A node, and above that of a user's client id `clients` and the user, as far as they are left empty."""
        operations: list[Operation] = [Delete(path, node.version)]
        clients, user = parent_of(path), parent_of(parent_of(path))
        if user == znodes.CONFIG or len(await self._tree.children(clients) or []) > 1:
            return operations
        operations.append(Delete(clients))
        of_user = await self._tree.get(user)
        is_only_child = await self._tree.children(user) == [CLIENTS]
        if of_user is not None and is_only_child and not znodes.decode_config(user, of_user.data):
            operations.append(Delete(user, of_user.version))
        return operations

    async def _read(self, entity: ConfigEntity) -> None:
        try:
            config = _decoded(entity, await self._changes.get(node_path(entity)))
        except MalformedNode as error:
            log.error("ignoring an unreadable quota; the previous one stays: %s", error)
        else:
            await self._hold(entity, config)

    # The quotas in force

    async def _hold(self, entity: ConfigEntity, config: Config) -> None:
        if config:
            self._in_force.add(entity)
        else:
            self._in_force.discard(entity)
        for follow in self.on_change:
            follow(entity, config)
        try:
            if isinstance(entity, QuotaEntity):
                self.quotas.put(entity, client_quotas_in(node_path(entity), config))
            else:
                await self._hold_rate(entity, connection_rate_in(node_path(entity), config))
        except MalformedNode as error:
            log.error("ignoring an unreadable connection quota; the previous one stays: %s", error)

    async def _hold_rate(self, entity: IpEntity, rate: int | None) -> None:
        if entity.ip is DEFAULT:
            self.connection_rates.default_address_limit = UNLIMITED if rate is None else rate
            return
        address = await self.address_of(entity.ip)
        if address is None:
            log.error("the quota of address %s has no effect: there is no such host", entity.ip)
        elif rate is None:
            self.connection_rates.address_limits.pop(address, None)
        else:
            self.connection_rates.address_limits[address] = rate

    async def address_of(self, host: str) -> str | None:
        """The address of a host, as Java prints it. None: there is no such host."""
        try:
            ip_address(host.partition("%")[0])
        except ValueError:
            try:
                host = (await self._network.addresses_of(host))[0]
            except OSError:
                return None
        return host_address(host)


def _decoded(entity: ConfigEntity, node: Node | None) -> Config:
    return {} if node is None else znodes.decode_config(node_path(entity), node.data)
