"""Requests that Kafka without security answers with an error, answered with the same one, word for word."""

from collections.abc import Callable
from struct import pack
from typing import Any

import pytest

from leadline.wire.apis import APIS
from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    ApiVersionsRequest,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeDelegationTokenRequest,
    EnvelopeRequest,
    ExpireDelegationTokenRequest,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    MetadataRequest,
    MetadataResponse,
    RenewDelegationTokenRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    UpdateFeaturesRequest,
)
from tests.conformance.both import Both, Closed, Side
from tests.conformance.kafka.tools import run
from tests.support.brokers import joined
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

ACL = CreateAclsRequest.AclCreation
FILTER = DeleteAclsRequest.DeleteAclsFilter
RENEWER = CreateDelegationTokenRequest.CreatableRenewers
FEATURE = UpdateFeaturesRequest.FeatureUpdateKey
PROTOCOL = JoinGroupRequest.JoinGroupRequestProtocol


def acl(**other: int) -> CreateAclsRequest.AclCreation:
    creation = ACL(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3, permission_type=3)
    for name, value in other.items():
        setattr(creation, name, value)
    return creation


def acl_filter(**other: int) -> dict[str, Any]:
    any_of_them = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    return {"resource_type_filter": 1, "operation": 1, "permission_type": 1, **any_of_them, **other}


REFUSED: dict[str, Message] = {
    "handshake": SaslHandshakeRequest(mechanism="PLAIN"),
    "handshake without a mechanism": SaslHandshakeRequest(mechanism=""),
    "authenticate": SaslAuthenticateRequest(auth_bytes=b"\0a\0b"),
    "describe ACLs": DescribeAclsRequest(**acl_filter()),
    "describe ACLs by unheard-of types": DescribeAclsRequest(**acl_filter(operation=99, permission_type=-5)),
    "create an ACL": CreateAclsRequest(creations=[acl()]),
    "create ACLs": CreateAclsRequest(creations=[acl(), acl(resource_type=99), acl(resource_type=4)]),
    "create no ACL": CreateAclsRequest(creations=[]),
    "delete ACLs": DeleteAclsRequest(filters=[FILTER(**acl_filter()), FILTER(**acl_filter(operation=3))]),
    "delete no ACLs": DeleteAclsRequest(filters=[]),
    "create a token": CreateDelegationTokenRequest(max_lifetime_ms=-1),
    "create a token for others": CreateDelegationTokenRequest(
        renewers=[RENEWER(principal_type="Nobody", principal_name="x")], max_lifetime_ms=5
    ),
    "renew a token": RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
    "expire a token": ExpireDelegationTokenRequest(hmac=b"", expiry_time_period_ms=-1),
    "describe all tokens": DescribeDelegationTokenRequest(owners=None),
    "describe no tokens": DescribeDelegationTokenRequest(owners=[]),
    "heartbeat of the newer groups": ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
    "describe newer groups": ConsumerGroupDescribeRequest(group_ids=["a", "b", "a"]),
    "update features": UpdateFeaturesRequest(
        feature_updates=[
            FEATURE(feature="x", max_version_level=1),
            FEATURE(feature="y", max_version_level=0),
            FEATURE(feature="", max_version_level=1),
        ]
    ),
    "update no features": UpdateFeaturesRequest(feature_updates=[]),
}
VERSIONS = [
    pytest.param(name, version, id=f"{name}, v{version}")
    for name, request in REFUSED.items()
    for version in request.VERSIONS
]


def response_to(request: Message) -> type[Message]:
    assert request.API_KEY is not None
    return APIS[request.API_KEY].response


def messages_of(part: Part) -> list[str | None]:
    """All messages of a response."""
    messages: list[str | None] = []
    for field in part.SPEC.fields:
        value = getattr(part, field.name)
        if field.name == "error_message":
            messages.append(value)
        for inner in value if isinstance(value, list) else [value]:
            messages += messages_of(inner) if isinstance(inner, Part) else []
    return messages


def ask_both(both: Both, request: Message, version: int) -> None:
    """The same in every field, and word for word where Kafka has words."""
    kind = response_to(request)
    answers = both.map(lambda side: side.ask(kind, request, version))
    both.compare(answers, version)
    theirs, ours = map(messages_of, answers)
    pairs = [(theirs, ours) for theirs, ours in zip(sorted(map(str, theirs)), sorted(map(str, ours)), strict=True)]
    assert [pair for pair in pairs if pair[0] not in (pair[1], "None")] == []


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_what_needs_security_is_refused_as_kafka_does_without(both: Both, name: str, version: int) -> None:
    ask_both(both, REFUSED[name], version)


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("level", [-1, 0, 1])
def test_each_kind_of_a_features_update_is_refused_in_its_words(both: Both, kind: int, level: int) -> None:
    update = FEATURE(feature="x", max_version_level=level, upgrade_type=kind)
    ask_both(both, UpdateFeaturesRequest(feature_updates=[update], validate_only=True), 1)
    older = FEATURE(feature="x", max_version_level=level, allow_downgrade=kind > 1)
    ask_both(both, UpdateFeaturesRequest(feature_updates=[older]), 0)


@pytest.mark.parametrize(
    "owner", [("User", "bob"), ("Group", "b"), ("User", ""), ("", "bob"), (None, "bob"), (None, "")]
)
def test_a_token_for_another_owner_is_refused_as_kafka_does(both: Both, owner: tuple[str | None, str]) -> None:
    kind, name = owner
    ask_both(both, CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=name), 3)


UNKNOWN: list[Message] = [
    *(
        DescribeAclsRequest(**acl_filter(**{name: 0}))
        for name in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type")
    ),
    *(
        CreateAclsRequest(creations=[acl(), acl(**{name: 0})])
        for name in ("resource_type", "resource_pattern_type", "operation", "permission_type")
    ),
    DeleteAclsRequest(filters=[FILTER(**acl_filter()), FILTER(**acl_filter(operation=0))]),
    EnvelopeRequest(request_data=b"x", request_principal=b"x", client_host_address=b"xxxx"),
]


@pytest.mark.parametrize(
    "request_of", [lambda request=request: request for request in UNKNOWN], ids=[str(n) for n in range(10)]
)
def test_what_kafka_fails_to_parse_closes_the_connection(both: Both, request_of: Callable[[], Message]) -> None:
    request = request_of()
    for side in both.sides:
        for version in (request.VERSIONS[-1], max(request.VERSIONS[0], min(1, request.VERSIONS[-1]))):
            connection = side.connect()
            connection.send(request, version)
            assert connection.receive() is Closed, side
            connection.close()


# What is not UTF-8

STRANGE = [
    *(
        b"\xff",
        b"\xffabc",
        b"a\xc3",
        b"\xc0\x80",
        b"\xe2\x28\xa1",
        b"\xe2\x82",
        b"\xe0\x80\x80",
        b"\xf8\x88\x80\x80\x80",
    ),
    *(b"\xf0\x9f\x98", b"\xf0\x9f\x98x", b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90", b"\xef\xbf\xbf"),
    *(b"\xed\xa0\x80x", b"\xed\xb0\x80\xed\xa0\x80", b"\xed\xa0", b"\xed\xa0x", b"\xed\xa0\xed\xa0\x80", b"\xed\x80"),
]
PLACEHOLDER = "QQQQ"


def exchanged(side: Side, request: Message, version: int, old: str, new: bytes, client_id: str = "both") -> Message:
    """The answer to a request in which a string of four characters was replaced by other four bytes or fewer."""
    frame = joined(request_frame(request, version, 1, client_id))
    assert frame.count(old.encode()) == 1
    data = new.ljust(4, b"_")
    connection = side.connect()
    connection.socket.sendall(frame.replace(old.encode(), data))
    answer = connection.receive()
    connection.close()
    assert answer is not Closed, f"{side} closed the connection of {data!r}"
    return parse_response(response_to(request), answer, version)[1]


def joining(side: Side, client_id: bytes) -> str:
    """How a member id begins, which is with its client's."""
    request = JoinGroupRequest(
        group_id="strange", session_timeout_ms=9000, protocol_type="consumer", protocols=[PROTOCOL(name="r")]
    )
    frame = joined(request_frame(request, 4, 1, PLACEHOLDER))
    at = frame.index(PLACEHOLDER.encode()) - 2
    frame = frame[4:at] + pack(">h", len(client_id)) + client_id + frame[at + 6 :]
    connection = side.connect()
    connection.socket.sendall(pack(">i", len(frame)) + frame)
    answer = connection.receive()
    connection.close()
    assert answer is not Closed, f"{side} closed the connection of {client_id!r}"
    return parse_response(JoinGroupResponse, answer, 4)[1].member_id[: -len("-00000000-0000-0000-0000-000000000000")]


@pytest.fixture
def coordinators(both: Both) -> None:
    def is_found(side: Side) -> bool:
        request = FindCoordinatorRequest(key="strange", key_type=0)
        is_located = side.ask(FindCoordinatorResponse, request, 2).error_code == 0
        return is_located and joining(side, b"plain") == "plain"

    for side in both.sides:
        until(lambda side=side: is_found(side), 60)  # type: ignore[misc]


@pytest.mark.usefixtures("coordinators")
@pytest.mark.parametrize("client_id", STRANGE)
def test_a_client_id_that_is_not_utf_8_is_read_as_kafka_reads_it(both: Both, client_id: bytes) -> None:
    theirs, ours = both.map(lambda side: joining(side, client_id))
    assert ours == theirs


@pytest.mark.parametrize("version", ApiVersionsRequest.VERSIONS)
def test_a_client_with_an_invalid_client_id_gets_api_versions(both: Both, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    request = request if version >= 3 else ApiVersionsRequest()
    answers = both.map(lambda side: exchanged(side, request, version, PLACEHOLDER, b"\xff\xfe", PLACEHOLDER))
    assert [answer.error_code for answer in answers] == [0, 0]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [b"\xff\xfea\xc3", b"\xed\xa0\x80x", b"\xf0\x9f\x98x"])
@pytest.mark.parametrize("version", [4, 9, 12])
def test_a_topic_whose_name_is_not_utf_8_is_answered_as_kafka_does(both: Both, name: bytes, version: int) -> None:
    topic = MetadataRequest.MetadataRequestTopic(name=PLACEHOLDER)
    request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    answers = both.map(lambda side: exchanged(side, request, version, PLACEHOLDER, name))
    both.compare(answers, version)
    assert isinstance(answers[0], MetadataResponse)
    assert answers[0].topics[0].error_code == 17


@pytest.mark.parametrize("version", HeartbeatRequest.VERSIONS)
def test_a_group_whose_id_is_not_utf_8_is_answered_as_kafka_does(both: Both, version: int) -> None:
    request = HeartbeatRequest(group_id=PLACEHOLDER, generation_id=1, member_id="m")
    both.compare(both.map(lambda side: exchanged(side, request, version, PLACEHOLDER, b"a\xff\xc3")), version)


# Kafka's own tool


@pytest.mark.parametrize(
    "args",
    [
        ("--list",),
        ("--add", "--allow-principal", "User:ada", "--operation", "Read", "--topic", "t"),
        ("--remove", "--force", "--topic", "t"),
    ],
)
def test_kafkas_acl_tool_says_the_same_of_both(both: Both, args: tuple[str, ...]) -> None:
    def run_tool(side: Side) -> tuple[int, list[str]]:
        done = run("acls", "--bootstrap-server", side.bootstrap, *args)
        lines = (done.out + done.err).splitlines()
        return done.code, [line for line in lines if "SecurityDisabled" in line]

    theirs, ours = both.map(run_tool)
    assert ours == theirs
    assert theirs[1], "the tool names no SecurityDisabledException"
