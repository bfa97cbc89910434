"""Levels of loggers: which ones a pattern means, and which levels there are."""

import argparse

import pytest

from leadline.admin.errors import Failure
from leadline.cli.log_levels import _expanded, _selected, logger_level

LEVELS = {"root": "INFO", "leadline.log.log": "INFO", "leadline.log.segment": "WARN", "leadline.api": "INFO"}


@pytest.mark.parametrize(("text", "expected"), [("root=warn", ("root", "WARN")), ("a.b=TRACE", ("a.b", "TRACE"))])
def test_a_level_is_written_in_either_case(text: str, expected: tuple[str, str]) -> None:
    assert logger_level(text) == expected


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"expected one of .*, not 'loud'"):
        logger_level("root=loud")


@pytest.mark.parametrize(
    ("patterns", "names"),
    [([], list(LEVELS)), (["leadline.log.*"], ["leadline.log.log", "leadline.log.segment"]), (["ROOT"], [])],
)
def test_patterns_select_loggers(patterns: list[str], names: list[str]) -> None:
    assert list(_selected(LEVELS, patterns)) == names


def test_a_later_pattern_counts_before_an_earlier_one() -> None:
    changes: dict[str, str | None] = {"leadline.*": "DEBUG", "leadline.log.log": None}
    assert _expanded(1, changes, LEVELS) == {
        "leadline.log.log": None,
        "leadline.log.segment": "DEBUG",
        "leadline.api": "DEBUG",
    }


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("leadline.log", "broker 1 has no logger leadline.log: those below it are 'leadline.log.*'"),
        ("leadline.apo", "broker 1 has no logger leadline.apo.*leadline.api"),
    ],
)
def test_a_logger_that_does_not_exist_is_named_with_a_guess(pattern: str, message: str) -> None:
    with pytest.raises(Failure, match=message):
        _expanded(1, {pattern: "DEBUG"}, LEVELS)
