"""The context of a request: the parts of the broker, its connection, and the rights of its client."""

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from leadline.api.authorization import Authorization, Requirement, Right, decide
from leadline.api.authorized_operations import ALL_OPERATIONS
from leadline.api.fast.grants import NO_ACLS, Grants
from leadline.api.fast.produce_templates import ProduceTemplates
from leadline.api.fetch_sessions import Sessions
from leadline.api.request_meter import RequestMeter
from leadline.api.request_metrics import RequestMetrics
from leadline.cluster.dynamic_configs import DynamicConfigs
from leadline.cluster.metadata_cache import MetadataCache
from leadline.cluster.peer_monitor import PeerMonitor
from leadline.cluster.peers import Peers
from leadline.config.broker import BrokerConfig, BrokerSettings
from leadline.config.describe import ConfigLayers
from leadline.config.live_settings import LiveSettings
from leadline.controller.cluster_admin import ClusterAdmin
from leadline.controller.controller import Controller
from leadline.coordinator.group_coordinator import GroupCoordinator
from leadline.coordinator.marker_writer import MarkerWriter
from leadline.coordinator.offset_coordinator import OffsetCoordinator
from leadline.coordinator.transaction_coordinator import TransactionCoordinator
from leadline.errors import WireError
from leadline.log.content_checks import ContentChecks
from leadline.log.down_conversions import DownConversions
from leadline.log.log_dirs import LogDirs
from leadline.replication.replicas import Replicas
from leadline.runtime.ports import Time
from leadline.security.acl_store import AclStore
from leadline.security.acls import CLUSTER_NAME, SUPPORTED_OPERATIONS, AclOperation, PatternType, ResourceType
from leadline.security.audit import AuditLog, AuditRecord
from leadline.security.authorizer import Authorizer, ClientPermissions
from leadline.security.client_quotas import ClientQuotas
from leadline.security.hosts import host_address
from leadline.security.principal import ANONYMOUS, Principal
from leadline.security.quota_store import QuotaStore
from leadline.security.scram_users import ScramUserCredentials
from leadline.security.token_bucket import MutationQuota
from leadline.security.token_store import TokenStore
from leadline.wire.classes import Message

if TYPE_CHECKING:
    from leadline.api.fast.follower_fetch import FollowerFetch
    from leadline.api.fast.offset_commit import OffsetCommitOutline, OffsetCommitRequestTemplate


@dataclass(slots=True)
class Services:
    """The parts of a broker that handlers use."""

    settings: LiveSettings
    metadata: MetadataCache
    configs: DynamicConfigs
    client_configs: QuotaStore  # the settings of users, client ids and addresses
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
    scram_users: ScramUserCredentials = field(default_factory=ScramUserCredentials)
    check_listeners: Callable[[BrokerSettings], None] = lambda settings: None  # raises InvalidSetting
    read_stores_again: Callable[[], None] = lambda: None  # key and trust stores of listeners; raises NotApplicable
    tokens: TokenStore | None = None  # None: there are no delegation tokens
    acls: AclStore | None = None  # None: there is no authorizer, and all requests are allowed
    audit: AuditLog = field(default_factory=AuditLog)
    quotas: ClientQuotas = field(default_factory=ClientQuotas)
    content_checks: ContentChecks = field(default_factory=ContentChecks)
    down_conversions: DownConversions = field(default_factory=DownConversions)
    request_metrics: RequestMetrics = field(default_factory=RequestMetrics)

    @property
    def config(self) -> BrokerConfig:
        return self.settings.broker

    @property
    def acl_version(self) -> int:
        """It moves with each change of the ACLs."""
        return NO_ACLS if self.acls is None else self.acls.authorizer.version

    def layers(self) -> ConfigLayers:
        """Where each setting comes from."""
        return self.settings.layers(self.configs.default, self.configs.broker)


class ClientConnection:
    """A connection as handlers see it. Fast paths keep state here that the next request may repeat.

    A login as another principal clears this state.
    """

    __slots__ = (
        "_permissions", "_principal", "follower_fetch", "grants", "host", "is_follower", "last_commit", "listener",
    )  # fmt: skip

    last_commit: "OffsetCommitOutline | OffsetCommitRequestTemplate | None"
    follower_fetch: "FollowerFetch | None"

    def __init__(self, host: str, listener: str, principal: Principal = ANONYMOUS) -> None:
        self.host, self.listener = host, listener
        self.is_follower = False  # its last fetch was that of a follower
        self.principal = principal

    @property
    def principal(self) -> Principal:
        return self._principal

    @principal.setter
    def principal(self, principal: Principal) -> None:
        self._principal = principal
        self._permissions: ClientPermissions | None = None
        self.grants = Grants()
        self.last_commit = self.follower_fetch = None

    def permissions(self, authorizer: Authorizer) -> ClientPermissions:
        if self._permissions is None:
            self._permissions = authorizer.client(self._principal, host_address(self.host))
        return self._permissions


class LongResponse(NamedTuple):
    """A response that is encoded over several turns of the loop."""

    message: Message


class _AllNames:
    def __contains__(self, name: object) -> bool:
        return True


ALL_NAMES: Container[str] = _AllNames()
NO_RESOURCE = "NONE"  # in the audit log, for a right on any resource of a type


class Context(NamedTuple):
    """The arguments of a handler beside the request itself.

    `permits`, `permitted` and `refused` take a part of the request, as the table of authorization names it. The audit
    log gets each decision. Without an authorizer, everything is allowed.
    """

    services: Services
    version: int
    client_id: str | None
    client: ClientConnection
    authorization: Authorization  # the row of the request
    meter: RequestMeter | None = None  # None: no quota is in force

    def permits(self, part: str, name: str | None = CLUSTER_NAME, references: int = 1) -> bool:
        """Whether the client has the right that this part needs. `references`: how often the resource is named."""
        return self.services.acls is None or self._decide(part, name, references, self.services.acls.authorizer)

    def permitted(self, part: str, names: Iterable[str]) -> Container[str]:
        """The names for which the client has the right."""
        acls = self.services.acls
        if acls is None:
            return ALL_NAMES
        counts = Counter(iter(names))  # a mapping would be taken for counts
        return {name for name, count in counts.items() if self._decide(part, name, count, acls.authorizer)}

    def refused(self, part: str, name: str | None = CLUSTER_NAME) -> WireError | None:
        """The error to answer with; None if the client may."""
        return None if self.permits(part, name) else self.authorization.of(part, self.version).refusal_error()

    def authorized_operations(self, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """A bit for each operation that the client may perform on a resource."""
        if self.services.acls is None:
            return ALL_OPERATIONS[resource_type]
        permissions = self.client.permissions(self.services.acls.authorizer)
        operations = permissions.authorized_operations(resource_type, name)
        if self.services.audit.is_logged(allowed=False, requested=False):
            for operation in SUPPORTED_OPERATIONS[resource_type]:
                allowed = bool(operations & 1 << operation)
                self.services.audit.filtered(self._record(permissions, allowed, operation, resource_type, name))
        return operations

    def mutation_quota(self, api_key: int | None) -> MutationQuota:
        """The quota of creations and deletions. An api key of None: the request creates something on the way."""
        services, user = self.services, self.client.principal.name
        now_ms = services.clock.now_ms()
        return services.quotas.mutation_quota(user, self.client_id, api_key, self.version, now_ms)

    def note_no_broker(self) -> None:
        """An inter-broker request is refused: its sender is not a broker. It is throttled like any client's."""
        if self.meter is not None:
            self.meter.refused()

    def note_write(self, topic: str) -> None:
        """The client was allowed to write the topic: fast paths need not decide it again until an ACL changes.

        If the audit log has a line for each decision, each one has to be made.
        """
        if self.services.acls is not None and not self.services.audit.is_logged(allowed=True):
            self.client.grants.note_write(topic, self.services.acls.authorizer.version)

    def note_read(self, topic: str) -> None:
        """The same for reading."""
        if self.services.acls is not None and not self.services.audit.is_logged(allowed=True):
            self.client.grants.note_read(topic, self.services.acls.authorizer.version)

    def note_broker(self) -> None:
        """The same for ClusterAction."""
        if self.services.acls is not None and not self.services.audit.is_logged(allowed=True):
            self.client.grants.note_broker(self.services.acls.authorizer.version)

    def _decide(self, part: str, name: str | None, references: int, authorizer: Authorizer) -> bool:
        permissions, requirement = self.client.permissions(authorizer), self.authorization.of(part, self.version)
        allowed, right = decide(permissions, requirement, name)
        audit = self.services.audit
        if name is not None and len(requirement.any_of) > 1 and audit.is_logged(allowed=False, requested=False):
            for lacking in takewhile(lambda other: other is not right, requirement.any_of):
                resource = CLUSTER_NAME if lacking.resource_type is ResourceType.CLUSTER else name
                audit.filtered(self._record(permissions, False, lacking.operation, lacking.resource_type, resource))
        if name is not None and audit.is_logged(allowed, requirement.is_audited):
            self._log(permissions, allowed, right, name, references, requirement)
        return allowed

    def _log(
        self,
        permissions: ClientPermissions,
        allowed: bool,
        right: Right,
        name: str,
        references: int,
        requirement: Requirement,
    ) -> None:
        resource = CLUSTER_NAME if right.resource_type is ResourceType.CLUSTER else name
        record = self._record(permissions, allowed, right.operation, right.resource_type, resource, references)
        if right.anywhere:
            record = record._replace(name=NO_RESOURCE, references=0, pattern_type=PatternType.UNKNOWN)
        audit = self.services.audit
        if allowed:
            audit.allowed(record)
        elif requirement.is_audited:
            audit.denied(record, self.services.clock.now_ms())
        else:
            audit.filtered(record)

    def _record(
        self,
        permissions: ClientPermissions,
        allowed: bool,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        references: int = 1,
    ) -> AuditRecord:
        host, request = permissions.host, self.authorization.name
        return AuditRecord(permissions.principal, allowed, operation, host, resource_type, name, request, references)
