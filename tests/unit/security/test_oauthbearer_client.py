"""OAUTHBEARER, the client's side: the token of a broker, where it comes from, and when the next one is due."""

import json

import pytest

from leadline.config.values import InvalidSetting
from leadline.runtime.documents import DocumentError
from leadline.security.oauthbearer import InvalidToken, OAuthBearerExchange
from leadline.security.oauthbearer_client import (
    ClientCredentials,
    OAuthBearerClient,
    OwnToken,
    RefreshRules,
    UnsecuredLogin,
    extensions_of,
    own_token,
    token_of_answer,
    token_of_file,
)
from leadline.security.sasl_client_authenticator import LoginComplete, LoginRefused, SaslClientAuthenticator
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed
from leadline.security.secret import Secret
from leadline.security.unsecured_tokens import UnsecuredValidator
from leadline.wire.classes import Message
from leadline.wire.frames import SIZE, response_frame
from leadline.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse
from tests.support.brokers import joined
from tests.support.web_tokens import signed, unsigned

NOW_MS = 1_700_000_000_000
SUB = {"unsecuredLoginStringClaim_sub": "broker"}


def options(texts: dict[str, str]) -> dict[str, Secret]:
    return {name: Secret.of(text) for name, text in texts.items()}


def login(**more: str) -> UnsecuredLogin:
    return UnsecuredLogin.of("jaas", options(SUB | {f"unsecuredLogin{name}": text for name, text in more.items()}))


# The exchange


def test_a_listener_of_ours_accepts_what_a_broker_of_ours_says() -> None:
    exchange = OAuthBearerExchange(UnsecuredValidator().validate)
    client = OAuthBearerClient(login().token(NOW_MS), {"trace": "on"})
    outcome = exchange.evaluate(client.evaluate(b""), NOW_MS)
    assert isinstance(outcome, Authenticated)
    assert str(outcome.principal) == "User:broker"
    assert outcome.expires_ms == NOW_MS + 3_600_000
    client.evaluate(outcome.data)
    assert client.is_complete


def test_a_client_hears_the_reason_of_a_refusal_before_the_login_fails() -> None:
    exchange = OAuthBearerExchange(UnsecuredValidator().validate)
    client = OAuthBearerClient(login().token(NOW_MS), {})
    challenge = exchange.evaluate(client.evaluate(b""), NOW_MS + 3_600_001)
    assert isinstance(challenge, Challenge)
    answer = client.evaluate(challenge.data)
    assert answer == b"\x01"
    assert not client.is_complete
    assert isinstance(exchange.evaluate(answer, NOW_MS), Failed)


def frame(message: Message, version: int) -> bytes:
    return bytes(joined(response_frame(message, version, 1)))[SIZE.size :]


def test_the_authenticator_completes_with_an_empty_answer_and_fails_after_a_challenge() -> None:
    for is_refused in (False, True):
        authenticator = SaslClientAuthenticator("OAUTHBEARER", OAuthBearerClient(login().token(NOW_MS), {}))
        authenticator.begin()
        authenticator.receive(frame(SaslHandshakeResponse(), 1))
        if not is_refused:
            step = authenticator.receive(frame(SaslAuthenticateResponse(session_lifetime_ms=5), 2))
            assert step == LoginComplete(5)
            continue
        challenge = SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
        assert not isinstance(authenticator.receive(frame(challenge, 2)), LoginComplete)
        refusal = SaslAuthenticateResponse(error_code=58, error_message='{"status":"invalid_token"}')
        with pytest.raises(LoginRefused, match="invalid_token"):
            authenticator.receive(frame(refusal, 2))


def test_extensions_follow_the_token() -> None:
    client = OAuthBearerClient(OwnToken(Secret(b"a.b.c"), 0), {"one": "1", "two": "2"})
    assert client.evaluate(b"") == b"n,,\x01auth=Bearer a.b.c\x01one=1\x01two=2\x01\x01"


@pytest.mark.parametrize("name", ["unsecuredLoginExtension_", "extension_"])
def test_extensions_are_among_the_options(name: str) -> None:
    is_unsecured = name.startswith("unsecured")
    module_options = options({f"{name}trace": "on", "other": "x"})
    assert extensions_of("jaas", module_options, is_unsecured=is_unsecured) == {"trace": "on"}
    assert extensions_of("jaas", module_options, is_unsecured=not is_unsecured) == {}
    for bad in ("auth", "no-letter", ""):
        with pytest.raises(InvalidSetting, match=f"jaas: {name}{bad}"):
            extensions_of("jaas", options({name + bad: "x"}), is_unsecured=is_unsecured)


# Tokens without a signature


def test_claims_are_texts_numbers_and_lists() -> None:
    token = login(NumberClaim_level="7", ListClaim_scope="|a|b", LifetimeSeconds="60").token(NOW_MS)
    assert UnsecuredValidator(required_scope=("a", "b")).validate(token.text.reveal_text(), NOW_MS).scopes == {"a", "b"}
    assert (token.issued_ms, token.expires_ms) == (NOW_MS, NOW_MS + 60_000)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, "unsecuredLoginStringClaim_sub is missing"),
        (SUB | {"unsecuredLoginPrincipalClaimName": "name"}, "unsecuredLoginStringClaim_name is missing"),
        (SUB | {"unsecuredLoginLifetimeSeconds": "soon"}, "unsecuredLoginLifetimeSeconds must be a number"),
        (SUB | {"unsecuredLoginLifetimeSeconds": "0"}, "unsecuredLoginLifetimeSeconds must be at least 1"),
        (SUB | {"unsecuredLoginNumberClaim_x": "y"}, "unsecuredLoginNumberClaim_x must be a number"),
    ],
)
def test_options_that_make_no_token_are_refused(texts: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=f"jaas: {message}"):
        UnsecuredLogin.of("jaas", options(texts))


# Tokens of a server


def test_the_form_is_a_grant_of_client_credentials_that_does_not_show_its_secret() -> None:
    form = ClientCredentials.of("jaas", options({"clientId": "me", "clientSecret": "p:w", "scope": "a b"})).form()
    assert form.body == b"grant_type=client_credentials&scope=a%20b"
    assert form.headers == {"Authorization": "Basic bWU6cDp3"}
    assert "bWU6cDp3" not in repr(form)
    with pytest.raises(InvalidSetting, match="clientId and clientSecret are missing"):
        ClientCredentials.of("jaas", options({"clientId": "me"}))


def test_a_token_comes_out_of_an_answer_and_out_of_a_file() -> None:
    text = signed({"sub": "broker", "exp": 1_800_000_000, "iat": 1_700_000_000})
    token = OwnToken(Secret.of(text), 1_800_000_000_000, 1_700_000_000_000)
    assert token_of_answer(json.dumps({"access_token": text}).encode()) == token
    assert token_of_file(f"{text}\n".encode()) == token


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"{}", b'{"access_token": 5}', b'{"access_token": "secret"}', b'{"access_token": "a.secret.c"}'],
)
def test_an_answer_without_a_token_is_refused_without_showing_it(answer: bytes) -> None:
    with pytest.raises(DocumentError) as refused:
        token_of_answer(answer)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["a.b", unsigned({"sub": "x"}), unsigned({"exp": "soon"}), "a.b\n.c", "ä.b.c"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(InvalidToken):
        own_token(text)


# The next token


@pytest.mark.parametrize(
    ("lifetime_s", "age_s", "wait_s"),
    [
        (3600, 0, 2880),  # the share of its life
        (1000, 0, 700),  # the buffer before its end
        (3600, 2900, 60),  # not at once, after a token that was old already
        (100, 0, 80),  # no room for period and buffer
        (100, 200, 0.1),  # expired
    ],
)
def test_the_next_token_is_due_as_in_kafka(lifetime_s: int, age_s: int, wait_s: float) -> None:
    issued_ms = NOW_MS - age_s * 1000
    token = OwnToken(Secret(b""), issued_ms + lifetime_s * 1000, issued_ms)
    assert RefreshRules().refresh_at_ms(token, NOW_MS, 0.0) - NOW_MS == wait_s * 1000


def test_a_token_without_a_time_of_issue_counts_from_now() -> None:
    token = OwnToken(Secret(b""), NOW_MS + 3_600_000)
    assert RefreshRules().refresh_at_ms(token, NOW_MS, 1.0) - NOW_MS == 3_060_000


def test_attempts_become_rarer() -> None:
    assert [RefreshRules().retry_ms(n) for n in (1, 2, 3, 8, 99)] == [100, 200, 400, 10_000, 10_000]
