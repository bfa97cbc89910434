"""Reads schema.txt, one message at a time, when it is first asked for. The text opens with its own legend.

Versions are ranges: `3 in field.versions`. None at all is the empty range.
"""

from collections.abc import Iterator
from functools import cache
from pkgutil import get_data
from typing import NamedTuple
from uuid import UUID

from leadline.model import NO_ID

EMPTY: tuple[()] = ()  # the default of an array, and of a struct: nothing but defaults
NEVER = range(0)

Default = bool | int | float | str | bytes | UUID | tuple[()] | None

# The defaults of fields, where the text has none. Types that are not here are structs.
PRIMITIVES: dict[str, Default] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "uuid": NO_ID,
    "string": "",
    "bytes": b"",
    "records": None,
}


class MessageHead(NamedTuple):
    """The line that opens a message."""

    name: str
    api_key: int | None
    versions: range
    flexible: range
    body: str  # the lines below it


class FieldSchema(NamedTuple):
    name: str
    kind: str  # of the elements, if it is an array
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    default: Default
    is_ignorable: bool
    is_rigid: bool
    struct: "StructSchema | None"  # what `kind` names, unless that is a primitive


class StructSchema:
    """Fields in their order. One that is used twice is one object."""

    def __init__(self, name: str, versions: range) -> None:
        self.name, self.versions = name, versions
        self.fields: list[FieldSchema] = []

    def present(self, version: int) -> Iterator[FieldSchema]:
        return (field for field in self.fields if version in field.versions and field.tag is None)

    def tagged(self, version: int) -> list[FieldSchema]:
        tagged_fields = [
            (field.tag, field) for field in self.fields if version in field.versions and field.tag is not None
        ]
        return [field for _, field in sorted(tagged_fields, key=lambda pair: pair[0])]

    def absent(self, version: int) -> Iterator[FieldSchema]:
        return (field for field in self.fields if version not in field.versions)

    def inner(self) -> Iterator["StructSchema"]:
        """The structs below it, each after those that it holds itself."""
        for field in self.fields:
            if field.struct is not None:
                yield from field.struct.inner()
                yield field.struct


class MessageSchema(NamedTuple):
    head: MessageHead
    root: StructSchema

    @property
    def structs(self) -> list[StructSchema]:
        """All of them, each after those that it holds; the message itself is the last."""
        return list(dict.fromkeys([*self.root.inner(), self.root]))


@cache
def text() -> str:
    data = get_data(__package__, "schema.txt")
    assert data is not None, "schema.txt belongs into the package"
    return data.decode()


@cache
def heads() -> dict[str, MessageHead]:
    """Every message that there is, by name, in the order of the text."""
    blocks = (block for block in text().split("\n\n") if not block.startswith("#"))
    return {head.name: head for head in map(_head, blocks)}


@cache
def message(name: str) -> MessageSchema:
    return _Body.parse(heads()[name])


def versions(notation: str, last: int) -> range:
    """`3+`, `0-7` or `4`; where it is open, up to the last version there is."""
    if notation.endswith("+"):
        return range(int(notation[:-1]), last + 1)
    low, _, high = notation.partition("-")
    return range(int(low), int(high or low) + 1)


def _head(block: str) -> MessageHead:
    line, _, body = block.partition("\n")
    name, *words = line.split()
    attributes = dict(zip(words[::2], words[1::2], strict=True))
    span = versions(attributes["versions"], 0)
    flexible = versions(attributes["flexible"], span[-1]) if "flexible" in attributes else NEVER
    return MessageHead(name, int(attributes["api"]) if "api" in attributes else None, span, flexible, body)


class _Body:
    """The lines below the head of one message, taken from the top."""

    def __init__(self, head: MessageHead) -> None:
        self._last = head.versions[-1]
        self._lines = head.body.splitlines()
        self._at = 0
        self._shared: dict[str, StructSchema] = {}

    @classmethod
    def parse(cls, head: MessageHead) -> MessageSchema:
        body = cls(head)
        for line in body._lines:  # named before the fields that use them are read
            words = line.split()
            if words[0] == "struct":
                span = versions(words[2], body._last) if len(words) > 2 else head.versions
                body._shared[words[1]] = StructSchema(words[1], span)
        root = StructSchema(head.name, head.versions)
        body._fill(root, 2)
        return MessageSchema(head, root)

    def _fill(self, struct: StructSchema, indent: int) -> None:
        """Takes the lines of this indentation, and those below them."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if len(line) - len(line.lstrip()) != indent:
                return
            self._at += 1
            words = line.split()
            if words[0] == "struct":
                self._fill(self._shared[words[1]], indent + 2)
            else:
                struct.fields.append(self._field(words, struct.versions, indent))

    def _field(self, words: list[str], around: range, indent: int) -> FieldSchema:
        name, notation, *rest = words
        full, mark, null_versions = notation.partition("?")
        kind, is_array = full.strip("[]"), full.startswith("[")
        span = versions(rest.pop(0), self._last) if rest and rest[0][0].isdigit() else around
        nullable = versions(null_versions, self._last) if null_versions else span if mark else NEVER
        tag = int(rest[rest.index("tag") + 1]) if "tag" in rest else None
        default: Default = EMPTY if is_array else PRIMITIVES.get(kind, EMPTY)
        if "=" in rest:
            default = _default(kind, rest[rest.index("=") + 1])
        struct = None if kind in PRIMITIVES else self._struct(kind, span, indent)
        return FieldSchema(
            name, kind, is_array, span, nullable, tag, default, "ignorable" in rest, "rigid" in rest, struct
        )

    def _struct(self, name: str, span: range, indent: int) -> StructSchema:
        if name in self._shared:
            return self._shared[name]
        struct = StructSchema(name, span)
        self._fill(struct, indent + 2)
        return struct


def _default(kind: str, word: str) -> Default:
    if word == "null":
        return None
    if kind == "bool":
        return word == "true"
    return word if kind == "string" else int(word)
