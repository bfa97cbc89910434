"""A broker: its parts, built and started from the bottom up on one exit stack, and stopped in reverse order.

It is a single node on its embedded tree, unless zookeeper.connect names a ZooKeeper: then it is one of a cluster.
    a start that fails half way stops the parts that it had started
"""

import asyncio
import logging
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

from leadline.api.context import Services
from leadline.api.fast.produce_templates import ProduceTemplates
from leadline.api.fetch_sessions import Sessions
from leadline.broker.access_control import acl_store, security_warnings, start_following, super_users_of
from leadline.broker.authentication import Logins
from leadline.broker.broker_lifecycle import BrokerLifecycle
from leadline.broker.delegation_tokens import start_following_tokens, token_store
from leadline.broker.dynamic_listeners import DynamicListeners
from leadline.broker.endpoints import Endpoints
from leadline.broker.identity import Identity, identify, properties_of
from leadline.broker.inter_broker import InterBroker
from leadline.broker.jaas_file import jaas_sections
from leadline.broker.kerberos_logins import KerberosLogins
from leadline.broker.listener_security import Credentials, ListenerSecurities, decoy_key
from leadline.broker.net import Net
from leadline.broker.oauth_tokens import OAuthTokens
from leadline.broker.peer_versions import refuse_older_brokers
from leadline.broker.ports import Ports
from leadline.broker.presence import Presence
from leadline.broker.quotas import client_quotas, connection_rates, start_dropping_idle
from leadline.broker.reconfiguration import (
    Reconfiguration,
    connections_per_address,
    limits_of,
    load_dynamic_settings,
    topic_config,
)
from leadline.broker.requests import Requests
from leadline.cluster.dynamic_configs import DynamicConfigs
from leadline.cluster.failure_detector import silence_s
from leadline.cluster.metadata_cache import NO_BROKER_EPOCH, BrokerInfo, Endpoint, MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.cluster.peers import Peers
from leadline.config.broker import BrokerSettings
from leadline.config.java_options import system_properties
from leadline.config.live_settings import LiveSettings
from leadline.config.topic import LogConfig
from leadline.controller.cluster_admin import ClusterAdmin
from leadline.controller.controller import Controller
from leadline.controller.controller_election import ControllerElection, resign_on_behalf
from leadline.controller.leadership import Leadership
from leadline.controller.log_dir_reconciliation import OUR_STOP, LogDirReconciliation, first_producer_id
from leadline.controller.silence_monitor import NoSilenceMonitor
from leadline.coordination.config_changes import ConfigChanges
from leadline.coordination.membership import make_persistent_nodes, register
from leadline.coordination.registration import Registration
from leadline.coordination.tree import SessionState, Tree
from leadline.coordinator.group_coordinator import GroupCoordinator
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.marker_channel import MarkerChannel
from leadline.coordinator.marker_writer import MarkerWriter
from leadline.coordinator.transaction_coordinator import TransactionCoordinator
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC
from leadline.log.files import read_file
from leadline.log.log_dirs import LogDirs
from leadline.log.log_tasks import LogTasks
from leadline.log.open_files import CACHE, cache_capacity
from leadline.model import ProducerId, TopicPartition
from leadline.replication.replicas import OtherBrokers, Replicas
from leadline.runtime.deferred_completions import of_running_loop
from leadline.runtime.ports import descriptor_limit
from leadline.security.dynamic_passwords import DynamicPasswords
from leadline.security.quota_store import QuotaStore
from leadline.security.scram_users import ScramUserCredentials

log = logging.getLogger(__name__)

KAFKAS_STOP = -1  # in .kafka_cleanshutdown, where Kafka with ZooKeeper has no broker epoch either


class Broker:
    """One node. `await start()`, and in the end `await stop()`. The parts below exist once it has started."""

    tree: Tree
    metadata: MetadataCache
    configs: DynamicConfigs
    client_configs: QuotaStore
    securities: ListenerSecurities
    endpoints: Endpoints
    replicas: Replicas
    controller: Controller
    peers: Peers
    cluster: ClusterAdmin
    groups: GroupCoordinator
    markers: MarkerWriter
    transactions: TransactionCoordinator
    net: Net
    services: Services
    requests: Requests

    def __init__(self, settings: BrokerSettings, ports: Ports) -> None:
        self.settings = LiveSettings(settings)
        self.is_alone = not settings.broker.zookeeper_connect  # no other process writes to its tree
        self.ports = ports
        self.clock, self.chance, self.files = self.ports.time, self.ports.chance, self.ports.files
        self.dirs = LogDirs(self.settings, self.clock, self.chance, self.files, self._topic_config)
        self.dirs.on_offline.append(self._logs_offline)
        super_users_of(settings.broker)  # raises, before anything is opened, if it is not a list of principals
        self.log_tasks = LogTasks(self.dirs)
        self._read = partial(read_file, self.files)
        properties = system_properties(self.ports.environment)
        sections = jaas_sections(properties, self._read)
        kerberos = KerberosLogins(self.ports.kerberos, self._read, properties)
        oauth = OAuthTokens(self.ports.fetch_document, self._read, self.clock, self.chance)
        self._credentials = Credentials(ScramUserCredentials(), oauth, kerberos, self.chance, sections=sections)
        self._passwords = DynamicPasswords.of(settings.broker, self.chance.secret_bytes)
        if self.is_alone and not any(map(self.files.exists, settings.storage.log_dirs)):
            # There are no dynamic settings yet. An invalid setting stops the start before a directory is created.
            ListenerSecurities(settings, self._credentials, self._read)
        self.failed = asyncio.Event()  # no log directory is left
        self.state = BrokerLifecycle.NOT_RUNNING
        self.session_events: Counter[SessionState] = Counter()  # of its session with ZooKeeper
        self._presence: Presence | None = None  # in a cluster
        self.addresses: dict[str, Endpoint] = {}  # where it listens, by listener
        self._warnings: set[str] = set()  # about listeners, each logged once
        self._running = AsyncExitStack()

    async def start(self) -> None:
        """Opens the log directories and the tree, builds the parts on both, joins the cluster, and serves requests."""
        CACHE.capacity = cache_capacity(descriptor_limit())
        self.state = BrokerLifecycle.STARTING
        async with AsyncExitStack() as stack:
            self.dirs.lock()
            stack.push_async_callback(self._close_dirs)
            directory = next(iter(self.dirs.dirs))
            self.tree = await self.ports.open_tree(self.settings.broker, directory, self.ports)
            stack.push_async_callback(self.tree.close)
            identity = await self._identity()
            self._changes = ConfigChanges(self.tree, self.clock)
            self.configs = DynamicConfigs(self.tree, identity.broker, self.clock, self._passwords, self._changes)
            await load_dynamic_settings(self.settings, self.configs)
            stack.callback(self._credentials.kerberos.close)
            self.securities = ListenerSecurities(self.settings.current, self._credentials, self._read)
            sections = self._credentials.sections
            self._credentials.decoy_key = decoy_key(identity.cluster_id, self.settings.current, sections)
            logins = Logins(self.clock, self.files.read_into, self.securities.by_listener)
            per_address = await connections_per_address(self.settings.broker, self.ports.network)
            limits, rates = limits_of(self.settings.current, per_address), connection_rates(self.settings.current)
            self.net = Net(limits, self.ports.network, self.clock.monotonic_s, logins, rates)
            self.endpoints = Endpoints(self.settings, self.net, self.addresses)
            self._listeners = DynamicListeners(self.settings, self.net, self.securities, self.endpoints)
            self._listeners.on_change.append(self._listeners_changed)
            stack.callback(self.net.stop_listening)
            self.endpoints.open()
            self._build(identity)
            await make_persistent_nodes(self.tree)
            await self._credentials.oauth.start(stack)
            stack.push_async_callback(self.client_configs.stop)
            await self.client_configs.start()
            start_dropping_idle(self.client_configs, self.clock, stack)
            if self.services.acls is not None:
                await start_following(self.services.acls, self.services.audit, self.clock, stack)
            if self.services.tokens is not None:
                interval_ms = self.settings.broker.delegation_token_expiry_check_interval_ms
                await start_following_tokens(
                    self.services.tokens, lambda: self.controller.is_active, interval_ms, stack
                )
            self._warn_of_what_is_open()
            stack.push_async_callback(self.log_tasks.stop)
            stack.push_async_callback(self.configs.stop)
            stack.callback(self.peers.close)
            self.state = BrokerLifecycle.RECOVERY
            await self._load()
            self.state = BrokerLifecycle.STARTING
            self.dirs.on_offline.append(self._report_offline_logs)
            stack.push_async_callback(self.controller.stop)
            stack.push_async_callback(self.cluster.stop)
            stack.push_async_callback(self.transactions.stop)
            stack.callback(self.services.content_checks.close)
            stack.callback(self.services.down_conversions.close)
            stack.push_async_callback(self.net.close)
            stack.push_async_callback(self.replicas.stop)
            stack.push_async_callback(self.groups.stop)
            await (self._lead_all if self.is_alone else self._join)(stack)
            self.log_tasks.start()
            self.groups.start()
            self.transactions.start()
            self.net.start(self.requests.serve, self.replicas.completions)
            self.state = BrokerLifecycle.RUNNING
            self._running = stack.pop_all()

    async def stop(self) -> None:
        """Hands leadership over, refuses new requests, finishes those under way, then flushes and closes.

        A part that fails to stop does not keep the others from stopping. `dirs.not_closed` has the unclean directories.
        """
        self.state = BrokerLifecycle.SHUTTING_DOWN
        await self._running.aclose()
        self.state = BrokerLifecycle.NOT_RUNNING

    @property
    def is_registered(self) -> bool:
        """Whether other brokers know of it. A single node is registered in its own tree."""
        if self._presence is not None:
            return self._presence.is_registered
        return self.is_alone and self.state is BrokerLifecycle.RUNNING

    async def _close_dirs(self) -> None:
        await self.dirs.close(OUR_STOP if self.is_alone else KAFKAS_STOP)

    def _logs_offline(self, tps: list[TopicPartition]) -> None:
        if not self.dirs.dirs:
            self.failed.set()

    def _report_offline_logs(self, tps: list[TopicPartition]) -> None:
        """The controller elects other leaders. A broker without any log directory ends instead."""
        if self.dirs.dirs:
            self.cluster.log_dir_failed()

    def _topic_config(self, topic: str) -> LogConfig:
        return topic_config(self.settings, self.configs.topics.get(topic), topic)

    # The tree and the identity

    async def _identity(self) -> Identity:
        stored = self.dirs.meta_properties()
        identity = await identify(self.tree, stored, self.settings.broker, self.chance, is_alone=self.is_alone)
        await self.dirs.write_meta_properties(properties_of(identity))
        return identity

    # Listeners

    @property
    def advertised(self) -> dict[str, Endpoint]:
        """The endpoints that clients get, by listener."""
        return self.endpoints.advertised

    async def _listeners_changed(self) -> None:
        """The controller reads the registration again, and all brokers learn of its endpoints."""
        self._warn_of_what_is_open()
        await self._credentials.oauth.update(self.securities.by_listener)
        self.metadata.me = replace(self.metadata.me, endpoints=self.advertised)
        if self._presence is not None:
            self._presence.update(self._registration())
        elif self.metadata.broker_epoch != NO_BROKER_EPOCH:
            await register(self.tree, self.metadata.me.id, self._registration(), ())

    def _warn_of_what_is_open(self) -> None:
        acls = self.services.acls
        authorizer = None if acls is None else acls.authorizer
        for sentence in security_warnings(self.settings.current, authorizer, self.addresses):
            if sentence not in self._warnings:
                self._warnings.add(sentence)
                log.warning("%s", sentence)

    # The parts

    def _build(self, identity: Identity) -> None:
        """Nothing runs yet. The order is that of the imports: what a part uses is built before it."""
        settings = self.settings
        brokers = InterBroker(settings, identity.broker, self.ports.network, self.securities.between_brokers)
        me = BrokerInfo(identity.broker, self.advertised, settings.broker.broker_rack)
        self.metadata = MetadataCache(me, identity.cluster_id)
        quotas = client_quotas(settings.broker)
        self.client_configs = QuotaStore(
            self.tree, quotas, self.net.rates, self.clock, self.ports.network, self._changes
        )
        self.client_configs.on_change.append(self._credentials.users.put)
        self._credentials.tokens = token_store(settings.broker, self.tree, self.clock, self.chance)
        self.peers = self._peers(brokers)
        others = OtherBrokers(brokers.source, brokers.alter_partition, self.metadata.has_partition)
        self.replicas = Replicas(self.dirs, me.id, settings, others, of_running_loop())
        monitor = None if self.is_alone else self._monitor(brokers)
        self.controller = self._controller(identity, brokers, monitor)
        self.cluster = ClusterAdmin(self.metadata, self.configs, self.controller, self.peers, settings, self.chance)
        offsets_partitions = partial(self.metadata.partition_count, OFFSETS_TOPIC)
        self.groups = GroupCoordinator(self.replicas, self.clock, settings, offsets_partitions, self.chance)
        self.markers = MarkerWriter(self.replicas, self.clock, self.groups)
        self.transactions = self._transactions()
        self.services = brokers.services = Services(
            settings=settings,
            metadata=self.metadata,
            configs=self.configs,
            client_configs=self.client_configs,
            controller=self.controller,
            cluster=self.cluster,
            peers=self.peers,
            replicas=self.replicas,
            dirs=self.dirs,
            sessions=Sessions(settings.broker.max_incremental_fetch_session_cache_slots, self.chance.randint),
            groups=self.groups,
            offsets=self.groups.offsets,
            markers=self.markers,
            transactions=self.transactions,
            clock=self.clock,
            produce_templates=ProduceTemplates(),
            is_alone=self.is_alone,
            peer_monitor=monitor,
            scram_users=self._credentials.users,
            check_listeners=self._listeners.check,
            read_stores_again=self.securities.read_again,
            tokens=self._credentials.tokens,
            quotas=self.client_configs.quotas,
            acls=acl_store(settings.broker, self.tree, self.clock, self.chance),
        )
        self.requests = Requests(self.services, self.clock.monotonic_s)
        self._brokers = brokers

    def _peers(self, brokers: InterBroker) -> Peers:
        controllers, control_plane = None, self.settings.listeners.control_plane
        if control_plane is not None:
            controllers = Peers(self.metadata, control_plane.name, brokers.controller_channel)
        return Peers(self.metadata, self.settings.listeners.inter_broker.name, brokers.channel, controllers)

    def _monitor(self, brokers: InterBroker) -> PeerMonitor:
        silent_after_s = silence_s(self.settings.broker.zookeeper_session_timeout_ms)
        resign = partial(resign_on_behalf, self.tree)
        return PeerMonitor(self.metadata, self.peers.endpoint, brokers.channel, resign, silent_after_s)

    def _controller(self, identity: Identity, brokers: InterBroker, monitor: PeerMonitor | None) -> Controller:
        def first_id() -> ProducerId:
            """Other brokers count from 0; a single node may pass its logs on to them."""
            logs = (hosted.log for hosted in self.replicas.hosted.values())
            return first_producer_id(identity.cluster_id, logs) if self.is_alone else 0

        election = ControllerElection(self.tree, identity.broker, self.clock, monitor or NoSilenceMonitor())
        return Controller(election, self.settings, brokers.controlled, self.chance, first_id)

    def _transactions(self) -> TransactionCoordinator:
        markers = MarkerChannel(self.metadata.me.id, self.markers, self.metadata, self.peers, self.settings)
        count = partial(self.metadata.partition_count, TRANSACTIONS_TOPIC)
        return TransactionCoordinator(
            self.replicas, self.clock, self.settings, markers, count, self.cluster.next_producer_id
        )

    async def _load(self) -> None:
        """Settings, then logs. A single node then makes its tree agree with its log directories."""
        throttles = self.replicas.throttles
        changes = Reconfiguration(self.settings, self.configs, self.dirs, self.net, throttles, self._listeners)
        await changes.start(self.tree, self.log_tasks, self.controller)
        await self.dirs.load()
        if self.is_alone:
            me, unreadable = self.metadata.me.id, self.configs.unreadable
            self.configs.topics |= await LogDirReconciliation(self.tree, self.dirs, me, self.chance, unreadable).run()
        self.dirs.update_config(*self.configs.topics)

    # Alone, or one of a cluster

    async def _lead_all(self, stack: AsyncExitStack) -> None:
        """It leads every partition that it holds before it serves a request."""
        stack.callback(self.net.stop_listening)
        self._registered(await register(self.tree, self.metadata.me.id, self._registration(), ()))
        await self.controller.start()
        await self.controller.settled()

    async def _join(self, stack: AsyncExitStack) -> None:
        directory = next(iter(self.dirs.dirs))
        presence = Presence(
            self.tree, self.metadata.me.id, self._registration(), self.files, directory, self._registered
        )
        self._presence = presence
        protocol = self.settings.broker.inter_broker_protocol_version
        await refuse_older_brokers(self.tree, self.metadata.me.id, protocol, self._brokers.controlled)
        stack.callback(self.tree.watch_session(self._session_changed).cancel)
        await presence.begin()
        monitor = self.services.peer_monitor
        assert monitor is not None
        stack.push_async_callback(monitor.stop)
        leadership = Leadership(self.tree, self.metadata, self.controller, self.peers, monitor, self.replicas)
        stack.push_async_callback(leadership.stop)
        stack.callback(self.net.stop_listening)
        stack.push_async_callback(self._leave, presence)
        await self.controller.start()

    def _session_changed(self, state: SessionState) -> None:
        self.session_events[state] += 1

    async def _leave(self, presence: Presence) -> None:
        """Other brokers lead, and this one is no longer registered, before it stops serving."""
        self.state = BrokerLifecycle.PENDING_CONTROLLED_SHUTDOWN
        try:
            config = self.settings.broker
            if config.controlled_shutdown_enable and self.dirs.dirs:
                self.replicas.is_leaving = True
                await presence.hand_over(self.metadata.broker_epoch, config, self._brokers.shut_down)
        finally:
            self.state = BrokerLifecycle.SHUTTING_DOWN
            await presence.stop()

    def _registration(self) -> Registration:
        return Registration(self.endpoints.registered, self.clock.now_ms(), rack=self.metadata.me.rack)

    def _registered(self, epoch: int) -> None:
        self.metadata.broker_epoch = self.replicas.alterations.broker_epoch = epoch
