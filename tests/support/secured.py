"""A cluster whose brokers and clients speak SASL_SSL: certificates, users and settings for Kafka's brokers and ours.

Users log in by SCRAM. Their credentials are in ZooKeeper before the first broker starts, as brokers need them, too.
Each broker also has a PLAINTEXT listener, where everybody is ANONYMOUS and may do nothing.
"""

import asyncio
import ssl
import time
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient

from leadline.cluster.broker_client import TcpBrokerClient
from leadline.cluster.broker_login import PeerSecurity
from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.runtime.network import TcpNetwork
from leadline.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator
from leadline.security.scram import ScramClient
from leadline.security.scram_credentials import ScramMechanism, credential_of_password, credential_text, salted_password
from leadline.security.secret import Secret
from leadline.wire import messages as m
from leadline.wire.classes import Message
from tests.support.certificates import authority

M = TypeVar("M", bound=Message)
ANSWER_S = 120.0
PATIENCE_S = 180.0

SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
BROKER, ADMIN, STRANGER = "broker", "admin", "stranger"  # the first two are super users
PASSWORDS = {BROKER: "broker-secret", ADMIN: "admin-secret", "alice": "alice-secret", STRANGER: "stranger-secret"}
LATER = {"carol": "carol-secret", "dave": "dave-secret"}  # whom a test adds
ITERATIONS = 4096


class ClusterSecurity:
    def __init__(self, folder: Path, mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512) -> None:
        self._folder, self._mechanism = folder, mechanism
        folder.mkdir(parents=True, exist_ok=True)
        self._trusted, self._key = folder / "ca.pem", folder / "broker.pem"
        self._trusted.write_text(authority().pem)
        authority().issue("broker").write(self._key)

    def settings(
        self, port: int | str = 0, secure_port: int = 0, user: str = BROKER, password: str | None = None
    ) -> dict[str, str]:
        """Of a broker that logs in to the others as this user. Port 0: any."""
        mechanism = self._mechanism.mechanism_name
        listener = f"listener.name.secure.{mechanism.lower()}"
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
            "inter.broker.listener.name": "SECURE",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            f"{listener}.sasl.jaas.config": (
                f'{SCRAM_MODULE} required username="{user}" password="{password or PASSWORDS[user]}";'
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._key),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._trusted),
            "authorizer.class.name": ACL_AUTHORIZER,
            "super.users": f"User:{BROKER};User:{ADMIN}",
        }

    def client(self, user: str = ADMIN) -> dict[str, str]:
        """Settings of librdkafka."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": self._mechanism.mechanism_name,
            "sasl.username": user,
            "sasl.password": (PASSWORDS | LATER)[user],
            "ssl.ca.location": str(self._trusted),
        }

    def ask(
        self, port: int, request: Message, kind: type[M], version: int, user: str = ADMIN, hmac: str | None = None
    ) -> M:
        """A request of a user to a broker, by the client that brokers use among themselves.

        `hmac`: of a delegation token, whose id then is the user.
        """
        tls = ssl.create_default_context(cafile=str(self._trusted))
        scram, password = self._mechanism, Secret.of(PASSWORDS[user] if hmac is None else hmac)

        def new_login(host: str) -> SaslClientAuthenticator:
            client = ScramClient(scram, user, password, "clientnonce", hmac is not None)
            return SaslClientAuthenticator(scram.mechanism_name, client)

        async def exchange() -> M:
            security = PeerSecurity(listener="SECURE", tls=tls, new_login=new_login)
            client = TcpBrokerClient(("127.0.0.1", port), user, TcpNetwork(), security=security)
            try:
                return await client.ask(request, kind, version, ANSWER_S)
            finally:
                client.close()

        return asyncio.run(exchange())

    def add_user(self, port: int, user: str) -> None:
        """By a request to the controller."""
        salted = salted_password(self._mechanism, Secret.of(LATER[user]), _salt(user), ITERATIONS)
        upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name=user,
            mechanism=self._mechanism.value,
            iterations=ITERATIONS,
            salt=_salt(user),
            salted_password=salted.reveal(),
        )
        request = m.AlterUserScramCredentialsRequest(upsertions=[upsertion])
        response = self.ask(port, request, m.AlterUserScramCredentialsResponse, 0)
        assert [result.error_code for result in response.results] == [0]

    def user_nodes(self) -> dict[str, bytes]:
        """The nodes of all users, by path."""
        nodes, name = {}, self._mechanism.mechanism_name
        for user, password in PASSWORDS.items():
            credential = credential_of_password(self._mechanism, Secret.of(password), _salt(user), ITERATIONS)
            config = f'{{"{name}":"{credential_text(credential)}"}}'
            nodes[f"/config/users/{user}"] = f'{{"version":1,"config":{config}}}'.encode()
        return nodes

    def create_users(self, connect: str) -> None:
        address, slash, chroot = connect.partition("/")
        tree = KazooClient(address)
        tree.start()
        try:
            for path, data in self.user_nodes().items():
                tree.create(f"{slash}{chroot}{path}", data, makepath=True)
        finally:
            tree.stop()
            tree.close()


def _salt(user: str) -> bytes:
    return f"salt-of-{user}".encode()


def acl(resource: ResourceType, name: str, user: str) -> m.CreateAclsRequest.AclCreation:
    return m.CreateAclsRequest.AclCreation(
        resource_type=resource,
        resource_name=name,
        resource_pattern_type=PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=AclOperation.ALL,
        permission_type=AclPermission.ALLOW,
    )


def read(client: dict[str, str], topic: str, group: str, count: int) -> list[bytes]:
    """All that is committed, through a group."""
    consumer = Consumer(
        client
        | {"group.id": group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        | {"enable.auto.commit": False}
    )
    values: list[bytes] = []
    with closing(consumer):
        consumer.subscribe([topic])
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < count and time.monotonic() < deadline:
            values += [message.value() or b"" for message in consumer.consume(500, 0.5) if message.error() is None]
        values += [message.value() or b"" for message in consumer.consume(500, 0.5) if message.error() is None]
    return values


def refusal(client: dict[str, str], topic: str) -> int:
    """The error that a producer gets."""
    errors: list[int] = []
    producer = Producer(client)
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error.code() if error else 0))
    producer.flush(PATIENCE_S)
    (code,) = errors
    return code
