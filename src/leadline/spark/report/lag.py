"""The lag of groups over time: their committed offsets against the log end offset at that time.

The topic of committed offsets is compacted: older times have fewer commits, at the end one per group and partition.

Pure: commits and slots in, lines out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from leadline.coordinator import group_records
from leadline.coordinator.group_records import OffsetKey
from leadline.errors import WireError
from leadline.model import Offset, TopicPartition
from leadline.spark.batches.record_positions import Longs
from leadline.spark.report.traffic import TimeSlots

MOST_COMMITS = 2000  # that are kept of one group and partition; if there are more, every second one is dropped


class CommitPoint(NamedTuple):
    ms: int
    offset: Offset


@dataclass(slots=True)
class CommitHistory:
    """The commits of each group and partition, in order. An offset of -1: the commit was deleted."""

    points: dict[tuple[str, TopicPartition], list[CommitPoint]] = field(default_factory=dict)

    def add(self, at: Offset, ms: int, key: bytes | None, value: bytes | None, topics: frozenset[str]) -> None:
        """A record of the journal."""
        try:
            parsed = group_records.read_key(key)
            if isinstance(parsed, OffsetKey) and parsed.tp.topic in topics:
                offset = -1 if value is None else group_records.read_offset(value, at).offset
                self._add(parsed.group, parsed.tp, [CommitPoint(ms, offset)])
        except WireError:
            return  # of a kind that only a newer Kafka knows; a report does without it

    def merge(self, other: "CommitHistory") -> None:
        for (group, tp), commits in other.points.items():
            self._add(group, tp, commits)

    def _add(self, group: str, tp: TopicPartition, commits: Iterable[CommitPoint]) -> None:
        history = self.points.setdefault((group, tp), [])
        history.extend(commits)
        if len(history) > MOST_COMMITS:
            history.sort()
            del history[1:-1:2]


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one group on one topic."""

    group: str
    times: Longs  # ms since 1970: the ends of slots
    behind: Longs  # records, in all partitions that the group has committed by then
    by_partition: Mapping[int, tuple[Offset, Offset]]  # committed and log end, at last


def histories(commits: CommitHistory, topic: str, slots: Mapping[int, TimeSlots]) -> list[Lag]:
    """The lags of all groups that committed on a topic, by name. `slots` is the traffic of its partitions."""
    groups = sorted({group for group, tp in commits.points if tp.topic == topic})
    return [_history(group, commits, topic, slots) for group in groups]


def _history(group: str, commits: CommitHistory, topic: str, slots: Mapping[int, TimeSlots]) -> Lag:
    mine = {tp.partition: sorted(c) for (name, tp), c in commits.points.items() if (name, tp.topic) == (group, topic)}
    times = _times(mine.values(), slots.values())
    behind = np.zeros(len(times), np.int64)
    now: dict[int, tuple[Offset, Offset]] = {}
    for partition, points in sorted(mine.items()):
        ends = slots.get(partition, TimeSlots()).end_at(times)
        n = np.searchsorted([commit.ms for commit in points], times, side="left")
        offsets = np.array([-1, *(commit.offset for commit in points)], np.int64)[n]
        behind += np.where(offsets < 0, 0, np.maximum(ends - offsets, 0))
        if len(times) and offsets[-1] >= 0:
            now[partition] = int(offsets[-1]), int(max(ends[-1], offsets[-1]))
    return Lag(group, times, behind, now)


def _times(commits: Iterable[list[CommitPoint]], slots: Iterable[TimeSlots]) -> Longs:
    """The times of the lag: the end of each slot with records or commits, from the first commit on."""
    all_slots = list(slots)
    width = max((points.width_ms for points in all_slots), default=1000)
    committed = np.array([commit.ms for partition_slots in commits for commit in partition_slots], np.int64)
    ends = [points.starts + width for points in all_slots]
    times = np.unique(np.concatenate([*ends, committed // width * width + width]))
    return times[times > (committed.min() if len(committed) else 0)]
