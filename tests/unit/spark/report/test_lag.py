"""How far behind groups were, from their journal and the traffic of a topic."""

import numpy as np

from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_records import group_key, offset_key, offset_value
from leadline.model import TopicPartition
from leadline.spark.report import lag
from leadline.spark.report.lag import CommitHistory, histories
from leadline.spark.report.traffic import TimeSlots

TP = TopicPartition("orders", 0)
TOPICS = frozenset({"orders"})


def traffic(*seconds: int) -> TimeSlots:
    """One record at each of the times."""
    slots = TimeSlots()
    slots.add(np.array(seconds) * 1000, np.ones(len(seconds), np.int64), np.arange(len(seconds)))
    return slots


def commits(*points: tuple[int, int], group: str = "billing", tp: TopicPartition = TP) -> CommitHistory:
    """Seconds and offsets."""
    history = CommitHistory()
    for at, offset in points:
        value = None if offset < 0 else offset_value(OffsetAndMetadata(offset, "", at * 1000))
        history.add(0, at * 1000, offset_key(group, tp), value, TOPICS)
    return history


def test_the_lag_is_the_log_end_less_what_was_committed_by_then() -> None:
    (group_lag,) = histories(commits((12, 2), (14, 5)), "orders", {0: traffic(10, 11, 12, 13, 14)})
    assert group_lag.group == "billing"
    assert dict(zip(group_lag.times.tolist(), group_lag.behind.tolist(), strict=True)) == {
        13_000: 1,
        14_000: 2,
        15_000: 0,
    }
    assert group_lag.by_partition == {0: (5, 5)}


def test_partitions_add_up_from_their_first_commit_on() -> None:
    history = commits((12, 1))
    history.merge(commits((14, 0), tp=TopicPartition("orders", 1)))
    (one,) = histories(history, "orders", {0: traffic(10, 11, 12, 13), 1: traffic(10, 11, 14)})
    assert one.behind.tolist() == [2, 3, 6]


def test_groups_and_topics_are_kept_apart() -> None:
    history = commits((12, 1))
    history.merge(commits((12, 1), group="audit"))
    history.merge(commits((12, 1), tp=TopicPartition("others", 0)))
    assert [group_lag.group for group_lag in histories(history, "orders", {0: traffic(10)})] == ["audit", "billing"]
    assert histories(history, "others", {}) == []


def test_what_a_group_forgot_is_no_lag() -> None:
    (group_lag,) = histories(commits((12, 1), (13, -1)), "orders", {0: traffic(10, 11, 14)})
    assert group_lag.behind.tolist()[-1] == 0
    assert group_lag.by_partition == {}


def test_other_records_of_the_journal_are_passed_over() -> None:
    history = CommitHistory()
    for key in (group_key("billing"), None, b"", b"\x00\x63whatever", b"\x00\x01"):
        history.add(0, 0, key, b"", TOPICS)
    assert history.points == {}


def test_so_many_commits_are_thinned_out_and_the_last_one_stays() -> None:
    many = lag.MOST_COMMITS * 3
    history = commits(*((n, n) for n in range(many)))
    kept = history.points["billing", TP]
    assert len(kept) <= lag.MOST_COMMITS
    assert (kept[0].offset, kept[-1].offset) == (0, many - 1)
