"""A broker, put together from top to bottom, and taken apart the other way round.

It is alone, on its embedded store, unless zookeeper.connect names a ZooKeeper: then it is one of a cluster.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address

from leadline.api.context import Context, Services
from leadline.api.fast.produce_templates import Lanes
from leadline.api.fetch_sessions import Sessions
from leadline.api.inter_broker import LoopbackPeer, alter_partition, controlled_shutdown
from leadline.broker.identity import Identity, identify, properties_of
from leadline.broker.net import LISTEN_BACKLOG, SEND_BUFFER_BYTES, Limits, Net
from leadline.broker.presence import Presence
from leadline.broker.requests import Requests
from leadline.cluster.broker_client import BrokerClient, Channel, Source
from leadline.cluster.dynamic_configs import BROKERS, TOPICS, DynamicConfigs
from leadline.cluster.metadata_cache import BrokerInfo, Endpoint, MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.cluster.peers import Peers
from leadline.cluster.silence import silence_s
from leadline.config.alter import check_listeners
from leadline.config.broker import BrokerConfig, BrokerSettings, broker_settings
from leadline.config.crosschecks import connections_per_ip
from leadline.config.listeners import Listener
from leadline.config.topic import LogConfig
from leadline.config.values import LONG_MAX, InvalidSetting
from leadline.controller.cluster_admin import ClusterAdmin
from leadline.controller.controller import Controller
from leadline.controller.leadership import Leadership
from leadline.controller.log_dir_reconciliation import OUR_STOP, LogDirReconciliation, first_producer_id
from leadline.controller.state import Broker as Registered
from leadline.coordination import registration, znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.registration import Registration, encode_registration
from leadline.coordination.tree import Tree
from leadline.coordinator.commits import Commits
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.groups import Groups
from leadline.coordinator.markers import Markers
from leadline.coordinator.transactions import TRANSACTIONS_TOPIC, Transactions
from leadline.errors import LogDirFailed
from leadline.log.files import CACHE, cache_capacity, connection_capacity
from leadline.log.log_dirs import LogDirs
from leadline.log.log_tasks import LogTasks
from leadline.model import BrokerId, ProducerId, TopicPartition
from leadline.replication.replicas import Replicas
from leadline.replication.throttle import Throttles
from leadline.runtime.ports import OsFiles, SystemChance, SystemClock, descriptor_limit, raise_descriptor_limit
from leadline.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)

log = logging.getLogger(__name__)

KAFKAS_STOP = -1  # in .kafka_cleanshutdown, where Kafka with ZooKeeper has no broker epoch either


class Broker:
    """One node. `await start()`, and in the end `await stop()`."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.is_alone = not settings.broker.zookeeper_connect  # nobody else writes to its tree
        self.clock, self.chance, self.files = SystemClock(), SystemChance(), OsFiles(CACHE.make_room)
        self.dirs = LogDirs(settings.storage, self.clock, self.files, self._topic_config)
        self.dirs.on_offline.append(self._dir_failed)
        self.upkeep = LogTasks(self.dirs)
        self.failed = asyncio.Event()  # no log directory is left
        self.addresses: dict[str, Endpoint] = {}  # where it listens, by listener
        self.cluster: ClusterAdmin | None = None
        self.configs: DynamicConfigs | None = None
        self.controller: Controller | None = None
        self.peers: Peers | None = None
        self.presence: Presence | None = None
        self.peer_monitor: PeerMonitor | None = None
        self.leadership: Leadership | None = None
        self.tree: Tree | None = None
        self.replicas: Replicas | None = None
        self.groups: Groups | None = None
        self.commits: Commits | None = None
        self.transactions: Transactions | None = None
        self.net: Net | None = None

    async def start(self) -> None:
        """Log directories, then the tree, then what both say; then the doors are opened."""
        CACHE.capacity = cache_capacity(raise_descriptor_limit())
        self.dirs.lock()
        try:
            await self._start()
        except BaseException:  # whoever tries next finds everything closed in order
            await self.stop()
            raise

    async def _start(self) -> None:
        settings = self.settings
        self.tree = await self._open_tree()
        identity = await self._identity(self.tree)
        self.replicas = Replicas(self.dirs, identity.broker, settings.broker, connect=self._broker, alter=self._alter)
        self.net = Net(limits_of(settings))
        self._listen(self.net, settings.listeners.bound)
        self.advertised = self._advertised()
        me = BrokerInfo(identity.broker, self.advertised, settings.broker.broker_rack)
        metadata = MetadataCache(me, identity.cluster_id)
        self.replicas.exists = metadata.has_partition
        self.configs = DynamicConfigs(self.tree, me.id, self.clock)
        self.controller = self._controller(self.tree, identity, self.replicas)
        self.peers = Peers(metadata, settings.listeners.inter_broker.name, self._channel)
        self.cluster = ClusterAdmin(
            self.tree, metadata, self.configs, self.controller, self.peers, self._request_timeout_s
        )
        offsets_partitions = partial(metadata.partition_count, OFFSETS_TOPIC)
        self.groups = Groups(self.replicas, self.clock, settings.broker, offsets_partitions, self.chance)
        self.commits = Commits(self.groups)
        self.transactions = self._transactions(self.replicas, self.cluster, self.groups)
        self.services = Services(
            settings=settings,
            static=dict(settings.given),
            metadata=metadata,
            configs=self.configs,
            controller=self.controller,
            cluster=self.cluster,
            peers=self.peers,
            replicas=self.replicas,
            dirs=self.dirs,
            sessions=Sessions(settings.broker.max_incremental_fetch_session_cache_slots, random.randint),
            groups=self.groups,
            commits=self.commits,
            transactions=self.transactions,
            clock=self.clock,
            lanes=Lanes(),
            is_alone=self.is_alone,
        )
        self.requests = Requests(self.services)
        await make_persistent_nodes(self.tree)
        await self._read_settings(self.configs, self.tree)
        await self.dirs.load()
        if self.is_alone:
            self.configs.topics |= await LogDirReconciliation(
                self.tree, self.dirs, me.id, self.configs.unreadable
            ).run()
        for topic in self.configs.topics:
            self.dirs.update_config(topic)
        await (self._be_alone if self.is_alone else self._join)(self.tree, self.controller)
        self.upkeep.start()
        self.commits.start()
        self.transactions.start()
        self.net.start(self.requests.serve, self.services.replicas.completions)

    # Alone, or one of many

    async def _open_tree(self) -> Tree:
        config = self.settings.broker
        if self.is_alone:
            return await EmbeddedTree.open(next(iter(self.dirs.dirs)), self.clock)
        from leadline.coordination.zookeeper.client import ZooKeeperTree

        assert config.zookeeper_connect is not None
        return await ZooKeeperTree.open(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
            max_in_flight=config.zookeeper_max_in_flight_requests,
        )

    async def _identity(self, tree: Tree) -> Identity:
        config, stored = self.settings.broker, self.dirs.meta_properties()
        identity = await identify(tree, stored, config, is_alone=self.is_alone)
        await self.dirs.write_meta_properties(properties_of(identity))
        return identity

    async def _be_alone(self, tree: Tree, controller: Controller) -> None:
        """All that it holds it leads, before anybody asks."""
        path, data = znodes.broker_path(self.services.metadata.me.id), encode_registration(self._registration())
        self._registered((await tree.create(path, data, ephemeral=True, make_parents=True)).czxid)
        await controller.start()
        await controller.settled()

    async def _join(self, tree: Tree, controller: Controller) -> None:
        me, metadata = self.services.metadata.me, self.services.metadata
        directory = next(iter(self.dirs.dirs))
        self.presence = Presence(tree, me.id, self._registration(), self.files, directory, self._registered)
        await self.presence.begin()
        peers, silence = self.services.peers, silence_s(self.settings.broker.zookeeper_session_timeout_ms)
        self.peer_monitor = self.services.peer_monitor = PeerMonitor(
            metadata, peers.where, self._channel, controller.vacate, silence
        )
        controller.monitor = self.peer_monitor
        self.leadership = Leadership(tree, metadata, controller, peers, self.peer_monitor, self.services.replicas)
        await controller.start()

    def _registration(self) -> Registration:
        me = self.services.metadata.me
        protocols = {told.name: told.protocol.name for told in self.settings.listeners.advertised}
        endpoints = [
            registration.Endpoint(name, at.host, at.port, protocols[name]) for name, at in me.endpoints.items()
        ]
        return Registration(tuple(endpoints), self.clock.now_ms(), rack=me.rack)

    def _registered(self, epoch: int) -> None:
        self.services.metadata.broker_epoch = self.services.replicas.alterations.broker_epoch = epoch

    # The parts, and how they reach each other

    def _controller(self, tree: Tree, identity: Identity, replicas: Replicas) -> Controller:
        def first_id() -> ProducerId:
            """What other brokers count from is 0; one that is alone may hand its logs over to them."""
            logs = (hosted.log for hosted in replicas.hosted.values())
            return first_producer_id(identity.cluster_id, logs) if self.is_alone else 0

        return Controller(
            tree,
            identity.broker,
            lambda: self.settings,
            self._controlled,
            self.clock,
            listener=self.settings.listeners.inter_broker.name,
            session_timeout_s=self.settings.broker.zookeeper_session_timeout_ms / 1000,
            first_producer_id=first_id,
            is_alone=self.is_alone,
        )

    def _transactions(self, replicas: Replicas, cluster: ClusterAdmin, groups: Groups) -> Transactions:
        def offsets_ended(partition: int, producer_id: ProducerId, committed: bool) -> None:
            groups.transaction_ended(partition, producer_id, committed=committed)

        metadata, peers = cluster.metadata, cluster.peers
        markers = Markers(
            replicas,
            self.clock,
            metadata.has_partition,
            offsets_ended,
            metadata.leader_of,
            peers,
            self._request_timeout_s,
        )
        count = partial(metadata.partition_count, TRANSACTIONS_TOPIC)
        return Transactions(
            replicas, self.clock, lambda: self.settings.broker, markers, count, cluster.next_producer_id
        )

    def _channel(self, at: Endpoint, lost: Callable[[], None] = lambda: None) -> Channel:
        config = self.settings.broker
        setup_ms = config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms
        return Channel(*at, str(self.services.metadata.me.id), lost, (setup_ms[0] / 1000, setup_ms[1] / 1000))

    def _broker(self, id: BrokerId) -> Source:
        """To copy from. PeerLost if nobody has told us of it, or it is silent."""
        assert self.peers is not None
        return self._channel(self.peers.heard_at(id))

    def _controlled(self, broker: Registered, lost: Callable[[], None]) -> BrokerClient:
        """A broker, as the controller reaches it."""
        if broker.id == self.services.metadata.me.id:
            return LoopbackPeer(self.services)
        name = self.settings.listeners.inter_broker.name
        at = next((each for each in broker.endpoints if each.listener == name), broker.endpoints[0])
        return self._channel(Endpoint(at.host or "", at.port), lost)

    async def _alter(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Ask the controller for another ISR, be it in this process or in another."""
        if self.services.controller.is_active:
            return await alter_partition(request, self._own_request(version))
        timeout_s = self._request_timeout_s
        return await self.services.peers.ask_controller(request, AlterPartitionResponse, version, timeout_s)

    async def _shut_down(self, request: ControlledShutdownRequest, version: int) -> ControlledShutdownResponse:
        if self.services.controller.is_active:
            return await controlled_shutdown(request, self._own_request(version))
        return await self.services.peers.ask_controller(request, ControlledShutdownResponse, version, self._patience_s)

    def _own_request(self, version: int) -> Context:
        return Context(self.services, version, None, "", "")

    @property
    def _request_timeout_s(self) -> float:
        return self.settings.broker.request_timeout_ms / 1000

    @property
    def _patience_s(self) -> float:
        return self.settings.broker.controller_socket_timeout_ms / 1000

    # Settings

    async def _read_settings(self, configs: DynamicConfigs, tree: Tree) -> None:
        """Those of topics are needed before their logs are opened."""
        await configs.start()
        await configs.of_topics(await tree.children(znodes.TOPICS) or [])
        if configs.broker or configs.default:
            try:
                self._reconfigure()
            except InvalidSetting as error:
                raise InvalidSetting(f"{error} (set for running brokers, so with kafka-configs)") from None
        configs.on_change.append(self._settings_changed)

    def _settings_changed(self, kind: str, name: str) -> None:
        assert self.controller is not None
        if kind == TOPICS:
            self.dirs.update_config(name)
            self.controller.settings_changed(name)
        elif kind == BROKERS:
            try:
                self._reconfigure()
            except InvalidSetting as error:  # another broker or a tool wrote it
                log.error("changed settings are not obeyed, the earlier ones hold: %s", error)
            self.controller.settings_changed(None)

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
        own = self.configs.topics.get(topic) if self.configs is not None else None
        if not own:
            return self.settings.topics
        config, wrong = self.settings.topics.with_readable(own)
        for error in wrong:  # another broker or a tool wrote it
            log.error("a setting of topic %s is not obeyed: %s", topic, error)
        return config

    def _reconfigure(self) -> None:
        """Settings changed while it runs: they count from now on, for running logs too."""
        assert self.configs is not None
        assert self.net is not None
        merged = self.services.layers().merged()
        changed = broker_settings(merged)
        check_listeners(self.settings, changed)
        limits = limits_of(changed)
        self.settings = self.services.settings = changed
        self.dirs.reconfigure(self.settings.storage)
        self.upkeep.reconfigure()
        self.net.reconfigure(limits)
        _limit_copies(self.services.replicas.throttles, self.settings.broker, merged)
        for topic in self.configs.topics:
            self.dirs.update_config(topic)

    def _dir_failed(self, failure: LogDirFailed, gone: list[TopicPartition]) -> None:
        if not self.dirs.dirs:
            self.failed.set()
        elif self.cluster is not None:
            self.cluster.log_dir_failed()

    async def stop(self) -> None:
        """Let others lead; no new requests, let those under way finish; then flush and close, whatever failed before.

        What is not on disk after that is told by `dirs.not_closed`.
        """
        try:
            await self._leave()
        finally:
            await self.dirs.close(OUR_STOP if self.is_alone else KAFKAS_STOP)
            if self.tree is not None:
                await self.tree.close()

    async def _leave(self) -> None:
        if self.presence is not None:
            config = self.settings.broker
            if config.controlled_shutdown_enable and self.dirs.dirs:
                self.services.replicas.leaving = True
                await self.presence.hand_over(self.services.metadata.broker_epoch, config, self._shut_down)
            await self.presence.stop()
        if self.net is not None:
            self.net.stop_listening()
        if self.leadership is not None:
            await self.leadership.stop()
        if self.peer_monitor is not None:
            await self.peer_monitor.stop()
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
            await self.cluster.stop()
        if self.controller is not None:
            await self.controller.stop()
        if self.peers is not None:
            self.peers.close()
        if self.configs is not None:
            await self.configs.stop()
        await self.upkeep.stop()


def limits_of(settings: BrokerSettings) -> Limits:
    config, send_buffer = settings.broker, settings.given.get("socket.send.buffer.bytes")
    backlog = settings.given.get("socket.listen.backlog.size")
    most = max(connection_capacity(descriptor_limit()), 1)
    return Limits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        max_connections=min(config.max_connections, most),
        descriptor_limit=descriptor_limit() if most < config.max_connections else 0,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=tuple(
            (address, limit)
            for host, limit in connections_per_ip(config.max_connections_per_ip_overrides).items()
            for address in _addresses_of(host)
        ),
        max_connection_creation_rate=config.max_connection_creation_rate,
        connections_max_idle_ms=config.connections_max_idle_ms,
        queued_max_request_bytes=config.queued_max_request_bytes,
        socket_send_buffer_bytes=SEND_BUFFER_BYTES if send_buffer is None else config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=LISTEN_BACKLOG if backlog is None else config.socket_listen_backlog_size,
    )


def _addresses_of(host: str) -> list[str]:
    """As the addresses of connections are written."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        pass
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None)})
    except OSError as error:
        raise InvalidSetting(f"max.connections.per.ip.overrides: {host} has no address: {error.strerror}") from None


def _limit_copies(throttles: Throttles, config: BrokerConfig, given: Mapping[str, str]) -> None:
    """The rates can be set for running brokers only, so no table of settings has them."""
    for throttle, rate in (
        (throttles.leader, "leader.replication.throttled.rate"),
        (throttles.follower, "follower.replication.throttled.rate"),
        (throttles.moves, "replica.alter.log.dirs.io.max.bytes.per.second"),
    ):
        throttle.limit = int(given.get(rate, LONG_MAX))
    for throttle in (throttles.leader, throttles.follower):
        throttle.windows = config.replication_quota_window_num
        throttle.window_ms = 1000 * config.replication_quota_window_size_seconds
    throttles.moves.windows = config.alter_log_dirs_replication_quota_window_num
    throttles.moves.window_ms = 1000 * config.alter_log_dirs_replication_quota_window_size_seconds


def _own_name() -> str:
    return socket.gethostname()
