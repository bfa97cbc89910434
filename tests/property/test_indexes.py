"""The look-ups of an index against a plain scan of its entries, from a few to more than it keeps in memory."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.log.index import BLOCK_ENTRIES, OffsetIndex, TimeIndex
from leadline.model import NO_TIMESTAMP
from leadline.runtime.ports import OsFiles

BASE = 1000

steps = st.lists(st.integers(1, 9), max_size=40) | st.builds(
    lambda count, step: [step] * count, st.integers(BLOCK_ENTRIES - 2, 3 * BLOCK_ENTRIES), st.integers(1, 9)
)
fixture_is_fine = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def rising(increments: Sequence[int], start: int = 0) -> list[int]:
    out = []
    for step in increments:
        start += step
        out.append(start)
    return out


class Offsets:
    """An offset index and the same entries in a list."""

    def __init__(self, path: Path, increments: Sequence[int]) -> None:
        path.unlink(missing_ok=True)
        self.entries = [(offset, 10 * offset + 7) for offset in rising(increments)]
        self.index = OffsetIndex(OsFiles(), str(path), BASE, 1 << 20)
        for offset, position in self.entries:
            self.index.append(BASE + offset, position)

    def reopened(self) -> OffsetIndex:
        assert self.index.file_to_flush() is not None
        return OffsetIndex(OsFiles(), self.index.path, BASE, 1 << 20)

    def position(self, offset: int) -> int:
        return max((position for relative, position in self.entries if BASE + relative <= offset), default=0)


@given(steps, st.lists(st.integers(-3, 30_000), min_size=1, max_size=20), st.booleans())
@fixture_is_fine
def test_the_position_of_an_offset_is_that_of_the_last_entry_at_or_before_it(
    scratch: Path, increments: list[int], targets: list[int], reopened: bool
) -> None:
    made = Offsets(scratch / "index", increments)
    index = made.reopened() if reopened else made.index
    for target in [*targets, *(relative for relative, _ in made.entries[::97])]:
        assert index.lookup(BASE + target) == made.position(BASE + target)
        behind = [BASE + relative for relative, position in made.entries if position >= target]
        assert index.first_at_or_after(target) == (behind[0] if behind else None)


@given(steps, st.integers(-3, 30_000), st.lists(st.integers(1, 9), max_size=3))
@fixture_is_fine
def test_truncating_keeps_the_entries_below_and_appending_goes_on(
    scratch: Path, increments: list[int], target: int, more: list[int]
) -> None:
    made = Offsets(scratch / "index", increments)
    made.index.truncate_to(BASE + target)
    kept = [(relative, position) for relative, position in made.entries if relative < target]
    for offset in rising(more, kept[-1][0] if kept else 0):
        made.index.append(BASE + offset, 10 * offset + 7)
        kept.append((offset, 10 * offset + 7))
    assert made.index.entries() == kept
    assert [made.index.entry(n) for n in range(len(kept))] == kept
    assert OffsetIndex(OsFiles(), made.index.path, BASE, 1 << 20).entries() == kept


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=40), st.lists(st.integers(-3, 400), min_size=1)
)
@fixture_is_fine
def test_a_time_is_found_at_the_last_entry_that_is_not_later(
    scratch: Path, increments: list[tuple[int, int]], targets: list[int]
) -> None:
    path = scratch / "timeindex"
    path.unlink(missing_ok=True)
    index = TimeIndex(OsFiles(), str(path), BASE, 1 << 20)
    times, offsets = rising([t for t, _ in increments]), rising([o for _, o in increments])
    for time, offset in zip(times, offsets, strict=True):
        index.append_if_later(time, BASE + offset)
        index.append_if_later(time, BASE + offset + 1)  # not later: no entry
    for target in targets:
        earlier = [entry for entry in zip(times, offsets, strict=True) if entry[0] <= target]
        assert index.lookup(target) == ((earlier[-1][0], BASE + earlier[-1][1]) if earlier else (NO_TIMESTAMP, BASE))
    assert index.count == len(increments)


@pytest.mark.parametrize(("size", "full_after"), [(8, 1), (15, 1), (16, 2), (24, 3)])
def test_an_offset_index_is_full_when_no_entry_more_fits(scratch: Path, size: int, full_after: int) -> None:
    index = OffsetIndex(OsFiles(), str(scratch / "index"), 0, size)
    appended = 0
    while not index.is_full():
        appended += 1
        index.append(appended, appended)
    assert appended == full_after
