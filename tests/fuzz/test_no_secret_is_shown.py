"""A run at DEBUG with everything that knows a secret: none of them in a log line, an error, an output or an answer.

The login to ZooKeeper is in tests/conformance/test_secured_zookeeper.py, which has one.
"""

import asyncio
import base64
import json
import re
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

import pytest

from leadline.config.security import LOGIN_HANDLERS, SIGNED_HANDLER
from leadline.config.values import InvalidSetting
from leadline.coordination.tree import Tree
from leadline.security.jaas import OAUTHBEARER_LOGIN_MODULE
from leadline.security.oauthbearer import OAUTHBEARER
from leadline.security.scram import ScramClientFailed
from leadline.security.scram_credentials import ScramMechanism
from leadline.wire import messages as m
from leadline.wire.classes import Message, Struct
from tests.conformance.both import Connection
from tests.support import in_memory
from tests.support.certificates import authority
from tests.support.forked_commands import run_forked
from tests.support.in_process_cluster import cluster_in_process
from tests.support.jwks_server import JwksServer, jwks_server
from tests.support.secured import ITERATIONS as CLUSTER_ITERATIONS
from tests.support.secured import PASSWORDS, ClusterSecurity
from tests.support.secured_broker import (
    ENCODER_SECRET,
    ITERATIONS,
    MODULE,
    PASSWORD,
    SALT,
    SCRAM,
    SCRAM_MODULE,
    SCRAM_PASSWORD,
    TOKEN_KEY,
    SecuredBroker,
    authenticate,
    handshake,
    log_in_plain,
    log_in_scram,
    secured_broker,
)
from tests.support.shown_secrets import captured, check_not_shown, forms, scram_secrets
from tests.support.waiting import eventually
from tests.support.web_tokens import first_message, jwk, key_set, signed

WRONG, ALTERED, STORE_PASSWORD = "wrong-password-of-alice", "altered-by-a-client-1", "password-of-a-store"
SHA_512, SHA_512_PASSWORD, ADDED_PASSWORD = ScramMechanism.SCRAM_SHA_512, "staple-of-carol", "staple-that-was-added"
CLIENT_SECRET = "secret-of-an-oauth-client"
CLUSTER_S = 120
BROKER, TOPIC = 4, 2


def bearer_settings(listener: str, keys: Path) -> dict[str, str]:
    prefix = f"listener.name.{listener}.oauthbearer"
    return {
        f"{prefix}.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        f"{prefix}.sasl.server.callback.handler.class": SIGNED_HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
    }


def all_mechanisms(folder: Path) -> dict[str, str]:
    """Settings for a login by each of them; carol may do everything."""
    (folder / "keys").write_bytes(key_set(jwk("rsa")))
    return {
        "sasl.enabled.mechanisms": f"PLAIN,{SCRAM.mechanism_name},{SHA_512.mechanism_name},{OAUTHBEARER}",
        "super.users": "User:ANONYMOUS;User:carol",
        **bearer_settings("sasl_plaintext", folder / "keys"),
        **bearer_settings("sasl_ssl", folder / "keys"),
    }


def web_token(lifetime_s: int = 3600, key: str = "rsa", user: str = "carol") -> str:
    now_s = int(time.time())
    return signed({"sub": user, "iat": now_s, "exp": now_s + lifetime_s}, key)


class Answers:
    """What clients were told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def keep(self, response: Message) -> None:
        self.texts.append(repr(_fields(response)))

    def ask(self, connection: Connection, kind: type[Message], request: Message, version: int) -> Message:
        response = connection.ask(kind, request, version)
        self.keep(response)
        return response


def _fields(part: object) -> object:
    if isinstance(part, Struct):
        return {field.name: _fields(getattr(part, field.name)) for field in part.SPEC.fields}
    return [_fields(item) for item in part] if isinstance(part, list) else part


def bad_logins(broker: SecuredBroker, answers: Answers) -> None:
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        with closing(broker.connect(listener)) as connection:
            answers.keep(log_in_plain(connection, password=WRONG))
        with closing(broker.connect(listener)) as connection:
            answers.keep(log_in_plain(connection, authzid=PASSWORD))
        with closing(broker.connect(listener)) as connection:
            handshake(connection, "PLAIN")
            answers.keep(authenticate(connection, f"{PASSWORD}\0{WRONG}".encode()))
        with closing(broker.connect(listener)) as connection, suppress(ScramClientFailed):
            log_in_scram(connection, password=WRONG)
        with closing(broker.connect(listener)) as connection, suppress(ScramClientFailed):
            log_in_scram(connection, name=PASSWORD)
        with closing(broker.connect(listener)) as connection:
            handshake(connection, SCRAM.mechanism_name)
            answers.keep(authenticate(connection, b"n,,n=alice,r=" + PASSWORD.encode() + b"\xff\0"))
        with closing(broker.connect(listener)) as connection:  # a message of a login where a request belongs
            message = f"\0alice\0{PASSWORD}".encode()
            connection.socket.sendall(len(message).to_bytes(4) + message)
            connection.receive()
    with closing(Connection("127.0.0.1", broker.broker.addresses["SASL_SSL"].port)) as plain:  # without TLS
        plain.socket.sendall(len(PASSWORD).to_bytes(4) + PASSWORD.encode())
        plain.receive()


def bearer_logins(broker: SecuredBroker, answers: Answers) -> list[bytes]:
    """The tokens: one that is good, and some that are not."""
    tokens = [web_token(), web_token(key="rsa-of-others"), web_token(-3600), web_token() + "\xff"]
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        for token in tokens:
            with closing(broker.connect(listener)) as connection:
                handshake(connection, OAUTHBEARER)
                response = authenticate(connection, first_message(token))
                answers.keep(response)
                if response.auth_bytes:  # why it is refused
                    answers.keep(authenticate(connection, b"\x01"))
                elif response.error_code == 0:
                    answers.ask(connection, m.MetadataResponse, m.MetadataRequest(topics=None), 9)
        with closing(broker.connect(listener)) as connection:
            answers.keep(log_in_plain(connection, name=tokens[0], password=tokens[0]))
    return [token.encode() for token in tokens]


def good_logins(broker: SecuredBroker, answers: Answers) -> list[bytes]:
    """The HMACs of tokens, which only their owner may be told."""
    hmacs = []
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        with closing(broker.connect(listener)) as connection:
            assert log_in_plain(connection).error_code == 0
            answers.ask(connection, m.MetadataResponse, m.MetadataRequest(topics=None), 9)
            token = connection.ask(m.CreateDelegationTokenResponse, m.CreateDelegationTokenRequest(), 2)
            assert token.error_code == 0, token
            hmacs.append(bytes(token.hmac))
        with closing(broker.connect(listener)) as connection:
            assert log_in_scram(connection).error_code == 0
            answers.ask(connection, m.MetadataResponse, m.MetadataRequest(topics=None), 9)
        with closing(broker.connect(listener)) as connection:
            assert log_in_scram(connection, "carol", SHA_512_PASSWORD, SHA_512).error_code == 0
        with closing(broker.connect(listener)) as connection, suppress(ScramClientFailed):
            log_in_scram(connection, "carol", WRONG, SHA_512)
        hmac = base64.b64encode(hmacs[-1]).decode()
        with closing(broker.connect(listener)) as connection:
            assert log_in_scram(connection, token.token_id, hmac, by_token=True).error_code == 0
            request = m.RenewDelegationTokenRequest(hmac=hmacs[-1] + b"x", renew_period_ms=1000)
            answers.ask(connection, m.RenewDelegationTokenResponse, request, 2)
        with closing(broker.connect(listener)) as connection, suppress(ScramClientFailed):
            log_in_scram(connection, token.token_id, WRONG, by_token=True)
    return hmacs


def altered_settings(broker: SecuredBroker, answers: Answers, folder: Path) -> None:
    """Good and bad ones, and what is told about them afterwards."""
    prefix = "listener.name.sasl_ssl."
    line = f'{MODULE} required user_alice="{PASSWORD}" user_carol="{ALTERED}";'
    changes = [
        {f"{prefix}plain.sasl.jaas.config": line},
        {f"{prefix}plain.sasl.jaas.config": line.replace(";", "")},
        {f"{prefix}ssl.keystore.password": STORE_PASSWORD, f"{prefix}ssl.keystore.location": str(folder / "none")},
        {f"{prefix}ssl.keystore.key": authority().issue("other").key_pem()},
        {"ssl.truststore.password": STORE_PASSWORD},
        {"delegation.token.secret.key": ALTERED},
        {"password.encoder.secret": ALTERED},
    ]
    with closing(broker.connect()) as admin:
        for change in changes:
            configs = [
                m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
                for name, value in change.items()
            ]
            resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=BROKER, resource_name="1001", configs=configs
            )
            request = m.IncrementalAlterConfigsRequest(resources=[resource])
            answers.ask(admin, m.IncrementalAlterConfigsResponse, request, 1)
        described = m.DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=BROKER, resource_name="1001", configuration_keys=None
        )
        everything = m.DescribeConfigsRequest(resources=[described], include_synonyms=True, include_documentation=True)
        response = answers.ask(admin, m.DescribeConfigsResponse, everything, 4)
        assert isinstance(response, m.DescribeConfigsResponse)
        sensitive = {entry.name: entry.value for entry in response.results[0].configs if entry.is_sensitive}
        assert sensitive
        assert set(sensitive.values()) == {None}
        users = m.DescribeUserScramCredentialsRequest(users=None)
        answers.ask(admin, m.DescribeUserScramCredentialsResponse, users, 0)


def run_commands(broker: SecuredBroker, answers: Answers, folder: Path, server: JwksServer) -> list[bytes]:
    """By SCRAM and by OAUTHBEARER, with right and wrong secrets. The HMAC and the token that they were given."""
    token = web_token()
    server.document, server.headers = json.dumps({"access_token": token}).encode(), {"Content-Type": "application/json"}
    scram = broker.client_properties("carol", SHA_512_PASSWORD) | {"sasl.mechanism": SHA_512.mechanism_name}
    bearer = scram | {
        "sasl.mechanism": OAUTHBEARER,
        "sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
        "sasl.oauthbearer.token.endpoint.url": server.url,
        "sasl.jaas.config": f'{OAUTHBEARER_LOGIN_MODULE} required clientId="me" clientSecret="{CLIENT_SECRET}" '
        f'ssl.truststore.type=PEM ssl.truststore.location="{folder}/ca.pem";',
    }
    files = {
        "scram": scram,
        "bearer": bearer,
        "wrong": scram | {"sasl.jaas.config": f'{SCRAM_MODULE} required username="carol" password="{WRONG}";'},
        "broken": scram | {"sasl.jaas.config": f'{SCRAM_MODULE} required username="carol" password="{WRONG}"'},
        "typo": bearer | {"sasl.oauthbearer.client.secrets": CLIENT_SECRET},
    }
    (folder / "password").write_text(f"{ADDED_PASSWORD}\n")
    for name, properties in files.items():
        (folder / f"{name}.properties").write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
    calls = [
        [*words, "--command-config", str(folder / f"{name}.properties"), "--timeout", "30"]
        for name in files
        for words in (
            ["topics", "list", "--property", "debug=all", "--property", "log_level=7"],
            ["transactions", "list"],
            ["configs", "describe", "--broker", "1001", "--all"],
            ["users", "add", "dave", "--password-file", str(folder / "password")],
            ["users", "list", "--output", "json"],
            ["tokens", "create", "--out", str(folder / f"{name}.token")],
            ["tokens", "list", "--output", "json"],
        )
    ]
    results = run_forked(calls)
    answers.texts += [f"{result.out}{result.err}" for result in results]
    codes = [result.code for result in results]
    assert codes == [0] * (2 * len(codes) // 5) + [1] * (3 * len(codes) // 5), results
    assert server.forms, "no token was fetched"
    match = re.search(r'password="([^"]+)"', (folder / "scram.token").read_text())
    assert match is not None
    return [base64.b64decode(match[1]), match[1].encode(), token.encode()]


def test_a_run_at_debug_shows_no_secret() -> None:
    answers, identity = Answers(), b""
    with captured() as log:
        for folder in in_memory.directory():
            settings = all_mechanisms(folder)
            with jwks_server(folder) as server, secured_broker(folder, settings) as broker:
                broker.add_scram_user()
                broker.add_scram_user("carol", SHA_512_PASSWORD, SHA_512)
                bad_logins(broker, answers)
                issued = good_logins(broker, answers)
                issued += bearer_logins(broker, answers)
                issued += run_commands(broker, answers, folder, server)
                altered_settings(broker, answers, folder)
            identity = (folder / "server.pem").read_bytes()
            with secured_broker(folder, settings) as broker:  # it reads again what it has stored
                issued += good_logins(broker, answers)
        for folder in in_memory.directory():
            with pytest.raises(InvalidSetting):
                _start_with_a_broken_line(folder)
    texts = PASSWORD, WRONG, ALTERED, STORE_PASSWORD, TOKEN_KEY, ENCODER_SECRET, ADDED_PASSWORD, CLIENT_SECRET
    secrets = [
        *(text.encode() for text in texts),
        *scram_secrets(SCRAM, SCRAM_PASSWORD, SALT, ITERATIONS),
        *scram_secrets(SHA_512, SHA_512_PASSWORD, SALT, ITERATIONS),
        *issued,
        identity.splitlines()[1],
    ]
    text = log.getvalue()
    assert "connection" in text, "nothing was captured"
    assert text.count("its login failed") >= 18
    check_not_shown(secrets, (text, *answers.texts))


# Between brokers


def run_cluster(path: Path, settings: Mapping[str, str], security: ClusterSecurity) -> str:
    """What two brokers log that log in to each other."""

    async def create_users(tree: Tree) -> None:
        for node, data in security.user_nodes().items():
            await tree.create(node, data, make_parents=True)

    async def main() -> None:
        async with (
            asyncio.timeout(CLUSTER_S),
            cluster_in_process(path, lambda _: settings, brokers=2, prepare=create_users) as brokers,
        ):
            await eventually(lambda: all(len(broker.metadata.brokers) == 2 for broker in brokers))

    with captured() as log:
        asyncio.run(main())
    return log.getvalue()


def test_the_logins_of_brokers_by_scram_show_no_secret(tmp_path: Path) -> None:
    security = ClusterSecurity(tmp_path / "security", SHA_512)
    text = run_cluster(tmp_path, security.settings(), security)
    assert "logged in over listener SECURE" in text
    secrets = [
        secret
        for user, password in PASSWORDS.items()
        for secret in scram_secrets(SHA_512, password, f"salt-of-{user}".encode(), CLUSTER_ITERATIONS)
    ]
    check_not_shown(secrets, [text])


def test_the_logins_of_brokers_by_token_show_neither_the_token_nor_the_secret_for_it(tmp_path: Path) -> None:
    security, token = ClusterSecurity(tmp_path / "security"), web_token(user="broker")
    (tmp_path / "keys").write_bytes(key_set(jwk("rsa")))
    with jwks_server(tmp_path) as server:
        server.document = json.dumps({"access_token": token}).encode()
        prefix = "listener.name.secure.oauthbearer"
        settings = security.settings() | bearer_settings("secure", tmp_path / "keys")
        settings |= {
            "sasl.enabled.mechanisms": OAUTHBEARER,
            "sasl.mechanism.inter.broker.protocol": OAUTHBEARER,
            "sasl.oauthbearer.token.endpoint.url": server.url,
            f"{prefix}.sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
            f"{prefix}.sasl.jaas.config": f'{OAUTHBEARER_LOGIN_MODULE} required clientId="b" '
            f'clientSecret="{CLIENT_SECRET}" ssl.truststore.type=PEM '
            f'ssl.truststore.location="{settings["ssl.truststore.location"]}";',
        }
        text = run_cluster(tmp_path, settings, security)
        assert server.forms, "no token was fetched"
    assert "logged in over listener SECURE" in text
    check_not_shown([token.encode(), CLIENT_SECRET.encode(), f"b:{CLIENT_SECRET}".encode()], [text])


def _start_with_a_broken_line(folder: Path) -> None:
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    with secured_broker(folder, {name: f'{MODULE} required user_alice="{PASSWORD}"'}):
        pytest.fail("it has started")


def test_a_form_of_a_secret_is_found_wherever_it_stands() -> None:
    secret = b"correct-horse-battery"
    for before in (b"", b"x", b"xy", b"\0alice\0"):
        encoded = base64.b64encode(before + secret + b"more").decode()
        assert any(form in encoded for form in forms(secret)), before
    for shown in (secret.decode(), secret.hex(), repr(b"\0alice\0" + secret), secret.hex().upper()):
        assert any(form in shown for form in forms(secret)), shown
