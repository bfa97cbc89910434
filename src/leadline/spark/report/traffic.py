"""The traffic of one partition: records and bytes in slots of time.

The width of a slot is one of WIDTHS_MS. Each is a multiple of the one before, so slots can be joined into wider ones.
Only slots with records are kept: a record with a wrong time costs one slot, not a thousand.
    there are at most MOST slots, unless records lie in more slots of the largest width

Pure: columns in, figures out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from leadline.spark.batches.record_positions import Longs

SECOND_MS, DAY_MS = 1000, 86_400_000
WIDTHS_MS = [SECOND_MS * n for n in (1, 5, 15, 60, 300, 900, 3600, 21_600, 86_400, 604_800)]
MOST = 400
STRAY = 3


def _none() -> Longs:
    return np.zeros(0, np.int64)


@dataclass(slots=True)
class TimeSlots:
    width_ms: int = WIDTHS_MS[0]
    starts: Longs = field(default_factory=_none)  # in ms since 1970, ascending, multiples of the width
    records: Longs = field(default_factory=_none)
    bytes: Longs = field(default_factory=_none)  # as they lie in the log
    ends: Longs = field(default_factory=_none)  # the offset after the last record of the slot
    untimed: int = 0  # records without a time

    def add(self, times: Longs, sizes: Longs, offsets: Longs) -> None:
        timed = times >= 0
        self.untimed += int(np.count_nonzero(~timed))
        times, ones = times[timed], np.ones(int(np.count_nonzero(timed)), np.int64)
        self._join(times // self.width_ms * self.width_ms, ones, sizes[timed], offsets[timed] + 1)

    def merge(self, other: "TimeSlots") -> None:
        self.untimed += other.untimed
        self.widen(other.width_ms)
        self._join(other.starts // self.width_ms * self.width_ms, other.records, other.bytes, other.ends)

    def widen(self, width_ms: int) -> None:
        if width_ms > self.width_ms:
            self.width_ms = width_ms
            starts, records, size, ends = self.starts // width_ms * width_ms, self.records, self.bytes, self.ends
            self.starts = self.records = self.bytes = self.ends = _none()
            self._join(starts, records, size, ends)

    def _join(self, starts: Longs, records: Longs, sizes: Longs, ends: Longs) -> None:
        slots, which = np.unique(np.concatenate((self.starts, starts)), return_inverse=True)
        many, heavy, last = (np.zeros(len(slots), np.int64) for _ in range(3))
        np.add.at(many, which, np.concatenate((self.records, records)))
        np.add.at(heavy, which, np.concatenate((self.bytes, sizes)))
        np.maximum.at(last, which, np.concatenate((self.ends, ends)))
        self.starts, self.records, self.bytes, self.ends = slots, many, heavy, last
        if len(slots) > MOST and (wider := [width for width in WIDTHS_MS if width > self.width_ms]):
            self.widen(wider[0])

    def end_at(self, times: Longs) -> Longs:
        """The log end offset at each of the times, derived from records with a timestamp."""
        if not len(self.starts):
            return np.zeros(len(times), np.int64)
        reached = np.maximum.accumulate(self.ends)
        n = np.searchsorted(self.starts + self.width_ms, times, side="right")
        return np.where(n > 0, reached[np.maximum(n - 1, 0)], 0)


def joined(parts: Iterable[TimeSlots]) -> TimeSlots:
    """The traffic of all parts together. Its `ends` have no meaning if the parts are of several partitions."""
    whole = TimeSlots()
    for part in parts:
        whole.merge(part)
    return whole


def bulk(slots: TimeSlots, share: float = 0.999) -> TimeSlots:
    """The slots without first and last ones that have very few records: their times are likely wrong.

    Slots are omitted only if the remaining time is far shorter than the whole.
    """
    if len(slots.starts) < 3:
        return slots
    running = np.cumsum(slots.records)
    edge = (1 - share) * running[-1]
    first = int(np.searchsorted(running, edge, side="right"))
    last = int(np.searchsorted(running, running[-1] - edge, side="left"))
    whole_ms, rest_ms = (int(slots.starts[b] - slots.starts[a]) for a, b in ((0, -1), (first, last)))
    if rest_ms * STRAY >= whole_ms:
        return slots
    some = slice(first, last + 1)
    return TimeSlots(slots.width_ms, slots.starts[some], slots.records[some], slots.bytes[some], slots.ends[some])
