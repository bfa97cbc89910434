"""The authorizer of a broker: what its settings say, what it has read before it serves, and what is left open."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.broker import access_control
from leadline.broker.access_control import security_warnings
from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.security.acl_store import AclStore
from leadline.security.acls import AclBinding, AclOperation, ResourceType
from leadline.security.audit import AuditLog
from leadline.security.authorizer import Authorizer
from tests.support import in_memory
from tests.support.authorized_broker import ALICE, AUTHORIZER, AuthorizedBroker, rule
from tests.support.in_memory_broker import in_memory_broker
from tests.support.waiting import eventually

READS_T = rule(AclOperation.READ, ResourceType.TOPIC, "t")
SETTINGS = {name.replace(".", "_"): value for name, value in AUTHORIZER.items()}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def test_super_users_that_are_no_principals_stop_the_start_before_anything_is_opened(tmp_path: Path) -> None:
    properties = {"log.dirs": str(tmp_path / "data"), "authorizer.class.name": ACL_AUTHORIZER, "super.users": "alice"}
    with pytest.raises(InvalidSetting, match=r"super\.users=alice: expected a string in format"):
        Broker(broker_settings(properties), Ports())
    assert not (tmp_path / "data").exists()


def test_super_users_are_ignored_without_an_authorizer(tmp_path: Path) -> None:
    Broker(broker_settings({"log.dirs": str(tmp_path / "data"), "super.users": "alice"}), Ports())


def test_acls_are_in_force_when_the_first_connection_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with in_memory_broker(tmp_path, **SETTINGS) as root:
            acls = AuthorizedBroker(root).broker.services.acls
            assert acls is not None
            assert await acls.create([READS_T]) == [None]
        async with in_memory_broker(tmp_path, **SETTINGS) as root:
            permissions = AuthorizedBroker(root).authorizer.client(ALICE, "127.0.0.1")
            assert permissions.allows(AclOperation.READ, ResourceType.TOPIC, "t")

    order: list[str] = []
    start = AclStore.start

    async def started(store: AclStore) -> None:
        await start(store)
        order.append("ACLs")

    monkeypatch.setattr(AclStore, "start", started)
    monkeypatch.setattr("leadline.broker.acceptor.Acceptor.start", lambda acceptor, accepted: order.append("accepts"))
    asyncio.run(main())
    assert order == ["ACLs", "accepts"] * 2


def test_without_an_authorizer_the_tree_has_no_nodes_of_acls(tmp_path: Path) -> None:
    async def main() -> None:
        async with in_memory_broker(tmp_path) as client:
            assert client.broker.services.acls is None
            assert not await client.broker.tree.exists("/kafka-acl")

    asyncio.run(main())


def warnings(address: str = "127.0.0.1", *bindings: AclBinding, **properties: str) -> list[str]:
    settings = broker_settings({name.replace("_", "."): value for name, value in properties.items()})
    authorizer = Authorizer() if settings.broker.authorizer_class_name else None
    for pattern, entry in bindings:
        assert authorizer is not None
        authorizer.put(pattern, [entry])
    addresses = {listener.name: Endpoint(address, 9092) for listener in settings.listeners.bound}
    return list(security_warnings(settings, authorizer, addresses))


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("192.0.2.7", True),
        ("fe80::1%2", True),
    ],
)
def test_a_listener_beyond_loopback_without_an_authorizer_is_named(address: str, is_open: bool) -> None:
    lines = warnings(address)
    assert len(lines) == is_open
    if is_open:
        assert f"listener PLAINTEXT is open to other machines ({address})" in lines[0]
    assert warnings(address, authorizer_class_name=ACL_AUTHORIZER) == []


def test_everything_for_everybody_is_named() -> None:
    properties = {"authorizer_class_name": ACL_AUTHORIZER}
    (line,) = warnings(super_users="User:root;User:ANONYMOUS", **properties)
    assert line.startswith("super.users has User:ANONYMOUS, and listener PLAINTEXT requires no login")
    (line,) = warnings(**properties, **{"allow.everyone.if.no.acl.found": "true"})
    assert line == "allow.everyone.if.no.acl.found=true, and there are no ACLs: every client may do everything"
    assert warnings("127.0.0.1", READS_T, **properties, **{"allow.everyone.if.no.acl.found": "true"}) == []


PASSWORDS = {  # the protocol and the mechanisms of a listener, and whether it takes passwords that others can read
    ("SASL_PLAINTEXT", "SCRAM-SHA-512,PLAIN"): True,
    ("SASL_PLAINTEXT", "SCRAM-SHA-512"): False,
    ("SASL_SSL", "PLAIN"): False,
}


@pytest.mark.parametrize(("protocol", "mechanisms"), PASSWORDS)
def test_passwords_in_plain_text_beyond_loopback_are_named(protocol: str, mechanisms: str) -> None:
    properties = {
        "listeners": "PLAINTEXT://:9092,LOGIN://:9093",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,LOGIN:{protocol}",
        "listener.name.login.sasl.enabled.mechanisms": mechanisms,
        "authorizer.class.name": ACL_AUTHORIZER,
    }
    lines = warnings("0.0.0.0", **properties)
    assert len(lines) == PASSWORDS[protocol, mechanisms]
    assert all(line.startswith("listener LOGIN takes passwords without TLS from other machines") for line in lines)
    assert warnings("127.0.0.1", **properties) == []


@pytest.mark.parametrize(("client_auth", "is_open"), [("none", True), ("requested", True), ("required", False)])
def test_a_listener_that_does_not_require_certificates_admits_anonymous_super_users(
    client_auth: str, is_open: bool
) -> None:
    properties = {"listeners": "SSL://:9092", "security.inter.broker.protocol": "SSL", "ssl.client.auth": client_auth}
    lines = warnings(authorizer_class_name=ACL_AUTHORIZER, super_users="User:ANONYMOUS", **properties)
    assert len(lines) == is_open


def test_the_start_warns_of_anonymous_super_users(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with in_memory_broker(tmp_path, **SETTINGS | {"super_users": "User:ANONYMOUS"}):
            pass

    caplog.set_level(logging.WARNING)
    asyncio.run(main())
    (line,) = [record.getMessage() for record in caplog.records if "super.users" in record.getMessage()]
    assert line.endswith("anyone who can reach it may do everything")


def test_counts_of_denials_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[int] = []
    monkeypatch.setattr(access_control, "COUNTS_MS", 1)
    monkeypatch.setattr(AuditLog, "flush_counts", lambda audit, now_ms: checks.append(now_ms))

    async def main() -> None:
        async with in_memory_broker(tmp_path, **SETTINGS):
            await eventually(lambda: len(checks) >= 2)
        ended = len(checks)
        await asyncio.sleep(0)
        assert len(checks) == ended

    asyncio.run(main())
