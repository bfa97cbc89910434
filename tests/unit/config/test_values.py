"""Texts become values, and values texts, as in Java."""

import pytest

from leadline.config.values import ConfigType, Password, csv, read, write


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ConfigType.BOOLEAN, " TRUE ", True),
        (ConfigType.INT, "+7", 7),
        (ConfigType.INT, "-2147483648", -(1 << 31)),
        (ConfigType.SHORT, "32767", 32767),
        (ConfigType.LONG, "\t9223372036854775807\n", (1 << 63) - 1),
        (ConfigType.DOUBLE, "1e3", 1000.0),
        (ConfigType.DOUBLE, ".5d", 0.5),
        (ConfigType.STRING, "  a b ", "a b"),
        (ConfigType.LIST, "a , b,", ("a", "b", "")),
        (ConfigType.LIST, " ", ()),
        (ConfigType.CLASS, "a.B", "a.B"),
        (ConfigType.PASSWORD, " p ", Password("p")),
    ],
)
def test_a_text_is_read_by_its_kind(kind: ConfigType, text: str, value: object) -> None:
    assert read(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "limit"),
    [
        (ConfigType.BOOLEAN, "yes", "true or false"),
        (ConfigType.INT, "1_000", "Not a number of type INT"),
        (ConfigType.INT, "2147483648", "Not a number of type INT"),
        (ConfigType.SHORT, "32768", "Not a number of type SHORT"),
        (ConfigType.LONG, "9" * 5000, "Not a number of type LONG"),
        (ConfigType.LONG, "", "Not a number of type LONG"),
        (ConfigType.DOUBLE, "inf", "a number"),
    ],
)
def test_an_invalid_value_is_refused_with_what_it_must_be(kind: ConfigType, text: str, limit: str) -> None:
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
