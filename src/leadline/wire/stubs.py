"""Writes messages.pyi, what a type checker knows about the messages, from the schema:

python -m leadline.wire.stubs > src/leadline/wire/messages.pyi
"""

import sys
from collections.abc import Iterator

from leadline.wire import schema
from leadline.wire.schema import EMPTY

_TYPES = {"float64": "float", "bool": "bool", "uuid": "UUID", "string": "str", "bytes": "bytes", "records": "Records"}

_OPENING = '''\
"""All messages of the protocol. Made from schema.txt by `python -m leadline.wire.stubs`; a test holds it to that."""

from uuid import UUID

from leadline.wire.classes import Message, Struct
from leadline.wire.primitives import Records
'''


def stubs() -> str:
    return "\n".join([_OPENING, *("\n".join(_message(schema.message(name))) + "\n" for name in schema.heads())])


def _message(message: schema.MessageSchema) -> Iterator[str]:
    *inner, root = message.structs
    yield f"class {root.name}(Message):" + ("" if root.fields else " ...")
    for struct in inner:
        yield f"    class {struct.name}(Struct):"
        yield from (f"        {_field(field, f'{root.name}.')}" for field in struct.fields)
        yield ""
    yield from (f"    {_field(field, '')}" for field in root.fields)


def _field(field: schema.FieldSchema, outer: str) -> str:
    of = f"{outer}{field.kind}" if field.struct else _TYPES.get(field.kind, "int")
    listed = f"list[{of}]" if field.is_array else of
    default = "..." if field.default == EMPTY or field.kind == "uuid" else _quoted(field.default)
    return f"{field.name}: {listed}{' | None' if field.nullable or field.default is None else ''} = {default}"


def _quoted(default: schema.Default) -> str:
    return f'"{default}"' if isinstance(default, str) else f"{default!r}".replace("b''", 'b""')


if __name__ == "__main__":
    sys.stdout.write(stubs())
