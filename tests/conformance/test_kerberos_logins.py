"""GSSAPI with tickets of a real key distribution center: a cluster of one broker of Kafka's and one of ours.

Both have the same settings, and log in to each other by GSSAPI. Kafka's tools log in to ours. Both get the same tokens.
"""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.runtime.kerberos import GssContext, LibKerberos
from leadline.security.acls import ResourceType
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.frames import SIZE, parse_response, request_frame
from leadline.wire.primitives import BUFFERS
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import _free_port, broker, zookeeper
from tests.conformance.kafka.tools import TOOL_S, TOOLS, Done
from tests.support.broker import RunningBroker, until_killed
from tests.support.certificates import authority
from tests.support.gssapi_package import gssapi_package
from tests.support.kdc import REALM, Kdc, kdc
from tests.support.secured import acl
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

M = TypeVar("M", bound=Message)
KAFKAS, OURS = 0, 1
IDS = {"kafka": KAFKAS, "leadline": OURS}
MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
PASSWORD = "alice-secret"
ANSWER_S = 120
LIFETIME_MS = 10_000  # of a login; the brokers repeat theirs meanwhile
INVALID = "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
NO_LAYER = b"\1\0\0\0"


@dataclass
class Cluster:
    center: Kdc
    folder: Path
    key_tables: dict[str, Path]
    plain: dict[int, int]  # ports, by broker: without protection, by SASL_PLAINTEXT and by SASL_SSL
    kerberos: dict[int, int]
    secure: dict[int, int]
    ours: RunningBroker
    clients: LibKerberos = field(default_factory=LibKerberos)

    def context(self, client: str = "Alice") -> GssContext:
        """Of a client that speaks with a broker."""
        return self.clients.initiator(f"{client}@{REALM}", str(self.key_tables[client]), "kafka", "localhost")

    def ask(self, request: Message, kind: type[M], version: int, id: int = OURS) -> M:
        """As ANONYMOUS, who is a super user."""
        with Peer(self.plain[id]) as peer:
            return peer.ask(request, kind, version)

    def properties(self, name: str, jaas: str, *, tls: bool = False) -> Path:
        """Of a client of Java's."""
        lines = [
            f"security.protocol={'SASL_SSL' if tls else 'SASL_PLAINTEXT'}",
            "sasl.mechanism=GSSAPI",
            "sasl.kerberos.service.name=kafka",
            f"sasl.jaas.config={MODULE} {jaas};",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.folder / 'ca.pem'}",
        ]
        path = self.folder / f"{name}.properties"
        path.write_text("\n".join(lines))
        return path

    def tool(self, name: str, *arguments: object, stdin: str = "") -> Done:
        """One of Kafka's tools, in a JVM that reads our krb5.conf."""
        command = jars.command(TOOLS[name], *map(str, arguments), options=(self.center.java_option,))
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_S)
        return Done(done.returncode, done.stdout, done.stderr)


class Peer:
    """A connection to a broker."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        self._reader = self._socket.makefile("rb")

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._socket.close()

    def send(self, token: bytes) -> None:
        self._socket.sendall(SIZE.pack(len(token)) + token)

    def receive(self) -> bytes | None:
        """A frame; None if the connection is closed."""
        try:
            size = self._reader.read(SIZE.size)
            return self._reader.read(SIZE.unpack(size)[0]) if size else None
        except ConnectionResetError:
            return None

    def maybe_ask(self, request: Message, kind: type[M], version: int) -> M | None:
        pieces = request_frame(request, version, 7, "test")
        self._socket.sendall(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS)))
        frame = self.receive()
        return None if frame is None else parse_response(kind, frame, version)[1]

    def ask(self, request: Message, kind: type[M], version: int) -> M:
        response = self.maybe_ask(request, kind, version)
        assert response is not None, f"closed after {type(request).__name__}"
        return response

    def handshake(self, version: int = 1) -> m.SaslHandshakeResponse:
        return self.ask(m.SaslHandshakeRequest(mechanism="GSSAPI"), m.SaslHandshakeResponse, version)

    def token(self, token: bytes) -> m.SaslAuthenticateResponse | None:
        return self.maybe_ask(m.SaslAuthenticateRequest(auth_bytes=token), m.SaslAuthenticateResponse, 2)

    def answer(self, token: bytes) -> bytes:
        response = self.token(token)
        assert response is not None
        assert response.error_code == 0, response.error_message
        return bytes(response.auth_bytes)

    def offer(self, context: GssContext) -> bytes:
        """Comes to a context; what the broker then wraps."""
        context.step(self.answer(context.step(b"")))
        return context.unwrap(self.answer(b""))

    def log_in(self, context: GssContext, authorization_id: bytes = b"") -> m.SaslAuthenticateResponse:
        self.handshake()
        self.offer(context)
        response = self.token(context.wrap(NO_LAYER + authorization_id))
        assert response is not None
        return response

    def topics(self) -> set[str]:
        return {str(topic.name) for topic in self.ask(m.MetadataRequest(topics=None), m.MetadataResponse, 9).topics}


def server_line(principal: str, key_table: Path) -> str:
    return f'{MODULE} useKeyTab=true storeKey=true keyTab="{key_table}" principal="{principal}@{REALM}";'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("kerberos")
    package = gssapi_package()
    with ExitStack() as stack:
        center = stack.enter_context(kdc(folder / "kdc"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name, value in center.environment.items():
            patch.setenv(name, value)
        patch.syspath_prepend(str(package))
        key_tables = {name: center.add(name) for name in ("kafka/localhost", "bob", "carol", "one/two/three")}
        key_tables["Alice"] = center.add("Alice", PASSWORD)
        key_tables["nobody"] = center.add("nobody")
        center.remove("nobody")
        (folder / "ca.pem").write_text(authority().pem)
        authority().issue("broker").write(folder / "broker.pem")
        line = server_line("kafka/localhost", key_tables["kafka/localhost"])
        (folder / "jaas.conf").write_text(f"KafkaServer {{ {line} }};\n")
        options = (center.java_option, f"-Djava.security.auth.login.config={folder / 'jaas.conf'}")
        plain, kerberos, secure = ({id: _free_port() for id in IDS.values()} for _ in range(3))
        zoo = stack.enter_context(zookeeper(folder / "zookeeper"))

        def settings(id: int, port: object) -> dict[str, object]:
            return {
                "broker.id": id,
                "zookeeper.connect": zoo.connect,
                "listeners": f"PLAINTEXT://127.0.0.1:{port},KERBEROS://localhost:{kerberos[id]},"
                f"SECURE://localhost:{secure[id]}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT,SECURE:SASL_SSL",
                "inter.broker.listener.name": "KERBEROS",
                "sasl.kerberos.service.name": "kafka",  # GSSAPI is the default for clients and between brokers
                "sasl.kerberos.principal.to.local.rules": f"RULE:[1:$1@$0](.*@{REALM})s/@.*///L,DEFAULT",
                "listener.name.kerberos.gssapi.sasl.jaas.config": line,  # that of SECURE is in the JAAS file
                "connections.max.reauth.ms": LIFETIME_MS,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": folder / "broker.pem",
                "authorizer.class.name": ACL_AUTHORIZER,
                "super.users": "User:kafka;User:ANONYMOUS",
                "offsets.topic.num.partitions": 1,
                "offsets.topic.replication.factor": 2,
                "group.initial.rebalance.delay.ms": 0,
            }

        # Without it the code that recognises a replay may not look at Java's exceptions, and every failure is final.
        jvm = (*options, "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED")
        stack.enter_context(broker(folder / "kafka", zoo, jvm, **settings(KAFKAS, "$port"), port=plain[KAFKAS]))
        path = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
        environment = {"KAFKA_OPTS": " ".join(options), "PYTHONPATH": path}
        own = {name: str(value) for name, value in settings(OURS, plain[OURS]).items()}
        ours = stack.enter_context(until_killed(RunningBroker(folder / "ours", own, environment=environment)))
        cluster = Cluster(center, folder, key_tables, plain, kerberos, secure, ours)
        until(lambda: len(cluster.ask(m.MetadataRequest(topics=[]), m.MetadataResponse, 9).brokers) == 2, "two brokers")
        rights = [acl(ResourceType.TOPIC, "replicated", "alice"), acl(ResourceType.GROUP, "*", "alice")]
        response = cluster.ask(m.CreateAclsRequest(creations=rights), m.CreateAclsResponse, 3)
        assert [result.error_code for result in response.results] == [0, 0]
        create_replicated(cluster)
        yield cluster


def create_replicated(cluster: Cluster) -> None:
    """A topic with a partition for each broker to lead, and a replica on the other."""
    assignments = [
        m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=id, broker_ids=[id, 1 - id]) for id in (0, 1)
    ]
    topic = m.CreateTopicsRequest.CreatableTopic(
        name="replicated", num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    request = m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    responses = [cluster.ask(request, m.CreateTopicsResponse, 5, id) for id in (0, 1)]  # one is the controller
    assert 0 in [response.topics[0].error_code for response in responses]
    until(lambda: in_sync(cluster) == [{0, 1}, {0, 1}], lambda: f"both in sync:\n{cluster.ours.output()}")


def in_sync(cluster: Cluster) -> list[set[int]]:
    topic = m.MetadataRequest.MetadataRequestTopic(name="replicated")
    (described,) = cluster.ask(m.MetadataRequest(topics=[topic]), m.MetadataResponse, 9).topics
    return [set(partition.isr_nodes) for partition in described.partitions]


# Kafka's tools


def test_kafkas_tools_log_in_with_a_key_table_and_with_a_ticket(cluster: Cluster) -> None:
    """What they write is replicated both ways, between brokers that log in to each other by GSSAPI."""
    key = f'useKeyTab=true storeKey=true keyTab="{cluster.key_tables["Alice"]}" principal="Alice@{REALM}"'
    values = [f"record {number}" for number in range(50)]
    lines = "".join(f"{number}:{value}\n" for number, value in enumerate(values))
    done = cluster.tool(
        "console-producer",
        *("--bootstrap-server", f"localhost:{cluster.kerberos[OURS]}", "--topic", "replicated"),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        *("--producer.config", cluster.properties("key", key)),
        stdin=lines,
    )
    assert done.code == 0, done.err
    assert "ERROR" not in done.out + done.err
    ticket = f'useTicketCache=true ticketCache="{cluster.center.ticket("Alice", PASSWORD)}" principal="Alice@{REALM}"'
    done = cluster.tool(
        "console-consumer",
        *("--bootstrap-server", f"localhost:{cluster.secure[OURS]}", "--topic", "replicated", "--group", "g"),
        *("--from-beginning", "--max-messages", "50", "--timeout-ms", "60000"),
        *("--consumer.config", cluster.properties("ticket", ticket, tls=True)),
    )
    assert sorted(done.out.splitlines()) == sorted(values), done.err
    assert in_sync(cluster) == [{0, 1}, {0, 1}]
    for number in (0, 1):
        until(partial(is_same, cluster.folder, f"replicated-{number}"), "the same bytes on both")


def is_same(folder: Path, partition: str) -> bool:
    contents = [
        b"".join(path.read_bytes() for path in sorted((folder / broker / partition).glob("*.log")))
        for broker in ("kafka/data", "ours")
    ]
    return contents[0] == contents[1] != b""


@pytest.mark.parametrize(("principal", "key_table"), [("Alice", "bob"), ("bob", "nobody"), ("nobody", "nobody")])
def test_kafkas_tools_get_no_ticket_with_the_wrong_key_or_for_an_unknown_principal(
    cluster: Cluster, principal: str, key_table: str
) -> None:
    path = cluster.key_tables[key_table]
    jaas = f'useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}@{REALM}"'
    arguments = ("--bootstrap-server", f"localhost:{cluster.kerberos[OURS]}", "--list", "--command-config")
    done = cluster.tool("topics", *arguments, cluster.properties("wrong", jaas))
    assert done.code != 0
    assert "LoginException" in done.out + done.err


# The same tokens to both


@pytest.fixture(params=IDS)
def port(request: pytest.FixtureRequest, cluster: Cluster) -> int:
    return cluster.kerberos[IDS[request.param]]


def test_a_login_offers_no_layer_and_the_user_is_the_short_name(cluster: Cluster, port: int) -> None:
    with Peer(port) as peer:
        assert peer.handshake().mechanisms == ["GSSAPI"]
        context = cluster.context()
        offer = peer.offer(context)
        assert (len(offer), offer[0]) == (4, 1)
        assert offer[1:] == (b"\0\0\0" if port == cluster.kerberos[OURS] else b"\1\0\0")  # Java has a size for no layer
        response = peer.token(context.wrap(NO_LAYER))
        assert response is not None
        assert (response.error_code, response.auth_bytes, response.session_lifetime_ms) == (0, b"", LIFETIME_MS)
        assert peer.topics() == {"replicated"}  # to which User:alice has a right


def test_who_has_no_right_sees_nothing_whatever_authorization_id_it_claims(cluster: Cluster, port: int) -> None:
    with Peer(port) as peer:
        assert peer.log_in(cluster.context("bob"), f"Alice@{REALM}".encode()).error_code == 0
        assert peer.topics() == set()


def test_a_principal_that_is_nobodys_is_served_nothing(cluster: Cluster, port: int) -> None:
    """Kafka answers its login, and closes the connection at the first request. Ours refuses the login."""
    with Peer(port) as peer:
        response = peer.log_in(cluster.context("one/two/three"))
        if port == cluster.kerberos[OURS]:
            assert (response.error_code, response.error_message) == (58, INVALID)
        assert peer.maybe_ask(m.MetadataRequest(topics=None), m.MetadataResponse, 9) is None


@pytest.mark.parametrize("version", [0, None])
def test_tokens_travel_bare_after_an_old_handshake_or_none(cluster: Cluster, port: int, version: int | None) -> None:
    context = cluster.context()
    with Peer(port) as peer:
        if version is not None:
            peer.handshake(version)
        peer.send(context.step(b""))
        context.step(peer.receive() or b"")
        peer.send(b"")
        assert context.unwrap(peer.receive() or b"")[0] == 1
        peer.send(context.wrap(NO_LAYER))
        assert peer.topics() == {"replicated"}


def changed(context: GssContext) -> bytes:
    token = context.step(b"")
    return token[:-1] + bytes([token[-1] ^ 1])


@pytest.mark.parametrize(
    "first_token",
    [lambda context: b"", lambda context: b"nonsense", changed],
    ids=["empty", "nonsense", "changed"],
)
def test_a_token_that_is_not_valid_is_refused_in_kafkas_words(
    cluster: Cluster, port: int, first_token: Callable[[GssContext], bytes]
) -> None:
    with Peer(port) as peer:
        peer.handshake()
        response = peer.token(first_token(cluster.context()))
        assert response is not None
        assert (response.error_code, response.error_message) == (58, INVALID)
        assert peer.receive() is None


def test_a_replay_is_closed_without_a_word(cluster: Cluster, port: int) -> None:
    token = cluster.context().step(b"")
    with Peer(port) as peer, Peer(port) as other:
        peer.handshake()
        peer.answer(token)
        other.handshake()
        assert other.token(token) is None


@pytest.mark.parametrize("choice", [b"\2\0\0\0", b"\4\0\xff\xff"])
def test_a_layer_that_is_not_there_is_refused(cluster: Cluster, port: int, choice: bytes) -> None:
    context = cluster.context()
    with Peer(port) as peer:
        peer.handshake()
        peer.offer(context)
        response = peer.token(context.wrap(choice))
        assert response is not None
        assert (response.error_code, response.error_message) == (58, INVALID)


def test_a_client_logs_in_again_as_who_it_is_and_as_nobody_else(cluster: Cluster, port: int) -> None:
    with Peer(port) as peer:
        peer.log_in(cluster.context())
        assert peer.log_in(cluster.context()).error_code == 0
        assert peer.topics() == {"replicated"}
    with Peer(port) as peer:
        peer.log_in(cluster.context())
        response = peer.log_in(cluster.context("bob"))
        assert response.error_code == 58
        assert response.error_message == "Cannot change principals during re-authentication from User.alice: User.bob"


def test_a_key_that_changes_is_taken_from_the_key_table_without_a_restart(cluster: Cluster) -> None:
    """The last test: the brokers log in to each other with this key."""
    cluster.center.change_key("kafka/localhost")
    for port in cluster.kerberos.values():
        with Peer(port) as peer:
            peer.handshake()
            response = peer.token(cluster.context("carol").step(b""))  # she has no ticket from before
            assert response is not None
            assert (response.error_code, response.error_message) == (58, INVALID)
        with Peer(port) as peer:
            assert peer.log_in(cluster.context()).error_code == 0
    cluster.center.add_key("kafka/localhost")
    for port in cluster.kerberos.values():
        for client in ("carol", "Alice"):
            with Peer(port) as peer:
                assert peer.log_in(cluster.context(client)).error_code == 0
    assert in_sync(cluster) == [{0, 1}, {0, 1}]
    assert "the login over listener" not in cluster.ours.output()  # it would say which of its own failed
