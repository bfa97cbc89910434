"""PLAIN, in Kafka's words."""

import time
from hmac import compare_digest
from unittest.mock import patch

import pytest

from leadline.security.plain import PlainClient, PlainExchange, plain_users
from leadline.security.principal import Principal
from leadline.security.sasl_mechanisms import Authenticated, Failed, Outcome
from leadline.security.secret import Secret

USERS = {"alice": Secret.of("alice-secret"), "ümlaut": Secret.of("pässwörd"), "empty": Secret.of("")}
INVALID = "Authentication failed: Invalid username or password"


def evaluate(message: bytes) -> Outcome:
    return PlainExchange(USERS.get).evaluate(message, 0)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (b"\0alice\0alice-secret", "alice"),
        (b"alice\0alice\0alice-secret", "alice"),
        ("\0ümlaut\0pässwörd".encode(), "ümlaut"),
        (PlainClient("alice", Secret.of("alice-secret")).evaluate(b""), "alice"),
    ],
)
def test_the_right_password_makes_the_user_the_principal(message: bytes, name: str) -> None:
    assert evaluate(message) == Authenticated(Principal("User", name), b"", None)


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0alice-secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0alice-secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0" * 9, "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0\0alice-secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"\0alice\0wrong", INVALID),
        (b"\0alice\0alice-secre", INVALID),
        (b"\0alice\0alice-secrets", INVALID),
        (b"\0nobody\0alice-secret", INVALID),
        (b"\0empty\0x", INVALID),
        (b"\0alice\0\xff", INVALID),
        (b"bob\0alice\0wrong", INVALID),
    ],
)
def test_errors_have_kafkas_wording(message: bytes, words: str) -> None:
    assert evaluate(message) == Failed(words)


def test_cve_2017_12610_an_authorization_id_of_another_user_is_refused() -> None:
    words = "Authentication failed: Client requested an authorization id that is different from username"
    assert evaluate(b"bob\0alice\0alice-secret") == Failed(words)


def test_cve_2021_38153_the_time_does_not_reveal_how_much_of_a_password_is_right() -> None:
    """Medians of interleaved runs: a password that differs at once beside one that differs at its last byte."""
    secret = "p" * 4000
    exchange = PlainExchange({"u": Secret.of(secret)}.get)
    messages = [b"\0u\0" + b"x" + secret[1:].encode(), b"\0u\0" + secret[:-1].encode() + b"x"]
    nanoseconds: list[list[int]] = [[], []]
    for _ in range(1500):
        for message, times in zip(messages, nanoseconds, strict=True):
            start = time.perf_counter_ns()
            exchange.evaluate(message, 0)
            times.append(time.perf_counter_ns() - start)
    early, late = (sorted(times)[len(times) // 2] for times in nanoseconds)
    assert 0.5 < early / late < 2


@pytest.mark.parametrize("message", [b"\0alice\0wrong", b"\0alice\0alice-secret", b"\0nobody\0x", b"\0empty\0x"])
def test_cve_2021_38153_a_password_is_compared_in_constant_time_also_for_unknown_users(message: bytes) -> None:
    with patch("leadline.security.plain.compare_digest", wraps=compare_digest) as compared:
        evaluate(message)
    assert [len(argument) for argument in compared.call_args.args] == [32, 32]


def test_users_are_the_options_that_say_so() -> None:
    options = {name: Secret.of(value) for name, value in {"username": "b", "user_a": "1", "user_": "2"}.items()}
    assert plain_users(options) == {"a": Secret.of("1"), "": Secret.of("2")}


def test_no_outcome_shows_a_password() -> None:
    shown = [repr(evaluate(message)) for message in (b"\0alice\0alice-secret", b"\0alice\0hunter2", b"hunter2")]
    assert not any("secret" in text or "hunter2" in text for text in shown)
