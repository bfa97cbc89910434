"""What each request needs and how it is refused: the table of authorization, beside THE TABLE.

Pure: a table, and questions to what a client may do.

A request has requirements, each for a part of it. A requirement is met by any one of its rights. Where it is not met,
the refusal says what the response shows: an error in all of it, an error in the part that names the resource, less
than there is, or less detail. A requirement is checked before the resource is looked up.
    a request of THE TABLE without an entry here cannot be served: `api` fails to import
    a request without requirements says why

The resource of a right on the cluster is always `kafka-cluster`; a User resource is named `User:alice`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from leadline.errors import (
    ClusterAuthorizationFailed,
    DelegationTokenAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    WireError,
)
from leadline.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from leadline.security.authorizer import ClientPermissions


class ShownRefusal(Enum):
    """How a response treats a resource that the client may not use."""

    RESPONSE = "the whole response carries the error, in each of its parts"
    PART = "the part that names the resource carries the error"
    HIDDEN = "forbidden resources are left out, without an error"
    DETAIL = "a detail is left out"


class Right(NamedTuple):
    operation: AclOperation
    resource_type: ResourceType
    anywhere: bool = False  # on any resource of the type


class Requirement(NamedTuple):
    part: str  # of the request
    any_of: tuple[Right, ...]  # one of them is enough
    refusal: ShownRefusal
    error: type[WireError] | None  # None: the response does not show that something was left out
    message: str | None  # beside the error, where the response has room for it
    versions: range  # of the request
    is_audited: bool = True  # whether the audit log has a line for each denial, as in Kafka

    def refusal_error(self) -> WireError | None:
        """None if forbidden resources are left out silently."""
        return None if self.error is None else self.error(self.message or MESSAGES[self.error])


class Authorization(NamedTuple):
    """What one request needs, part by part."""

    name: str
    requirements: tuple[Requirement, ...]
    open_because: str = ""  # why it has no requirements

    def of(self, part: str, version: int | None = None) -> Requirement:
        """The requirement for a part of the request. KeyError for one that the table does not know: a bug."""
        for requirement in self.requirements:
            if requirement.part == part and (version is None or version in requirement.versions):
                return requirement
        raise KeyError(f"{self.name} has no requirement for {part!r} in version {version}")


Permissions = ClientPermissions | None  # None: there is no authorizer, and everything is allowed


class RightDecision(NamedTuple):
    allowed: bool
    right: Right  # the one that allows it; the last one, if none does


def decide(permissions: ClientPermissions, requirement: Requirement, name: str | None) -> RightDecision:
    """Whether a client meets it for the resource of this name. A resource without a name is never allowed."""
    for right in requirement.any_of:
        if _allows(permissions, right, name):
            return RightDecision(True, right)
    return RightDecision(False, requirement.any_of[-1])


def _allows(permissions: ClientPermissions, right: Right, name: str | None) -> bool:
    operation, resource_type, anywhere = right
    if anywhere:
        return permissions.allows_any(operation, resource_type)
    resource = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else name
    return resource is not None and permissions.allows(operation, resource_type, resource)


def permits(permissions: Permissions, requirement: Requirement, name: str | None = CLUSTER_NAME) -> bool:
    return permissions is None or decide(permissions, requirement, name).allowed


def permitted(permissions: Permissions, requirement: Requirement, names: Iterable[str]) -> set[str]:
    """The resources for which a client meets the requirement."""
    return {name for name in names if permits(permissions, requirement, name)}


def refused(permissions: Permissions, requirement: Requirement, name: str | None = CLUSTER_NAME) -> WireError | None:
    """The error to respond with; None if it is met, or if forbidden resources are left out silently."""
    return None if permits(permissions, requirement, name) else requirement.refusal_error()


def check_complete(keys: Iterable[int]) -> None:
    """Every request that is served has an entry."""
    missing = sorted(set(keys) - AUTHORIZATION.keys())
    if missing:
        raise ValueError(f"api keys {missing} are served, and the table of authorization has no entry for them")


# Kafka's own words for each error.
MESSAGES: Mapping[type[WireError], str] = {
    TopicAuthorizationFailed: "Topic authorization failed.",
    GroupAuthorizationFailed: "Group authorization failed.",
    ClusterAuthorizationFailed: "Cluster authorization failed.",
    TransactionalIdAuthorizationFailed: "Transactional Id authorization failed.",
    DelegationTokenAuthorizationFailed: "Delegation Token authorization failed.",
}

# The table

_ERROR: Mapping[ResourceType, type[WireError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed,
    ResourceType.GROUP: GroupAuthorizationFailed,
    ResourceType.CLUSTER: ClusterAuthorizationFailed,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed,
    ResourceType.USER: DelegationTokenAuthorizationFailed,
}
_ALL_VERSIONS = range(1 << 15)
_RESPONSE, _PART, _HIDDEN, _DETAIL = ShownRefusal


def _topic(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.TOPIC)


def _group(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.GROUP)


def _cluster(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.CLUSTER)


def _transactional_id(operation: AclOperation) -> Right:
    return Right(operation, ResourceType.TRANSACTIONAL_ID)


def _need(
    part: str,
    *any_of: Right,
    refusal: ShownRefusal = _PART,
    error: type[WireError] | None = None,
    message: str | None = None,
    versions: range = _ALL_VERSIONS,
    audited: bool = True,
) -> Requirement:
    """The error is that of the last right's resource, unless given."""
    if refusal is not _HIDDEN and error is None:
        error = _ERROR[any_of[-1].resource_type]
    return Requirement(part, any_of, refusal, error, message, versions, audited)


def _whole(
    part: str, *any_of: Right, error: type[WireError] | None = None, versions: range = _ALL_VERSIONS
) -> Requirement:
    return _need(part, *any_of, refusal=_RESPONSE, error=error, versions=versions)


def _hidden(part: str, *any_of: Right, audited: bool = True) -> Requirement:
    return _need(part, *any_of, refusal=_HIDDEN, audited=audited)


def _on_cluster(name: str, operation: AclOperation, refusal: ShownRefusal = _RESPONSE) -> Authorization:
    return Authorization(name, (_need("cluster", _cluster(operation), refusal=refusal),))


def _of_group_member(name: str) -> Authorization:
    return Authorization(name, (_whole("group", _group(AclOperation.READ)),))


def _of_configs(name: str, operation: AclOperation) -> Authorization:
    return Authorization(name, (_need("topics", _topic(operation)), _need("brokers", _cluster(operation))))


_WRITE_TRANSACTIONAL_ID = _whole("transactional id", _transactional_id(AclOperation.WRITE))
_DESCRIBE_TOPICS = _need("topics", _topic(AclOperation.DESCRIBE))
_READ_TOPICS = _need("topics", _topic(AclOperation.READ))
_AUTHORIZED_CLUSTER_OPERATIONS = _need(
    "authorized operations of the cluster", _cluster(AclOperation.DESCRIBE), refusal=_DETAIL
)
_LOGIN = "it is part of a login, or comes before one"
_NEWER_GROUPS = "it is refused with UNSUPPORTED_VERSION before anything is checked"
_TOKEN_HOLDER = "whether the client is the owner or a renewer decides"

OWN_REQUEST = Authorization("a request of this broker to itself", (), "no client can have sent it")

AUTHORIZATION: Mapping[int, Authorization] = {
    0: Authorization(
        "Produce",
        (
            # Of any batch that is transactional, wherever it stands. A null id is never allowed.
            _whole("transactional batches", _transactional_id(AclOperation.WRITE)),
            _need("topics", _topic(AclOperation.WRITE)),
        ),
    ),
    1: Authorization(
        "Fetch",
        (_READ_TOPICS, _need("replica", _cluster(AclOperation.CLUSTER_ACTION), error=TopicAuthorizationFailed)),
    ),
    2: Authorization("ListOffsets", (_DESCRIBE_TOPICS,)),
    3: Authorization(
        "Metadata",
        (
            _DESCRIBE_TOPICS,
            _need("topic ids", _topic(AclOperation.DESCRIBE)),
            _hidden("all topics", _topic(AclOperation.DESCRIBE), audited=False),
            _need("auto-creation", _cluster(AclOperation.CREATE), _topic(AclOperation.CREATE)),
            _AUTHORIZED_CLUSTER_OPERATIONS,
        ),
    ),
    4: _on_cluster("LeaderAndIsr", AclOperation.CLUSTER_ACTION),
    5: _on_cluster("StopReplica", AclOperation.CLUSTER_ACTION),
    6: _on_cluster("UpdateMetadata", AclOperation.CLUSTER_ACTION),
    7: _on_cluster("ControlledShutdown", AclOperation.CLUSTER_ACTION),
    8: Authorization("OffsetCommit", (_whole("group", _group(AclOperation.READ)), _READ_TOPICS)),
    9: Authorization(
        "OffsetFetch",
        (
            _need("groups", _group(AclOperation.DESCRIBE)),
            _DESCRIBE_TOPICS,
            _hidden("all topics", _topic(AclOperation.DESCRIBE)),
        ),
    ),
    10: Authorization(
        "FindCoordinator",
        (
            _need("groups", _group(AclOperation.DESCRIBE)),
            _need("transactional ids", _transactional_id(AclOperation.DESCRIBE)),
        ),
    ),
    11: _of_group_member("JoinGroup"),
    12: _of_group_member("Heartbeat"),
    13: _of_group_member("LeaveGroup"),
    14: _of_group_member("SyncGroup"),
    15: Authorization("DescribeGroups", (_need("groups", _group(AclOperation.DESCRIBE)),)),
    16: Authorization(
        "ListGroups",
        (_hidden("groups", _cluster(AclOperation.DESCRIBE), _group(AclOperation.DESCRIBE), audited=False),),
    ),
    17: Authorization("SaslHandshake", (), _LOGIN),
    18: Authorization("ApiVersions", (), _LOGIN),
    19: Authorization(
        "CreateTopics",
        (
            _need(
                "topics", _cluster(AclOperation.CREATE), _topic(AclOperation.CREATE), message="Authorization failed."
            ),
            _need("configs", _topic(AclOperation.DESCRIBE_CONFIGS), refusal=_DETAIL, audited=False),
        ),
    ),
    20: Authorization(
        "DeleteTopics",
        (_need("topics", _topic(AclOperation.DELETE)), _need("topic ids", _topic(AclOperation.DESCRIBE))),
    ),
    21: Authorization("DeleteRecords", (_need("topics", _topic(AclOperation.DELETE)),)),
    22: Authorization(
        "InitProducerId",
        (
            _WRITE_TRANSACTIONAL_ID,
            _whole(
                "no transactional id",
                _cluster(AclOperation.IDEMPOTENT_WRITE),
                Right(AclOperation.WRITE, ResourceType.TOPIC, anywhere=True),
                error=ClusterAuthorizationFailed,
            ),
        ),
    ),
    23: Authorization(
        "OffsetForLeaderEpoch",
        (_need("topics", _cluster(AclOperation.CLUSTER_ACTION), _topic(AclOperation.DESCRIBE)),),
    ),
    24: Authorization(
        "AddPartitionsToTxn",
        (
            _WRITE_TRANSACTIONAL_ID._replace(versions=range(4)),
            _need("topics", _topic(AclOperation.WRITE), versions=range(4)),
            _whole("transactions", _cluster(AclOperation.CLUSTER_ACTION), versions=range(4, 1 << 15)),
        ),
    ),
    25: Authorization("AddOffsetsToTxn", (_WRITE_TRANSACTIONAL_ID, _whole("group", _group(AclOperation.READ)))),
    26: Authorization("EndTxn", (_WRITE_TRANSACTIONAL_ID,)),
    27: Authorization(
        "WriteTxnMarkers",
        (_whole("cluster", _cluster(AclOperation.ALTER), _cluster(AclOperation.CLUSTER_ACTION)),),
    ),
    28: Authorization(
        "TxnOffsetCommit", (_WRITE_TRANSACTIONAL_ID, _whole("group", _group(AclOperation.READ)), _READ_TOPICS)
    ),
    29: _on_cluster("DescribeAcls", AclOperation.DESCRIBE),
    30: _on_cluster("CreateAcls", AclOperation.ALTER),
    31: _on_cluster("DeleteAcls", AclOperation.ALTER),
    32: Authorization(
        "DescribeConfigs",
        (
            *_of_configs("DescribeConfigs", AclOperation.DESCRIBE_CONFIGS).requirements,
            _need("groups", _group(AclOperation.DESCRIBE)),  # Kafka 3.8 has no settings of groups
        ),
    ),
    33: _of_configs("AlterConfigs", AclOperation.ALTER_CONFIGS),
    34: _on_cluster("AlterReplicaLogDirs", AclOperation.ALTER),
    35: _on_cluster("DescribeLogDirs", AclOperation.DESCRIBE),
    36: Authorization("SaslAuthenticate", (), _LOGIN),
    37: Authorization(
        "CreatePartitions",
        (_need("topics", _topic(AclOperation.ALTER), message="The topic authorization is failed."),),
    ),
    38: Authorization(
        "CreateDelegationToken", (_whole("another owner", Right(AclOperation.CREATE_TOKENS, ResourceType.USER)),)
    ),
    39: Authorization("RenewDelegationToken", (), _TOKEN_HOLDER),
    40: Authorization("ExpireDelegationToken", (), _TOKEN_HOLDER),
    41: Authorization(
        "DescribeDelegationToken",
        (  # of another owner: either is enough
            _hidden("tokens", Right(AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN)),
            _hidden("owners", Right(AclOperation.DESCRIBE_TOKENS, ResourceType.USER)),
        ),
    ),
    42: Authorization("DeleteGroups", (_need("groups", _group(AclOperation.DELETE)),)),
    43: _on_cluster("ElectLeaders", AclOperation.ALTER),  # the manual says ClusterAction; Kafka's code does not
    44: _of_configs("IncrementalAlterConfigs", AclOperation.ALTER_CONFIGS),
    45: _on_cluster("AlterPartitionReassignments", AclOperation.ALTER),
    46: _on_cluster("ListPartitionReassignments", AclOperation.DESCRIBE),
    47: Authorization("OffsetDelete", (_whole("group", _group(AclOperation.DELETE)), _READ_TOPICS)),
    48: _on_cluster("DescribeClientQuotas", AclOperation.DESCRIBE_CONFIGS),
    49: _on_cluster("AlterClientQuotas", AclOperation.ALTER_CONFIGS),
    50: _on_cluster("DescribeUserScramCredentials", AclOperation.DESCRIBE),
    51: _on_cluster("AlterUserScramCredentials", AclOperation.ALTER),
    56: _on_cluster("AlterPartition", AclOperation.CLUSTER_ACTION),
    57: _on_cluster("UpdateFeatures", AclOperation.ALTER),
    58: Authorization("Envelope", (), "its connection is closed: nothing is forwarded"),
    60: Authorization("DescribeCluster", (_AUTHORIZED_CLUSTER_OPERATIONS,)),
    61: Authorization("DescribeProducers", (_READ_TOPICS,)),
    65: Authorization(
        "DescribeTransactions",
        (
            _need("transactional ids", _transactional_id(AclOperation.DESCRIBE)),
            _hidden("topics", _topic(AclOperation.DESCRIBE)),
        ),
    ),
    66: Authorization("ListTransactions", (_hidden("transactional ids", _transactional_id(AclOperation.DESCRIBE)),)),
    67: _on_cluster("AllocateProducerIds", AclOperation.CLUSTER_ACTION),
    68: Authorization("ConsumerGroupHeartbeat", (), _NEWER_GROUPS),
    69: Authorization("ConsumerGroupDescribe", (), _NEWER_GROUPS),
}
