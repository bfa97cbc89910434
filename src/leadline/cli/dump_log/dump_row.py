"""A row of a dump: its type, and its fields in the order in which they are printed."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from leadline.admin.json_values import Json, json_bytes
from leadline.cli.output import json_line
from leadline.errors import CorruptFile

PROPERTIES = frozenset({"metaProperties", "partitionMetadata"})  # printed with one field per line


OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})  # Kafka prints these as Java's OptionalLong


NAMED_IN_FILE = frozenset({"metaProperties", "partitionMetadata", "cleanShutdown"})  # fields as the file names them
RENAMED = {"compresscodec": "compression_codec", "isvalid": "is_valid", "payload": "value"}

Value = Json | bytes


@dataclass(frozen=True, slots=True)
class DumpRow:
    """One line in most files."""

    type: str
    fields: Mapping[str, Value]

    def text(self) -> str:
        if self.type == "segment":
            return f"Log starting offset: {_text('', self.fields['startingOffset'])}"
        parts = [f"{name}: {_text(name, value)}" for name, value in self.fields.items()]
        return ("| " if self.type == "record" else "") + ("\n" if self.type in PROPERTIES else " ").join(parts)

    def json(self, path: str) -> str:
        members: dict[str, Json] = {"file": path, "type": snake_case(self.type)}
        for key, value in self.fields.items():
            name = key if self.type in NAMED_IN_FILE else snake_case(key)
            members |= json_bytes(name, value) if isinstance(value, bytes) else {name: value}
        return json_line(members)


def snake_case(name: str) -> str:
    """A field's name in JSON. The text has the names of Kafka's DumpLogSegments: baseOffset, CreateTime, isvalid."""
    name = RENAMED.get(name, name)
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _text(name: str, value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if name in OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


Rows = Iterator[DumpRow | CorruptFile]  # a reader may continue after an error


Reader = Callable[[str], Rows]
