"""A row of a dump: its type, and its fields in the order in which they are printed."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from leadline.cli.json_values import Json, json_bytes
from leadline.errors import CorruptFile

PROPERTIES = frozenset({"metaProperties", "partitionMetadata"})  # printed with one field per line


OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})  # Kafka prints these as Java's OptionalLong


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
        members: dict[str, Json] = {"file": path, "type": self.type}
        for name, value in self.fields.items():
            members |= json_bytes(name, value) if isinstance(value, bytes) else {name: value}
        return json.dumps(members, ensure_ascii=False)


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
