"""Who the owner of a certificate is: both brokers take the same name from it, by the same ssl.principal.mapping.rules.

What a client may do shows its principal: an ACL names the principal that the rules should make of the certificate.
"""

import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509

from leadline.security.acls import AclOperation, ResourceType
from leadline.wire import messages as m
from leadline.wire.classes import Message
from tests.conformance.authorized_brokers import ANONYMOUS, AUTHORIZED, UserSide, _both
from tests.conformance.both import Both, Connection
from tests.conformance.kafka.broker import _free_port, broker, zookeeper
from tests.support.broker import leadline
from tests.support.certificates import issued, new_authority
from tests.support.logs import batch
from tests.support.secured import acl

pytestmark = pytest.mark.conformance

AUTHORITY = new_authority()
TOPIC = "orders"
RULES = r"RULE:^CN=([^,]+),OU=Service,.*$/$1/L,RULE:^CN=([^,]+),OU=(Loud),.*$/$1@$2/U,DEFAULT"
PRINCIPALS = {
    "CN=Alice,OU=Service,O=Acme,C=DE": "alice",
    "CN=bob,OU=Loud,O=Acme,C=DE": "BOB@LOUD",
    "CN=carol,OU=service,O=Acme,C=DE": "CN=carol,OU=service,O=Acme,C=DE",
    r"CN=dave\, the second,O=Acme": r"CN=dave\, the second,O=Acme",
    "CN=J\u00fcrgen,O=Acme": "CN=J\u00fcrgen,O=Acme",
}


class CertifiedBrokers(NamedTuple):
    both: Both  # as the administrator sees them, without a certificate
    ports: tuple[int, int]  # of the SSL listeners

    def users(self, context: ssl.SSLContext) -> Both:
        """As the owner of a certificate sees them."""
        connect: Callable[[int], Connection] = partial(connect_with, context)
        kafka, ours = (UserSide(side, port, connect) for side, port in zip(self.both.sides, self.ports, strict=True))
        return Both(kafka, ours)


def connect_with(context: ssl.SSLContext, port: int) -> Connection:
    connection = Connection("127.0.0.1", port)
    connection.socket = context.wrap_socket(connection.socket, server_hostname="localhost")
    connection.reader = connection.socket.makefile("rb")
    return connection


def context_of(subject: str, folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=AUTHORITY.certificate_pem)
    identity = issued(AUTHORITY, x509.Name.from_rfc4514_string(subject))
    context.load_cert_chain(identity.write(folder / "client.pem"))
    return context


def settings(folder: Path, admin_port: str, port: int) -> Mapping[str, object]:
    """The same for both."""
    (folder / "ca.pem").write_text(AUTHORITY.certificate_pem)
    return AUTHORIZED | {
        "listeners": f"PLAINTEXT://127.0.0.1:{admin_port},SSL://127.0.0.1:{port}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(issued(AUTHORITY).write(folder / "broker.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": RULES,
        "super.users": ANONYMOUS,
    }


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CertifiedBrokers]:
    path, ports = tmp_path_factory.mktemp("certified"), (_free_port(), _free_port())
    with (
        zookeeper(path / "zookeeper") as coordinator,
        broker(path / "kafka", coordinator, **settings(path, "$port", ports[0])) as kafka,
        leadline(path / "leadline", **settings(path, "0", ports[1])) as us,
    ):
        both = _both(kafka, us)
        both.create(TOPIC)
        yield CertifiedBrokers(both, ports)
        for side in both.sides:
            side.connection.close()


def requests() -> dict[str, tuple[type[Message], Message, int]]:
    part = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(1)))
    topics = [m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])]
    described = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=TOPIC)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    return {
        "describe": (m.MetadataResponse, described, 10),
        "produce": (m.ProduceResponse, m.ProduceRequest(acks=1, timeout_ms=60_000, topic_data=topics), 9),
    }


def put(both: Both, principal: str) -> None:
    """The right to write, and no other, for this principal alone."""
    allowed = acl(ResourceType.TOPIC, TOPIC, principal)
    allowed.operation = AclOperation.WRITE
    everything = m.DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    for side in both.sides:
        side.ask(m.DeleteAclsResponse, m.DeleteAclsRequest(filters=[everything]), 3)
        created = side.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=[allowed]), 3)
        assert [result.error_code for result in created.results] == [0]


@pytest.mark.parametrize("request_name", requests())
@pytest.mark.parametrize("subject", PRINCIPALS)
def test_both_brokers_make_the_same_user_of_a_certificate(
    certified: CertifiedBrokers, subject: str, request_name: str, tmp_path: Path
) -> None:
    users, (kind, request, version) = certified.users(context_of(subject, tmp_path)), requests()[request_name]
    shown = []
    for principal in (PRINCIPALS[subject], "somebody else"):
        put(certified.both, principal)
        shown.append(users.compare([side.ask(kind, request, version) for side in users.sides], version))
    for side in users.sides:
        side.connection.close()
    assert shown[0] != shown[1]
    assert "error_code=29" not in repr(shown[0])
    assert "error_code=29" in repr(shown[1])
