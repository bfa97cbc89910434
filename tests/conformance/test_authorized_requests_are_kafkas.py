"""Both brokers with an authorizer: what they answer to a user without a right, with it, and with a deny.

Each test runs for a user who is told by his address, and for one who logs in: see `authorized_brokers`.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from leadline.api import TABLE
from leadline.api.authorization import ShownRefusal
from leadline.security.acls import CLUSTER_NAME, AclBinding, AclOperation, ResourceType
from leadline.security.audit import AUDIT_LOGGER
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.encode_errors import NotInVersion
from leadline.wire.frames import parse_response
from tests.conformance.authorized_brokers import Authorized, by_address, by_login
from tests.conformance.both import Closed, Side
from tests.conformance.kafka.tools import tool
from tests.support.authorization_examples import GROUP, ROWS, AuthorizationRow, codes_in
from tests.support.authorized_broker import DENY, rule
from tests.support.logs import batch

pytestmark = pytest.mark.conformance

LAST = ("OffsetDelete", "DeleteGroups", "DeleteTopics")  # they leave less for the others
BROKER_ID, BROKER_LOGGER = 1, 8
AUDITED = re.compile(r"(TRACE|DEBUG|INFO).*?(Principal = .*? with resourceRefCount = \d+)")
BETWEEN_BROKERS = {4, 5, 6, 7, 56, 67}  # requests that a single node of ours refuses, as there is nobody to send them


@pytest.fixture(scope="module", params=[by_address, by_login], ids=["by address", "by login"])
def authorized(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authorized]:
    with request.param(tmp_path_factory.mktemp("authorized")) as brokers:
        yield brokers


LEADLINES_OWN = ("DescribeConfigs", "groups")  # Kafka 3.8 has no settings of groups
IN_ORDER = sorted(
    (row for row in ROWS if (row.request_name, row.requirement.part) != LEADLINES_OWN),
    key=lambda row: (row.request_name in LAST, str(row) == "DeleteTopics: topics"),
)


@pytest.mark.parametrize("row", IN_ORDER, ids=str)
def test_a_user_without_the_right_gets_kafkas_refusal_in_every_version(
    authorized: Authorized, row: AuthorizationRow
) -> None:
    authorized.put(*row.others())
    versions = [version for version in TABLE[row.key].versions if version in row.requirement.versions]
    compared = 0
    for version in versions:
        try:
            authorized.compare_row(row, version)
        except (NotInVersion, ValueError):  # the example needs what this version does not have
            continue
        compared += 1
    assert compared


@pytest.mark.parametrize("row", IN_ORDER, ids=str)
def test_a_user_with_a_deny_gets_kafkas_refusal(authorized: Authorized, row: AuthorizationRow) -> None:
    authorized.put(*row.denying())
    authorized.compare_row(row, row.example.version)


@pytest.mark.parametrize("row", IN_ORDER, ids=str)
def test_a_user_with_exactly_the_right_gets_kafkas_answer(authorized: Authorized, row: AuthorizationRow) -> None:
    if row.key in BETWEEN_BROKERS and not authorized.has_peers:
        return
    for right in row.requirement.any_of:
        authorized.put(*row.others(), row.allowing(right))
        if row.requirement.part == "auto-creation":  # Kafka answers before it has created the topic
            is_new = "new" not in names_of(authorized.both.ours)
            right_codes = [codes_in(answer) for answer in authorized.answers_to_row(row, row.example.version)]
            assert right_codes[0] in ({5}, {0})
            assert right_codes[1] == ({5} if is_new else {0})
            continue
        response = authorized.compare_row(row, row.example.version)
        error = row.requirement.error
        if row.requirement.refusal is not ShownRefusal.HIDDEN and error is not None and row.example.shows is None:
            assert error.code not in codes_in(response)


# Several resources in one request


def both_topics(authorized: Authorized) -> None:
    """The user may do everything to `seen`, nothing to `secret`, and `missing` does not exist."""
    for name in ("seen", "secret"):
        if any(name not in names_of(side) for side in authorized.both.sides):
            authorized.both.create(name)
    kinds = {ResourceType.TOPIC: "seen", ResourceType.GROUP: "seen", ResourceType.TRANSACTIONAL_ID: "seen"}
    authorized.put(*(rule(AclOperation.ALL, kind, name) for kind, name in kinds.items()))


def names_of(side: Side) -> set[str | None]:
    answer = side.ask(m.MetadataResponse, m.MetadataRequest(topics=None), 9)
    return {topic.name for topic in answer.topics}


ALL_NAMES = ("seen", "secret", "missing")
PRODUCE_TOPIC, PRODUCE_DATA = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData


def produce(records: dict[str, bytes], transactional_id: str | None = None) -> Message:
    topics = [
        PRODUCE_TOPIC(name=name, partition_data=[PRODUCE_DATA(index=0, records=data)]) for name, data in records.items()
    ]
    return m.ProduceRequest(transactional_id=transactional_id, acks=1, timeout_ms=10_000, topic_data=topics)


def fetch(session: tuple[int, int] = (0, -1), names: tuple[str, ...] = ALL_NAMES, replica: int = -1) -> m.FetchRequest:
    part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return m.FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        replica_id=replica,
        max_wait_ms=0,
        topics=[m.FetchRequest.FetchTopic(topic=name, partitions=[part]) for name in names],
    )


def mixed() -> dict[str, tuple[Message, int]]:
    plain, transactional = bytes(batch(1)), bytes(batch(1, producer_id=5, transactional=True))
    listed = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)
    committed = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
    deleted = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=0)
    group_topics = [
        m.OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=[0, 7]) for name in ALL_NAMES
    ]
    creatable = [
        m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("seen", "secret", "missing", "missing", "__cluster_metadata")
    ]
    return {
        "produce": (produce(dict.fromkeys(ALL_NAMES, plain)), 9),
        "produce again": (produce(dict.fromkeys(ALL_NAMES, plain)), 9),
        "produce one": (produce({"seen": plain}), 9),
        "produce the same": (produce({"seen": plain}), 9),
        "produce the other": (produce({"secret": plain}), 9),
        "a transaction without an id": (produce({"seen": plain, "secret": transactional}), 9),
        "a transaction with an id of others": (produce({"seen": plain, "secret": transactional}, "x"), 9),
        "a transaction in the second batch": (produce({"seen": plain + transactional}), 9),
        "a transaction with an own id": (produce({"secret": transactional, "missing": transactional}, "seen"), 9),
        "fetch": (fetch(), 12),
        "fetch with an old version": (fetch(), 5),
        "fetch as a follower": (fetch(replica=1), 12),
        "list offsets": (
            m.ListOffsetsRequest(
                topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[listed]) for name in ALL_NAMES]
            ),
            8,
        ),
        "metadata": (
            m.MetadataRequest(
                topics=[m.MetadataRequest.MetadataRequestTopic(name=name) for name in ALL_NAMES],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=True,
            ),
            10,
        ),
        "commit": (
            m.OffsetCommitRequest(
                group_id="seen",
                topics=[
                    m.OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=[committed])
                    for name in ALL_NAMES
                ],
            ),
            8,
        ),
        "fetch offsets": (
            m.OffsetFetchRequest(
                groups=[
                    m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=group_topics)
                    for name in ("seen", "secret")
                ]
            ),
            8,
        ),
        "fetch all offsets": (
            m.OffsetFetchRequest(
                groups=[m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in ALL_NAMES]
            ),
            8,
        ),
        "delete records": (
            m.DeleteRecordsRequest(
                topics=[
                    m.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[deleted]) for name in ALL_NAMES
                ],
                timeout_ms=10_000,
            ),
            2,
        ),
        "create topics": (m.CreateTopicsRequest(topics=creatable, timeout_ms=10_000, validate_only=True), 7),
        "describe groups": (
            m.DescribeGroupsRequest(groups=["secret", "seen"], include_authorized_operations=True),
            5,
        ),
        "delete groups": (m.DeleteGroupsRequest(groups_names=["secret", "nobody"]), 2),
        "coordinators": (m.FindCoordinatorRequest(key_type=0, coordinator_keys=list(ALL_NAMES)), 4),
        "transactions": (m.DescribeTransactionsRequest(transactional_ids=list(ALL_NAMES)), 0),
        "producers": (
            m.DescribeProducersRequest(
                topics=[
                    m.DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0])
                    for name in (*ALL_NAMES, "not/valid")
                ]
            ),
            0,
        ),
    }


@pytest.mark.parametrize("name", mixed())
def test_each_part_of_a_request_is_decided_by_itself(authorized: Authorized, name: str) -> None:
    both_topics(authorized)
    request, version = mixed()[name]
    kind: type[Message] = getattr(m, type(request).__name__.removesuffix("Request") + "Response")
    authorized.ask_and_compare(kind, request, version)


@pytest.mark.parametrize(
    "bindings",
    [
        [],
        [rule(AclOperation.DESCRIBE, ResourceType.CLUSTER)],
        [
            rule(AclOperation.ALL, ResourceType.CLUSTER),
            rule(AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, DENY),
        ],
        [rule(AclOperation.READ, ResourceType.TOPIC, "seen"), rule(AclOperation.READ, ResourceType.GROUP, "seen")],
        [
            rule(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "seen"),
            rule(AclOperation.WRITE, ResourceType.TOPIC, "seen"),
        ],
    ],
)
def test_authorized_operations_are_kafkas(authorized: Authorized, bindings: list[AclBinding]) -> None:
    both_topics(authorized)
    authorized.put(*bindings)
    topic = m.MetadataRequest.MetadataRequestTopic(name="seen")
    for version in range(8, 13):
        request = m.MetadataRequest(
            topics=[topic],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=version <= 10,
        )
        authorized.ask_and_compare(m.MetadataResponse, request, version)
    for kind, other, version in (
        (m.DescribeGroupsResponse, m.DescribeGroupsRequest(groups=["seen"], include_authorized_operations=True), 5),
        (m.DescribeClusterResponse, m.DescribeClusterRequest(include_cluster_authorized_operations=True), 1),
    ):
        authorized.ask_and_compare(kind, other, version)


def test_a_session_that_was_opened_before_a_right_was_revoked_turns_to_kafkas_refusal(authorized: Authorized) -> None:
    both_topics(authorized)
    authorized.put(*(rule(AclOperation.READ, ResourceType.TOPIC, name) for name in ("seen", "secret")))
    opened = authorized.answers(m.FetchResponse, fetch((0, 0), ("seen", "secret")), 12)
    sessions = {side.name: answer.session_id for side, answer in zip(authorized.users, opened, strict=True)}
    assert all(sessions.values())

    def go_on(epoch: int) -> m.FetchResponse:
        return authorized.ask_and_compare(m.FetchResponse, lambda side: fetch((sessions[side.name], epoch), ()), 12)

    go_on(1)
    authorized.put(rule(AclOperation.READ, ResourceType.TOPIC, "seen"))
    for epoch in (2, 3):
        refused = go_on(epoch)
        assert [(topic.topic, topic.partitions[0].error_code) for topic in refused.responses][-1] == ("secret", 29)
    authorized.put(*(rule(AclOperation.READ, ResourceType.TOPIC, name) for name in ("seen", "secret")))
    assert {topic.topic for topic in go_on(4).responses} >= {"secret"}


# Requests for ACLs


def creation(name: str = "t", **other: object) -> m.CreateAclsRequest.AclCreation:
    built = m.CreateAclsRequest.AclCreation(
        resource_type=2, resource_name=name, principal="User:zoe", host="*", operation=3, permission_type=3
    )
    for field, value in other.items():
        setattr(built, field, value)
    return built


CREATIONS = {
    "literal": [creation("lit")],
    "again": [creation("lit")],
    "several": [creation("lit", operation=operation) for operation in (4, 5, 6, 2)],
    "prefixed": [creation("pre", resource_pattern_type=4)],
    "a wildcard": [creation("*", permission_type=2)],
    "of all types": [creation("x", resource_type=kind) for kind in (2, 3, 5, 6, 7)],
    "the cluster": [creation("kafka-cluster", resource_type=4)],
    "another cluster": [creation("other", resource_type=4)],
    "no name": [creation("")],
    "a slash": [creation("a/b"), creation("fine")],
    "no principal type": [creation("np", principal="zoe")],
    "an empty principal": [creation("np", principal="")],
    "an operation that makes no sense": [creation("odd", operation=12)],
    "an unheard-of operation": [creation("odd", operation=99)],
    "an unheard-of type": [creation("odd", resource_type=99)],
    "an unheard-of permission": [creation("odd", permission_type=99)],
    "an unheard-of pattern": [creation("odd", resource_pattern_type=99)],
    "any operation": [creation("odd", operation=1)],
    "any type": [creation("odd", resource_type=1)],
    "any permission": [creation("odd", permission_type=1)],
    "any pattern": [creation("odd", resource_pattern_type=1)],
    "a matching pattern": [creation("odd", resource_pattern_type=2)],
    "good ones with bad ones": [creation("good"), creation(""), creation("good", principal="zoe")],
}
FILTERS: list[dict[str, Any]] = [
    {},
    {"resource_name_filter": "lit"},
    {"resource_name_filter": "lit", "pattern_type_filter": 3},
    {"resource_name_filter": "prefix", "pattern_type_filter": 2},
    {"resource_name_filter": "pre", "pattern_type_filter": 1},
    {"resource_type_filter": 4},
    {"operation": 2},
    {"operation": 99},
    {"permission_type": 2},
    {"principal_filter": "User:zoe"},
    {"principal_filter": "User:nobody"},
    {"host_filter": "*"},
]


def acl_filter(changed: dict[str, Any]) -> dict[str, Any]:
    types = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    return {"resource_name_filter": None, "principal_filter": None, "host_filter": None} | types | changed


def test_acls_are_created_described_and_deleted_as_kafka_does(authorized: Authorized) -> None:
    authorized.put()
    both = authorized.both
    for name, creations in CREATIONS.items():
        request = m.CreateAclsRequest(creations=creations)
        answers = [ask_or_closed(side, m.CreateAclsResponse, request, 3) for side in both.sides]
        assert (answers[0] is None) == (answers[1] is None), f"{name}: {answers}"
        if answers[0] is not None and answers[1] is not None:
            try:
                both.compare([answers[0], answers[1]], 3)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
    for changed in FILTERS:
        both.ask_and_compare(m.DescribeAclsResponse, m.DescribeAclsRequest(**acl_filter(changed)), 3)
    deleted: list[dict[str, Any]] = [
        {"resource_name_filter": "lit", "operation": 4},
        {"resource_name_filter": "lit"},
        {"operation": 3},
    ]
    for changed in deleted:
        mine = acl_filter({"principal_filter": "User:zoe", **changed})
        filters = [m.DeleteAclsRequest.DeleteAclsFilter(**mine), m.DeleteAclsRequest.DeleteAclsFilter(**mine)]
        both.ask_and_compare(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=filters), 3)
        both.ask_and_compare(m.DescribeAclsResponse, m.DescribeAclsRequest(**acl_filter({})), 3)
    rest = m.DeleteAclsRequest.DeleteAclsFilter(**acl_filter({"principal_filter": "User:zoe"}))
    both.ask_and_compare(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=[rest]), 1)


def ask_or_closed(side: Side, kind: type[Message], request: Message, version: int) -> Message | None:
    """On a connection of its own."""
    connection = side.connect()
    try:
        connection.send(request, version)
        frame = connection.receive()
        return None if frame is Closed else parse_response(kind, frame, version)[1]
    finally:
        connection.close()


def test_kafkas_tool_manages_the_acls_of_both(authorized: Authorized) -> None:
    authorized.put()

    def session(side: Side) -> list[str]:
        def acls(*arguments: str) -> str:
            return tool("acls", "--bootstrap-server", side.bootstrap, *arguments)

        zoe = ("--allow-principal", "User:zoe")
        mallory = ("--deny-principal", "User:mallory", "--deny-host", "10.0.0.7", "--operation", "All", "--cluster")
        out = [
            acls("--add", *zoe, "--operation", "Read", "--operation", "Write", "--topic", "tool"),
            acls("--add", *zoe, "--producer", "--topic", "tool-", "--resource-pattern-type", "prefixed"),
            acls("--add", *mallory),
            acls("--add", *zoe, "--consumer", "--topic", "tool", "--group", "crew"),
            acls("--list", "--topic", "tool"),
            acls("--list", "--topic", "tool-x", "--resource-pattern-type", "match"),
            acls("--list", "--principal", "User:mallory"),
            acls("--remove", "--force", *zoe, "--operation", "Write", "--topic", "tool"),
            acls("--list", "--topic", "tool"),
            acls("--remove", "--force", "--topic", "tool"),
            acls("--remove", "--force", "--topic", "tool-", "--resource-pattern-type", "prefixed"),
            acls("--remove", "--force", "--group", "crew"),
            acls("--remove", "--force", *mallory),
            acls("--list", "--principal", "User:zoe"),
        ]
        return ["\n".join(sorted(line.strip() for line in text.splitlines())) for text in out]  # in no order

    theirs, ours = (session(side) for side in authorized.both.sides)
    assert ours == theirs


def test_denials_are_audited_as_kafka_does(authorized: Authorized) -> None:
    """All of the tests before. Leadline repeats a line only after a while; which ones there are is the same."""
    theirs, ours = (
        {re.sub(r" \(.*", "", line) for line in re.findall(r"Principal = .* is Denied .*", log.read_text())}
        for log in authorized.logs
    )
    assert ours == theirs
    assert len(ours) > 90


def set_audit_level(side: Side, level: str) -> None:
    config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=AUDIT_LOGGER, value=level)
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=str(BROKER_ID), configs=[config]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    assert codes_in(side.ask(m.IncrementalAlterConfigsResponse, request, 1)) == {0}


def test_at_trace_the_operations_that_a_client_asks_for_are_audited_as_kafka_does(authorized: Authorized) -> None:
    authorized.put(
        rule(AclOperation.DESCRIBE, ResourceType.CLUSTER),
        rule(AclOperation.READ, ResourceType.TOPIC, "seen"),
        rule(AclOperation.DELETE, ResourceType.GROUP, GROUP),
    )
    topic = m.MetadataRequest.MetadataRequestTopic(name="seen")
    for side in authorized.both.sides:
        set_audit_level(side, "TRACE")
    before = [len(log.read_text()) for log in authorized.logs]
    authorized.answers(
        m.DescribeClusterResponse, m.DescribeClusterRequest(include_cluster_authorized_operations=True), 0
    )
    authorized.answers(
        m.MetadataResponse, m.MetadataRequest(topics=[topic], include_topic_authorized_operations=True), 9
    )
    authorized.answers(
        m.DescribeGroupsResponse, m.DescribeGroupsRequest(groups=[GROUP], include_authorized_operations=True), 5
    )
    after = [log.read_text()[start:] for log, start in zip(authorized.logs, before, strict=True)]
    for side in authorized.both.sides:
        set_audit_level(side, "INFO")
    theirs, ours = ({match.groups() for match in AUDITED.finditer(text)} for text in after)
    assert ours == theirs
    assert {level for level, _ in ours} == {"DEBUG", "TRACE"}
    assert sum(level == "TRACE" for level, _ in ours) == 8 + 7 + 3  # of a topic, of the cluster, of a group
