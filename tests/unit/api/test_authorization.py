"""The table of authorization against the one of Kafka's handlers, written down here a second time, row by row.

Each row is tried with a client that has nothing, one that has exactly the right, and one to whom it is denied.
"""

from typing import NamedTuple

import pytest

from leadline.api import TABLE
from leadline.api.authorization import (
    AUTHORIZATION,
    MESSAGES,
    Requirement,
    Right,
    ShownRefusal,
    check_complete,
    permits,
    permitted,
    refused,
)
from leadline.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal
from leadline.wire.apis import APIS

# request: part: rights, one of which is enough: error, and what shows it.
# t, g, c, x: TOPIC_, GROUP_, CLUSTER_, TRANSACTIONAL_ID_AUTHORIZATION_FAILED; -: no error.
ROWS = """
Produce: transactional batches: Write TransactionalId: x RESPONSE
Produce: topics: Write Topic: t PART
Fetch: topics: Read Topic: t PART
Fetch: replica: ClusterAction Cluster: t PART
ListOffsets: topics: Describe Topic: t PART
OffsetForLeaderEpoch: topics: ClusterAction Cluster, Describe Topic: t PART
Metadata: topics: Describe Topic: t PART
Metadata: topic ids: Describe Topic: t PART
Metadata: all topics: Describe Topic: - HIDDEN
Metadata: auto-creation: Create Cluster, Create Topic: t PART
Metadata: authorized operations of the cluster: Describe Cluster: c DETAIL
DescribeCluster: authorized operations of the cluster: Describe Cluster: c DETAIL
FindCoordinator: groups: Describe Group: g PART
FindCoordinator: transactional ids: Describe TransactionalId: x PART
JoinGroup: group: Read Group: g RESPONSE
SyncGroup: group: Read Group: g RESPONSE
Heartbeat: group: Read Group: g RESPONSE
LeaveGroup: group: Read Group: g RESPONSE
OffsetCommit: group: Read Group: g RESPONSE
OffsetCommit: topics: Read Topic: t PART
OffsetFetch: groups: Describe Group: g PART
OffsetFetch: topics: Describe Topic: t PART
OffsetFetch: all topics: Describe Topic: - HIDDEN
OffsetDelete: group: Delete Group: g RESPONSE
OffsetDelete: topics: Read Topic: t PART
DescribeGroups: groups: Describe Group: g PART
ListGroups: groups: Describe Cluster, Describe Group: - HIDDEN
DeleteGroups: groups: Delete Group: g PART
InitProducerId: transactional id: Write TransactionalId: x RESPONSE
InitProducerId: no transactional id: IdempotentWrite Cluster, Write any Topic: c RESPONSE
AddPartitionsToTxn 0-3: transactional id: Write TransactionalId: x RESPONSE
AddPartitionsToTxn 0-3: topics: Write Topic: t PART
AddPartitionsToTxn 4-5: transactions: ClusterAction Cluster: c RESPONSE
AddOffsetsToTxn: transactional id: Write TransactionalId: x RESPONSE
AddOffsetsToTxn: group: Read Group: g RESPONSE
TxnOffsetCommit: transactional id: Write TransactionalId: x RESPONSE
TxnOffsetCommit: group: Read Group: g RESPONSE
TxnOffsetCommit: topics: Read Topic: t PART
EndTxn: transactional id: Write TransactionalId: x RESPONSE
WriteTxnMarkers: cluster: Alter Cluster, ClusterAction Cluster: c RESPONSE
DescribeProducers: topics: Read Topic: t PART
DescribeTransactions: transactional ids: Describe TransactionalId: x PART
DescribeTransactions: topics: Describe Topic: - HIDDEN
ListTransactions: transactional ids: Describe TransactionalId: - HIDDEN
CreateTopics: topics: Create Cluster, Create Topic: t PART
CreateTopics: configs: DescribeConfigs Topic: t DETAIL
CreatePartitions: topics: Alter Topic: t PART
DeleteTopics: topics: Delete Topic: t PART
DeleteTopics: topic ids: Describe Topic: t PART
DeleteRecords: topics: Delete Topic: t PART
DescribeConfigs: topics: DescribeConfigs Topic: t PART
DescribeConfigs: brokers: DescribeConfigs Cluster: c PART
DescribeConfigs: groups: Describe Group: g PART
AlterConfigs: topics: AlterConfigs Topic: t PART
AlterConfigs: brokers: AlterConfigs Cluster: c PART
IncrementalAlterConfigs: topics: AlterConfigs Topic: t PART
IncrementalAlterConfigs: brokers: AlterConfigs Cluster: c PART
DescribeLogDirs: cluster: Describe Cluster: c RESPONSE
AlterReplicaLogDirs: cluster: Alter Cluster: c RESPONSE
ElectLeaders: cluster: Alter Cluster: c RESPONSE
AlterPartitionReassignments: cluster: Alter Cluster: c RESPONSE
ListPartitionReassignments: cluster: Describe Cluster: c RESPONSE
DescribeAcls: cluster: Describe Cluster: c RESPONSE
CreateAcls: cluster: Alter Cluster: c RESPONSE
DeleteAcls: cluster: Alter Cluster: c RESPONSE
DescribeClientQuotas: cluster: DescribeConfigs Cluster: c RESPONSE
AlterClientQuotas: cluster: AlterConfigs Cluster: c RESPONSE
DescribeUserScramCredentials: cluster: Describe Cluster: c RESPONSE
AlterUserScramCredentials: cluster: Alter Cluster: c RESPONSE
CreateDelegationToken: another owner: CreateTokens User: token RESPONSE
DescribeDelegationToken: tokens: Describe DelegationToken: - HIDDEN
DescribeDelegationToken: owners: DescribeTokens User: - HIDDEN
UpdateFeatures: cluster: Alter Cluster: c RESPONSE
LeaderAndIsr: cluster: ClusterAction Cluster: c RESPONSE
StopReplica: cluster: ClusterAction Cluster: c RESPONSE
UpdateMetadata: cluster: ClusterAction Cluster: c RESPONSE
ControlledShutdown: cluster: ClusterAction Cluster: c RESPONSE
AlterPartition: cluster: ClusterAction Cluster: c RESPONSE
AllocateProducerIds: cluster: ClusterAction Cluster: c RESPONSE
"""

OPEN = """
ApiVersions SaslHandshake SaslAuthenticate RenewDelegationToken ExpireDelegationToken Envelope ConsumerGroupHeartbeat
ConsumerGroupDescribe
""".split()
CODES = {"t": 29, "g": 30, "c": 31, "x": 53, "token": 65, "-": None}
HOST = "127.0.0.1"
ALICE = Principal("User", "alice")


class Row(NamedTuple):
    request: str
    version: int
    part: str
    rights: tuple[Right, ...]
    code: int | None
    refusal: str


def parsed(line: str) -> Row:
    request, part, rights, outcome = line.split(": ")
    name, _, versions = request.partition(" ")
    error, refusal = outcome.split()
    return Row(
        name, int(versions.partition("-")[0] or 0), part, tuple(map(right, rights.split(", "))), CODES[error], refusal
    )


def right(text: str) -> Right:
    operation, *any_of, resource_type = text.split()
    return Right(AclOperation.named(operation), ResourceType.named(resource_type), bool(any_of))


PARSED = [parsed(line) for line in ROWS.strip().splitlines()]
KEYS = {authorization.name: key for key, authorization in AUTHORIZATION.items()}
each_row = pytest.mark.parametrize("row", PARSED, ids=lambda row: f"{row.request}: {row.part} v{row.version}")


def requirement_of(row: Row) -> Requirement:
    return AUTHORIZATION[KEYS[row.request]].of(row.part, row.version)


def with_acls(*entries: tuple[Right, AclPermission], name: str = "r") -> Authorizer:
    authorizer = Authorizer()
    for (operation, resource_type, _), permission in entries:
        resource = CLUSTER_NAME if resource_type is ResourceType.CLUSTER else name
        pattern = ResourcePattern(resource_type, resource)
        entry = AccessControlEntry(str(ALICE), "*", operation, permission)
        authorizer.put(pattern, (*authorizer.entries(pattern), entry))
    return authorizer


def code_of(authorizer: Authorizer, requirement: Requirement, name: str | None = "r") -> int | None:
    error = refused(authorizer.client(ALICE, HOST), requirement, name)
    return None if error is None else error.code


@each_row
def test_a_row_is_kafkas(row: Row) -> None:
    requirement = requirement_of(row)
    assert (requirement.any_of, requirement.refusal) == (row.rights, ShownRefusal[row.refusal])
    assert (requirement.error.code if requirement.error else None) == row.code


@each_row
def test_a_client_with_nothing_is_refused(row: Row) -> None:
    requirement = requirement_of(row)
    assert not permits(Authorizer().client(ALICE, HOST), requirement, "r")
    assert code_of(Authorizer(), requirement) == row.code


@each_row
def test_a_client_with_any_one_of_the_rights_is_allowed(row: Row) -> None:
    requirement = requirement_of(row)
    for right in row.rights:
        authorizer = with_acls((right, AclPermission.ALLOW))
        assert permits(authorizer.client(ALICE, HOST), requirement, "r")
        assert code_of(authorizer, requirement) is None


@each_row
def test_a_client_with_every_other_right_is_refused(row: Row) -> None:
    """The right on another resource, and all operations that neither are the right nor imply it."""
    requirement = requirement_of(row)
    enough = {
        AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
        AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
    }
    met = {(of.resource_type, op) for of in row.rights for op in {of.operation} | enough.get(of.operation, set())}
    others = [
        Right(operation, resource_type)
        for resource_type in ResourceType
        for operation in AclOperation
        if resource_type > ResourceType.ANY and operation > AclOperation.ALL and (resource_type, operation) not in met
    ]
    authorizer = with_acls(*((other, AclPermission.ALLOW) for other in others))
    assert not permits(authorizer.client(ALICE, HOST), requirement, "r")
    elsewhere = [of for of in row.rights if of.resource_type is not ResourceType.CLUSTER and not of.anywhere]
    authorizer = with_acls(*((of, AclPermission.ALLOW) for of in elsewhere), name="elsewhere")
    assert not permits(authorizer.client(ALICE, HOST), requirement, "r")


@each_row
def test_a_denied_client_is_refused(row: Row) -> None:
    requirement = requirement_of(row)
    rules = [(right, permission) for right in row.rights for permission in (AclPermission.ALLOW, AclPermission.DENY)]
    authorizer = with_acls(*rules)
    assert not permits(authorizer.client(ALICE, HOST), requirement, "r")
    assert code_of(authorizer, requirement) == row.code


def test_the_table_has_the_rows_that_stand_here_and_no_others() -> None:
    tested = {(row.request, row.part) for row in PARSED} | {(name, "") for name in OPEN}
    served = {
        (authorization.name, part)
        for authorization in AUTHORIZATION.values()
        for part in [requirement.part for requirement in authorization.requirements] or [""]
    }
    assert served == tested


def test_what_needs_nothing_says_why() -> None:
    assert sorted(of.name for of in AUTHORIZATION.values() if not of.requirements) == sorted(OPEN)
    assert all(bool(of.requirements) != bool(of.open_because) for of in AUTHORIZATION.values())


def test_names_and_keys_are_those_of_the_protocol() -> None:
    assert {key: of.name for key, of in AUTHORIZATION.items()} == {
        key: APIS[key].request.__name__.removesuffix("Request") for key in AUTHORIZATION
    }
    assert all(AUTHORIZATION[key].name == entry.name for key, entry in TABLE.items())


def test_a_request_without_an_entry_cannot_be_served() -> None:
    check_complete(TABLE)
    with pytest.raises(ValueError, match=r"\[74\] are served"):
        check_complete([*TABLE, 74])


def test_without_an_authorizer_everything_is_allowed() -> None:
    for authorization in AUTHORIZATION.values():
        for requirement in authorization.requirements:
            assert permits(None, requirement, None)
            assert refused(None, requirement) is None


def test_a_part_that_is_not_in_the_table_is_a_bug() -> None:
    with pytest.raises(KeyError, match="AddPartitionsToTxn has no requirement for 'topics' in version 4"):
        AUTHORIZATION[24].of("topics", 4)


def test_errors_have_kafkas_words() -> None:
    nobody = Authorizer().client(ALICE, HOST)
    assert str(refused(nobody, AUTHORIZATION[19].of("topics"), "t")) == "Authorization failed."
    assert str(refused(nobody, AUTHORIZATION[37].of("topics"), "t")) == "The topic authorization is failed."
    assert str(refused(nobody, AUTHORIZATION[8].of("group"), "g")) == "Group authorization failed."
    assert {error.code for error in MESSAGES} == {29, 30, 31, 53, 65}


def test_the_permitted_of_several_resources() -> None:
    requirement = AUTHORIZATION[3].of("all topics")
    client = with_acls((requirement.any_of[0], AclPermission.ALLOW), name="mine").client(ALICE, HOST)
    assert permitted(client, requirement, ["mine", "yours"]) == {"mine"}


def test_what_only_shortens_a_list_is_not_audited_where_kafka_does_not() -> None:
    assert AUTHORIZATION[0].of("topics").is_audited
    assert AUTHORIZATION[26].of("transactional id").is_audited
    assert not AUTHORIZATION[3].of("all topics").is_audited
    assert not AUTHORIZATION[16].of("groups").is_audited
    assert not AUTHORIZATION[19].of("configs").is_audited
    assert AUTHORIZATION[60].of("authorized operations of the cluster").is_audited
    assert AUTHORIZATION[66].of("transactional ids").is_audited


def test_a_transactional_batch_without_a_transactional_id_is_refused() -> None:
    """CVE-2018-17196: even for a principal with all rights on every transactional id."""
    requirement = AUTHORIZATION[0].of("transactional batches")
    everything = Right(AclOperation.ALL, ResourceType.TRANSACTIONAL_ID)
    authorizer = with_acls((everything, AclPermission.ALLOW), name="*")
    assert code_of(authorizer, requirement, "mine") is None
    assert code_of(authorizer, requirement, None) == 53
    assert code_of(with_acls((everything, AclPermission.ALLOW), name="mine"), requirement, "foreign") == 53
    assert requirement.refusal is ShownRefusal.RESPONSE


@pytest.mark.parametrize("key", [22, 24, 25, 26, 27, 28, 65, 66])
def test_no_transaction_request_is_open_to_a_user_with_nothing(key: int) -> None:
    """CVE-2023-50976."""
    nobody = Authorizer().client(ALICE, HOST)
    requirements = AUTHORIZATION[key].requirements
    assert requirements
    assert not any(permits(nobody, requirement, "r") for requirement in requirements)


def test_a_client_that_fetches_as_a_replica_needs_to_be_a_broker() -> None:
    """CVE-2018-1288: to read the topic is not enough, and the error is the topic's."""
    requirement = AUTHORIZATION[1].of("replica")
    reader = with_acls((Right(AclOperation.ALL, ResourceType.TOPIC), AclPermission.ALLOW))
    assert code_of(reader, requirement) == 29
    broker = with_acls((Right(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER), AclPermission.ALLOW))
    assert code_of(broker, requirement) is None
