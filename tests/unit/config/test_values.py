"""Texts become values, and values texts, as in Java."""

import pytest

from leadline.config import Kind, Password
from leadline.config.values import csv, read, write


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.INT, "+7", 7),
        (Kind.INT, "-2147483648", -(1 << 31)),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "\t9223372036854775807\n", (1 << 63) - 1),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.DOUBLE, ".5d", 0.5),
        (Kind.STRING, "  a b ", "a b"),
        (Kind.LIST, "a , b,", ("a", "b", "")),
        (Kind.LIST, " ", ()),
        (Kind.CLASS, "a.B", "a.B"),
        (Kind.PASSWORD, " p ", Password("p")),
    ],
)
def test_a_text_is_read_by_its_kind(kind: Kind, text: str, value: object) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "limit"),
    [
        (Kind.BOOLEAN, "yes", "true or false"),
        (Kind.INT, "1_000", "32-bit"),
        (Kind.INT, "2147483648", "between -2147483648 and 2147483647"),
        (Kind.SHORT, "32768", "16-bit"),
        (Kind.LONG, "9" * 5000, "64-bit"),
        (Kind.LONG, "", "64-bit"),
        (Kind.DOUBLE, "inf", "a number"),
    ],
)
def test_what_is_no_value_is_told_what_it_must_be(kind: Kind, text: str, limit: str) -> None:
    with pytest.raises(ValueError, match=limit):
        read(kind, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (-1, "-1"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
        (0.5, "0.5"),
        (0.0, "0.0"),
        (0.001, "0.001"),
        (0.00025, "2.5E-4"),
        (0.0001, "1.0E-4"),
        (1234567.5, "1234567.5"),
        (10_000_000.0, "1.0E7"),
        (-12345678.9, "-1.23456789E7"),
        (1e22, "1.0E22"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_a_value_is_written_as_java_writes_it(value: float | tuple[str, ...] | None, text: str | None) -> None:
    assert write(value) == text


def test_a_password_shows_itself_nowhere() -> None:
    password = Password("secret")
    assert "secret" not in f"{password} {password!r} {write(password)}"


def test_empty_parts_of_a_text_with_commas_are_left_out() -> None:
    assert csv(" a , ,b,") == ("a", "b")
