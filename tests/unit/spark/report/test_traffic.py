"""Slots of time: nothing is lost when they are joined or widened, and strays do not stretch a plot."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leadline.spark.report.traffic import MOST, WIDTHS_MS, TimeSlots, bulk, joined

DAY_MS = 86_400_000
TIMES = st.lists(st.integers(-1, 40 * DAY_MS), min_size=1, max_size=60)


def slots(times: list[int], first: int = 0) -> TimeSlots:
    time_slots = TimeSlots()
    offsets = np.arange(first, first + len(times))
    time_slots.add(np.array(times, np.int64), np.full(len(times), 10), offsets)
    return time_slots


@given(st.lists(TIMES, max_size=5))
def test_every_record_is_in_one_slot(parts: list[list[int]]) -> None:
    whole = joined(slots(part) for part in parts)
    times = [at for part in parts for at in part]
    timed = [at for at in times if at >= 0]
    assert whole.untimed == len(times) - len(timed)
    assert (whole.records.sum(), whole.bytes.sum()) == (len(timed), 10 * len(timed))
    assert set(whole.starts.tolist()) == {at // whole.width_ms * whole.width_ms for at in timed}


def test_slots_get_wider_instead_of_more() -> None:
    time_slots = slots(list(range(0, 30 * DAY_MS, 60_000)))
    assert len(time_slots.starts) <= MOST
    assert time_slots.width_ms in WIDTHS_MS
    assert time_slots.records.sum() == 30 * 24 * 60


def test_each_width_is_a_multiple_of_the_one_before() -> None:
    assert all(wide % narrow == 0 for narrow, wide in pairwise(WIDTHS_MS))


def test_the_log_end_at_a_time_is_that_of_the_records_before_it() -> None:
    time_slots = slots([1000, 1500, 5000], first=7)
    assert time_slots.end_at(np.array([0, 1999, 2000, 5999, 6000, 90_000])).tolist() == [0, 0, 9, 9, 10, 10]


def test_records_with_nonsensical_times_do_not_stretch_the_rest() -> None:
    times = list(range(10 * DAY_MS, 11 * DAY_MS, 20_000))
    assert bulk(slots([5, *times])).starts[0] >= 9 * DAY_MS
    even = slots(times)
    assert bulk(even) is even
