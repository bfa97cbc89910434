"""Figures in little memory, held against what was counted; and those of parts, merged, against those of the whole."""

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.spark.report import sketches
from leadline.spark.report.sketches import Histogram, HotKeys, KeyColumn, KeySample

KEYS = st.lists(st.sampled_from([f"k{n}".encode() for n in range(40)]), max_size=400)


def longs(values: Sequence[int]) -> "np.typing.NDArray[np.int64]":
    return np.array(values, np.int64)


def column(keys: Sequence[bytes | None]) -> KeyColumn:
    return KeyColumn.of(pa.array(keys, pa.binary()))


def histogram(*parts: Sequence[int]) -> Histogram:
    whole = Histogram()
    for part in parts:
        other = Histogram()
        other.add(longs(part))
        whole.merge(other)
    return whole


@given(st.lists(st.integers(0, 1 << 40), min_size=1), st.lists(st.integers(0, 1000)), st.floats(0.01, 1))
def test_a_percentile_is_right_to_three_percent(one: list[int], other: list[int], share: float) -> None:
    sizes = sorted(one + other)
    merged = histogram(one, other)
    truth = sizes[max(0, int(np.ceil(share * len(sizes))) - 1)]
    assert merged.percentile(share) == pytest.approx(truth, rel=0.04, abs=0.5)
    assert (merged.count, merged.total, merged.largest) == (len(sizes), sum(sizes), sizes[-1])


@pytest.mark.parametrize("size", [*range(33), 1000, 12_345])
def test_small_sizes_are_reported_exactly(size: int) -> None:
    assert histogram([size] * 3, [0]).percentile(0.9) == pytest.approx(size, rel=0.03 if size > 32 else 0)


@given(st.lists(st.integers(0, 1 << 30), min_size=1), st.sampled_from([4, 12, 26, 60]))
def test_ranges_cover_every_size_once(sizes: list[int], most: int) -> None:
    ranges = histogram(sizes).ranges(most)
    for low, high, count in ranges:
        assert count == sum(low <= size <= high for size in sizes)
    assert sum(count for _, _, count in ranges) == len(sizes)
    powers = [size.bit_length() for size in sizes]
    assert len(ranges) <= max(most, max(powers) - min(powers) + 1)


@given(st.lists(KEYS, max_size=6))
def test_a_hot_key_is_counted_up_to_the_reported_error(parts: list[list[bytes]]) -> None:
    counts = Counter(key for part in parts for key in part)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sketches, "KEYS", 5)
        hot = HotKeys()
        for part in parts:
            other = HotKeys()
            other.add(0, column(part), longs([1] * len(part)))
            hot.merge(other)
    assert hot.error * 5 <= counts.total()
    assert len(hot.counts) <= 5
    reported = {hot_key.key: hot_key.records for hot_key in hot.top(100)}
    for key, count in counts.items():
        assert reported.get(key, 0) <= count <= reported.get(key, 0) + hot.error


def test_few_keys_are_counted_exactly_with_their_bytes_and_partitions() -> None:
    hot = HotKeys()
    hot.add(0, column([b"a", b"b", None, b"a"]), longs([1, 10, 100, 1000]))
    hot.add(1, column([b"a"]), longs([5]))
    assert [(hot_key.partition, hot_key.key, hot_key.records, hot_key.bytes) for hot_key in hot.top(2)] == [
        (0, b"a", 2, 1001),
        (1, b"a", 1, 5),
    ]


@given(st.lists(KEYS, max_size=5), st.randoms(use_true_random=False))
def test_what_compaction_keeps_is_exact_for_few_keys(parts: list[list[bytes]], draw: random.Random) -> None:
    samples: list[KeySample] = []
    last: dict[bytes, int] = {}
    offset = 0
    for part in parts:
        offsets = range(offset, offset + len(part))
        last |= dict(zip(part, offsets, strict=True))
        sample = KeySample()
        sample.add(0, column(part), longs(offsets), longs(offsets), np.array([at % 3 == 0 for at in offsets], np.bool_))
        samples.append(sample)
        offset += len(part)
    draw.shuffle(samples)
    whole = KeySample()
    for sample in samples:
        whole.merge(sample)
    kept = whole.kept()
    assert (kept.keys, kept.bytes, kept.is_exact) == (len(last), sum(last.values()), True)
    assert kept.tombstones == sum(at % 3 == 0 for at in last.values())


def test_what_compaction_keeps_is_estimated_for_many_keys() -> None:
    sample, keys = KeySample(), 60_000
    for round_of in range(2):
        rows = [b"%d" % n for n in range(keys)]
        offsets = np.arange(keys) + round_of * keys
        sample.add(0, column(rows), offsets, np.full(keys, 10 + round_of), np.zeros(keys, np.bool_))
    kept = sample.kept()
    assert not kept.is_exact
    assert len(sample.hashes) <= sketches.SAMPLE
    assert kept.keys == pytest.approx(keys, rel=0.05)
    assert kept.bytes == kept.keys * 11


def test_the_same_key_in_two_partitions_is_kept_twice() -> None:
    sample = KeySample()
    for partition in range(2):
        sample.add(partition, column([b"a"]), longs([0]), longs([7]), np.zeros(1, np.bool_))
    assert sample.kept().keys == 2
