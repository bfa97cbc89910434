"""Ranges into tasks: every offset once, split and packed; and how far a batch of a stream goes."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.model import TopicPartition
from leadline.spark.ranges import Range, Task, admit, plan

A, B = TopicPartition("a", 0), TopicPartition("b", 3)


def lengths(tasks: list[Task]) -> list[list[int]]:
    return [[one.length for one in task] for task in tasks]


@st.composite
def some_ranges(draw: st.DrawFn) -> list[Range]:
    count = draw(st.integers(0, 6))
    ranges = []
    for n in range(count):
        first = draw(st.integers(0, 50))
        ranges.append(Range(TopicPartition("t", n), first, first + draw(st.integers(0, 60))))
    return ranges


@given(
    some_ranges(),
    st.dictionaries(st.integers(0, 5), st.floats(0.1, 100)),
    st.integers(1, 20),
    st.none() | st.integers(1, 30),
    st.integers(1, 500),
    st.integers(1, 500),
)
def test_every_offset_is_read_exactly_once(
    ranges: list[Range],
    sizes: dict[int, float],
    min_tasks: int,
    max_records: int | None,
    split_bytes: int,
    pack_bytes: int,
) -> None:
    per_offset = {TopicPartition("t", n): size for n, size in sizes.items()}
    tasks = plan(
        ranges,
        per_offset,
        min_tasks=min_tasks,
        max_records=max_records,
        split_bytes=split_bytes,
        pack_bytes=pack_bytes,
    )
    read = Counter((one.tp, offset) for task in tasks for one in task for offset in range(one.first, one.until))
    assert read == Counter((one.tp, offset) for one in ranges for offset in range(one.first, one.until))
    assert all(task for task in tasks)
    assert all(list(task) == sorted(task) for task in tasks)
    assert len(tasks) >= min(min_tasks, len(read))
    assert max_records is None or max(map(sum, lengths(tasks)), default=0) <= max_records


def test_a_big_range_is_split_by_bytes() -> None:
    assert lengths(plan([Range(A, 0, 100)], {A: 10.0}, split_bytes=250, pack_bytes=250)) == [[25], [25], [25], [25]]


def test_small_ranges_share_a_task() -> None:
    ranges = [Range(TopicPartition("t", n), 0, 10) for n in range(5)]
    assert lengths(plan(ranges, dict.fromkeys((one.tp for one in ranges), 1.0), pack_bytes=20)) == [
        [10, 10],
        [10, 10],
        [10],
    ]


def test_min_partitions_splits_the_biggest_first() -> None:
    assert lengths(plan([Range(A, 0, 90), Range(B, 0, 10)], {}, min_tasks=4)) == [[30], [30], [30], [10]]


@given(
    st.dictionaries(st.integers(0, 5), st.tuples(st.integers(0, 100), st.integers(0, 200)), min_size=1),
    st.none() | st.integers(1, 300),
    st.none() | st.integers(1, 3000),
)
def test_a_batch_of_a_stream_moves_on_and_keeps_its_limits(
    partitions: dict[int, tuple[int, int]], max_offsets: int | None, max_bytes: int | None
) -> None:
    begin = {TopicPartition("t", n): first for n, (first, _) in partitions.items()}
    latest = {TopicPartition("t", n): first + length for n, (first, length) in partitions.items()}
    end = admit(begin, latest, dict.fromkeys(latest, 10.0), max_offsets=max_offsets, max_bytes=max_bytes)
    assert end.keys() == latest.keys()
    assert all(begin[tp] <= end[tp] <= latest[tp] for tp in end)
    assert all(end[tp] > begin[tp] for tp in end if latest[tp] > begin[tp])
    admitted = sum(end[tp] - begin[tp] for tp in end)
    assert max_offsets is None or admitted <= max_offsets + len(end)
    assert max_bytes is None or admitted * 10 <= max_bytes + 10 * len(end)


@pytest.mark.parametrize(
    ("max_offsets", "end"), [(None, {A: 100, B: 300}), (100, {A: 25, B: 75}), (400, {A: 100, B: 300})]
)
def test_partitions_get_the_same_share(max_offsets: int | None, end: dict[TopicPartition, int]) -> None:
    assert admit({A: 0, B: 0}, {A: 100, B: 300}, {}, max_offsets=max_offsets) == end
