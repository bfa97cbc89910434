"""Both brokers with an authorizer, an administrator who may do everything, and a user who has what a test gives him.

There are two ways to tell the two from each other:

    by address    Nobody logs in: everybody is User:ANONYMOUS. From 127.0.0.1, where brokers and tests come from,
                  everything is allowed; the user comes from 127.0.0.3. Both brokers keep their ACLs in the same
                  ZooKeeper, each under a root of its own.
    by login      The user is User:alice, by SASL/PLAIN. User:ANONYMOUS is a super user. Leadline is a single node, and
                  keeps its ACLs in its own tree.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.security import acl_nodes
from leadline.security.acls import (
    CLUSTER_NAME,
    RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from leadline.wire.frames import parse_response
from tests.conformance.both import SETTINGS, Both, Closed, Connection, Side
from tests.conformance.kafka.broker import Broker, _free_port, broker, zookeeper
from tests.support.authorization_examples import (
    GROUP,
    TOPIC,
    TXN_ID,
    AuthorizationRow,
    Setup,
    add_partitions,
    codes_in,
    commit,
    find,
)
from tests.support.broker import RunningBroker, leadline
from tests.support.waiting import until

M = TypeVar("M", bound=Message)
P = TypeVar("P", bound=Part)

ANONYMOUS, ALICE = "User:ANONYMOUS", "User:alice"
ADMIN_HOST, USER_HOST = "127.0.0.1", "127.0.0.3"
PASSWORD = "alice-secret"
PREFIX = "listener.name.sasl_plaintext"
AUTHORIZED = {
    **SETTINGS,
    "authorizer.class.name": ACL_AUTHORIZER,
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


class UserSide(Side):
    """A broker as the user sees it: through a listener of his own, perhaps. Names of topics are the administrator's."""

    def __init__(self, admin: Side, port: int, connect: Callable[[int], Connection]) -> None:
        self.name, self.host, self.port, self.dirs = admin.name, admin.host, port, admin.dirs
        self.admin, self.cluster_id = admin, admin.cluster_id
        self._connect = partial(connect, port)
        self.connection = self._connect()

    def topic_of(self, topic_id: object) -> str | None:
        return self.admin.topic_of(topic_id)  # type: ignore[arg-type]

    def ask_or_closed(self, kind: type[M], request: Message, version: int) -> M | None:
        self.connection.send(request, version)
        frame = self.connection.receive()
        if frame is Closed:
            self.connection.close()
            self.connection = self._connect()
            return None
        return parse_response(kind, frame, version)[1]


class Authorized:
    """Two brokers, and the user's connection to each."""

    def __init__(self, both: Both, users: tuple[UserSide, UserSide], principal: str, host: str) -> None:
        self.both, self.users, self._principal, self._host = both, users, principal, host
        self._compare = Both(*users)
        self.has_peers = host != "*"  # Leadline is one of a cluster
        self.logs: list[Path] = []
        self.setups: dict[str, Setup] = {}
        both.create(TOPIC)
        for side in both.sides:
            self.setups[side.name] = set_up(side)

    def put(self, *bindings: AclBinding) -> None:
        """All that the user has, in place of what he had."""
        creations = [
            m.CreateAclsRequest.AclCreation(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=self._principal,
                host=self._host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
        everything = m.DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=self._principal,
            host_filter=self._host,
            operation=1,
            permission_type=1,
        )
        for side in self.both.sides:
            side.ask(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=[everything]), 3)
            created = side.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=creations), 3)
            assert all(result.error_code == 0 for result in created.results), created

    def answers(self, kind: type[M], request: Message | Callable[[Side], Message], version: int) -> list[M]:
        answers = []
        for side in self.users:
            answer = side.ask_or_closed(kind, request(side) if callable(request) else request, version)
            assert answer is not None, f"{side} closed the connection: {request} v{version}"
            answers.append(answer)
        return answers

    def ask_and_compare(self, kind: type[M], request: Message | Callable[[Side], Message], version: int) -> M:
        """As the user."""
        return self._compare.compare(list(map(_leveled, self.answers(kind, request, version))), version)

    def answers_to_row(self, row: AuthorizationRow, version: int) -> list[Message]:
        kind: type[Message] = getattr(m, f"{row.request_name}Response")
        return self.answers(kind, lambda side: row.example.request(self.setups[side.name]), version)

    def compare_row(self, row: AuthorizationRow, version: int) -> Message:
        return self._compare.compare(list(map(_leveled, self.answers_to_row(row, version))), version)

    def close(self) -> None:
        for side in (*self.both.sides, *self.users):
            side.connection.close()


def _leveled(part: P) -> P:
    """Without what a single node has of its own, and times of the set-up: they are not about rights."""
    for field in part.SPEC.fields:
        value = getattr(part, field.name)
        if field.name in ("producer_id", "transaction_start_time_ms") and value > 0:
            setattr(part, field.name, 0)
        if field.name == "configs" and isinstance(value, list):
            setattr(part, field.name, [entry for entry in value if entry.name != "zookeeper.connect"])
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Part):
                _leveled(item)
    return part


def set_up(side: Side) -> Setup:
    """A group with a committed offset, and a transaction on the topic."""
    for request_of_key in (find(0, GROUP), find(1, TXN_ID)):
        until(partial(_has_coordinator, side, request_of_key))
    request = m.InitProducerIdRequest(transactional_id=TXN_ID, transaction_timeout_ms=600_000)
    producers: list[m.InitProducerIdResponse] = []

    def begun() -> bool:
        producers.append(side.ask(m.InitProducerIdResponse, request, 4))
        return producers[-1].error_code == 0

    until(begun)
    add = add_partitions(3)
    assert isinstance(add, m.AddPartitionsToTxnRequest)
    add.v3_and_below_producer_id = producers[-1].producer_id
    add.v3_and_below_producer_epoch = producers[-1].producer_epoch
    until(lambda: codes_in(side.ask(m.AddPartitionsToTxnResponse, add, 3)) == {0})
    until(lambda: codes_in(side.ask(m.OffsetCommitResponse, commit(m.OffsetCommitRequest), 8)) == {0})
    return Setup(side.id_of(TOPIC), 1)


def _has_coordinator(side: Side, request: Message) -> bool:
    return codes_in(side.ask(m.FindCoordinatorResponse, request, 4)) == {0}


async def allow_everything_here(connect: str, root: str) -> None:
    """As a tool would have done it before the first start."""
    tree = await ZooKeeperTree.open(
        f"{connect}{root}", session_timeout_ms=10_000, connection_timeout_ms=60_000, max_in_flight=10
    )
    try:
        entry = AccessControlEntry(ANONYMOUS, ADMIN_HOST, AclOperation.ALL, AclPermission.ALLOW)
        for kind in RESOURCE_TYPES:
            pattern = ResourcePattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*")
            await tree.create(acl_nodes.acl_path(pattern), acl_nodes.encode_acls([entry]), make_parents=True)
    finally:
        await tree.close()


@contextmanager
def by_address(path: Path) -> Iterator[Authorized]:
    def connect(port: int) -> Connection:
        return Connection("127.0.0.1", port, source=USER_HOST)

    with zookeeper(path / "zookeeper") as coordinator:
        for root in ("/kafka", "/leadline"):
            asyncio.run(allow_everything_here(coordinator.connect, root))
        ours = {"zookeeper.connect": f"{coordinator.connect}/leadline", "listeners": "PLAINTEXT://127.0.0.1:0"}
        with (
            broker(path / "kafka", f"{coordinator.connect}/kafka", **AUTHORIZED) as kafka,
            leadline(path / "leadline", **{**AUTHORIZED, **ours}) as us,
        ):
            both = _both(kafka, us)
            users = UserSide(both.kafka, kafka.port, connect), UserSide(both.ours, us.port, connect)
            yield from _until_closed(Authorized(both, users, ANONYMOUS, USER_HOST), kafka, us)


@contextmanager
def by_login(path: Path) -> Iterator[Authorized]:
    def connect(port: int) -> Connection:
        connection = Connection("127.0.0.1", port)
        handshake = connection.ask(m.SaslHandshakeResponse, m.SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert handshake.error_code == 0
        request = m.SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode())
        assert connection.ask(m.SaslAuthenticateResponse, request, 1).error_code == 0
        return connection

    ports = _free_port(), _free_port()
    with (
        zookeeper(path / "zookeeper") as coordinator,
        broker(path / "kafka", coordinator, **{**AUTHORIZED, **_logins("$port", ports[0])}) as kafka,
        leadline(path / "leadline", **{**AUTHORIZED, **_logins("0", ports[1])}) as us,
    ):
        both = _both(kafka, us)
        users = UserSide(both.kafka, ports[0], connect), UserSide(both.ours, ports[1], connect)
        yield from _until_closed(Authorized(both, users, ALICE, "*"), kafka, us)


def _logins(admin_port: str, users_port: int) -> Mapping[str, object]:
    """The same for both."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{admin_port},SASL_PLAINTEXT://127.0.0.1:{users_port}",
        "sasl.enabled.mechanisms": "PLAIN",
        f"{PREFIX}.plain.sasl.jaas.config": f'{module} required user_alice="{PASSWORD}";',
        "super.users": ANONYMOUS,
    }


def _both(kafka: Broker, us: RunningBroker) -> Both:
    return Both(
        Side("Kafka", "127.0.0.1", kafka.port, [str(kafka.log_dir)]),
        Side("Leadline", "127.0.0.1", us.port, [str(us.directory)]),
    )


def _until_closed(authorized: Authorized, kafka: Broker, us: RunningBroker) -> Iterator[Authorized]:
    authorized.logs = [kafka.log, us.log]
    yield authorized
    authorized.close()
