"""The login of a broker to others, from the JAAS line of its listener."""

import pytest

from leadline.broker.own_login import own_login
from leadline.config.values import InvalidSetting
from leadline.runtime.ports import Chance
from leadline.security.jaas import LoginModule, parse_jaas_line
from leadline.security.sasl_client_authenticator import LoginRequest
from leadline.security.secret import Secret
from leadline.wire.codec import decode_from
from leadline.wire.frames import SIZE, request_head, response_frame
from leadline.wire.messages import SaslAuthenticateRequest, SaslHandshakeResponse
from leadline.wire.primitives import BUFFERS
from tests.support.chance import SeededChance

NAME = "listener.name.x.plain.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OWN = 'username="b,r=oker" password="broker-secret"'


def module(line: str) -> LoginModule:
    return parse_jaas_line(NAME, Secret.of(line))


def first_message(mechanism: str, line: str, chance: Chance | None = None) -> bytes:
    """What this broker says once its mechanism was accepted."""
    login = own_login(NAME, mechanism, module(line), chance or SeededChance())("other.example")
    login.begin()
    pieces = response_frame(SaslHandshakeResponse(), 1, 1)
    step = login.receive(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))[SIZE.size :])
    assert isinstance(step, LoginRequest)
    frame = bytes(step.encode(1, "me"))[SIZE.size :]
    request, _ = decode_from(SaslAuthenticateRequest, frame, 2, request_head(frame).body_at)
    return bytes(request.auth_bytes)


def test_each_mechanism_says_who_it_is_in_its_own_way() -> None:
    assert first_message("PLAIN", f"{PLAIN} {OWN};") == b"\0b,r=oker\0broker-secret"
    assert first_message("SCRAM-SHA-256", f"{SCRAM} {OWN};").startswith(b"n,,n=b=2Cr=3Doker,r=")
    token = first_message("SCRAM-SHA-512", f'{SCRAM} username="id" password="hmac" tokenauth="true";')
    assert token.endswith(b",tokenauth=true")


def test_no_two_logins_have_the_same_nonce() -> None:
    chance = SeededChance()
    messages = {first_message("SCRAM-SHA-256", f"{SCRAM} {OWN};", chance) for _ in range(5)}
    assert len(messages) == 5
    assert all(len(message.rpartition(b"r=")[2]) > 20 for message in messages)


@pytest.mark.parametrize(
    ("mechanism", "line", "message"),
    [
        ("PLAIN", f"{PLAIN} user_alice=wonderland;", f"{NAME}: username and password are missing"),
        ("PLAIN", f'{PLAIN} username="" password="broker-secret";', "username and password are missing"),
        ("SCRAM-SHA-256", None, "(sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256)"),
        ("NTLM", f"{PLAIN} {OWN};", "NTLM: not supported: brokers log in to each other by PLAIN, SCRAM-"),
    ],
)
def test_a_broker_that_could_not_log_in_is_refused(mechanism: str, line: str | None, message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        own_login(NAME, mechanism, None if line is None else module(line), SeededChance())
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)
