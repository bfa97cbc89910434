"""Partitions as a person types them, such as orders:0-5,7.

Pure: text in, partitions out.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leadline.model import NO_EPOCH, LeaderEpoch, Offset, TopicPartition


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for tp in sorted(partitions):
        topics[tp.topic].append(tp.partition)
    return " ".join(f"{topic}:{_ranges(numbers)}" for topic, numbers in topics.items())


def _ranges(numbers: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


MOST_PARTITIONS = 200_000  # of one range; no topic has more
_NUMBERS = re.compile(r"\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*")


def partitions_in(text: str) -> list[TopicPartition]:
    """The partitions in a text such as `orders:0-5,7 users:0`. ValueError for any other text."""
    return [TopicPartition(topic, n) for topic, numbers in map(topic_in, text.split()) for n in numbers or ()]


def topic_in(text: str) -> tuple[str, list[int] | None]:
    """The topic and the partitions in a text such as `orders:0-5,7`. None: all, as in `orders`."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not _NUMBERS.fullmatch(numbers)):
        raise ValueError(f"expected TOPIC or TOPIC:0,2-5, not {text!r}")
    if not colon:
        return topic, None
    partitions: set[int] = set()
    for run in numbers.split(","):
        first, _, last = run.partition("-")
        if int(last or first) - int(first) > MOST_PARTITIONS:
            raise ValueError(f"{run}: more partitions than a topic can have")
        partitions |= set(range(int(first), int(last or first) + 1))
    return topic, sorted(partitions)


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    offset: Offset
    epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition, from `start` to before `end`."""

    start: Offset
    end: Offset
