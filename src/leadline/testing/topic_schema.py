"""The schema of a topic's records, inferred from them: types of keys and values, and the fields of JSON objects.

Pure: records in, a description out.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from leadline.testing.records import ConsumedRecord

JSON_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


@dataclass
class FieldSummary:
    """A field of JSON objects. `types` counts its types; a field that is not in all objects is optional."""

    types: Counter[str] = field(default_factory=Counter)
    is_optional: bool = False
    fields: dict[str, "FieldSummary"] = field(default_factory=dict)  # of objects in it

    def __str__(self) -> str:
        return " or ".join(sorted(self.types)) + (", optional" if self.is_optional else "")


@dataclass
class TopicSchema:
    """`print` shows it as a tree."""

    topic: str
    records: int = 0
    keys: Counter[str] = field(default_factory=Counter)  # by type: null, text, bytes, json object, json integer ...
    values: Counter[str] = field(default_factory=Counter)
    headers: Counter[str] = field(default_factory=Counter)  # by name
    fields: dict[str, FieldSummary] = field(default_factory=dict)  # of the JSON objects among the values

    def __str__(self) -> str:
        lines = [f"{self.topic}: {self.records} record{'' if self.records == 1 else 's'}"]
        lines += [f"  {name:7} {_counted(counts)}" for name, counts in (("keys", self.keys), ("values", self.values))]
        if self.headers:
            lines.append(f"  headers {_counted(self.headers)}")
        return "\n".join([*lines, *_field_lines(self.fields, "    ")])


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common()) or "none"


def _field_lines(fields: dict[str, FieldSummary], indent: str) -> list[str]:
    lines: list[str] = []
    for name, summary in fields.items():
        lines += [f"{indent}{name}: {summary}", *_field_lines(summary.fields, f"{indent}  ")]
    return lines


def schema_of(topic: str, records: Iterable[ConsumedRecord]) -> TopicSchema:
    schema, objects = TopicSchema(topic), list[dict[str, Any]]()
    for record in records:
        schema.records += 1
        schema.keys[_type_of(record.key)[0]] += 1
        name, value = _type_of(record.value)
        schema.values[name] += 1
        schema.headers.update(header.key for header in record.headers)
        if isinstance(value, dict):
            objects.append(value)
    schema.fields = _fields_of(objects)
    return schema


def _fields_of(objects: list[dict[str, Any]]) -> dict[str, FieldSummary]:
    fields: dict[str, FieldSummary] = {}
    for value in objects:
        for name, content in value.items():
            fields.setdefault(name, FieldSummary()).types[_json_type(content)] += 1
    for name, summary in fields.items():
        summary.is_optional = sum(summary.types.values()) < len(objects)
        summary.fields = _fields_of([value[name] for value in objects if isinstance(value.get(name), dict)])
    return fields


def _json_type(value: Any) -> str:
    return "null" if value is None else JSON_TYPES[type(value)]


def _type_of(data: bytes | None) -> tuple[str, Any]:
    """Plain words are text, although a number alone would be JSON as well."""
    if data is None:
        return "null", None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "bytes", None
    try:
        value = json.loads(text)
    except ValueError:
        return ("text" if text.isprintable() or not text else "bytes"), None
    return f"json {_json_type(value)}", value
