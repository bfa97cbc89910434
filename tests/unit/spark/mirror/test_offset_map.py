"""Offsets of one cluster in those of another."""

from hypothesis import given
from hypothesis import strategies as st

from leadline.model import TopicPartition
from leadline.spark.mirror.offset_map import OffsetMap, OffsetRun

TP = TopicPartition("orders", 1)


@st.composite
def copied(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Offsets of records on both sides, with gaps on either."""
    pairs, source, target = [], draw(st.integers(0, 5)), draw(st.integers(0, 5))
    for _ in range(draw(st.integers(0, 30))):
        pairs.append((source, target))
        source += draw(st.sampled_from([1, 1, 1, 2, 5]))
        target += draw(st.sampled_from([1, 1, 1, 2, 5]))
    return pairs


def mapped(pairs: list[tuple[int, int]]) -> OffsetMap:
    offset_map = OffsetMap()
    for source, target in pairs:
        offset_map.add(TP, OffsetRun(source, target, 1))
    return offset_map


@given(copied())
def test_a_translated_offset_misses_nothing_and_repeats_nothing(pairs: list[tuple[int, int]]) -> None:
    offset_map = mapped(pairs)
    for offset in range(pairs[-1][0] + 3 if pairs else 0):
        target = offset_map.translate(TP, offset)
        assert target is not None
        assert [pair for pair in pairs if pair[1] < target] == [pair for pair in pairs if pair[0] < offset]


@given(copied())
def test_it_comes_back_as_it_was_written(pairs: list[tuple[int, int]]) -> None:
    before, after = mapped(pairs), OffsetMap()
    for key, value in before.to_records():
        after.take(key, value)
    assert dict(after.runs()) == dict(before.runs())


def test_what_follows_each_other_is_one_run() -> None:
    offset_map = mapped([(n, n + 7) for n in range(100)])
    offset_map.add(TP, OffsetRun(100, 107, 50))
    assert dict(offset_map.runs()) == {TP: [OffsetRun(0, 7, 150)]}


def test_nothing_is_known_of_what_was_not_copied() -> None:
    assert OffsetMap().translate(TP, 5) is None
