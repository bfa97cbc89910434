"""Options resolved against a cluster: a double that knows its offsets."""

import uuid
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from leadline.model import Offset, TopicPartition
from leadline.spark.client.cluster import GroupOffset, TopicMetadata
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.positions import ClusterOffsets, DataLoss
from leadline.spark.topics import resolution
from leadline.spark.topics.options import AssignedPartitions, SubscribedTopics, TopicPattern, read_options
from leadline.spark.topics.source_options import BadOption

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
NOW = ClusterOffsets({A0: 5, A1: 0}, {A0: 9, A1: 4}, {"a": "id"})


@dataclass
class KnownCluster:
    """A double of ClusterClient."""

    groups: Mapping[str, Mapping[TopicPartition, GroupOffset]] = field(default_factory=dict)
    by_time: Mapping[TopicPartition, Offset | None] = field(default_factory=dict)
    hides_sizes: bool = False

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicMetadata]:
        topics = {
            "a": TopicMetadata("a", uuid.UUID(int=7), {0: 1, 1: 1}),
            "__consumer_offsets": TopicMetadata("__consumer_offsets", uuid.UUID(int=8), {0: 1}, is_internal=True),
        }
        return {name: topic for name, topic in topics.items() if names is None or name in names}

    def existing_topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        if missing := set(names) - {"a"}:
            raise NoSuchTopic(f"there is no topic {missing.pop()}")
        return self.topics(names)

    def offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        return {tp: self.by_time.get(tp) for tp in times}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, GroupOffset]:
        return {tp: offset for tp, offset in self.groups[group].items() if tp in partitions}

    def sizes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if self.hides_sizes:
            raise RequestFailed("sizes of partitions", 31)
        return dict.fromkeys(partitions, 400)


def options(**values: str) -> Any:
    names = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"}
    return read_options({**names, **{name.replace("_", "."): value for name, value in values.items()}}, streaming=False)


def starts(cluster: KnownCluster, **values: str) -> dict[TopicPartition, Offset]:
    return resolution.start_offsets(cluster, NOW, options(**values))  # type: ignore[arg-type]


@pytest.mark.parametrize("topics", [SubscribedTopics(("a",)), TopicPattern(".*"), AssignedPartitions((A1, A0))])
def test_a_selection_becomes_partitions_without_internal_topics(topics: Any) -> None:
    resolved = resolution.resolve_topics(KnownCluster(), topics)  # type: ignore[arg-type]
    assert resolved.partitions == [A0, A1]
    assert list(resolved.ids) == ["a"]


def test_a_partition_that_does_not_exist_is_refused() -> None:
    assigned = AssignedPartitions((TopicPartition("a", 2),))
    with pytest.raises(NoSuchTopic, match="topic a has 2 partitions; there is no a-2"):
        resolution.resolve_topics(KnownCluster(), assigned)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "offsets"),
    [
        ("earliest", {A0: 5, A1: 0}),
        ("last 3", {A0: 6, A1: 1}),
        ('{"a": {"0": -2, "1": 3}}', {A0: 5, A1: 3}),
    ],
)
def test_starting_offsets_name_an_end_or_an_offset_of_each_partition(
    text: str, offsets: dict[TopicPartition, Offset]
) -> None:
    assert starts(KnownCluster(), startingOffsets=text) == offsets


def test_a_group_without_a_committed_offset_starts_at_the_earliest() -> None:
    cluster = KnownCluster(groups={"g": {A0: GroupOffset(7, "")}})
    assert starts(cluster, startingOffsets="committed", kafka_group_id="g") == {A0: 7, A1: 0}


def test_offsets_that_are_gone_are_a_loss_unless_the_options_allow_it() -> None:
    text = '{"a": {"0": 3, "1": 0}}'
    with pytest.raises(DataLoss, match="a-0: offsets 3 to 4 are gone: the log starts at 5"):
        starts(KnownCluster(), startingOffsets=text)
    assert starts(KnownCluster(), startingOffsets=text, failOnDataLoss="false") == {A0: 5, A1: 0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": {"0": 5}}', "must name all partitions that are read, and no others; missing: a-1"),
        ('{"a": {"0": 10, "1": 0}}', "a-0 ends at 9; it cannot be read from 10 on"),
    ],
)
def test_offsets_that_do_not_fit_the_topic_are_refused(text: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        starts(KnownCluster(), startingOffsets=text)


def test_a_time_without_a_later_record_is_refused_unless_the_latest_will_do() -> None:
    cluster = KnownCluster(by_time={A0: 8})
    with pytest.raises(BadOption, match="a-1 has no record at or after 1000"):
        starts(cluster, startingTimestamp="1000")
    latest = starts(cluster, startingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    assert latest == {A0: 8, A1: 4}


def test_the_average_size_is_unknown_if_the_brokers_report_no_sizes() -> None:
    for hides_sizes, expected in ((False, {A0: 100.0, A1: 100.0}), (True, {})):
        cluster: Any = KnownCluster(hides_sizes=hides_sizes)
        assert resolution.bytes_per_offset(cluster, NOW.earliest, NOW.latest) == expected
