"""What the changes of one key leave in a table, and what must happen to the table for that.

An entry is a change: a row, or a delete. The table is a function of all entries, in the order of the database, whatever
the order, the repeats and the batches in which they come:

    upsert    the newest entry, if it is a row
    scd2      every row, valid from its own time until that of the next entry; the last one is current

A delete leaves nothing in a table by `upsert`, so it is remembered beside the table: an older row that comes later must
not come back. A truncate is a delete of every key. A tombstone (a record without a value, after a delete) has no
position: it follows what came before it in the topic, and does nothing after a delete.
    late      an entry that came after a newer one of its key; it does not replace it
    repeated  an entry with the position of another, both rows or both deletes; the first one in the topic counts

Pure: entries in, a plan out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from leadline.spark.table.change_events import TRUNCATE
from leadline.spark.table.source_order import (
    NO_ORDER,
    Place,
    SourceOrder,
    in_source_order,
    in_topic_order,
    is_newer,
)
from leadline.spark.table.table import HISTORY, UPSERT


@dataclass(frozen=True, slots=True)
class KeyChange:
    at: int  # which one it is, for the caller
    place: Place
    order: SourceOrder = NO_ORDER
    position: str | None = None  # the text of `order`
    op: str | None = None
    is_delete: bool = False
    is_tombstone: bool = False  # it has no value, and so no position
    start_us: int = 0  # when the change was made
    end_us: int | None = None  # of a row of the table: until when it is valid; None: it is current


@dataclass(frozen=True, slots=True)
class KeyEntries:
    """All that is known of a key."""

    new: Sequence[KeyChange]  # of the batch
    rows: Sequence[KeyChange] = ()  # of the table
    deletes: Sequence[KeyChange] = ()  # that are remembered
    truncates: Sequence[KeyChange] = ()  # of all keys, those of the batch included


@dataclass(frozen=True, slots=True)
class Version:
    """A row as the table must have it."""

    entry: KeyChange
    is_new: bool  # False: it is a row of the table already
    end_us: int | None = None


@dataclass(frozen=True, slots=True)
class KeyMerge:
    """What must happen to the table."""

    removed: list[KeyChange] = field(default_factory=list)  # rows of the table that it must lose
    added: list[Version] = field(default_factory=list)  # rows that it must get; in scd2 also those that are closed
    remembered: list[KeyChange] = field(default_factory=list)  # deletes
    late: int = 0
    repeated: int = 0


def merged(mode: str, key: KeyEntries) -> KeyMerge:
    places = {entry.place[1:] for entry in key.new}
    existing = [*_others(key.rows, places), *_others(key.deletes, places), *_others(key.truncates, places)]
    new = _resolved(key.new, existing)
    fresh = {id(entry) for entry in new}
    entries = _without_repeats(in_source_order([*existing, *new]))
    final = versions(mode, entries)
    unchanged = {entry.at for entry, end_us in final if id(entry) not in fresh and end_us == entry.end_us}
    return KeyMerge(
        [entry for entry in key.rows if entry.at not in unchanged],
        [
            Version(entry, id(entry) in fresh, end_us)
            for entry, end_us in final
            if id(entry) in fresh or entry.at not in unchanged
        ],
        [entry for entry in _remembered(mode, entries) if id(entry) in fresh],
        *_late_and_repeated(mode, new, existing),
    )


def versions(mode: str, entries: Sequence[KeyChange]) -> list[tuple[KeyChange, int | None]]:
    """The rows that a table has of a key, and the end of each. `entries`: without repeats, the oldest first."""
    if mode == UPSERT:
        return [(entry, None) for entry in entries[-1:] if not entry.is_delete]
    ends = [*(entry.start_us for entry in entries[1:]), None][: len(entries)]
    return [
        (entry, None if end_us is None else max(entry.start_us, end_us))
        for entry, end_us in zip(entries, ends, strict=True)
        if not entry.is_delete
    ]


def expected(mode: str, entries: Sequence[KeyChange]) -> list[tuple[KeyChange, int | None]]:
    """The rows of a key whose entries are these, truncates included."""
    return versions(mode, _without_repeats(in_source_order(_resolved(entries, ()))))


def _others(entries: Iterable[KeyChange], places: set[tuple[int, int]]) -> list[KeyChange]:
    """The entries without those of the batch itself: an interrupted batch comes again."""
    return [entry for entry in entries if entry.place[1:] not in places]


def _resolved(new: Sequence[KeyChange], existing: Sequence[KeyChange]) -> list[KeyChange]:
    """Tombstones as deletes after the newest entry before them; without those that follow a delete, or nothing."""
    if not any(entry.is_tombstone for entry in new):
        return list(new)
    resolved: list[KeyChange] = []
    newest: KeyChange | None = None
    fresh = {id(entry) for entry in new}
    for entry in in_topic_order([*existing, *new]):
        if entry.is_tombstone:
            if newest is None or newest.is_delete:
                continue
            entry = replace(entry, order=newest.order, position=newest.position, is_tombstone=False)
            fresh.add(id(entry))
        if newest is None or is_newer(entry, newest):
            newest = entry
        if id(entry) in fresh:
            resolved.append(entry)
    return resolved


def _without_repeats(entries: Sequence[KeyChange]) -> list[KeyChange]:
    """Keeps the first of several rows, and of several deletes, with the same position."""
    unique: list[KeyChange] = []
    positions: set[tuple[SourceOrder, bool]] = set()
    for entry in entries:
        what = entry.order, entry.is_delete
        if not entry.order.kind or what not in positions:
            unique.append(entry)
        positions.add(what)
    return unique


def _remembered(mode: str, entries: Sequence[KeyChange]) -> Sequence[KeyChange]:
    """The deletes that say more than the table does."""
    if mode == HISTORY:
        return [entry for entry in entries if entry.is_delete and entry.op != TRUNCATE]
    return [entry for entry in entries[-1:] if entry.is_delete and entry.op != TRUNCATE and entry.order.kind]


def _late_and_repeated(mode: str, new: Sequence[KeyChange], existing: Sequence[KeyChange]) -> tuple[int, int]:
    """How many entries are late, and how many repeated. A table by `upsert` knows the newest entry of a key only."""
    late = repeated = 0
    fresh = {id(entry) for entry in new}
    newest: KeyChange | None = None
    positions: set[tuple[SourceOrder, bool]] = set()
    for entry in in_topic_order([*existing, *new]):
        what = entry.order, entry.is_delete
        if entry.order.kind and what in positions:
            repeated += id(entry) in fresh
            continue
        if newest is None or is_newer(entry, newest):
            newest = entry
            if mode == UPSERT:
                positions.clear()
            positions.add(what)
        else:
            late += id(entry) in fresh
            if mode == HISTORY:
                positions.add(what)
    return late, repeated
