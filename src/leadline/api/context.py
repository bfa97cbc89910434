"""The context of a request: the parts of the broker, and the connection that the request came through."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from leadline.api.fast.produce_templates import ProduceTemplates
from leadline.api.fetch_sessions import Sessions
from leadline.cluster.dynamic_configs import DynamicConfigs
from leadline.cluster.metadata_cache import MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.cluster.peers import Peers
from leadline.config.broker import BrokerConfig
from leadline.config.describe import ConfigLayers
from leadline.config.live_settings import LiveSettings
from leadline.controller.cluster_admin import ClusterAdmin
from leadline.controller.controller import Controller
from leadline.coordinator.group_coordinator import GroupCoordinator
from leadline.coordinator.marker_writer import MarkerWriter
from leadline.coordinator.offset_coordinator import OffsetCoordinator
from leadline.coordinator.transaction_coordinator import TransactionCoordinator
from leadline.log.log_dirs import LogDirs
from leadline.replication.replicas import Replicas
from leadline.runtime.ports import Time
from leadline.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from leadline.api.fast.follower_fetch import FollowerFetch
    from leadline.api.fast.offset_commit import OffsetCommitOutline, OffsetCommitRequestTemplate


@dataclass(slots=True)
class Services:
    """The parts of a broker that handlers use."""

    settings: LiveSettings
    metadata: MetadataCache
    configs: DynamicConfigs
    controller: Controller
    cluster: ClusterAdmin
    peers: Peers
    replicas: Replicas
    dirs: LogDirs
    sessions: Sessions
    groups: GroupCoordinator
    offsets: OffsetCoordinator
    transactions: TransactionCoordinator
    markers: MarkerWriter
    clock: Time
    produce_templates: ProduceTemplates
    is_alone: bool  # a single node, without a cluster
    peer_monitor: PeerMonitor | None = None  # None: a single node

    @property
    def config(self) -> BrokerConfig:
        return self.settings.broker

    def layers(self) -> ConfigLayers:
        """Where each setting comes from."""
        return self.settings.layers(self.configs.default, self.configs.broker)


@dataclass(slots=True)
class ClientConnection:
    """A connection as handlers see it. Fast paths keep state here that the next request may repeat."""

    host: str
    listener: str
    principal: Principal = ANONYMOUS
    last_commit: "OffsetCommitOutline | OffsetCommitRequestTemplate | None" = None
    follower_fetch: "FollowerFetch | None" = None


class Context(NamedTuple):
    """The arguments of a handler beside the request itself."""

    services: Services
    version: int
    client_id: str | None
    client: ClientConnection
