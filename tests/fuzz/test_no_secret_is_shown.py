"""A run at DEBUG with everything that knows a secret: none of them in a log line, an error, an output or an answer.

A secret has many forms: as text, in base64 and in hex, within the messages of a login, whole or as what was derived.
"""

import base64
import io
import logging
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.scram import ScramClientFailed
from leadline.security.scram_credentials import credential_of_password, salted_password
from leadline.security.secret import Secret
from leadline.wire import messages as m
from leadline.wire.classes import Message, Struct
from tests.conformance.both import Connection
from tests.support import in_memory
from tests.support.certificates import authority
from tests.support.secured_broker import (
    ENCODER_SECRET,
    ITERATIONS,
    MODULE,
    PASSWORD,
    SALT,
    SCRAM,
    SCRAM_PASSWORD,
    TOKEN_KEY,
    SecuredBroker,
    authenticate,
    handshake,
    log_in_plain,
    log_in_scram,
    secured_broker,
)

WRONG, ALTERED, STORE_PASSWORD = "wrong-password-of-alice", "altered-by-a-client-1", "password-of-a-store"
BROKER, TOPIC = 4, 2


@contextmanager
def captured() -> Iterator[io.StringIO]:
    """All that is logged, with tracebacks, and all that is printed."""
    text, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(text)
    level, outputs = root.level, (sys.stdout, sys.stderr)
    root.addHandler(handler)
    root.setLevel(1)
    sys.stdout = sys.stderr = text
    try:
        yield text
    finally:
        sys.stdout, sys.stderr = outputs
        root.setLevel(level)
        root.removeHandler(handler)


def forms(secret: bytes) -> set[str]:
    """In which it could be shown. Base64 depends on what stands before it: each of the three ways, without its ends."""
    shown = {secret.hex(), secret.hex(" "), repr(secret)[2:-1]}
    with suppress(UnicodeDecodeError):
        shown.add(secret.decode())
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret).decode().rstrip("=")
        shown.add(encoded[4 if before else 0 : -2])
    return {form for form in shown if len(form) >= 8} | {form.upper() for form in shown if form == secret.hex()}


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


def test_a_run_at_debug_shows_no_secret() -> None:
    answers, identity = Answers(), b""
    with captured() as log:
        for folder in in_memory.directory():
            with secured_broker(folder) as broker:
                broker.add_scram_user()
                bad_logins(broker, answers)
                hmacs = good_logins(broker, answers)
                altered_settings(broker, answers, folder)
            identity = (folder / "server.pem").read_bytes()
            with secured_broker(folder) as broker:  # it reads again what it has stored
                good_logins(broker, answers)
        for folder in in_memory.directory():
            with pytest.raises(InvalidSetting):
                _start_with_a_broken_line(folder)
    derived = credential_of_password(SCRAM, Secret.of(SCRAM_PASSWORD), SALT)
    texts = PASSWORD, SCRAM_PASSWORD, WRONG, ALTERED, STORE_PASSWORD, TOKEN_KEY, ENCODER_SECRET
    secrets = [
        *(text.encode() for text in texts),
        SALT,
        salted_password(SCRAM, Secret.of(SCRAM_PASSWORD), SALT, ITERATIONS).reveal(),
        derived.stored_key.reveal(),
        derived.server_key.reveal(),
        *hmacs,
        identity.splitlines()[1],
    ]
    text = log.getvalue()
    assert "connection" in text, "nothing was captured"
    assert text.count("its login failed") >= 10
    for shown in (text, *answers.texts):
        for secret in secrets:
            for form in forms(secret):
                at = shown.find(form)
                assert at < 0, f"{form!r} of a secret is shown: ...{shown[max(at - 200, 0) : at + len(form) + 50]}"


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
