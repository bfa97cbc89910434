"""A record as consume prints it: as text or as JSON."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leadline.admin.json_values import Json, json_bytes

if TYPE_CHECKING:
    from confluent_kafka import Message


FIELDS = ("key", "partition", "offset", "timestamp", "headers")


TIME_TYPES = {1: "CreateTime", 2: "LogAppendTime"}


Layout = Callable[["Message"], bytes]


def as_text(print_fields: Sequence[str], separator: bytes = b"\t") -> Layout:
    def layout(message: "Message") -> bytes:
        parts: list[bytes] = []
        if "timestamp" in print_fields:
            kind, timestamp = message.timestamp()
            parts.append(f"{TIME_TYPES[kind]}:{timestamp}".encode() if kind in TIME_TYPES else b"NO_TIMESTAMP")
        if "partition" in print_fields:
            parts.append(b"Partition:%d" % (message.partition() or 0))
        if "offset" in print_fields:
            parts.append(b"Offset:%d" % (message.offset() or 0))
        if "headers" in print_fields:
            headers = [name.encode() + b":" + _or_null(value) for name, value in headers_of(message)]
            parts.append(b",".join(headers) or b"NO_HEADERS")
        if "key" in print_fields:
            parts.append(_or_null(message.key()))
        parts.append(_or_null(message.value()))
        return separator.join(parts) + b"\n"

    return layout


def headers_of(message: "Message") -> list[tuple[str, bytes | None]]:
    headers = message.headers() or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _or_null(data: bytes | None) -> bytes:
    return b"null" if data is None else data


def as_json(print_fields: Sequence[str]) -> Layout:
    """All fields, or the value and the selected fields."""
    selected = frozenset(print_fields or FIELDS)

    def layout(message: "Message") -> bytes:
        kind, timestamp = message.timestamp()
        headers: list[Json] = [{"key": name, **json_bytes("value", value)} for name, value in headers_of(message)]
        members_by_field: dict[str, dict[str, Json]] = {
            "partition": {"partition": message.partition()},
            "offset": {"offset": message.offset()},
            "timestamp": {"timestamp": timestamp, "timestamp_type": TIME_TYPES.get(kind)},
            "headers": {"headers": headers},
            "key": json_bytes("key", message.key()),
        }
        record: dict[str, Json] = {"topic": message.topic()}
        for name, members in members_by_field.items():
            record |= members if name in selected else {}
        record |= json_bytes("value", message.value())
        return json.dumps(record, ensure_ascii=False).encode() + b"\n"

    return layout
