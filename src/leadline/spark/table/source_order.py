"""The order of changes in the log of a database: which of two changes of a row is the newer one.

A position is a text, in the column cdc_source_position. Its numbers say where the change is:

    connector                fields of `source`                          position
    MySQL, MariaDB           file, pos, row                              binlog.000003:154:2
    PostgreSQL               lsn                                         24023128
    SQL Server, Db2          commit_lsn, change_lsn, event_serial_no     00000027:00000758:0005/00000027:00000758:0003/2
    Oracle                   scn, rs_id, ssn                             772 or 772@0x0000fa.00000022.0010@3
    MongoDB                  ts_ms, ord                                  1700000000000:4

Positions are compared number by number, where they are of the same kind, and of binlogs of the same name. All others
are compared by their place in the topic: offsets within a partition, times between two partitions.

Pure: texts and numbers.
"""

import re
from collections.abc import Callable, Sequence
from functools import cmp_to_key, lru_cache
from typing import Any, NamedTuple, Protocol, TypeVar


class Place(NamedTuple):
    """The place of a record in its topic."""

    time: int  # in the unit of its column
    partition: int
    offset: int


class SourceOrder(NamedTuple):
    kind: str = ""  # only positions of one kind can be compared; empty: there is no position
    numbers: tuple[int, ...] = ()


NO_ORDER = SourceOrder()
_NUMBER = re.compile(r"\d+")
_SCN = re.compile(r"(\d+)@(.*)@(\d+)")
_OF_SECOND = re.compile(r"(\d+):(\d+)")
_LSN = re.compile(r"[0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+")
_BINLOG = re.compile(r"([^:]*[^:\d])?(\d+):(\d+):(\d+)")
_HEX = re.compile(r"[0-9a-fA-F]+")


def is_later(place: Place, other: Place) -> bool:
    if place.partition == other.partition:
        return place.offset > other.offset
    return (place.time, place.partition) > (other.time, other.partition)


def source_position(source: dict[str, Any]) -> str | None:
    """Where the change is in the log of the database. None: the source does not say."""
    if source.get("file") is not None:
        return f"{source['file']}:{source.get('pos', 0)}:{source.get('row') or 0}"
    if source.get("commit_lsn") is not None and source.get("change_lsn") is not None:
        return f"{source['commit_lsn']}/{source['change_lsn']}/{source.get('event_serial_no') or 0}"
    if source.get("scn") is not None and source.get("rs_id") is not None:
        return f"{source['scn']}@{str(source['rs_id']).strip()}@{source.get('ssn') or 0}"
    for name in ("lsn", "change_lsn", "commit_lsn", "scn"):
        if source.get(name) is not None:
            return str(source[name])
    if source.get("ord") is not None and source.get("ts_ms") is not None:
        return f"{source['ts_ms']}:{source['ord']}"
    return None


@lru_cache(maxsize=4096)
def order_of(position: str | None) -> SourceOrder:
    if not position:
        return NO_ORDER
    if _NUMBER.fullmatch(position):
        return SourceOrder("number", (int(position),))
    if match := _SCN.fullmatch(position):
        return SourceOrder("number", (int(match[1]), *_hex_numbers(match[2]), int(match[3])))
    if match := _OF_SECOND.fullmatch(position):
        return SourceOrder("time", (int(match[1]), int(match[2])))
    lsns, _, serial = position.rpartition("/")
    if all(_LSN.fullmatch(lsn) for lsn in lsns.split("/")) and _NUMBER.fullmatch(serial):
        return SourceOrder("lsns", (*_hex_numbers(lsns), int(serial)))
    if _LSN.fullmatch(position):
        return SourceOrder("lsn", _hex_numbers(position))
    if match := _BINLOG.fullmatch(position):
        return SourceOrder(f"binlog {match[1] or ''}", (int(match[2]), int(match[3]), int(match[4])))
    return NO_ORDER


def _hex_numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number, 16) for number in _HEX.findall(text.replace("0x", "")))


class Ordered(Protocol):
    @property
    def order(self) -> SourceOrder: ...

    @property
    def place(self) -> Place: ...

    @property
    def is_delete(self) -> bool: ...


E = TypeVar("E", bound=Ordered)


def _rank(entry: Ordered) -> tuple[tuple[int, ...], bool]:
    """At one position, a delete is newer than a row."""
    return entry.order.numbers, bool(entry.order.kind) and entry.is_delete


def is_newer(one: Ordered, other: Ordered) -> bool:
    """Compares positions in the database; if they are equal or cannot be compared, places in the topic."""
    if one.order.kind == other.order.kind and _rank(one) != _rank(other):
        return _rank(one) > _rank(other)
    return is_later(one.place, other.place)


def _by(newer: Callable[[E, E], bool]) -> Callable[[E], Any]:
    return cmp_to_key(lambda one, other: 1 if newer(one, other) else -1 if newer(other, one) else 0)


def in_source_order(entries: Sequence[E]) -> list[E]:
    """The oldest first."""
    if len({(entry.order.kind, entry.place.partition) for entry in entries}) <= 1:
        return sorted(entries, key=lambda entry: (*_rank(entry), entry.place.offset))
    return sorted(entries, key=_by(is_newer))


def in_topic_order(entries: Sequence[E]) -> list[E]:
    if len({entry.place.partition for entry in entries}) <= 1:
        return sorted(entries, key=lambda entry: entry.place.offset)
    return sorted(entries, key=_by(lambda one, other: is_later(one.place, other.place)))
