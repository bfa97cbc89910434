"""Checks of values, at their limits."""

import pytest

from leadline.config.checks import (
    ValueCheck,
    any_case_of,
    at_least,
    between,
    each_of,
    gzip_level,
    is_host,
    not_empty,
    one_of,
    throttled_replicas,
    version,
)


@pytest.mark.parametrize(
    ("check", "valid", "invalid"),
    [
        (at_least(1), [1, 2], [0, -1]),
        (between(0, 0.5), [0, 0.5], [-0.1, 0.6]),
        (one_of("a", "b"), ["a", "b"], ["A", "c", ""]),
        (any_case_of("UPGRADE", "DISABLED"), ["upgrade", "DISABLED"], ["up"]),
        (each_of("compact", "delete"), [(), ("delete",), ("delete", "compact")], [("delete", "keep")]),
        (gzip_level, [-1, 1, 9], [0, 10, -2]),
        (not_empty, [None, "x"], [""]),
        (throttled_replicas, [(), ("*",), ("0:1", "12:1001")], [("0",), ("*", "0:1"), ("0:1:2",), ("a:1",)]),
        (version, ["0.8.2", "0.10.0-IV1", "2.8", "2.8.1", "3.8-IV0"], ["2.9", "0.10", "3.8-IV9", "4.0", ""]),
    ],
    ids=lambda value: value.valid if isinstance(value, ValueCheck) else "",
)
def test_a_check_returns_what_is_wrong_with_an_invalid_value(
    check: ValueCheck, valid: list[object], invalid: list[object]
) -> None:
    assert [value for value in valid if check(value) is not None] == []
    assert [value for value in invalid if not check(value)] == []


@pytest.mark.parametrize(
    ("check", "value", "message"),
    [
        (between(0, 1), -1, "Value must be at least 0"),
        (between(0, 1), 2.0, "Value must be no more than 1"),
        (one_of("a", "b"), "c", "String must be one of: a, b"),
        (version, "9", "Version 9 is not a valid version"),
    ],
)
def test_what_is_wrong_is_said_in_kafkas_words(check: ValueCheck, value: object, message: str) -> None:
    assert check(value) == message


@pytest.mark.parametrize(
    ("text", "is_one"), [("host-1.example", True), ("::1%eth0", True), ("a b", False), ("ä", False)]
)
def test_a_host_has_only_the_characters_of_names_and_addresses(text: str, is_one: bool) -> None:
    assert is_host(text) == is_one
