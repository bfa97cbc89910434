"""A real Kafka with an authorizer: a listener for everybody, who is a super user, and one for users with passwords."""

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from leadline.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.conformance.both import ANSWER_S, Connection

from .broker import Broker, ZooKeeper, _free_port, broker

PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}
SECRET_KEY = "topsecret"  # of delegation tokens
LOGIN = "org.apache.kafka.common.security"


@dataclass
class SecuredBroker:
    broker: Broker
    users_port: int

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def connect(self) -> Connection:
        """As a super user."""
        return Connection("127.0.0.1", self.broker.port)

    def connect_as(self, user: str, host: str = "127.0.0.1") -> Connection:
        """Logged in by PLAIN, from an address of the loopback interface."""
        return connect_as(user, self.users_port, host)


def connect_as(user: str, users_port: int, host: str = "127.0.0.1") -> Connection:
    connection = UserConnection(users_port, host)
    handshake = connection.ask(SaslHandshakeResponse, SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert handshake.error_code == 0
    request = SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{PASSWORDS[user]}".encode())
    assert connection.ask(SaslAuthenticateResponse, request, 1).error_code == 0
    return connection


class UserConnection(Connection):
    def __init__(self, port: int, host: str) -> None:
        self.client_id = "probe"
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S, source_address=(host, 0))
        self.reader = self.socket.makefile("rb")
        self.correlation = 0


def secured_settings(users_port: int) -> dict[str, object]:
    """Of a Kafka, and of a Leadline that is compared with it. The listener for everybody is on $port."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    prefix = "listener.name.sasl_plaintext"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:$port,SASL_PLAINTEXT://127.0.0.1:{users_port}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        f"{prefix}.plain.sasl.jaas.config": f"{LOGIN}.plain.PlainLoginModule required {users};",
        f"{prefix}.scram-sha-256.sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required;",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": SECRET_KEY,
        "connections.max.idle.ms": 3_600_000,
    }


@contextmanager
def secured_broker(dir: Path, zookeeper: ZooKeeper, settings: Mapping[str, object]) -> Iterator[SecuredBroker]:
    users_port = _free_port()
    with broker(dir, zookeeper, **secured_settings(users_port), **settings) as kafka:
        yield SecuredBroker(kafka, users_port)
