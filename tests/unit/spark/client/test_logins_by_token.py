"""Clients that log in by OAUTHBEARER: our own client, kafka-python's and librdkafka's, with the same properties."""

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from leadline.config.security import LOGIN_HANDLERS, SIGNED_HANDLER, UNSECURED_HANDLER, UNSECURED_LOGIN_HANDLER
from leadline.security.jaas import OAUTHBEARER_LOGIN_MODULE
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import AccessRefused, Unreachable
from tests.support.forked_commands import run_forked
from tests.support.jwks_server import JwksServer, jwks_server
from tests.support.secured_broker import SecuredBroker, secured_broker
from tests.support.waiting import until
from tests.support.web_tokens import jwk, key_set, signed

HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
SECRET = "secret-of-a-client"
COMMANDS = {  # by the client that they use
    "librdkafka": ["topics", "list"],
    "our own": ["acls", "list"],
    "kafka-python": ["transactions", "list"],
}


class Tokens(NamedTuple):
    broker: SecuredBroker
    server: JwksServer
    folder: Path

    @property
    def trust(self) -> str:
        return f"ssl.truststore.type=PEM ssl.truststore.location='{self.folder}/ca.pem'"

    def properties(self, options: str, **more: str) -> dict[str, str]:
        """Of Kafka's clients, with these options of the login module."""
        return {
            "bootstrap.servers": f"localhost:{self.broker.broker.addresses['SASL_SSL'].port}",
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": f"{self.folder}/ca.pem",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required {options};",
            **more,
        }

    def of_server(self, secret: str = SECRET) -> dict[str, str]:
        """A new secret has a new login: those of a process are shared."""
        options = f'clientId="me" clientSecret="{secret}" scope="all" {self.trust}'
        return self.properties(options, **{HANDLER: LOGIN_HANDLERS[0], URL: self.server.url})

    def of_file(self, name: str = "token") -> dict[str, str]:
        return self.properties("", **{HANDLER: LOGIN_HANDLERS[0], URL: f"file://{self.folder}/{name}"})

    def give(self, lifetime_s: float = 3600.0) -> str:
        """What the server of tokens answers from now on."""
        now_s = time.time()
        token = signed({"sub": "alice", "iat": now_s, "exp": now_s + lifetime_s})
        self.server.document, self.server.status = json.dumps({"access_token": token}).encode(), 200
        self.server.headers["Content-Type"] = "application/json"
        self.server.forms.clear()
        return token


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    folder = tmp_path_factory.mktemp("tokens")
    (folder / "keys").write_bytes(key_set(jwk("rsa")))
    changes = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": SIGNED_HANDLER,
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_LOGIN_MODULE} required;",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": UNSECURED_HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{folder}/keys",
        "super.users": "User:alice",
    }
    with jwks_server(folder) as server, secured_broker(folder, changes) as broker:
        yield Tokens(broker, server, folder)


@pytest.fixture
def tokens(started: Tokens) -> Tokens:
    (started.folder / "token").write_text(started.give())
    return started


def run(tokens: Tokens, properties: dict[str, str]) -> list[tuple[int, str]]:
    """The exit code of each command, and its error."""
    file = tokens.folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return [
        (result.code, result.err.strip())
        for result in run_forked([[*command, "--command-config", str(file)] for command in COMMANDS.values()])
    ]


def test_all_commands_log_in_with_a_token_of_a_server(tokens: Tokens) -> None:
    assert run(tokens, tokens.of_server()) == [(0, "")] * len(COMMANDS)
    logins = {headers["Authorization"] for _, headers in tokens.server.forms}
    assert logins == {f"Basic {base64.b64encode(f'me:{SECRET}'.encode()).decode()}"}
    assert {body for body, _ in tokens.server.forms} == {b"grant_type=client_credentials&scope=all"}


def test_all_commands_log_in_under_librdkafkas_names(tokens: Tokens) -> None:
    properties = tokens.of_server()
    del properties["sasl.jaas.config"], properties[HANDLER]
    properties |= {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": SECRET,
        "https.ca.location": f"{tokens.folder}/ca.pem",
    }
    assert run(tokens, properties) == [(0, "")] * len(COMMANDS)


def test_all_commands_log_in_with_a_token_of_a_file(tokens: Tokens) -> None:
    assert run(tokens, tokens.of_file()) == [(0, "")] * len(COMMANDS)


def test_all_commands_log_in_with_an_unsecured_token_where_it_is_asked_for(tokens: Tokens) -> None:
    properties = tokens.properties('unsecuredLoginStringClaim_sub="alice"', **{HANDLER: UNSECURED_LOGIN_HANDLER})
    del properties["ssl.truststore.type"], properties["ssl.truststore.location"]
    properties |= {
        "security.protocol": "SASL_PLAINTEXT",
        "bootstrap.servers": f"localhost:{tokens.broker.broker.addresses['SASL_PLAINTEXT'].port}",
    }
    assert run(tokens, properties) == [(0, "")] * len(COMMANDS)
    del properties[HANDLER]
    with pytest.raises(AccessRefused, match=f"{re.escape(HANDLER)} is missing"):
        ClusterClient(properties)


def test_a_client_that_the_server_of_tokens_refuses_ends_with_one_line_and_no_secret(tokens: Tokens) -> None:
    tokens.server.status, tokens.server.document = 401, b'{"error":"invalid_client"}'
    for code, error in run(tokens, {**tokens.of_server(), "sasl.login.retry.backoff.max.ms": "100"}):
        assert code == 1
        assert "401" in error or "invalid_client" in error
        assert len(error.splitlines()) == 1
        assert SECRET not in error


@pytest.mark.parametrize(
    ("lifetime_s", "key", "reason"), [(60, "rsa-of-others", "invalid_token"), (-60, "rsa", "has expired")]
)
def test_a_token_that_is_no_good_ends_with_one_line_without_it(
    tokens: Tokens, lifetime_s: int, key: str, reason: str
) -> None:
    token = signed({"sub": "alice", "iat": int(time.time()), "exp": int(time.time()) + lifetime_s}, key)
    (tokens.folder / "token").write_text(token)
    for code, error in run(tokens, tokens.of_file()):
        assert code == 1
        assert len(error.splitlines()) == 1
        assert reason in error
        assert token not in error


def test_clients_of_a_process_share_their_token(tokens: Tokens) -> None:
    properties = tokens.of_server("shared")
    for _ in range(3):
        with ClusterClient(properties) as client:
            client.topics()
    assert len(tokens.server.forms) == 1


def test_a_server_of_tokens_that_is_away_may_be_asked_again_and_one_that_refuses_may_not(tokens: Tokens) -> None:
    properties = {**tokens.of_server("again"), "default.api.timeout.ms": "1"}
    for status, error in ((503, Unreachable), (401, AccessRefused)):
        tokens.server.status = status
        with (
            pytest.raises(error, match=f"there is no token: .*{status}") as raised,
            ClusterClient(properties) as client,
        ):
            client.topics()
        assert "again" not in str(raised.value)
    tokens.server.status = 200
    with ClusterClient(properties) as client:
        client.topics()


def test_a_long_job_gets_its_next_token_before_the_session_ends(tokens: Tokens) -> None:
    tokens.give(lifetime_s=2.0)
    properties = tokens.of_server("renewed")
    with ClusterClient(properties) as client:
        (broker,) = client.broker_ids()
        connection, ends_s = client.broker(broker), time.monotonic() + 2.0
        tokens.give()
        until(lambda: client.broker_ids() and time.monotonic() > ends_s + 0.2)
        assert client.broker(broker) is connection, "its session goes on"
        assert len(tokens.server.forms) == 1
