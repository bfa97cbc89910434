"""A broker with TLS, logins, an authorizer and tokens, over the loopback: in a thread, so that a test may block.

`User:ANONYMOUS`, who comes over PLAINTEXT, may do everything. `alice` logs in by PLAIN or SCRAM, and has no rights.
"""

import asyncio
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.config.broker import broker_settings
from leadline.runtime.event_loop import EventLoop
from leadline.security.acls import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from leadline.security.plain import PLAIN
from leadline.security.scram import ScramClient
from leadline.security.scram_credentials import ScramMechanism, salted_password
from leadline.security.secret import Secret
from leadline.wire import messages as m
from tests.conformance.both import Connection
from tests.support.certificates import authority, client_context

PASSWORD, SCRAM_PASSWORD, SALT = "correct-horse-battery", "staple-of-scram-users", b"salt-of-the-earth"
TOKEN_KEY, ENCODER_SECRET = "key-of-all-tokens", "secret-of-the-encoder"
ITERATIONS = 4096
SCRAM = ScramMechanism.SCRAM_SHA_256
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL", "SSL")
START_S = 60


def settings(folder: Path) -> dict[str, str]:
    line = f'{MODULE} required user_alice="{PASSWORD}" user_bob="{PASSWORD}-of-bob";'
    (folder / "ca.pem").write_text(authority().pem)
    return {
        "log.dirs": str(folder / "data"),
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM.mechanism_name}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": line,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": line,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority().issue("localhost").write(folder / "server.pem")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": TOKEN_KEY,
        "password.encoder.secret": ENCODER_SECRET,
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "auto.create.topics.enable": "false",
    }


class SecuredBroker:
    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker, self._folder = broker, folder

    def connect(self, listener: str = "PLAINTEXT") -> Connection:
        connection = Connection("127.0.0.1", self.broker.addresses[listener].port)
        if listener.endswith("SSL"):
            context = client_context(self._folder)
            connection.socket = context.wrap_socket(connection.socket, server_hostname="localhost")
            connection.reader = connection.socket.makefile("rb")
        return connection

    def client_properties(self, user: str, password: str) -> dict[str, str]:
        """Those of Kafka's clients, for a login by SCRAM over TLS."""
        return {
            "bootstrap.servers": f"localhost:{self.broker.addresses['SASL_SSL'].port}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._folder / "ca.pem"),
            "sasl.mechanism": SCRAM.mechanism_name,
            "sasl.jaas.config": f'{SCRAM_MODULE} required username="{user}" password="{password}";',
        }

    def write_client_properties(self, user: str, password: str) -> Path:
        file = self._folder / f"{user}.properties"
        properties = self.client_properties(user, password)
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return file

    def allow(self, rights: Iterable[tuple[str, str, str]]) -> None:
        """Users, resources as `topic:t` or `cluster`, and operations as `read,write`."""
        creations = [
            m.CreateAclsRequest.AclCreation(
                resource_type=ResourceType[kind.upper()],
                resource_name=name or CLUSTER_NAME,
                resource_pattern_type=PatternType.LITERAL,
                principal=f"User:{user}",
                host="*",
                operation=AclOperation[operation.upper()],
                permission_type=AclPermission.ALLOW,
            )
            for user, resource, operations in rights
            for kind, _, name in [resource.partition(":")]
            for operation in operations.split(",")
        ]
        with closing(self.connect()) as admin:
            answer = admin.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=creations), 3)
        assert {result.error_code for result in answer.results} == {0}, answer

    def add_scram_user(
        self, name: str = "alice", password: str = SCRAM_PASSWORD, mechanism: ScramMechanism = SCRAM
    ) -> None:
        salted = salted_password(mechanism, Secret.of(password), SALT, ITERATIONS)
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=name, mechanism=mechanism.value, iterations=ITERATIONS, salt=SALT, salted_password=salted.reveal()
        )
        with closing(self.connect()) as admin:
            request = m.AlterUserScramCredentialsRequest(upsertions=[upsertion])
            response = admin.ask(m.AlterUserScramCredentialsResponse, request, 0)
        assert [result.error_code for result in response.results] == [0], response


@contextmanager
def secured_broker(folder: Path, changes: Mapping[str, str] | None = None) -> Iterator[SecuredBroker]:
    started, stop, brokers, failures = threading.Event(), threading.Event(), list[Broker](), list[BaseException]()

    async def main() -> None:
        broker = Broker(broker_settings(settings(folder) | dict(changes or {})), Ports())
        await broker.start()
        brokers.append(broker)
        started.set()
        await asyncio.to_thread(stop.wait)
        await broker.stop()

    def serve() -> None:
        try:
            with asyncio.Runner(loop_factory=EventLoop) as runner:
                runner.run(main())
        except BaseException as error:  # noqa: BLE001  shown by the test
            failures.append(error)
            started.set()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert started.wait(START_S)
        if failures:
            raise failures[0]
        yield SecuredBroker(brokers[0], folder)
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def handshake(connection: Connection, mechanism: str) -> None:
    response = connection.ask(m.SaslHandshakeResponse, m.SaslHandshakeRequest(mechanism=mechanism), 1)
    assert response.error_code == 0, response


def authenticate(connection: Connection, message: bytes) -> m.SaslAuthenticateResponse:
    return connection.ask(m.SaslAuthenticateResponse, m.SaslAuthenticateRequest(auth_bytes=message), 2)


def log_in_plain(
    connection: Connection, name: str = "alice", password: str = PASSWORD, authzid: str = ""
) -> m.SaslAuthenticateResponse:
    handshake(connection, PLAIN)
    return authenticate(connection, f"{authzid}\0{name}\0{password}".encode())


def log_in_scram(
    connection: Connection,
    name: str = "alice",
    password: str = SCRAM_PASSWORD,
    mechanism: ScramMechanism = SCRAM,
    *,
    by_token: bool = False,
) -> m.SaslAuthenticateResponse:
    handshake(connection, mechanism.mechanism_name)
    client = ScramClient(mechanism, name, Secret.of(password), "nonce-of-the-client", by_token)
    first = authenticate(connection, client.answer(b""))
    return authenticate(connection, client.answer(first.auth_bytes))
