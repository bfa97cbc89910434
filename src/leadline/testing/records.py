"""Records as a test writes and reads them.

What may be written: text, bytes, None, or a dict or list, which becomes JSON; alone, or as a tuple of key and value.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from leadline.records.record import Record, RecordHeader

WORD = 0xFFFFFFFF
SEED, FACTOR, SHIFT = 0x9747B28C, 0x5BD1E995, 24


class ConsumedRecord(NamedTuple):
    """A record as a consumer gets it."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()

    @property
    def text(self) -> str | None:
        """The value as text."""
        return None if self.value is None else self.value.decode()

    @property
    def json(self) -> Any:
        """The value as JSON."""
        return None if self.value is None else json.loads(self.value)

    @property
    def timestamp(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)


def encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bool | int | float | Mapping | list):
        return json.dumps(value).encode()
    raise TypeError(f"a key or value is text, bytes, None or something for JSON, not {type(value).__name__}: {value!r}")


def record_of(entry: Any, timestamp_ms: int, headers: Mapping[str, str | bytes | None]) -> Record:
    key, value = None, entry
    if isinstance(entry, tuple):
        if len(entry) != 2:
            raise TypeError(f"a record is a value, or a tuple of key and value, not {entry!r}")
        key, value = entry
    items = tuple(RecordHeader(name, encoded(content)) for name, content in headers.items())
    return Record(0, timestamp_ms, encoded(key), encoded(value), items)


def partition_for(key: bytes, partitions: int) -> int:
    """As Kafka's Java clients choose it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    size = len(data)
    hashed = SEED ^ size
    for at in range(0, size - size % 4, 4):
        word = int.from_bytes(data[at : at + 4], "little") * FACTOR & WORD
        hashed = (hashed * FACTOR & WORD) ^ ((word ^ word >> SHIFT) * FACTOR & WORD)
    if rest := data[size - size % 4 :]:
        hashed = (hashed ^ int.from_bytes(rest, "little")) * FACTOR & WORD
    hashed = (hashed ^ hashed >> 13) * FACTOR & WORD
    return hashed ^ hashed >> 15


def spread(records: Sequence[Record], partitions: int, partition: int | None) -> dict[int, list[Record]]:
    """Records by partition: by their keys, and those without a key in turns."""
    placed: dict[int, list[Record]] = {}
    for number, record in enumerate(records):
        target = partition
        if target is None:
            target = number % partitions if record.key is None else partition_for(record.key, partitions)
        placed.setdefault(target, []).append(record)
    return placed
