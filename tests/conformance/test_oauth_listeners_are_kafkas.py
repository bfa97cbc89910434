"""Listeners with OAUTHBEARER: the same settings, tokens and clients for a real Kafka and for Leadline.

SIGNED takes tokens that are signed with a key of an https server on the loopback. UNSECURED takes those of Kafka's
handler for development, which is named here: see docs/decisions/0045-unsecured-tokens-are-opt-in.md.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from leadline.config.security import LOGIN_HANDLERS, SIGNED_HANDLER, UNSECURED_HANDLER
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import BlockingConnection, BrokerAddress
from leadline.wire import messages as m
from leadline.wire.frames import parse_response
from tests.conformance.both import Closed, Connection
from tests.conformance.kafka.broker import _free_port, broker, zookeeper
from tests.conformance.kafka.secured import LOGIN
from tests.conformance.kafka.tools import tool
from tests.support.broker import leadline
from tests.support.certificates import authority
from tests.support.jwks_server import JwksServer, jwks_server
from tests.support.waiting import until
from tests.support.web_tokens import first_message, jwk, key_set, signed, signed_with_public_key, unsigned

pytestmark = pytest.mark.conformance

MODULE = f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required"
Answers = list[tuple[int, str | None, bytes, int] | None]  # code, message, bytes and hours of lifetime; None: closed


@dataclass
class Listeners:
    """The ports of both brokers, Kafka's first."""

    signed: tuple[int, int]
    unsecured: tuple[int, int]
    keys: JwksServer


def settings(signed_port: int, unsecured_port: int, url: str, trust_store: Path) -> dict[str, object]:
    trust = f"ssl.truststore.type='PEM' ssl.truststore.location='{trust_store}'"
    own = 'unsecuredLoginStringClaim_sub="broker"'  # Kafka makes a token for itself
    rules = 'unsecuredValidatorRequiredScope="read" unsecuredValidatorAllowableClockSkewMs="60000"'
    handler = "oauthbearer.sasl.server.callback.handler.class"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:$port,SIGNED://127.0.0.1:{signed_port},UNSECURED://127.0.0.1:{unsecured_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SIGNED:SASL_PLAINTEXT,UNSECURED:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.signed.oauthbearer.sasl.jaas.config": f"{MODULE} {own} {trust};",
        f"listener.name.signed.{handler}": SIGNED_HANDLER,
        "listener.name.unsecured.oauthbearer.sasl.jaas.config": f"{MODULE} {own} {rules};",
        f"listener.name.unsecured.{handler}": UNSECURED_HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": "the issuer",
        "sasl.oauthbearer.expected.audience": "these,those",
        "connection.failed.authentication.delay.ms": 0,
    }


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    home = tmp_path_factory.mktemp("oauth")
    trust_store = home / "authority.pem"
    trust_store.write_text(authority().pem)
    theirs, ours = (_free_port(), _free_port()), (_free_port(), _free_port())
    with jwks_server(home) as keys:
        keys.document = key_set(jwk("rsa"), jwk("ec-256"))
        of_leadline = settings(*ours, keys.url, trust_store)
        with (
            zookeeper(home / "zookeeper") as coordinator,
            broker(home / "kafka", coordinator, **settings(*theirs, keys.url, trust_store)),
            leadline(
                home / "leadline", **{name: str(value).replace("$port", "0") for name, value in of_leadline.items()}
            ),
        ):
            yield Listeners((theirs[0], ours[0]), (theirs[1], ours[1]), keys)


def log_in(connection: Connection, *auth_bytes: bytes) -> Answers:
    handshake = connection.ask(m.SaslHandshakeResponse, m.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    assert handshake.error_code == 0, handshake
    answers: Answers = []
    for data in auth_bytes:
        connection.send(m.SaslAuthenticateRequest(auth_bytes=data), 2)
        frame = connection.receive()
        if frame is Closed:
            return [*answers, None]
        answer = parse_response(m.SaslAuthenticateResponse, frame, 2)[1]
        hours = round(answer.session_lifetime_ms / 3_600_000)
        answers.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes), hours))
    return answers


def answers_to(port: int, *auth_bytes: bytes) -> Answers:
    connection = Connection("127.0.0.1", port)
    try:
        return log_in(connection, *auth_bytes)
    finally:
        connection.close()


def claims(**changes: Any) -> dict[str, Any]:
    """Of a good token, with these changes; None takes a claim away. Times are seconds from now."""
    good = {"sub": "alice", "exp": 7200, "iat": -5, "iss": "the issuer", "aud": "those", "scope": ["read"]}
    changed = {name: value for name, value in {**good, **changes}.items() if value is not None}
    now_s = int(time.time())
    for name in ("exp", "iat"):
        if isinstance(changed.get(name), int):
            changed[name] += now_s
    return changed


def signed_tokens() -> dict[str, str]:
    return {
        "good": signed(claims()),
        "of a curve": signed(claims(), "ec-256", "ES256"),
        "two audiences": signed(claims(aud=["others", "these"])),
        "another audience": signed(claims(aud="others")),
        "no audience": signed(claims(aud=None)),
        "another issuer": signed(claims(iss="another")),
        "expired": signed(claims(exp=-120)),
        "within the clock skew": signed(claims(exp=3600, iat=20)),
        "no signature": unsigned(claims()),
        "the public key as a shared secret": signed_with_public_key(claims(), "rsa", "rsa"),
        "a key of others": signed(claims(), "rsa-other", kid="rsa"),
        "no subject": signed(claims(sub=None)),
    }


def unsecured_tokens() -> dict[str, str]:
    return {
        "good": unsigned(claims()),
        "no time of issue": unsigned(claims(iat=None)),
        "issued in the future": unsigned(claims(iat=1800)),
        "issued within the clock skew": unsigned(claims(iat=10)),
        "expired": unsigned(claims(exp=-600)),
        "expired before it was issued": unsigned(claims(exp=20, iat=25)),
        "no expiry": unsigned(claims(exp=None)),
        "an expiry that is a text": unsigned(claims(exp="soon")),
        "no scope": unsigned(claims(scope=None)),
        "another scope": unsigned(claims(scope=["write"])),
        "scope as text": unsigned(claims(scope="read")),
        "two scopes as one text": unsigned(claims(scope="read write")),
        "no subject": unsigned(claims(sub=None)),
        "a blank subject": unsigned(claims(sub=" ")),
        "a number as subject": unsigned(claims(sub=5)),
        "a signature": signed(claims()),
        "a signature of none": unsigned(claims()) + "x",
        "an algorithm": unsigned(claims(), alg="RS256"),
        "two parts": unsigned(claims())[:-1],
        "nonsense": "a.b.",
    }


@pytest.mark.parametrize("kind", ["signed", "unsecured"])
def test_tokens_are_taken_and_refused_as_kafka_does(listeners: Listeners, kind: str) -> None:
    tokens, ports = (
        (signed_tokens(), listeners.signed) if kind == "signed" else (unsecured_tokens(), listeners.unsecured)
    )
    theirs, ours = (
        {name: answers_to(port, first_message(token), b"\x01") for name, token in tokens.items()} for port in ports
    )
    assert ours == theirs
    taken = [name for name, answers in ours.items() if answers[0] is not None and answers[0][2] == b""]
    assert set(taken) >= {"good"}
    assert len(taken) < len(tokens) / 2


def test_a_session_lasts_as_long_as_its_token_and_a_new_token_prolongs_it(listeners: Listeners) -> None:
    for port in listeners.signed:
        of_token = claims(exp=3)
        short = first_message(signed(of_token))
        renewed, expired = Connection("127.0.0.1", port), Connection("127.0.0.1", port)
        for connection in (renewed, expired):
            assert log_in(connection, short) == [(0, "", b"", 0)]
        assert log_in(renewed, first_message(signed(claims()))) == [(0, "", b"", 2)]
        until(lambda at=of_token["exp"]: time.time() > at + 0.1)  # type: ignore[misc]
        assert renewed.ask(m.MetadataResponse, m.MetadataRequest(topics=[]), 9).controller_id >= 0
        expired.send(m.MetadataRequest(topics=[]), 9)
        assert expired.receive() is Closed
        for connection in (renewed, expired):
            connection.close()


def test_a_key_that_is_new_is_found(listeners: Listeners) -> None:
    listeners.keys.document = key_set(jwk("rsa"), jwk("ec-256"), jwk("rsa-new"))
    token = first_message(signed(claims(), "rsa-new"))
    for port in listeners.signed:
        until(lambda to=port: answers_to(to, token)[0] == (0, "", b"", 2), seconds=60)  # type: ignore[misc]


def test_librdkafka_logs_in_with_a_signed_token(listeners: Listeners) -> None:
    def token(config: str) -> tuple[str, float]:
        of_token = claims()
        return signed(of_token), of_token["exp"]

    for port in listeners.signed:
        config: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
        }
        client = AdminClient(config)
        client.poll(0)  # it calls back
        assert client.list_topics(timeout=60).brokers


def test_our_client_logs_in_with_a_signed_token_and_again_before_its_session_ends(
    listeners: Listeners, tmp_path: Path
) -> None:
    for port in listeners.signed:
        of_token, file = claims(exp=3), tmp_path / str(port)
        file.write_text(signed(of_token))
        properties = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.login.callback.handler.class": LOGIN_HANDLERS[0],
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
        with ClusterClient(properties) as client:
            connection = client._connection(BrokerAddress("127.0.0.1", port))
            file.write_text(signed(claims()))

            def is_answered_after(at_s: float, connection: BlockingConnection = connection) -> bool:
                assert connection.ask(m.MetadataRequest(topics=[]), m.MetadataResponse).controller_id >= 0
                return time.time() > at_s

            until(lambda at=of_token["exp"]: is_answered_after(at + 0.1))  # type: ignore[misc]


def test_kafkas_tools_log_in_with_an_unsecured_token(listeners: Listeners, tmp_path: Path) -> None:
    login = tmp_path / "login.properties"
    line = f'{MODULE} unsecuredLoginStringClaim_sub="alice" unsecuredLoginListClaim_scope="|read";'
    login.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\nsasl.jaas.config={line}\n")
    theirs, ours = (
        tool("topics", "--list", "--bootstrap-server", f"127.0.0.1:{port}", "--command-config", login)
        for port in listeners.unsecured
    )
    assert ours == theirs
