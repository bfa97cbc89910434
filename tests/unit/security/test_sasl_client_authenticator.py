"""The login of a broker to another one, step by step, against our own server's side of it."""

from collections.abc import Callable

import pytest

from leadline.security.sasl_authenticator import SaslAuthenticator, SaslListener
from leadline.security.sasl_client_authenticator import (
    MAX_QUOTED,
    ClientLoginState,
    ClientLoginStep,
    LoginComplete,
    LoginRefused,
    LoginRequest,
    SaslClientAuthenticator,
)
from leadline.security.scram import PasswordDerivation
from leadline.security.secret import Secret
from leadline.wire.classes import Message
from leadline.wire.frames import SIZE, request_head, response_frame
from leadline.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from leadline.wire.primitives import BUFFERS
from tests.support.sasl_listeners import MECHANISMS, NAME, new_login, received, sasl_listener

NOW_MS = 1_700_000_000_000


def log_in(
    login: SaslClientAuthenticator, server: SaslAuthenticator, note: Callable[[ClientLoginStep], None] = lambda _: None
) -> LoginComplete:
    step: ClientLoginStep = login.begin()
    while not isinstance(step, LoginComplete):
        note(step)
        if not isinstance(step, LoginRequest):
            assert login.state is ClientLoginState.WORK
            step = login.resume(step.run())
            continue
        answer = received(server, bytes(step.encode(7, "me"))[SIZE.size :], NOW_MS, 0)
        sent = answer.failure.response if answer.failure is not None else answer.send
        step = login.receive(sent[SIZE.size :])
    return step


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("lifetime_ms", [0, 60_000])
def test_each_mechanism_logs_in_and_says_how_long_it_lasts(mechanism: str, lifetime_ms: int) -> None:
    server, login = SaslAuthenticator(sasl_listener(lifetime_ms=lifetime_ms)), new_login(mechanism)
    assert log_in(login, server) == LoginComplete(lifetime_ms)
    assert login.state is ClientLoginState.COMPLETE
    assert server.session is not None
    assert server.session.principal.name == NAME


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_is_repeated_on_the_same_connection(mechanism: str) -> None:
    server = SaslAuthenticator(sasl_listener(lifetime_ms=5000))
    log_in(new_login(mechanism), server)
    assert log_in(new_login(mechanism), server) == LoginComplete(5000)


@pytest.mark.parametrize(
    ("mechanism", "listener", "reason"),
    [
        ("PLAIN", sasl_listener(password=Secret.of("x")), "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-512", sasl_listener(password=Secret.of("x")), "invalid credentials with SASL mechanism SCRAM-SHA-"),
        ("PLAIN", sasl_listener("SCRAM-SHA-256"), "PLAIN is not enabled there: SCRAM-SHA-256 are"),
        ("GSSAPI", sasl_listener("PLAIN"), "GSSAPI is not enabled there: PLAIN are"),
    ],
)
def test_a_refusal_has_its_reason_and_no_secret(mechanism: str, listener: SaslListener, reason: str) -> None:
    login = new_login(mechanism)
    with pytest.raises(LoginRefused) as refused:
        log_in(login, SaslAuthenticator(listener))
    assert reason in str(refused.value)
    assert "alice-secret" not in str(refused.value)
    assert login.state is ClientLoginState.FAILED


def frame(response: Message, version: int) -> bytes:
    pieces = response_frame(response, version, 7)
    return b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))[SIZE.size :]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([SaslHandshakeResponse(error_code=34)], "a login is not expected there"),
        ([SaslHandshakeResponse(error_code=35)], "answered with error 35"),
        ([b""], "a malformed answer"),
        ([b"\0\0\0\7\0"], "a malformed answer"),
        ([SaslHandshakeResponse(), b"\0\0\0\7"], "a malformed answer"),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"r=other,s=,i=4096")], "nonce"),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"")], "invalid SCRAM server first"),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"r=nonces,s=,i=1000001")], "iterations beyond"),
    ],
)
def test_a_peer_that_is_not_what_it_claims_to_be_is_not_trusted(answers: list[Message | bytes], reason: str) -> None:
    login = new_login("SCRAM-SHA-256")
    login.begin()
    *accepted, last = [
        answer if isinstance(answer, bytes) else frame(answer, version)
        for answer, version in zip(answers, (1, 2), strict=False)
    ]
    for answer in accepted:
        login.receive(answer)
    with pytest.raises(LoginRefused, match=reason):
        login.receive(last)


def test_a_peer_that_says_yes_without_the_password_is_not_trusted() -> None:
    login = new_login("SCRAM-SHA-256")
    login.begin()
    login.receive(frame(SaslHandshakeResponse(), 1))
    step = login.receive(frame(SaslAuthenticateResponse(auth_bytes=b"r=nonceserver,s=c2FsdA==,i=4096"), 2))
    assert isinstance(step, PasswordDerivation)
    login.resume(step.run())
    with pytest.raises(LoginRefused, match="it does not know the password"):
        login.receive(frame(SaslAuthenticateResponse(auth_bytes=b"v=AAAA"), 2))


@pytest.mark.parametrize("answer", [b"", b"nonsense"])
def test_a_peer_that_says_yes_without_the_key_of_a_service_is_not_trusted(answer: bytes) -> None:
    login = new_login("GSSAPI")
    login.begin()
    step = login.receive(frame(SaslHandshakeResponse(), 1))
    assert not isinstance(step, LoginRequest | LoginComplete)
    login.resume(step.run())
    step = login.receive(frame(SaslAuthenticateResponse(auth_bytes=b"reply"), 2))
    assert not isinstance(step, LoginRequest | LoginComplete)
    login.resume(step.run())
    step = login.receive(frame(SaslAuthenticateResponse(auth_bytes=answer), 2))
    assert not isinstance(step, LoginRequest | LoginComplete)
    with pytest.raises(LoginRefused, match="GSSAPI: Invalid token was supplied"):
        login.resume(step.run())
    assert login.state is ClientLoginState.FAILED


def test_words_of_a_peer_are_cut_and_stay_on_one_line() -> None:
    login = new_login("PLAIN")
    login.begin()
    login.receive(frame(SaslHandshakeResponse(), 1))
    with pytest.raises(LoginRefused) as refused:
        login.receive(frame(SaslAuthenticateResponse(error_code=58, error_message="a\nb\x1b" + "c" * 5000), 2))
    assert str(refused.value).startswith(r"a\nb\x1bc")
    assert len(str(refused.value)) < 2 * MAX_QUOTED


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_step_shows_a_secret(mechanism: str) -> None:
    steps: list[ClientLoginStep] = []
    log_in(new_login(mechanism), SaslAuthenticator(sasl_listener()), steps.append)
    assert steps
    shown = repr(steps)
    assert "alice-secret" not in shown
    assert "p=" not in shown
    assert "c2FsdA" not in shown


def test_requests_are_handshake_1_and_authenticate_2() -> None:
    login = new_login("PLAIN")
    request = login.begin()
    step = login.receive(frame(SaslHandshakeResponse(), 1))
    assert isinstance(step, LoginRequest)
    heads = [request_head(bytes(message.encode(1, "me"))[SIZE.size :]) for message in (request, step)]
    assert [(head.api_key, head.version) for head in heads] == [(17, 1), (36, 2)]
