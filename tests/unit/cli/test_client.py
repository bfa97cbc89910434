"""What the commands share: values as one types them, Kafka's client properties, colours."""

import argparse
import io
import time

import pytest

from leadline.cli.client import Failure, Paint, client_properties, complain, duration_ms, escaped, json_bytes, moment_ms

HOUR_MS = 3_600_000


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "meant"),
    [(r"\t", b"\t"), (r"\x01", b"\x01"), (r"\\t", b"\\t"), (":", b":"), ("→", "→".encode()), (r"a\0b", b"a\0b")],
)
def test_a_separator_may_be_typed_with_escapes(typed: str, meant: bytes) -> None:
    assert escaped(typed) == meant


def test_a_time_is_ms_or_iso_or_so_long_ago() -> None:
    now = time.time() * 1000
    assert moment_ms("1700000000000") == 1_700_000_000_000
    assert moment_ms("2023-11-14T22:13:20+00:00") == 1_700_000_000_000
    assert moment_ms("-1h") == pytest.approx(now - HOUR_MS, abs=5000)
    assert moment_ms("2 hours ago") == pytest.approx(now - 2 * HOUR_MS, abs=5000)
    assert moment_ms("now") == pytest.approx(now, abs=5000)
    with pytest.raises(argparse.ArgumentTypeError, match="is no time"):
        moment_ms("-1y")


@pytest.mark.parametrize(
    ("typed", "meant_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("1h30m", HOUR_MS + 30 * 60_000),
        ("2 hours", 2 * HOUR_MS),
        ("1 day 5 mins", 24 * HOUR_MS + 5 * 60_000),
        ("1w", 7 * 24 * HOUR_MS),
        ("PT2H", 2 * HOUR_MS),
        ("P1DT30S", 24 * HOUR_MS + 30_000),
    ],
)
def test_a_length_of_time_is_typed_in_words_or_as_iso_8601(typed: str, meant_ms: int) -> None:
    assert duration_ms(typed) == meant_ms


@pytest.mark.parametrize("typed", ["", "5", "h", "2 moons", "-1h", "P", "PT", "P1M", "1h,2m"])
def test_what_is_no_length_of_time_is_refused(typed: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no length of time"):
        duration_ms(typed)


@pytest.mark.parametrize(
    ("kafka", "librdkafka"),
    [
        (
            {"sasl.jaas.config": 'x.PlainLoginModule required username="me" password="a=b";'},
            {"sasl.username": "me", "sasl.password": "a=b"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem", "ssl.truststore.password": "x"},
            {"ssl.ca.location": "ca.pem"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem"},
            {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"},
        ),
        ({"security.protocol": "SASL_SSL", "retries": "3"}, {"security.protocol": "SASL_SSL", "retries": "3"}),
    ],
)
def test_kafkas_own_client_properties_are_understood(kafka: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert client_properties(kafka) == librdkafka


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ({"ssl.truststore.location": "trust.jks"}, "trust.jks is a JKS store"),
        ({"sasl.jaas.config": "x.Krb5LoginModule required useKeyTab=true;"}, "only a username and a password"),
    ],
)
def test_what_the_client_cannot_use_is_refused_by_name(kafka: dict[str, str], said: str) -> None:
    with pytest.raises(Failure, match=said):
        client_properties(kafka)


def test_colours_are_for_terminals_and_never_against_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Paint(Terminal()).bold("x") == "\033[1mx\033[0m"
    assert Paint(io.StringIO()).bold("x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint(Terminal()).bold("x") == "x"


def test_a_complaint_takes_the_place_of_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    complain("no")
    assert terminal.getvalue() == "\r\033[K\033[31mleadline:\033[0m no\n"


def test_what_a_record_holds_does_not_command_the_terminal() -> None:
    assert Paint(Terminal()).harmless("\x1b[2Ja\tb\n") == "\\x1b[2Ja\tb\n"
    assert Paint(io.StringIO()).harmless("\x1b[2J") == "\x1b[2J"


def test_bytes_in_json_are_text_or_say_that_they_are_not() -> None:
    assert json_bytes("value", "né".encode()) == {"value": "né"}
    assert json_bytes("value", None) == {"value": None}
    assert json_bytes("value", b"\xff") == {"valueBase64": "/w=="}
