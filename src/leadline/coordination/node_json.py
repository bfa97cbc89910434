"""JSON as Kafka reads and writes it in a node, with Jackson: no spaces, UTF-8, escapes in capital hex.

Pure: bytes in, checked values out.

A character beyond U+FFFF is written as two escapes. Values that Kafka does not write are rejected: another type, an
integer beyond 32 bits. Unknown fields are ignored.
"""

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
_TO_ESCAPE = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")


class MalformedNode(Exception):
    """The data of a node does not fit its path. The fault is that of the writer."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path, self.reason = path, reason


class _Missing:
    """The default of a field that has none: the field is required."""


REQUIRED: Final = _Missing()


def dumps(value: Mapping[str, object]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if "\\u" in text:
        text = _ESCAPED.sub(lambda escape: escape[0][:2] + escape[0][2:].upper(), text)
    return _TO_ESCAPE.sub(_in_escapes, text).encode()


def _in_escapes(char: re.Match[str]) -> str:
    units = char[0].encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def loads(path: str, data: bytes) -> "Fields":
    """The object that a node holds."""
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedNode(path, f"not JSON: {error}; it starts with {data[:60]!r}") from None
    return Fields(path, value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


class Fields:
    """An object within a node. MalformedNode names the field that is missing or has another type."""

    def __init__(self, path: str, value: object, name: str = "") -> None:
        self.path, self._name = path, name
        if not isinstance(value, dict):
            raise self.malformed(f"{name or 'it'} is not an object but {value!r:.60}")
        self._fields: dict[str, object] = value

    def malformed(self, reason: str) -> MalformedNode:
        return MalformedNode(self.path, reason)

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def names(self) -> list[str]:
        return list(self._fields)

    def integer(self, name: str, default: int | _Missing = REQUIRED) -> int:
        return self._integer(name, self._get(name, default))

    def integers(self, name: str, default: tuple[int, ...] | _Missing = REQUIRED) -> tuple[int, ...]:
        items = self._items(name, default)
        for item in items:
            if type(item) is not int or not -INT_MAX - 1 <= item <= INT_MAX:
                self._integer(name, item)  # raises
        return tuple(items)  # type: ignore[arg-type]

    def string(self, name: str, default: str | _Missing = REQUIRED) -> str:
        return self._string(name, self._get(name, default))

    def strings(self, name: str) -> tuple[str, ...]:
        return tuple(self._string(name, item) for item in self._items(name, REQUIRED))

    def long(self, name: str, default: str | _Missing = REQUIRED) -> int:
        """An integer of 64 bits, written as a string."""
        return self._long(name, self.string(name, default))

    def whole(self, name: str) -> int:
        """An integer of 64 bits, written as a number."""
        value = self._get(name, REQUIRED)
        if not isinstance(value, int) or isinstance(value, bool) or not -LONG_MAX - 1 <= value <= LONG_MAX:
            raise self.malformed(f"{self._full(name)} is not an integer of 64 bits but {value!r:.60}")
        return value

    def fields(self, name: str) -> "Fields":
        """An object within this one; an empty one if it is missing."""
        return Fields(self.path, self._get(name, {}), self._full(name))

    def list_of_fields(self, name: str) -> "list[Fields]":
        return [Fields(self.path, item, self._full(name)) for item in self._items(name, REQUIRED)]

    def _full(self, name: str) -> str:
        return f"{self._name}.{name}" if self._name else name

    def _get(self, name: str, default: object) -> object:
        value = self._fields.get(name)
        if value is not None:
            return value
        if default is REQUIRED:
            raise self.malformed(f"{self._full(name)} is missing")
        return default

    def _items(self, name: str, default: object) -> list[object]:
        value = self._get(name, default)
        if not isinstance(value, list | tuple):
            raise self.malformed(f"{self._full(name)} is not a list but {value!r:.60}")
        return list(value)

    def _integer(self, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not -INT_MAX - 1 <= value <= INT_MAX:
            raise self.malformed(f"{self._full(name)} is not an integer of 32 bits but {value!r:.60}")
        return value

    def _string(self, name: str, value: object) -> str:
        if not isinstance(value, str):
            raise self.malformed(f"{self._full(name)} is not a string but {value!r:.60}")
        return value

    def _long(self, name: str, text: str) -> int:
        value = integer_of(text)
        if value is None or not -LONG_MAX - 1 <= value <= LONG_MAX:
            raise self.malformed(f"{self._full(name)} is not an integer of 64 bits but {text!r:.60}")
        return value


def integer_of(text: str) -> int | None:
    """Accepts decimal digits with an optional sign. None for other texts, also those that `int` accepts."""
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
