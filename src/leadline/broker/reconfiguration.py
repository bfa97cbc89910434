"""Dynamic settings: changes that tools write for running brokers and topics reach the parts that use them.

Every part reads the settings at the time of use (`config/live_settings.py`). Four have to act on a change: the network
has limits that it enforces by itself, the log directories restart timers, the replication throttles have windows, and
the listeners are opened, closed and registered, and read their key and trust stores again, which is how certificates
are rotated.
    a change that cannot be obeyed changes nothing: the earlier settings hold
"""

import asyncio
import logging
from collections.abc import Mapping
from ipaddress import ip_address

from leadline.broker.connection_quotas import LISTEN_BACKLOG, SEND_BUFFER_BYTES, ConnectionLimits
from leadline.broker.dynamic_listeners import DynamicListeners
from leadline.broker.net import Net
from leadline.cluster.dynamic_configs import BROKERS, TOPICS, DynamicConfigs
from leadline.config.broker import BrokerConfig, BrokerSettings, broker_settings
from leadline.config.crosschecks import connections_per_ip
from leadline.config.live_settings import LiveSettings
from leadline.config.topic import LogConfig
from leadline.config.values import LONG_MAX, InvalidSetting
from leadline.controller.controller import Controller
from leadline.coordination import znodes
from leadline.coordination.tree import Tree
from leadline.log.log_dirs import LogDirs
from leadline.log.log_tasks import LogTasks
from leadline.log.open_files import connection_capacity
from leadline.replication.throttle import Throttles
from leadline.runtime.network import Network
from leadline.runtime.ports import descriptor_limit

log = logging.getLogger(__name__)

LimitsPerAddress = tuple[tuple[str, int], ...]  # an address and the connections that it may have


def topic_config(settings: LiveSettings, overrides: Mapping[str, str] | None, topic: str) -> LogConfig:
    """The settings of a topic. Overrides that cannot be obeyed are logged and left out."""
    if not overrides:
        return settings.topics
    config, errors = settings.topics.with_readable(overrides)
    for error in errors:  # another broker or a tool wrote it
        log.error("ignoring an invalid setting of topic %s: %s", topic, error)
    return config


async def load_dynamic_settings(settings: LiveSettings, configs: DynamicConfigs) -> None:
    """Before anything is built by the settings: what tools or earlier runs wrote for this broker holds from the start.

    Raises InvalidSetting.
    """
    await configs.load()
    if configs.broker or configs.default:
        try:
            settings.replace(settings.layers(configs.default, configs.broker).settings())
        except InvalidSetting as error:
            raise InvalidSetting(f"{error} (set for running brokers, so with kafka-configs)") from None


class Reconfiguration:
    """`await start()` reads the dynamic settings before any log is opened, and follows their changes."""

    def __init__(
        self,
        settings: LiveSettings,
        configs: DynamicConfigs,
        dirs: LogDirs,
        net: Net,
        throttles: Throttles,
        listeners: DynamicListeners,
    ) -> None:
        self._settings, self._configs, self._dirs = settings, configs, dirs
        self._net, self._throttles, self._listeners = net, throttles, listeners
        self._changing = asyncio.Lock()  # the later of two changes holds, whatever the lookup of a host takes
        self._without_effect: set[str] = set()  # settings that the cluster holds, each with the reason

    async def start(self, tree: Tree, log_tasks: LogTasks, controller: Controller) -> None:
        self._log_tasks, self._controller = log_tasks, controller
        await self._configs.start()
        await self._configs.of_topics(await tree.children(znodes.TOPICS) or [])
        if self._configs.broker or self._configs.default:
            await self._reconfigure()
        self._configs.on_change.append(self._changed)

    async def _changed(self, kind: str, name: str) -> None:
        if kind == TOPICS:
            self._dirs.update_config(name)
            self._controller.settings_changed(name)
        elif kind == BROKERS:
            try:
                await self._reconfigure()
            except InvalidSetting as error:  # another broker or a tool wrote it
                log.error("ignoring invalid settings; the previous ones stay: %s", error)
            self._controller.settings_changed(None)

    async def _reconfigure(self) -> None:
        async with self._changing:
            await self._obey_latest()

    async def _obey_latest(self) -> None:
        layers = self._settings.layers(self._configs.default, self._configs.broker)
        merged = layers.merged()
        changed = broker_settings(merged, layers.stored)
        self._report({text for text in changed.ignored if text.split(" ")[0] in layers.stored})
        per_address = await connections_per_address(changed.broker, self._net.network)
        limits = limits_of(changed, per_address)
        listeners = self._listeners.change(changed)  # the last step that may fail
        self._settings.replace(changed)
        self._dirs.reconfigure()
        self._log_tasks.reconfigure()
        self._net.reconfigure(limits)
        _limit_replication(self._throttles, changed.broker, merged)
        for topic in self._configs.topics:
            self._dirs.update_config(topic)
        if any(listeners):
            await self._listeners.announce()

    def _report(self, without_effect: set[str]) -> None:
        """Once each, as long as the cluster holds them."""
        if new := without_effect - self._without_effect:
            log.warning("settings that the cluster holds, without effect: %s", "; ".join(sorted(new)))
        self._without_effect = without_effect


def limits_of(settings: BrokerSettings, per_address: LimitsPerAddress) -> ConnectionLimits:
    config, send_buffer = settings.broker, settings.properties.get("socket.send.buffer.bytes")
    backlog = settings.properties.get("socket.listen.backlog.size")
    most = max(connection_capacity(descriptor_limit()), 1)
    return ConnectionLimits(
        socket_request_max_bytes=config.socket_request_max_bytes,
        max_connections=min(config.max_connections, most),
        max_connections_of_listeners=_of_listeners(settings, "max.connections", config.max_connections),
        protected_listener=settings.listeners.inter_broker.name if len(settings.listeners.bound) > 1 else None,
        capacity=most,
        descriptor_limit=descriptor_limit() if most < config.max_connections else 0,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=per_address,
        max_connection_creation_rate=config.max_connection_creation_rate,
        creation_rates_of_listeners=_of_listeners(
            settings, "max.connection.creation.rate", config.max_connection_creation_rate
        ),
        connections_max_idle_ms=config.connections_max_idle_ms,
        queued_max_request_bytes=config.queued_max_request_bytes,
        socket_send_buffer_bytes=SEND_BUFFER_BYTES if send_buffer is None else config.socket_send_buffer_bytes,
        socket_receive_buffer_bytes=config.socket_receive_buffer_bytes,
        socket_listen_backlog_size=LISTEN_BACKLOG if backlog is None else config.socket_listen_backlog_size,
    )


def _of_listeners(settings: BrokerSettings, name: str, of_all: int) -> tuple[tuple[str, int], ...]:
    """A limit of each listener: its own, or that of the broker, as in Kafka."""
    listeners = [listener.name for listener in settings.listeners.bound]
    return tuple((listener, int(settings.own_of_listener(listener).get(name, of_all))) for listener in listeners)


async def connections_per_address(config: BrokerConfig, network: Network) -> LimitsPerAddress:
    """max.connections.per.ip.overrides, with the addresses of hosts that it names."""
    limits = connections_per_ip(config.max_connections_per_ip_overrides).items()
    return tuple([(address, limit) for host, limit in limits for address in await _addresses_of(host, network)])


async def _addresses_of(host: str, network: Network) -> list[str]:
    """The addresses of a host, in the form of a connection's peer address."""
    try:
        return [str(ip_address(host))]
    except ValueError:
        pass
    try:
        return await network.addresses_of(host)
    except OSError as error:
        raise InvalidSetting(f"max.connections.per.ip.overrides: {host} has no address: {error.strerror}") from None


def _limit_replication(throttles: Throttles, config: BrokerConfig, properties: Mapping[str, str]) -> None:
    """The rates can be set for running brokers only, so no table of settings has them."""
    for throttle, rate in (
        (throttles.leader, "leader.replication.throttled.rate"),
        (throttles.follower, "follower.replication.throttled.rate"),
        (throttles.moves, "replica.alter.log.dirs.io.max.bytes.per.second"),
    ):
        throttle.limit = int(properties.get(rate, LONG_MAX))
    for throttle in (throttles.leader, throttles.follower):
        throttle.windows = config.replication_quota_window_num
        throttle.window_ms = 1000 * config.replication_quota_window_size_seconds
    throttles.moves.windows = config.alter_log_dirs_replication_quota_window_num
    throttles.moves.window_ms = 1000 * config.alter_log_dirs_replication_quota_window_size_seconds
