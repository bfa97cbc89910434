"""A broker, put together from top to bottom, and taken apart the other way round."""

import asyncio
import logging
import random
import socket
from typing import NamedTuple

from leadline.api.context import Context, Services
from leadline.api.inter_broker import Itself, alter_partition
from leadline.api.lanes import Lanes
from leadline.api.sessions import Sessions
from leadline.broker.net import Limits, Net
from leadline.broker.requests import Requests
from leadline.config import BrokerConfig, BrokerSettings, Listener, LogConfig, broker_settings
from leadline.config.crosschecks import connections_per_ip
from leadline.controller.asking import ToController
from leadline.controller.cluster import Cluster
from leadline.controller.configs import BROKERS, TOPICS, Configs
from leadline.controller.controller import Controller
from leadline.controller.metadata import BrokerInfo, Endpoint, Metadata
from leadline.controller.state import Broker as Registered
from leadline.controller.take_over import OUR_STOP, TakeOver
from leadline.coordination import registration, znodes
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.registration import Registration, encode_registration
from leadline.coordination.tree import Tree
from leadline.errors import LogDirFailed
from leadline.log.log_dirs import LogDirs
from leadline.log.upkeep import Upkeep
from leadline.model import BrokerId, TopicPartition, format_id, new_id
from leadline.ports import OsFiles, SystemClock
from leadline.replication.channel import Channel, Peer, PeerLost
from leadline.replication.replicas import Replicas
from leadline.wire.messages import AlterPartitionRequest, AlterPartitionResponse

log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Who a broker is, as its directories remember it in meta.properties."""

    broker: BrokerId
    cluster_id: str


class Broker:
    """One node on its embedded store. `await start()`, and in the end `await stop()`."""

    is_alone = True  # nobody else writes to its tree

    def __init__(self, settings: BrokerSettings) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.dirs = LogDirs(settings.storage, self.clock, OsFiles(), self._topic_config)
        self.dirs.on_offline.append(self._dir_failed)
        self.upkeep = Upkeep(self.dirs)
        self.failed = asyncio.Event()  # no log directory is left
        self.addresses: dict[str, Endpoint] = {}  # where it listens, by listener
        self.cluster: Cluster | None = None
        self.configs: Configs | None = None
        self.controller: Controller | None = None
        self.tree: Tree | None = None
        self.replicas: Replicas | None = None
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
        self.tree = await self._open_tree()
        identity = await self._identity()
        self.replicas = Replicas(self.dirs, identity.broker, settings.broker, connect=self._broker, alter=self._alter)
        self.net = Net(_limits(settings.broker))
        self._listen(self.net, settings.listeners.bound)
        self.advertised = self._advertised()
        me = BrokerInfo(identity.broker, self.advertised, settings.broker.broker_rack)
        metadata = Metadata(me, identity.cluster_id)
        self.replicas.exists = metadata.has_partition
        self.configs = Configs(self.tree, me.id, self.clock)
        between_brokers = settings.listeners.inter_broker.name
        self.controller = Controller(
            self.tree,
            me.id,
            lambda: self.settings,
            self._peer,
            self.clock,
            listener=between_brokers,
            session_timeout_s=settings.broker.zookeeper_session_timeout_ms / 1000,
        )
        to_controller = ToController(metadata, between_brokers, lambda at: Channel(*at, str(me.id)))
        self.cluster = Cluster(self.tree, metadata, self.configs, self.controller, to_controller)
        self.services = Services(
            settings=settings,
            static=dict(settings.given),
            metadata=metadata,
            configs=self.configs,
            controller=self.controller,
            cluster=self.cluster,
            replicas=self.replicas,
            dirs=self.dirs,
            sessions=Sessions(settings.broker.max_incremental_fetch_session_cache_slots, random.randint),
            clock=self.clock,
            lanes=Lanes(),
            is_alone=self.is_alone,
        )
        self.requests = Requests(self.services)
        await make_persistent_nodes(self.tree)
        await self._read_settings(self.configs, self.tree)
        await self.dirs.load()
        if self.is_alone:
            self.configs.topics |= await TakeOver(self.tree, self.dirs, me.id).run()
        for topic in self.configs.topics:
            self.dirs.update_config(topic)
        metadata.broker_epoch = await self._register(me, self.tree)
        await self.controller.start()
        if self.is_alone:  # all that it holds it leads, before anybody asks
            await self.controller.settled()
        self.upkeep.start()
        self.net.start(self.requests.serve)

    async def _open_tree(self) -> Tree:
        return await EmbeddedTree.open(next(iter(self.dirs.dirs)), self.clock)

    async def _read_settings(self, configs: Configs, tree: Tree) -> None:
        """Those of topics are needed before their logs are opened."""
        await configs.start()
        await configs.of_topics(await tree.children(znodes.TOPICS) or [])
        if configs.broker or configs.default:
            self._reconfigure()
        configs.on_change.append(self._settings_changed)

    def _settings_changed(self, kind: str, name: str) -> None:
        assert self.controller is not None
        if kind == TOPICS:
            self.dirs.update_config(name)
            self.controller.settings_changed(name)
        elif kind == BROKERS:
            self._reconfigure()
            self.controller.settings_changed(None)

    def _broker(self, id: BrokerId) -> Peer:
        """To copy from. PeerLost if nobody has told us of it."""
        name, known = self.settings.listeners.inter_broker.name, self.services.metadata.brokers.get(id)
        if known is None or name not in known.endpoints:
            raise PeerLost(f"no broker {id} is known that listens on {name}")
        return Channel(*known.endpoints[name], str(self.services.metadata.me.id))

    async def _alter(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        """Ask the controller for another ISR, be it in this process or in another."""
        services = self.services
        if services.controller.is_active:
            return await alter_partition(request, Context(services, version, None, "", ""))
        timeout_s = services.config.controller_socket_timeout_ms / 1000
        return await services.cluster.to_controller.ask(request, AlterPartitionResponse, version, timeout_s)

    def _peer(self, broker: Registered) -> Peer:
        if broker.id == self.services.metadata.me.id:
            return Itself(self.services)
        name = self.settings.listeners.inter_broker.name
        at = next((each for each in broker.endpoints if each.listener == name), broker.endpoints[0])
        return Channel(at.host or "", at.port, str(self.services.metadata.me.id))

    async def _register(self, me: BrokerInfo, tree: Tree) -> int:
        """The broker's epoch."""
        protocols = {told.name: told.protocol.name for told in self.settings.listeners.advertised}
        endpoints = [
            registration.Endpoint(name, at.host, at.port, protocols[name]) for name, at in me.endpoints.items()
        ]
        data = encode_registration(Registration(tuple(endpoints), self.clock.now_ms(), rack=me.rack))
        return (await tree.create(znodes.broker_path(me.id), data, ephemeral=True, make_parents=True)).czxid

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
        own = self.configs.topics.get(topic) if self.configs is not None else None
        return self.settings.topics.with_values(own) if own else self.settings.topics

    def _reconfigure(self) -> None:
        """Settings changed while it runs: they count from now on, for running logs too."""
        assert self.configs is not None
        assert self.net is not None
        merged = self.services.layers().merged()
        self.settings = self.services.settings = broker_settings(merged)
        self.dirs.config = self.settings.storage
        self.net.limits = _limits(self.settings.broker)
        for topic in self.configs.topics:
            self.dirs.update_config(topic)

    def _dir_failed(self, failure: LogDirFailed, gone: list[TopicPartition]) -> None:
        if not self.dirs.dirs:
            self.failed.set()
        elif self.cluster is not None:
            self.cluster.log_dir_failed()

    async def stop(self) -> None:
        """No new requests, let those under way finish, then flush and close."""
        if self.net is not None:
            self.net.stop_listening()
        if self.replicas is not None:
            await self.replicas.stop()
        if self.net is not None:
            await self.net.close()
        if self.cluster is not None:
            await self.cluster.stop()
        if self.controller is not None:
            await self.controller.stop()
        if self.configs is not None:
            await self.configs.stop()
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
