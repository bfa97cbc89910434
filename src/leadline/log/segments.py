"""The segments of one log, by base offset.

    there is always at least one; only the last one, the active segment, is written to

An ordered map, and the look-ups that go from one segment to the next.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from leadline.log.index import TimestampOffset
from leadline.log.segment import BatchPosition, Segment
from leadline.log.txn_index import AbortedTxn
from leadline.model import Offset


class Segments:
    active: Segment  # the one that is written to

    def __init__(self) -> None:
        self._by_base: dict[Offset, Segment] = {}
        self._bases: list[Offset] = []
        self._limit: tuple[Offset, Offset, int] = _NO_LIMIT

    def __len__(self) -> int:
        return len(self._bases)

    def __iter__(self) -> Iterator[Segment]:
        return iter([self._by_base[base] for base in self._bases])

    def __contains__(self, base: Offset) -> bool:
        return base in self._by_base

    @property
    def first(self) -> Segment:
        return self._by_base[self._bases[0]]

    @property
    def bases(self) -> list[Offset]:
        return list(self._bases)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._by_base.values())

    def add(self, segment: Segment) -> None:
        if segment.base_offset not in self._by_base:
            insort(self._bases, segment.base_offset)
        self._by_base[segment.base_offset] = segment
        self.active = self._by_base[self._bases[-1]]

    def remove(self, base: Offset) -> None:
        del self._by_base[base]
        del self._bases[bisect_left(self._bases, base)]
        if self._bases:  # if not, another one is added next
            self.active = self._by_base[self._bases[-1]]
        self.forget_positions()

    def floor(self, offset: Offset) -> Segment | None:
        """The segment whose range has an offset."""
        n = bisect_right(self._bases, offset)
        return self._by_base[self._bases[n - 1]] if n else None

    def above(self, base: Offset) -> Segment | None:
        n = bisect_right(self._bases, base)
        return self._by_base[self._bases[n]] if n < len(self._bases) else None

    def between(self, start: Offset, end: Offset) -> list[Segment]:
        """The segments with offsets in [start, end): from the one that holds start on."""
        if start >= end:
            return []
        n = max(bisect_right(self._bases, start) - 1, 0)
        return [self._by_base[base] for base in self._bases[n : bisect_left(self._bases, end)]]

    def end_of(self, segment: Segment, log_end: Offset) -> Offset:
        """Where the next segment starts; the log end for the last one."""
        above = self.above(segment.base_offset)
        return log_end if above is None else above.base_offset

    def locate(self, offset: Offset) -> tuple[Segment, BatchPosition] | None:
        """The first batch that ends at or after an offset. It may be in a later segment: compaction leaves gaps."""
        segment = self.floor(offset)
        while segment is not None:
            if (batch := segment.find(offset)) is not None:
                return segment, batch
            segment = self.above(segment.base_offset)
        return None

    def end_position(self, segment: Segment, limit: Offset, log_end: Offset) -> int:
        """The position in a segment at which a reader of the offsets below a limit stops."""
        if limit >= self.end_of(segment, log_end):
            return segment.size
        last_limit, base, position = self._limit
        if last_limit != limit or base != segment.base_offset:
            batch = segment.find(limit)
            position = segment.size if batch is None else batch.position
            self._limit = (limit, segment.base_offset, position)
        return position

    def forget_positions(self) -> None:
        """Call this when offsets may have moved to other positions."""
        self._limit = _NO_LIMIT

    def aborted_between(self, start: Offset, end: Offset, segment: Segment | None = None) -> tuple[AbortedTxn, ...]:
        """The aborted transactions with records in [start, end), from a segment on; by default, that of `start`."""
        transactions: list[AbortedTxn] = []
        segment = segment or self.floor(start)
        while segment is not None:
            more, complete = segment.txn_index.between(start, end)
            transactions += more
            if complete:
                break
            segment = self.above(segment.base_offset)
        return tuple(transactions)

    def offset_for_time(self, timestamp: int, start: Offset) -> tuple[TimestampOffset, int] | None:
        """The first record at or after `start` that is not older than a time, with its leader epoch."""
        for segment in self:
            if segment.largest_timestamp >= timestamp:
                return segment.offset_for_time(timestamp, start)
        return None

    def offset_of_newest(self) -> tuple[TimestampOffset, int] | None:
        """The first record with the largest timestamp, with its leader epoch."""
        return max(self, key=lambda segment: segment.newest.timestamp).offset_of_newest()


_NO_LIMIT = (-1, -1, 0)  # limit, base offset of a segment, position in it: the last answer of `end_position`
