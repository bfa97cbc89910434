"""The ordered map of segments."""

from pathlib import Path

import pytest

from leadline.config.topic import LogConfig
from leadline.log.segment import Segment, SegmentPath
from leadline.log.segments import Segments
from leadline.runtime.ports import OsFiles


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    made = Segments()
    for base in (20, 0, 10):
        made.add(Segment(OsFiles(), SegmentPath(str(tmp_path), base), LogConfig(), now_ms=0, create=True))
    return made


def test_they_are_ordered_by_base_offset(segments: Segments) -> None:
    assert segments.bases == [segment.base_offset for segment in segments] == [0, 10, 20]
    assert (segments.first.base_offset, segments.active.base_offset, len(segments)) == (0, 20, 3)
    assert 10 in segments
    assert 11 not in segments


@pytest.mark.parametrize(("offset", "base"), [(0, 0), (9, 0), (10, 10), (99, 20), (-1, None)])
def test_an_offset_lies_in_the_last_one_that_starts_at_or_before_it(
    segments: Segments, offset: int, base: int | None
) -> None:
    segment = segments.floor(offset)
    assert (segment.base_offset if segment else None) == base


@pytest.mark.parametrize(
    ("start", "end", "bases"),
    [(0, 1, [0]), (5, 20, [0, 10]), (5, 21, [0, 10, 20]), (-1, 99, [0, 10, 20]), (10, 10, []), (30, 99, [20])],
)
def test_a_range_starts_with_the_one_that_holds_its_start(
    segments: Segments, start: int, end: int, bases: list[int]
) -> None:
    assert [segment.base_offset for segment in segments.between(start, end)] == bases


def test_above_is_the_next_segment(segments: Segments) -> None:
    assert [above.base_offset if (above := segments.above(base)) else None for base in (0, 5, 10, 20)] == [
        10,
        10,
        20,
        None,
    ]


def test_one_takes_the_place_of_another_and_one_goes(segments: Segments) -> None:
    other = segments.first
    segments.remove(0)
    assert segments.bases == [10, 20]
    segments.add(other)
    segments.add(other)
    assert segments.bases == [0, 10, 20]
