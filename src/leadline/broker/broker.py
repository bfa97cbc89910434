"""A broker, put together from top to bottom, and taken apart the other way round."""

import asyncio
import logging
import random
import socket
from functools import partial
from typing import NamedTuple

from leadline.api.context import Services
from leadline.api.lanes import Lanes
from leadline.api.sessions import Sessions
from leadline.broker.net import Limits, Net
from leadline.broker.requests import Requests
from leadline.config import BrokerConfig, BrokerSettings, Listener, LogConfig, broker_settings
from leadline.config.crosschecks import connections_per_ip
from leadline.controller.cluster import OUR_STOP, BrokerInfo, Cluster, Endpoint
from leadline.coordination import registration, znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.registration import Registration, encode_registration
from leadline.coordinator.commits import Commits
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.groups import Groups
from leadline.coordinator.markers import Markers
from leadline.coordinator.transactions import TRANSACTIONS_TOPIC, Transactions
from leadline.errors import LogDirFailed
from leadline.log.log_dirs import LogDirs
from leadline.log.upkeep import Upkeep
from leadline.model import BrokerId, ProducerId, TopicPartition, format_id, new_id
from leadline.ports import OsFiles, SystemClock
from leadline.replication.replicas import Replicas

log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Who a broker is, as its directories remember it in meta.properties."""

    broker: BrokerId
    cluster_id: str


class Broker:
    """One node on its embedded store. `await start()`, and in the end `await stop()`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.dirs = LogDirs(settings.storage, self.clock, OsFiles(), self._topic_config)
        self.dirs.on_offline.append(self._dir_failed)
        self.upkeep = Upkeep(self.dirs)
        self.failed = asyncio.Event()  # no log directory is left
        self.addresses: dict[str, Endpoint] = {}  # where it listens, by listener
        self.cluster: Cluster | None = None
        self.tree: EmbeddedTree | None = None
        self.replicas: Replicas | None = None
        self.groups: Groups | None = None
        self.commits: Commits | None = None
        self.transactions: Transactions | None = None
        self.net: Net | None = None

    async def start(self) -> None:
        """Log directories, then the tree, then what both say; then the doors are opened."""
        self.dirs.lock()
        try:
            await self._start()
        except BaseException:  # whoever tries next finds everything closed in order
            await self.stop()
            raise

    async def _start(self) -> None:
        settings = self.settings
        self.tree = await EmbeddedTree.open(next(iter(self.dirs.dirs)), self.clock)
        identity = await self._identity()
        self.replicas = Replicas(self.dirs, identity.broker)
        self.net = Net(_limits(settings.broker))
        self._listen(self.net, settings.listeners.bound)
        self.advertised = self._advertised()
        me = BrokerInfo(identity.broker, self.advertised, settings.broker.broker_rack)
        self.cluster = Cluster(self.tree, self.replicas, me, identity.cluster_id)
        offsets_partitions = partial(self.cluster.partition_count, OFFSETS_TOPIC)
        self.groups = Groups(self.replicas, self.clock, settings.broker, offsets_partitions)
        self.commits = Commits(self.groups)
        self.cluster.on_delete.append(self.commits.topic_deleted)
        self.transactions = self._transactions(self.replicas, self.cluster, self.groups)
        self.services = Services(
            settings=settings,
            static=dict(settings.given),
            cluster=self.cluster,
            replicas=self.replicas,
            dirs=self.dirs,
            sessions=Sessions(settings.broker.max_incremental_fetch_session_cache_slots, random.randint),
            groups=self.groups,
            commits=self.commits,
            transactions=self.transactions,
            clock=self.clock,
            lanes=Lanes(),
            reconfigure=self._reconfigure,
        )
        self.requests = Requests(self.services)
        await self._register(me, self.tree)
        await self.cluster.read()
        if self.cluster.broker_config or self.cluster.default_config:
            self._reconfigure()
        await self.dirs.load()
        await self.cluster.lead()
        self.upkeep.start()
        self.commits.start()
        self.transactions.start()
        self.net.start(self.requests.serve)

    def _transactions(self, replicas: Replicas, cluster: Cluster, groups: Groups) -> Transactions:
        def offsets_ended(partition: int, producer_id: ProducerId, committed: bool) -> None:
            groups.transaction_ended(partition, producer_id, committed=committed)

        markers = Markers(replicas, self.clock, cluster.has_partition, offsets_ended)
        count = partial(cluster.partition_count, TRANSACTIONS_TOPIC)
        return Transactions(
            replicas, self.clock, lambda: self.settings.broker, markers, count, cluster.next_producer_id
        )

    async def _register(self, me: BrokerInfo, tree: EmbeddedTree) -> None:
        protocols = {told.name: told.protocol.name for told in self.settings.listeners.advertised}
        endpoints = [
            registration.Endpoint(name, at.host, at.port, protocols[name]) for name, at in me.endpoints.items()
        ]
        data = encode_registration(Registration(tuple(endpoints), self.clock.now_ms(), rack=me.rack))
        await tree.create(znodes.broker_path(me.id), data, ephemeral=True, make_parents=True)

    async def _identity(self) -> Identity:
        """What the directories remember, or a new one; a setting must not contradict them."""
        known = {key: value for found in self.dirs.meta_properties().values() for key, value in found.items()}
        wanted = self.settings.broker.broker_id
        remembered = int(known["broker.id"]) if "broker.id" in known else None
        if remembered is not None and wanted >= 0 and wanted != remembered:
            raise LogDirFailed(
                ",".join(self.dirs.dirs), "opening it", OSError(f"it belongs to broker {remembered}, not {wanted}")
            )
        generated = self.settings.broker.reserved_broker_max_id + 1
        broker = remembered if remembered is not None else wanted if wanted >= 0 else generated
        cluster_id = known.get("cluster.id") or format_id(new_id())
        identity = {"broker.id": str(broker), "version": "0", "cluster.id": cluster_id}
        await self.dirs.write_meta_properties(identity)
        return Identity(broker, cluster_id)

    def _listen(self, net: Net, listeners: tuple[Listener, ...]) -> None:
        for listener in listeners:
            host, port = net.listen(listener.name, listener.host, listener.port)
            self.addresses[listener.name] = Endpoint(host, port)

    def _advertised(self) -> dict[str, Endpoint]:
        found = {}
        for told in self.settings.listeners.advertised:
            bound = self.addresses[told.name]
            found[told.name] = Endpoint(told.host or _own_name(), told.port or bound.port)
        return found

    def _topic_config(self, topic: str) -> LogConfig:
        known = self.cluster.topics.get(topic) if self.cluster is not None else None
        return self.settings.topics.with_values(known.config) if known is not None else self.settings.topics

    def _reconfigure(self) -> None:
        """Settings changed while it runs: they count from now on, for running logs too."""
        assert self.cluster is not None
        assert self.net is not None
        merged = self.services.layers().merged()
        self.settings = self.services.settings = broker_settings(merged)
        self.dirs.config = self.settings.storage
        self.net.limits = _limits(self.settings.broker)
        for topic in self.cluster.topics:
            self.dirs.update_config(topic)

    def _dir_failed(self, failure: LogDirFailed, gone: list[TopicPartition]) -> None:
        if not self.dirs.dirs:
            self.failed.set()

    async def stop(self) -> None:
        """No new requests, let those under way finish, then flush and close."""
        if self.net is not None:
            self.net.stop_listening()
        if self.commits is not None:
            await self.commits.stop()
        if self.groups is not None:
            await self.groups.stop()
        if self.replicas is not None:
            await self.replicas.stop()
        if self.net is not None:
            await self.net.close()
        if self.transactions is not None:
            await self.transactions.stop()
        if self.cluster is not None:
            await asyncio.gather(*self.cluster.under_way, return_exceptions=True)
        await self.upkeep.stop()
        await self.dirs.close(OUR_STOP)
        if self.tree is not None:
            await self.tree.close()


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=tuple(connections_per_ip(config.max_connections_per_ip_overrides).items()),
        connections_max_idle_ms=config.connections_max_idle_ms,
        queued_max_request_bytes=config.queued_max_request_bytes,
        socket_send_buffer_bytes=config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
    )


def _own_name() -> str:
    return socket.gethostname()
