"""Checks of values. A check returns the error of a value, in Kafka's words, or None if it is valid.

Pure: values in, texts out.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")


class ValueCheck(NamedTuple):
    is_valid: Callable[[Any], bool]
    requirement: str | Callable[[Any], str]  # the text of the error: "Value must be at least 1"; {name}: of the setting
    valid: str  # Kafka's text for the valid values: "[1,...]"
    shown: Callable[[Any], str] = lambda value: f"[{', '.join(value)}]" if isinstance(value, tuple) else str(value)

    def __call__(self, value: Any) -> str | None:
        return None if self.is_valid(value) else self._wrong(value)

    def _wrong(self, value: Any) -> str:
        return self.requirement(value) if callable(self.requirement) else self.requirement


def at_least(low: float) -> ValueCheck:
    return ValueCheck(lambda value: bool(value >= low), f"Value must be at least {low}", f"[{low},...]")


def between(low: float, high: float) -> ValueCheck:
    return ValueCheck(
        lambda value: low <= value <= high,
        lambda value: f"Value must be at least {low}" if value < low else f"Value must be no more than {high}",
        f"[{low},...,{high}]",
    )


def one_of(*allowed: str) -> ValueCheck:
    names = ", ".join(allowed)
    return ValueCheck(lambda value: value in allowed, f"String must be one of: {names}", f"[{names}]")


def any_case_of(*allowed: str) -> ValueCheck:
    names = ", ".join(allowed)
    return ValueCheck(
        lambda value: value.upper() in allowed,
        f"String must be one of (case insensitive): {names}",
        f"(case insensitive) [{names}]",
    )


def each_of(*allowed: str) -> ValueCheck:
    names = ", ".join(allowed)
    return ValueCheck(
        lambda values: set(values) <= set(allowed),
        f"String must be one of: {names}",
        f"[{names}]",
        shown=lambda values: str(next(value for value in values if value not in allowed)),
    )


def checked_late(low: int, high: int) -> ValueCheck:
    """A range that Kafka checks only when it uses the value."""
    return ValueCheck(lambda value: low <= value <= high, f"Value must be between {low} and {high}", "")


gzip_level = ValueCheck(
    lambda value: value == -1 or 1 <= value <= 9, "Value must be between 1 and 9 or equal to -1", "[1,...,9] or -1"
)
without_credentials = ValueCheck(  # commands and logs show the hosts, but not what was refused
    lambda connect: connect is None or "@" not in connect.partition("/")[0],
    "Hosts must have no user and no password before them: these belong in the section Client of a JAAS file",
    "",
    shown=lambda _: "[hidden]",
)
anything = ValueCheck(lambda value: True, "", "non-null string")
not_empty = ValueCheck(lambda value: value is None or value != "", "String must be non-empty", "non-empty string")
throttled_replicas = ValueCheck(
    lambda values: "".join(values) == "*" or all(_THROTTLED.fullmatch(part) for part in values),
    "{name} must be the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
)


def is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None


# The releases with a version of the inter-broker protocol or record format, each with the number of its -IV versions.
_RELEASES = """
    0.8.0 0.8.1 0.8.2 0.9.0 0.10.0:2 0.10.1:3 0.10.2:1 0.11.0:3 1.0:1 1.1:1 2.0:2 2.1:3 2.2:2 2.3:2 2.4:2 2.5:1 2.6:1
    2.7:3 2.8:2 3.0:2 3.1:1 3.2:1 3.3:4 3.4:1 3.5:3 3.6:3 3.7:5 3.8:1 3.9:1
"""
_UNRELEASED = ("3.9",)  # in Kafka 3.8: only the full names of its versions are valid


def _versions() -> tuple[str, ...]:
    versions: list[str] = []
    for release in _RELEASES.split():
        name, _, steps = release.partition(":")
        versions += [f"{name}-IV{step}" for step in range(int(steps))] if steps else [name]
    return tuple(versions)


def _position(text: str) -> int | None:
    """Which of the versions a text names: 2.8-IV0, or by 2.8 and 2.8.1 the last one of a release. None: no version."""
    parts = text.split(".")
    name = ".".join(parts[: 3 if text.startswith("0.") else 2])
    positions = [
        position
        for position, version_name in enumerate(_versions())
        if name == version_name or (version_name.startswith(f"{name}-") and name not in _UNRELEASED)
    ]
    return max(positions, default=None)


def precedes(text: str, other: str) -> bool:
    """Whether the first of two versions is the older one."""
    mine, its = _position(text), _position(other)
    assert mine is not None
    assert its is not None
    return mine < its


version = ValueCheck(
    lambda text: _position(text) is not None,
    lambda value: f"Version {value} is not a valid version",
    f"[{', '.join(_versions())}]",
)
