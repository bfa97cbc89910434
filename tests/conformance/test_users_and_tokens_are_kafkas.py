"""Credentials of SCRAM and delegation tokens: the same requests and tools to a real Kafka and to Leadline.

Users log in by SASL/PLAIN. Leadline is a single node here, and keeps everything in its own tree.
"""

import base64
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leadline.security.acls import AclOperation, ResourceType
from leadline.security.delegation_tokens import token_hmac
from leadline.security.scram import ScramClient
from leadline.security.scram_credentials import ScramMechanism
from leadline.security.secret import Secret
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from tests.conformance.both import Both, Connection, Side, differences
from tests.conformance.kafka.broker import _free_port, zookeeper
from tests.conformance.kafka.secured import (
    LOGIN,
    PASSWORDS,
    SECRET_KEY,
    connect_as,
    secured_broker,
    secured_settings,
)
from tests.conformance.kafka.tools import tool
from tests.support.broker import leadline
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

DELETION = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
UPSERTION = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
SHA_256, SHA_512 = 1, 2
UNEXPECTED = -1  # Kafka says nothing then


@dataclass
class Secured:
    both: Both
    users_ports: dict[str, int]  # by side
    shared: int  # the port for users of a Leadline that is one of a cluster with the Kafka
    connections: dict[tuple[str, str], Connection] = field(default_factory=dict)  # by side and user

    def connection(self, side: Side, user: str) -> Connection:
        if (side.name, user) not in self.connections:
            self.connections[side.name, user] = connect_as(user, self.users_ports[side.name])
        return self.connections[side.name, user]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory, port, shared = tmp_path_factory.mktemp("users"), _free_port(), _free_port()
    with (
        zookeeper(directory / "zookeeper") as coordinator,
        secured_broker(directory / "kafka", coordinator, {}) as kafka,
        leadline(directory / "leadline", **of_leadline(port)) as us,
        leadline(
            directory / "shared", **of_leadline(shared), **{"zookeeper.connect": coordinator.connect, "broker.id": 7}
        ),
    ):
        both = Both(
            Side("Kafka", "127.0.0.1", kafka.broker.port, [str(kafka.broker.log_dir)]),
            Side("Leadline", "127.0.0.1", us.port, [str(us.directory)]),
        )
        brokers = Secured(both, {"Kafka": kafka.users_port, "Leadline": port}, shared)
        yield brokers
        for connection in (*(side.connection for side in both.sides), *brokers.connections.values()):
            connection.close()


def of_leadline(users_port: int) -> dict[str, object]:
    return {name: str(value).replace("$port", "0") for name, value in secured_settings(users_port).items()}


# Credentials of SCRAM


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> UPSERTION:
    return UPSERTION(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"the salt", salted_password=bytes(range(32))
    )


ALTERATIONS: dict[str, list[UPSERTION | DELETION]] = {
    "of nobody": [],
    "new ones": [upsertion("anna"), upsertion("anna", SHA_512, 16_384), upsertion("bert", SHA_512), upsertion("c/d e")],
    "another in its place": [upsertion("anna", SHA_256, 8192)],
    "one goes and one comes": [DELETION(name="bert", mechanism=SHA_512), upsertion("bert", SHA_256)],
    "the same one goes and comes": [DELETION(name="bert", mechanism=SHA_256), upsertion("bert", SHA_256)],
    "twice": [upsertion("anna"), upsertion("anna"), upsertion("emil")],
    "no name": [upsertion(""), DELETION(name="", mechanism=SHA_256)],
    "unheard-of mechanisms": [
        upsertion("f", 0),
        upsertion("g", 3),
        upsertion("h", -1),
        DELETION(name="i", mechanism=9),
    ],
    "iterations": [upsertion("few", iterations=4095), upsertion("many", iterations=16_385), upsertion("j")],
    "a bad entry after a good one": [upsertion("k"), upsertion("k", SHA_512, 1), upsertion("l")],
    "illegal and twice": [upsertion("n", iterations=1), upsertion("n", iterations=1), upsertion("n", 7)],
    "illegal in two ways": [
        DELETION(name="p", mechanism=9),
        upsertion("p", iterations=1),
        upsertion("q", 7),
        upsertion("q", iterations=1),
    ],
    "what is not there": [DELETION(name="nobody", mechanism=SHA_256), DELETION(name="emil", mechanism=SHA_512)],
    "what is not there, and what is": [DELETION(name="l", mechanism=SHA_512), DELETION(name="l", mechanism=SHA_256)],
    "strange names": [upsertion("ümlaut"), upsertion("<default>"), upsertion("a,b=c")],
    "a name that no node can have": [upsertion(".")],
    "no salt": [UPSERTION(name="o", mechanism=SHA_256, iterations=4096, salt=b"", salted_password=b"x")],
    "no salted password": [UPSERTION(name="r", mechanism=SHA_256, iterations=4096, salt=b"x", salted_password=b"")],
}
DESCRIPTIONS: list[list[str] | None] = [
    None, [], ["anna"], ["bert", "anna", "nobody", ""], ["anna", "bert", "anna", "nobody", "nobody"], ["<default>", "o"]
]  # fmt: skip


def test_credentials_are_altered_and_described_as_kafka_does(secured: Secured) -> None:
    for name, entries in ALTERATIONS.items():
        request = m.AlterUserScramCredentialsRequest(
            deletions=[entry for entry in entries if isinstance(entry, DELETION)],
            upsertions=[entry for entry in entries if isinstance(entry, UPSERTION)],
        )
        try:
            compare_words(secured.both, m.AlterUserScramCredentialsResponse, request)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    for names in DESCRIPTIONS:
        users = None if names is None else [m.DescribeUserScramCredentialsRequest.UserName(name=name) for name in names]
        compare_words(
            secured.both, m.DescribeUserScramCredentialsResponse, m.DescribeUserScramCredentialsRequest(users=users)
        )


def compare_words(
    both: Both,
    kind: type[m.AlterUserScramCredentialsResponse] | type[m.DescribeUserScramCredentialsResponse],
    request: m.AlterUserScramCredentialsRequest | m.DescribeUserScramCredentialsRequest,
) -> None:
    """Field by field, and word by word where Kafka expects the error."""
    theirs, ours = answers = [side.ask(kind, request, 0) for side in both.sides]
    both.compare(answers, 0)
    words = {result.user: result.error_message for result in ours.results}
    assert {
        result.user: result.error_message for result in theirs.results if result.error_code != UNEXPECTED
    }.items() <= words.items()


def test_kafkas_tool_manages_the_credentials_of_both(secured: Secured) -> None:
    def session(side: Side) -> list[str]:
        def configs(*arguments: str) -> str:
            return tool("configs", "--bootstrap-server", side.bootstrap, *arguments)

        zoe = ("--entity-type", "users", "--entity-name", "zoe")
        return [
            configs("--alter", *zoe, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=zoe-secret]"),
            configs("--alter", *zoe, "--add-config", "SCRAM-SHA-512=[password=zoe-secret]"),
            configs("--describe", *zoe),
            configs("--alter", *zoe, "--delete-config", "SCRAM-SHA-512"),
            configs("--alter", *zoe, "--add-config", "consumer_byte_rate=1024"),
            configs("--describe", *zoe),
            configs("--describe", "--entity-type", "users"),
            configs("--alter", *zoe, "--delete-config", "SCRAM-SHA-256"),
            configs("--describe", *zoe),
            configs("--alter", *zoe, "--delete-config", "consumer_byte_rate"),
            configs("--describe", *zoe),
        ]

    theirs, ours = secured.both.map(session)
    assert ours == theirs


# Delegation tokens

DAY_MS = 86_400_000
RENEWER = m.CreateDelegationTokenRequest.CreatableRenewers
OWNER = m.DescribeDelegationTokenRequest.DescribeDelegationTokenOwner
KINDS: dict[type[Message], type[Message]] = {
    m.CreateDelegationTokenRequest: m.CreateDelegationTokenResponse,
    m.RenewDelegationTokenRequest: m.RenewDelegationTokenResponse,
    m.ExpireDelegationTokenRequest: m.ExpireDelegationTokenResponse,
    m.DescribeDelegationTokenRequest: m.DescribeDelegationTokenResponse,
}


class Session:
    """Users of one side, who create tokens and do things to them."""

    def __init__(self, secured: Secured, side: Side) -> None:
        self.side = side
        self.users = {name: secured.connection(side, name) for name in ("alice", "bob")}
        self.ids: list[str] = []  # of the tokens, in the order of their creation
        self.answers: list[object] = []

    def ask(self, user: str | Connection, request: Message, version: int | None = None) -> Any:
        connection = self.users[user] if isinstance(user, str) else user
        kind = KINDS[type(request)]
        answer: Any = connection.ask(kind, request, request.VERSIONS[-1] if version is None else version)
        if isinstance(answer, m.CreateDelegationTokenResponse) and answer.error_code == 0:
            self.ids.append(answer.token_id)
        self.answers.append(self._leveled(answer))
        return answer

    def create(self, user: str, *renewers: str, version: int = 3, **fields: Any) -> bytes:
        named = [
            RENEWER(principal_type=renewer.split(":")[0], principal_name=renewer.split(":")[1]) for renewer in renewers
        ]
        request = m.CreateDelegationTokenRequest(**{"max_lifetime_ms": -1, "renewers": named, **fields})
        return bytes(self.ask(user, request, version).hmac)

    def renew(self, user: str, hmac: bytes, period_ms: int = -1, version: int = 2) -> int:
        code: int = self.ask(
            user, m.RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), version
        ).error_code
        return code

    def expire(self, user: str, hmac: bytes, period_ms: int = -1, version: int = 2) -> None:
        self.ask(user, m.ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms), version)

    def describe(self, user: str, owners: list[str] | None = None, version: int = 3) -> None:
        named = None
        if owners is not None:
            named = [OWNER(principal_type=owner.split(":")[0], principal_name=owner.split(":")[1]) for owner in owners]
        self.ask(user, m.DescribeDelegationTokenRequest(owners=named), version)

    def end_all(self) -> None:
        """Those of other tests."""
        for user in self.users.values():
            described = user.ask(m.DescribeDelegationTokenResponse, m.DescribeDelegationTokenRequest(owners=None), 3)
            for token in described.tokens:
                request = m.ExpireDelegationTokenRequest(hmac=bytes(token.hmac), expiry_time_period_ms=-1)
                user.ask(m.ExpireDelegationTokenResponse, request, 2)

    def _leveled(self, part: Part) -> object:
        """Ids become their place in the order of creation, HMACs are checked, times become relative."""
        names = {field.name: getattr(part, field.name) for field in part.SPEC.fields}
        issue_ms = next(
            (names[field] for field in ("issue_timestamp_ms", "issue_timestamp") if names.get(field, -1) > 0), None
        )
        id = names.get("token_id", "")
        leveled: dict[str, object] = {}
        for name, value in names.items():
            if isinstance(value, list):
                parts = [self._leveled(part) if isinstance(part, Part) else part for part in value]
                value = sorted(parts, key=repr) if name == "tokens" else parts
            elif "timestamp" in name and value > 0:
                value = round((value - (issue_ms or time.time() * 1000)) / 60_000)
            elif name == "hmac" and id:
                value = bytes(value) == token_hmac(id, Secret.of(SECRET_KEY)).reveal()
            elif name == "token_id" and id:
                value = self.ids.index(id)
            leveled[name] = value
        return leveled


def lives_of_tokens(session: Session) -> None:
    alice, bob = "alice", "bob"
    for version in range(4):
        session.create(alice, version=version)
    for lifetime_ms in (0, 1, 3_600_000, 100 * DAY_MS):
        session.create(alice, max_lifetime_ms=lifetime_ms)
    for owner in (("User", ""), ("User", "alice"), ("User", "bob"), ("", "x"), (None, "bob"), (None, ""), (None, None)):
        session.create(alice, owner_principal_type=owner[0], owner_principal_name=owner[1])
    session.create(alice, "User:bob", "User:bob")
    session.create(alice, "Group:crew")
    session.create(alice, "User:bob", ":x")
    theirs = session.create(alice, "User:bob", "User:c d")
    own = session.create(alice)
    for version in range(3):
        session.renew(alice, own, version=version)
        session.renew(bob, theirs, 2 * DAY_MS, version)
    for period_ms in (3_600_000, 100 * DAY_MS, 0):
        session.renew(bob, theirs, period_ms)
    for hmac in (own, b"", b"x", own[:-1]):
        session.renew(bob, hmac)
        session.expire(bob, hmac)
    for owners in (
        None,
        [],
        ["User:alice"],
        ["User:bob"],
        ["User:alice", "User:bob"],
        ["User:nobody"],
        ["Group:alice"],
    ):
        session.describe(alice, owners)
        session.describe(bob, owners)
    for version in range(4):
        session.describe(alice, version=version)
    for version in range(3):
        session.expire(alice, own, 3_600_000, version)
    session.expire(bob, theirs, 100 * DAY_MS)
    session.expire(bob, theirs)
    session.expire(bob, theirs)
    session.renew(alice, theirs)
    short = session.create(alice, max_lifetime_ms=1)
    marker = len(session.answers)
    until(lambda: session.renew(alice, short) == 66)
    del session.answers[marker:-1]
    session.expire(alice, short, 1000)
    session.expire(alice, short)
    session.describe(alice)


def test_tokens_live_as_kafkas_do(secured: Secured) -> None:
    sessions = [Session(secured, side) for side in secured.both.sides]
    for session in sessions:
        lives_of_tokens(session)
    theirs, ours = (session.answers for session in sessions)
    assert not list(differences(theirs, ours))


def put_acl(side: Side, operation: AclOperation, kind: ResourceType, name: str) -> None:
    creation = m.CreateAclsRequest.AclCreation(
        resource_type=kind, resource_name=name, principal="User:alice", host="*", operation=operation, permission_type=3
    )
    created = side.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=[creation]), 3)
    assert created.results[0].error_code == 0


def remove_acls(side: Side) -> None:
    everything = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter="User:alice",
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    side.ask(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=[everything]), 3)


def test_tokens_of_others_are_made_and_seen_with_kafkas_rights(secured: Secured) -> None:
    def story(session: Session) -> None:
        bobs: dict[str, Any] = {"owner_principal_type": "User", "owner_principal_name": "bob"}
        session.create("bob")
        session.create("alice", **bobs)
        session.describe("alice")
        put_acl(session.side, AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, session.ids[0])
        session.describe("alice", ["User:bob"])
        put_acl(session.side, AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob")
        hmac = session.create("alice", **bobs)
        session.create("alice", "Group:x", **bobs)
        session.create("alice", owner_principal_type="User", owner_principal_name="nobody")
        session.renew("alice", hmac)
        session.expire("alice", hmac)
        session.describe("alice", ["User:bob"])
        remove_acls(session.side)
        put_acl(session.side, AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob")
        session.describe("alice", ["User:bob"])
        session.renew("bob", hmac)
        remove_acls(session.side)

    sessions = [Session(secured, side) for side in secured.both.sides]
    for session in sessions:
        session.end_all()
        story(session)
        session.end_all()
    theirs, ours = (session.answers for session in sessions)
    assert not list(differences(theirs, ours))


# Logins by token


def log_in(port: int, id: str, hmac: bytes) -> tuple[Connection, m.SaslAuthenticateResponse]:
    connection = Connection("127.0.0.1", port)
    mechanism = ScramMechanism.SCRAM_SHA_256
    client = ScramClient(mechanism, id, Secret(base64.b64encode(hmac)), "clientnonce", by_token=True)
    connection.ask(m.SaslHandshakeResponse, m.SaslHandshakeRequest(mechanism=mechanism.mechanism_name), 1)
    challenge = b""
    while True:
        request = m.SaslAuthenticateRequest(auth_bytes=client.answer(challenge))
        answer = connection.ask(m.SaslAuthenticateResponse, request, 2)
        if answer.error_code or bytes(answer.auth_bytes).startswith(b"v="):
            return connection, answer
        challenge = bytes(answer.auth_bytes)


def test_a_token_login_is_its_owner_for_its_time_and_gets_no_other_token(secured: Secured) -> None:
    def story(side: Side) -> list[object]:
        session = Session(secured, side)
        hmac = session.create("alice", max_lifetime_ms=3_600_000)
        connection, answer = log_in(secured.users_ports[side.name], session.ids[-1], hmac)
        assert answer.error_code == 0
        for request in (
            m.CreateDelegationTokenRequest(),
            m.RenewDelegationTokenRequest(hmac=hmac),
            m.ExpireDelegationTokenRequest(hmac=hmac),
            m.DescribeDelegationTokenRequest(owners=None),
        ):
            session.ask(connection, request)
        other, wrong = log_in(secured.users_ports[side.name], session.ids[-1], hmac[:-1])
        for opened in (connection, other):
            opened.close()
        return [*session.answers, round(answer.session_lifetime_ms / 60_000), wrong]

    theirs, ours = secured.both.map(story)
    assert not list(differences(theirs, ours))


def test_a_token_of_either_is_a_login_to_the_other_in_one_cluster(secured: Secured) -> None:
    kafkas, ours = secured.users_ports["Kafka"], secured.shared
    for maker, other in ((kafkas, ours), (ours, kafkas)):
        alice = connect_as("alice", maker)
        request = m.CreateDelegationTokenRequest(max_lifetime_ms=-1)
        created = alice.ask(m.CreateDelegationTokenResponse, request, 3)
        assert created.error_code == 0
        until(lambda to=other, token=created: _logs_in(to, token.token_id, bytes(token.hmac)), seconds=60)  # type: ignore[misc]
        end = m.ExpireDelegationTokenRequest(hmac=bytes(created.hmac), expiry_time_period_ms=-1)
        assert alice.ask(m.ExpireDelegationTokenResponse, end, 2).error_code == 0
        until(lambda to=other, token=created: not _logs_in(to, token.token_id, bytes(token.hmac)), seconds=60)  # type: ignore[misc]
        alice.close()


def _logs_in(port: int, id: str, hmac: bytes) -> bool:
    connection, answer = log_in(port, id, hmac)
    connection.close()
    return answer.error_code == 0


# Kafka's tool

HMAC = r"[A-Za-z0-9+/]{86}=="


def test_kafkas_tool_manages_the_tokens_of_both(secured: Secured, tmp_path: Path) -> None:
    login = tmp_path / "alice.properties"
    module = f'{LOGIN}.plain.PlainLoginModule required username="alice" password="{PASSWORDS["alice"]}";'
    login.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module}\n")

    def session(side: Side) -> list[str]:
        def tokens(*arguments: str) -> str:
            users = f"127.0.0.1:{secured.users_ports[side.name]}"
            return tool("delegation-tokens", "--bootstrap-server", users, "--command-config", login, *arguments)

        created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
        (id,), (hmac,) = re.findall(r"tokenId : (\S+)", created), re.findall(HMAC, created)
        # The tool asks any broker of the cluster, and each learns of a token in its own time.
        for port in {secured.users_ports[side.name], secured.shared if side.name == "Kafka" else 0} - {0}:
            until(lambda to=port: _logs_in(to, id, base64.b64decode(hmac)), seconds=60)  # type: ignore[misc]
        return [
            without_chance(text)
            for text in (
                created,
                tokens("--renew", "--renew-time-period", "600000", "--hmac", hmac),
                tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac),
                tokens("--describe", "--owner-principal", "User:nobody"),
            )
        ]

    theirs, ours = secured.both.map(session)
    assert ours == theirs
    assert "Created delegation token with tokenId : <id>" in ours[0]


def without_chance(text: str) -> str:
    text = re.sub(HMAC, "<hmac>", text)
    text = re.sub(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{22}(?![A-Za-z0-9_-])", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "<date>", text)
    return re.sub(r"[ \t]+", " ", text)
