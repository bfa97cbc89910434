"""A request with each of its fields at its limits, one at a time.

A base request is a nested dict with a value for every field of every version. `build` makes the message of one version
from it. `variants` names what else a field may hold, for each field of that version, nested ones included: null, empty,
the least and the greatest integer, -1, 0, a very long string, a name that nothing has, an element twice. `vary` puts
one of them into a message. In flexible versions there is one more: a tagged field that nobody knows.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple
from uuid import UUID

from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from leadline.wire.frames import SIZE, request_bytes
from leadline.wire.schema import FieldSchema

INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
LONG, NOBODY = "x" * 10_000, "nothing-has-this-name"
UNKNOWN_ID = UUID("6e6f7468-696e-4768-a173-746869736964")
UNKNOWN_TAG = b"\x01\xe3\x7f\x02hi"  # one tagged field: number 16355, two bytes
Path = tuple[str | int, ...]


class Variant(NamedTuple):
    """One field of a request with one value."""

    path: Path  # empty: the request as it is
    name: str
    value: object = None

    def __str__(self) -> str:
        return f"{self.field} {self.name}".strip()

    @property
    def field(self) -> str:
        return ".".join(step for step in self.path if isinstance(step, str))


WELL_FORMED = Variant((), "well-formed")
TAGGED = Variant((), "unknown tag")
DUPLICATE = "duplicate"


def build(kind: type[Message], version: int, values: dict[str, Any]) -> Message:
    message = _struct(kind, kind, version, values)
    assert isinstance(message, Message)
    return message


def _struct(message: type[Message], kind: type[Part], version: int, values: dict[str, Any]) -> Part:
    fields = {field.name: field for field in kind.SPEC.fields}
    assert values.keys() <= fields.keys(), f"{kind.__qualname__} has no {values.keys() - fields.keys()}"
    return kind(
        **{
            name: _value(message, fields[name], version, value)
            for name, value in values.items()
            if version in fields[name].versions
        }
    )


def _value(message: type[Message], field: FieldSchema, version: int, value: Any) -> Any:
    if field.struct is None or value is None:
        return deepcopy(value)
    kind = message.structs[field.kind]
    if field.is_array:
        return [_struct(message, kind, version, item) for item in value]
    return _struct(message, kind, version, value)


def variants(message: Message, version: int) -> Iterator[Variant]:
    yield WELL_FORMED
    yield from _of_struct(message, version, ())
    if version in message.FLEXIBLE:
        yield TAGGED


def _of_struct(part: Part, version: int, path: Path) -> Iterator[Variant]:
    for field in part.SPEC.fields:
        if version in field.versions:
            yield from _of_field(field, getattr(part, field.name), version, (*path, field.name))


def _of_field(field: FieldSchema, value: Any, version: int, path: Path) -> Iterator[Variant]:
    if version in field.nullable and value is not None:
        yield Variant(path, "null")
    if field.is_array:
        yield from _of_array(field, value, version, path)
    elif isinstance(value, Part):
        yield from _of_struct(value, version, path)
    else:
        yield from _of_primitive(field.kind, value, path)


def _of_array(field: FieldSchema, items: Any, version: int, path: Path) -> Iterator[Variant]:
    if not items:
        return
    yield Variant(path, "empty", [])
    yield Variant(path, DUPLICATE)
    if isinstance(items[0], Part):
        yield from _of_struct(items[0], version, (*path, 0))
    else:
        yield from _of_primitive(field.kind, items[0], (*path, 0))


def _of_primitive(kind: str, value: object, path: Path) -> Iterator[Variant]:
    values: dict[str, object] = {}
    if kind in INTEGERS:
        greatest = 2 ** INTEGERS[kind] - 1
        values = {"least": -greatest - 1, "-1": -1, "0": 0, "greatest": greatest}
    elif kind == "float64":
        values = {"-1": -1.0, "0": 0.0, "greatest": 1.7976931348623157e308, "infinite": float("inf")}
    elif kind == "bool":
        values = {str(not value).lower(): not value}
    elif kind == "string":
        values = {"empty": "", "long": LONG, "unknown": NOBODY}
    elif kind in ("bytes", "records"):
        values = {"empty": b"", "long": bytes(10_000)}
    elif kind == "uuid":
        values = {"zero": UUID(int=0), "unknown": UNKNOWN_ID}
    for name, limit in values.items():
        if limit != value:
            yield Variant(path, name, limit)


def vary(message: Message, variant: Variant, name: str) -> None:
    """`name`: of the case. What nothing else has the name of stays so in the next case."""
    if not variant.path:
        return
    *steps, last = variant.path
    holder: Any = message
    for step in steps:
        if isinstance(step, int):
            holder = holder[step]
            continue
        if isinstance(part := getattr(holder, step), Part):  # a default is shared: it gets one of its own
            setattr(holder, step, part := deepcopy(part))
        holder = getattr(holder, step)
    if variant.name == DUPLICATE:
        items = getattr(holder, str(last))
        items.append(deepcopy(items[0]))
        return
    value = f"{variant.value}-{name}" if variant.value in (LONG, NOBODY) else variant.value
    if isinstance(last, int):
        holder[last] = value
    else:
        setattr(holder, last, value)


def encoded(message: Message, version: int, variant: Variant, correlation_id: int, client_id: str) -> bytes:
    frame = bytes(request_bytes(message, version, correlation_id, client_id))
    if variant != TAGGED:
        return frame
    assert frame[-1] == 0, "the request has tagged fields of its own"
    frame = frame[SIZE.size : -1] + UNKNOWN_TAG
    return SIZE.pack(len(frame)) + frame
