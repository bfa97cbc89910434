"""The segments of one log, by base offset.

    there is always at least one; only the last one, the active segment, is written to

Pure: an ordered map, no IO of its own.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

from leadline.log.segment import Segment
from leadline.model import Offset


class Segments:
    active: Segment  # the one that is written to

    def __init__(self) -> None:
        self._by_base: dict[Offset, Segment] = {}
        self._bases: list[Offset] = []

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

    def floor(self, offset: Offset) -> Segment | None:
        """The segment that an offset would lie in."""
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
