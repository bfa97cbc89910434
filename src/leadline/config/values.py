"""The types a setting may have, and how Kafka reads and writes a value of each.

Texts are trimmed as in Java. Numbers have Java's ranges: int 32 bits, short 16, long 64. A list is split at commas; an
empty text is the empty list. A class is its name.

Pure: text in, values out.
"""

import math
import re
from dataclasses import dataclass
from enum import IntEnum

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

BLANK = "".join(map(chr, range(33)))  # removed by Java's trim
_COMMA = re.compile(r"\s*,\s*", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?", re.ASCII)


class InvalidSetting(ValueError):
    """A setting is unknown or its value invalid. The message has the name, the value and the limit."""


class ConfigType(IntEnum):
    """The type of a setting. The numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Password:
    """A text that no log and no error message shows."""

    value: str

    def __repr__(self) -> str:
        return "[hidden]"


Value = bool | int | float | str | tuple[str, ...] | Password | None

_RANGES = {
    ConfigType.INT: (-(1 << 31), INT_MAX),
    ConfigType.SHORT: (-(1 << 15), (1 << 15) - 1),
    ConfigType.LONG: (-(1 << 63), LONG_MAX),
}


def read(kind: ConfigType, text: str) -> Value:
    """Raises ValueError with the error in the text, in Kafka's words."""
    text = text.strip(BLANK)
    if kind is ConfigType.BOOLEAN:
        return _boolean(text)
    if kind in _RANGES:
        return _whole(kind, text)
    if kind is ConfigType.DOUBLE:
        return _double(text)
    if kind is ConfigType.LIST:
        return tuple(_COMMA.split(text)) if text else ()
    return Password(text) if kind is ConfigType.PASSWORD else text


def write(value: Value) -> str | None:
    """The text of a value in DescribeConfigs; None for no value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, Password):
        return repr(value)
    return None if value is None else str(value)


def csv(text: str | None) -> tuple[str, ...]:
    """The non-empty parts of a text, split at commas."""
    return tuple(part for part in _COMMA.split((text or "").strip(BLANK)) if part)


def _boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return lower == "true"


def _whole(kind: ConfigType, text: str) -> int:
    low, high = _RANGES[kind]
    if not _WHOLE.fullmatch(text) or len(text) > 40 or not low <= (value := int(text)) <= high:
        raise ValueError(f"Not a number of type {kind.name}")
    return value


def _double(text: str) -> float:
    match = _DOUBLE.fullmatch(text)
    if not match:
        raise ValueError("Not a number of type DOUBLE")
    return float(match[1])


def _java_double(value: float) -> str:
    """Java's Double.toString: decimal from 0.001 to below ten million, otherwise as 1.0E10."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    digits, exponent = f"{value!r}".lower().partition("e")[::2]
    if not exponent:
        digits, exponent = _scientific(digits)
    whole, _, fraction = digits.partition(".")
    return f"{whole}.{fraction or '0'}E{int(exponent)}"


def _scientific(plain: str) -> tuple[str, str]:
    """The digits of a decimal number with one before the point, and the exponent."""
    sign, plain = ("-", plain[1:]) if plain[0] == "-" else ("", plain)
    whole, _, fraction = plain.partition(".")
    digits = (whole + fraction).strip("0") if whole == "0" else (whole + fraction).rstrip("0")
    exponent = len(whole) - 1 if whole != "0" else -(len(fraction) - len(fraction.lstrip("0")) + 1)
    return f"{sign}{digits[0]}.{digits[1:]}", str(exponent)
