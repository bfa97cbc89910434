"""What a reset of a group's offsets changes, and the note by which it can be undone.

Pure: offsets come in, changes come out.

The note is the metadata of each offset that a reset commits, one line of JSON:

    {"leadline.reset": {"at": 1700000000000, "of": "orders:0-5,7 users:0", "offset": 42, "epoch": 3, "metadata": ""}}

It holds the time of the reset, the partitions that were reset together, and the previous offset (null: none). A commit
of the group replaces the note, and then the reset cannot be undone. A second reset keeps the offset of the first one,
not its note: only the last reset can be undone, and notes do not grow.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leadline.admin.partitions import OffsetRange, PartitionOffset, partitions_in, partitions_text
from leadline.model import NO_EPOCH, LeaderEpoch, Offset, TopicPartition

NOTE = "leadline.reset"
NOTE_BYTES = 4096  # offset.metadata.max.bytes, unless the cluster has another
TOGETHER_BYTES = 500  # a longer list of partitions is left out, as each note would contain it


class ImpossibleReset(ValueError):
    """A reset that is impossible; the message has the reason."""


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The change of one partition's committed offset."""

    tp: TopicPartition
    before: PartitionOffset | None  # None: nothing was committed
    after: PartitionOffset | None  # None: the committed offset is deleted
    held: OffsetRange | None  # the offsets of the partition; None: it was deleted
    remark: str = ""

    @property
    def reread(self) -> int:
        """How many records are read again; negative: how many are skipped."""
        return self.before.offset - self.after.offset if self.before is not None and self.after is not None else 0

    @property
    def meaning(self) -> str:
        return "; ".join(filter(None, [self._meaning(), self.remark]))

    def _meaning(self) -> str:
        if self.after is None:
            return "nothing committed, as before"
        if self.before is None:
            left = self.held.end - self.after.offset if self.held is not None else 0
            return f"nothing was committed; {left:,} to read"
        if self.reread == 0:
            return "no change"
        return f"reads {self.reread:,} again" if self.reread > 0 else f"skips {-self.reread:,}"


def shifted_offset(tp: TopicPartition, committed: PartitionOffset | None, by: int) -> Offset:
    if committed is None:
        raise ImpossibleReset(f"{tp}: no committed offset to shift by {by}")
    return committed.offset + by


def changes(
    offsets: Mapping[TopicPartition, Offset],
    committed: Mapping[TopicPartition, PartitionOffset],
    ranges: Mapping[TopicPartition, OffsetRange],
) -> list[OffsetChange]:
    """One for each partition, sorted. An offset outside a partition becomes the nearest one in it."""
    planned = []
    for tp in sorted(offsets):
        held = ranges[tp]
        offset = min(max(offsets[tp], held.start), held.end)
        where = "end" if offsets[tp] > held.end else "beginning"
        remark = f"{offsets[tp]} is out of range, so the {where}" if offset != offsets[tp] else ""
        planned.append(OffsetChange(tp, committed.get(tp), PartitionOffset(offset), held, remark))
    return planned


def total(planned: Sequence[OffsetChange]) -> str:
    reread = sum(change.reread for change in planned if change.reread > 0)
    skipped = -sum(change.reread for change in planned if change.reread < 0)
    parts = [f"{reread:,} will be read again"] if reread else []
    parts += [f"{skipped:,} will be skipped"] if skipped else []
    return f"Of the records, {', '.join(parts)}" if parts else "No record will be read again or skipped"


def with_notes(planned: Sequence[OffsetChange], now_ms: int) -> list[OffsetChange]:
    """The same changes, each with a note for the undo."""
    together = partitions_text(change.tp for change in planned)
    together = together if len(together) <= TOGETHER_BYTES else ""
    return [_with_note(change, together, now_ms) for change in planned]


def _with_note(change: OffsetChange, together: str, now_ms: int) -> OffsetChange:
    assert change.after is not None, "a reset commits an offset in each partition"
    before = change.before
    earlier = _read(before.metadata) if before is not None else None
    metadata = earlier.metadata if earlier is not None else before.metadata if before is not None else ""
    note = {
        "at": now_ms,
        "of": together,
        "offset": before.offset if before is not None else None,
        "epoch": before.epoch if before is not None else NO_EPOCH,
        "metadata": metadata,
    }
    text = _json(note)
    if len(text) > NOTE_BYTES:
        del note["metadata"]
        text = _json(note)
    remark = change.remark
    if "metadata" not in note:
        remark = "; ".join(filter(None, [remark, "an undo will not restore its long metadata"]))
    return replace(change, after=replace(change.after, metadata=text), remark=remark)


def _json(note: Mapping[str, object]) -> str:
    return json.dumps({NOTE: note}, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class _Note:
    at_ms: int
    together: tuple[TopicPartition, ...]
    offset: Offset | None
    epoch: LeaderEpoch
    metadata: str


def _read(metadata: str) -> _Note | None:
    """The note in an offset's metadata. None for any other text: all clients may write metadata."""
    try:
        note = json.loads(metadata)[NOTE]
        offset, at_ms, epoch = note["offset"], note["at"], note["epoch"]
        metadata, together = note.get("metadata", ""), partitions_in(note.get("of", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    numbers = [at_ms, epoch, *([offset] if offset is not None else [])]
    if not all(type(number) is int for number in numbers) or not isinstance(metadata, str):
        return None
    if offset is not None and not 0 <= offset < 1 << 63:
        return None
    return _Note(at_ms, tuple(together), offset, epoch if 0 <= epoch < 1 << 31 else NO_EPOCH, metadata)


@dataclass(frozen=True, slots=True)
class ResetUndo:
    reset_ms: int  # time of the reset that is undone
    changes: list[OffsetChange]
    too_late: dict[TopicPartition, PartitionOffset | None]  # the offsets that the group has committed since


def undo(
    committed: Mapping[TopicPartition, PartitionOffset], ranges: Mapping[TopicPartition, OffsetRange]
) -> ResetUndo | None:
    """The changes that undo the last reset; None if there is no note of a reset."""
    notes = {tp: note for tp, offset in committed.items() if (note := _read(offset.metadata)) is not None}
    if not notes:
        return None
    last_ms = max(note.at_ms for note in notes.values())
    last = {tp: note for tp, note in notes.items() if note.at_ms == last_ms}
    together = {tp for note in last.values() for tp in note.together}
    restored = [
        OffsetChange(tp, committed[tp], _offset_before(note), ranges.get(tp), _warning(note, ranges.get(tp)))
        for tp, note in sorted(last.items())
    ]
    return ResetUndo(last_ms, restored, {tp: committed.get(tp) for tp in sorted(together - last.keys())})


def _offset_before(note: _Note) -> PartitionOffset | None:
    return PartitionOffset(note.offset, note.epoch, note.metadata) if note.offset is not None else None


def _warning(note: _Note, held: OffsetRange | None) -> str:
    if note.offset is None or held is None or held.start <= note.offset <= held.end:
        return ""
    return f"the partition now has the offsets {held.start} to {held.end}"
