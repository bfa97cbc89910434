"""Every client logs in by every mechanism over TLS. With the right it writes and reads, without it is refused.

All log in to the same broker. SSL is the login by a certificate; the other mechanisms are those of SASL_SSL.
What a client reports is compared in its own words, as its user sees them.
"""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from leadline.config.security import SIGNED_HANDLER
from leadline.security.acls import AclOperation, ResourceType
from leadline.security.jaas import OAUTHBEARER_LOGIN_MODULE
from leadline.security.oauthbearer import OAUTHBEARER
from leadline.security.plain import PLAIN
from leadline.security.scram_credentials import SCRAM_MECHANISMS, ScramMechanism
from leadline.wire import messages as m
from tests.clients import cases
from tests.clients.client import COMMANDS, LOGIN_COMMANDS, Client, ClientError
from tests.support.certificates import CertificateAuthority, authority
from tests.support.secured import acl
from tests.support.secured_broker import MODULE, SecuredBroker, secured_broker
from tests.support.web_tokens import jwk, key_set, signed

Clients = Callable[[str], Client]

TOPIC, HIDDEN = "shared", "hidden"
ALICE, STRANGER = "alice", "stranger"  # alice may do all with TOPIC, the stranger describe it; neither may see HIDDEN
PASSWORDS = {ALICE: "of-alice", STRANGER: "of-stranger"}
REFUSED_S = 60  # within which a client reports a refusal; on a quiet machine it takes a second
TOKEN_S = 3600

SSL = "SSL"
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
CLIENTS = (*COMMANDS, *LOGIN_COMMANDS)
LOGINS = list(itertools.product(CLIENTS, (*MECHANISMS, SSL)))  # every client can do all of them

NO_RIGHT = {
    "librdkafka": "code=TOPIC_AUTHORIZATION_FAILED,",
    "aiokafka": r"TopicAuthorizationFailedError",
    "kafka-python": r"TopicAuthorizationFailedError",
    "java": r"TopicAuthorizationException: Not authorized to access topics: \[",
    "franz-go": "TOPIC_AUTHORIZATION_FAILED: Not authorized to access topics",
    "sarama": "The client is not authorized to access this topic",
    "kafkajs": r"Not authorized to access topics: \[Topic authorization failed\]",
    "librdkafka++": "Broker: Topic authorization failed",
    "rust-rdkafka": "TopicAuthorizationFailed",
}
NO_LOGIN = {  # before the broker's own words
    "librdkafka": "code=_AUTHENTICATION,.*SASL authentication error: ",
    "aiokafka": "SaslAuthenticationFailed: ",
    "kafka-python": "SaslAuthenticationFailedError: ",
    "java": "SaslAuthenticationException: ",
    "franz-go": "SASL_AUTHENTICATION_FAILED: SASL Authentication failed.: ",
    "sarama": "SASL Authentication failed: ",
    "kafkajs": "SASL .* authentication failed: ",
    "librdkafka++": "Local: Authentication failure: .*SASL authentication error: ",
    "rust-rdkafka": "Global error: Authentication .*SASL authentication error: ",
}
REASONS = {
    PLAIN: "Authentication failed: Invalid username or password",
    **{
        name: f"Authentication failed during authentication due to invalid credentials with SASL mechanism {name}"
        for name in SCRAM_MECHANISMS
    },
}
NO_TOKEN = {  # The broker answers a bad token with a challenge, and refuses the client when it has replied.
    "librdkafka": r'code=_AUTHENTICATION,.*SASL authentication error: \{"status":"invalid_token"\}',
    "aiokafka": "Connection at .* closed",  # it takes any answer for a success
    "kafka-python": NO_LOGIN["kafka-python"],
    "java": r'SaslAuthenticationException: \{"status":"invalid_token"\}',
    "franz-go": "unexpected data in oauth response",
    "sarama": f"{NO_LOGIN['sarama']}Authentication failed during authentication due to invalid credentials",
    "kafkajs": "Closed connection",  # likewise
    "librdkafka++": r'Local: Authentication failure: .*SASL authentication error: \{"status":"invalid_token"\}',
    "rust-rdkafka": r'Global error: Authentication .*SASL authentication error: \{"status":"invalid_token"\}',
}
NOT_TRUSTED = {  # of a client that does not trust the broker
    "librdkafka": "code=_SSL,.*certificate verify failed: broker certificate could not be verified",
    "aiokafka": "CERTIFICATE_VERIFY_FAILED",
    "kafka-python": "CERTIFICATE_VERIFY_FAILED",
    "java": "SslAuthenticationException: SSL handshake failed",
    "franz-go": "certificate signed by unknown authority",
    "sarama": "certificate signed by unknown authority",
    "kafkajs": "self-signed certificate in certificate chain",
    "librdkafka++": "Local: SSL error: .*certificate verify failed: broker certificate could not be verified",
    "rust-rdkafka": "Global error: SSL .*certificate verify failed: broker certificate could not be verified",
}
# A client that still writes when the broker has closed the connection may not see why, with Kafka as with Leadline.
CLOSED = "(?i:broken pipe|connection reset|socket disconnected|closed connection|EPIPE|ECONNRESET|EOF)"
NOT_TRUSTED_BY_BROKER = {
    "librdkafka": "Receive failed: .*tlsv1 alert unknown ca",
    "aiokafka": "Connection at .* closed",
    "kafka-python": "TLSV1_ALERT_UNKNOWN_CA",
    "java": "SslAuthenticationException: Failed to process post-handshake messages",
    "franz-go": "remote error: tls: unknown certificate authority",
    "sarama": "remote error: tls: unknown certificate authority",
    "kafkajs": "Connection error: .*tlsv1 alert unknown ca",
    "librdkafka++": "SSL alert",
    "rust-rdkafka": "SSL alert",
}


@dataclass
class Logins:
    broker: SecuredBroker
    folder: Path

    def of(self, user: str, mechanism: str, **changes: str) -> dict[str, str]:
        """The fields of `Login` in tests/clients/python/serving.py."""
        protocol = "SSL" if mechanism == SSL else "SASL_SSL"
        login = {
            "bootstrap": f"localhost:{self.broker.broker.addresses[protocol].port}",
            "protocol": protocol,
            "trusted": str(self.folder / "ca.pem"),
        }
        match mechanism:
            case "SSL":
                login |= {"identity": str(self.folder / f"{user}.pem")}
            case "OAUTHBEARER":
                login |= {"mechanism": mechanism, "token": str(self.folder / f"{user}.jwt")}
            case _:
                login |= {"mechanism": mechanism, "username": user, "password": PASSWORDS[user]}
        return login | changes

    def with_wrong_credentials(self, mechanism: str) -> dict[str, str]:
        """Of alice, with another password, or with a token or a certificate that others have signed."""
        match mechanism:
            case "SSL":
                return self.of(ALICE, mechanism, identity=str(self.folder / "wrong.pem"))
            case "OAUTHBEARER":
                return self.of(ALICE, mechanism, token=str(self.folder / "wrong.jwt"))
        return self.of(ALICE, mechanism, password="guessed")


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logins]:
    folder = tmp_path_factory.mktemp("logins")
    write_credentials(folder)
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    changes = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": PLAIN,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{MODULE} required {users};",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": SIGNED_HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "group.initial.rebalance.delay.ms": "0",
    }
    with secured_broker(folder, changes) as broker:
        for mechanism, user in itertools.product(ScramMechanism, PASSWORDS):
            broker.add_scram_user(user, PASSWORDS[user], mechanism)
        create_topics_and_rights(broker)
        yield Logins(broker, folder)


def write_credentials(folder: Path) -> None:
    other_authority = CertificateAuthority("Another CA")
    (folder / "another-ca.pem").write_text(other_authority.pem)
    (folder / "keys.json").write_bytes(key_set(jwk("rsa")))
    other_authority.issue(ALICE).write(folder / "wrong.pem")
    (folder / "wrong.jwt").write_text(signed(claims(ALICE), "rsa-other", kid="rsa"))
    for user in PASSWORDS:
        authority().issue(user).write(folder / f"{user}.pem")
        (folder / f"{user}.jwt").write_text(signed(claims(user)))


def claims(user: str) -> dict[str, object]:
    now_s = int(time.time())
    return {"sub": user, "iat": now_s, "exp": now_s + TOKEN_S}


def create_topics_and_rights(broker: SecuredBroker) -> None:
    topics = [
        m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in (TOPIC, HIDDEN)
    ]
    rights = [acl(ResourceType.TOPIC, TOPIC, ALICE), acl(ResourceType.TOPIC, TOPIC, STRANGER)]
    rights[-1].operation = AclOperation.DESCRIBE
    rights += [acl(ResourceType.GROUP, "*", user) for user in PASSWORDS]
    with closing(broker.connect()) as admin:
        created = admin.ask(m.CreateTopicsResponse, m.CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
        assert {topic.error_code for topic in created.topics} == {0}, created
        response = admin.ask(m.CreateAclsResponse, m.CreateAclsRequest(creations=rights), 2)
        assert {result.error_code for result in response.results} == {0}, response


def write(client: Client, login: dict[str, str], value: bytes = b"v", topic: str = TOPIC) -> tuple[cases.Written, int]:
    record = cases.Written(0, b"k", value, (), int(time.time() * 1000))
    (offset,) = client.ask(
        "produce", topic=topic, codec="none", idempotent=False, records=[record.as_values()], login=login
    )
    return record, offset


def read(client: Client, login: dict[str, str], offset: int = 0) -> list[object]:
    return list(client.ask("consume", topic=TOPIC, starts=[[0, offset, 1]], login=login))


def refusal(request: Callable[[], object]) -> str:
    """What the client reports."""
    began_s = time.monotonic()
    with pytest.raises(ClientError) as error:
        request()
    assert time.monotonic() - began_s < REFUSED_S
    return str(error.value)


@pytest.mark.parametrize(("name", "mechanism"), LOGINS)
def test_a_user_writes_and_reads_what_it_wrote(name: str, mechanism: str, clients: Clients, logins: Logins) -> None:
    client, login = clients(name), logins.of(ALICE, mechanism)
    record, offset = write(client, login, f"{name} by {mechanism}".encode())
    assert read(client, login, offset)[0] == record.read(offset)


@pytest.mark.parametrize(("name", "mechanism"), LOGINS)
def test_a_user_without_the_right_may_not_write(name: str, mechanism: str, clients: Clients, logins: Logins) -> None:
    report = refusal(lambda: write(clients(name), logins.of(STRANGER, mechanism)))
    assert re.search(NO_RIGHT[name], report), report


@pytest.mark.parametrize("name", CLIENTS)
def test_a_user_without_the_right_may_not_read(name: str, clients: Clients, logins: Logins) -> None:
    report = refusal(lambda: read(clients(name), logins.of(STRANGER, PLAIN)))
    assert re.search(NO_RIGHT[name], report), report


@pytest.mark.parametrize("name", CLIENTS)
def test_a_user_may_not_write_what_it_may_not_describe(name: str, clients: Clients, logins: Logins) -> None:
    report = refusal(lambda: write(clients(name), logins.of(ALICE, PLAIN), topic=HIDDEN))
    assert re.search(NO_RIGHT[name], report), report


@pytest.mark.parametrize(("name", "mechanism"), LOGINS)
def test_wrong_credentials_are_refused(name: str, mechanism: str, clients: Clients, logins: Logins) -> None:
    report = refusal(lambda: write(clients(name), logins.with_wrong_credentials(mechanism)))
    match mechanism:
        case "SSL":  # with TLS 1.3 a client takes the handshake for done before the broker looks at its certificate
            expected = f"{NOT_TRUSTED_BY_BROKER[name]}|{CLOSED}"
        case "OAUTHBEARER":
            expected = NO_TOKEN[name]
        case _:
            expected = NO_LOGIN[name] + REASONS[mechanism]
    if name == "kafka-python":  # it forgets the answer that comes together with the end of the connection
        expected += f"|{CLOSED}"
    assert re.search(expected, report), report


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_does_not_talk_to_a_broker_that_it_does_not_trust(name: str, clients: Clients, logins: Logins) -> None:
    login = logins.of(ALICE, PLAIN, trusted=str(logins.folder / "another-ca.pem"))
    report = refusal(lambda: write(clients(name), login))
    assert re.search(NOT_TRUSTED[name], report), report
