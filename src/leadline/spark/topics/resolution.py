"""Options resolved against the cluster: the partitions, and the offsets at which to start and to end."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from leadline.model import NO_ID, Offset, TopicPartition, format_id
from leadline.spark.client.cluster import ClusterClient, TopicMetadata
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.errors import partitions_text
from leadline.spark.positions import ClusterOffsets, Loss, data_loss
from leadline.spark.ranges import Range
from leadline.spark.topics.options import (
    EARLIEST,
    LATEST,
    AssignedPartitions,
    Edge,
    LastOffsets,
    OffsetBound,
    ReadOptions,
    StartingAgo,
    StartingGroup,
    StartingOffsets,
    StartingTime,
    StartingTimes,
    SubscribedTopics,
    TopicSelection,
)
from leadline.spark.topics.source_options import BadOption


@dataclass(frozen=True, slots=True)
class ResolvedTopics:
    partitions: list[TopicPartition]
    ids: Mapping[str, str]  # of the topics, if the brokers have topic ids


def resolve_topics(cluster: ClusterClient, topics: TopicSelection, *, all_of_them: bool = True) -> ResolvedTopics:
    """The partitions that the options select. `all_of_them`: NoSuchTopic if one that is named is missing."""
    if isinstance(topics, SubscribedTopics):
        metadata = cluster.existing_topics(topics.names) if all_of_them else cluster.topics(topics.names)
        return _resolved(metadata, [tp for topic in metadata.values() for tp in topic.partitions])
    if isinstance(topics, AssignedPartitions):
        return _assigned(cluster, topics, all_of_them)
    pattern = re.compile(topics.pattern)
    metadata = {name: t for name, t in cluster.topics().items() if pattern.fullmatch(name) and not t.is_internal}
    return _resolved(metadata, [tp for topic in metadata.values() for tp in topic.partitions])


def _assigned(cluster: ClusterClient, topics: AssignedPartitions, all_of_them: bool) -> ResolvedTopics:
    names = {tp.topic for tp in topics.partitions}
    metadata = cluster.existing_topics(names) if all_of_them else cluster.topics(names)
    existing = [tp for tp in topics.partitions if tp.topic in metadata and tp.partition in metadata[tp.topic].leaders]
    if all_of_them and len(existing) < len(topics.partitions):
        missing = next(tp for tp in topics.partitions if tp not in existing)
        partitions = partitions_text(len(metadata[missing.topic].leaders))
        raise NoSuchTopic(f"assign: topic {missing.topic} has {partitions}; there is no {missing}")
    return _resolved(metadata, existing)


def _resolved(topics: Mapping[str, TopicMetadata], partitions: list[TopicPartition]) -> ResolvedTopics:
    return ResolvedTopics(
        sorted(partitions), {name: format_id(topic.id) for name, topic in topics.items() if topic.id != NO_ID}
    )


def current_offsets(cluster: ClusterClient, topics: ResolvedTopics, *, committed: bool) -> ClusterOffsets:
    latest = cluster.latest(topics.partitions, committed=committed)
    return ClusterOffsets(cluster.earliest(topics.partitions), latest, topics.ids)


def start_offsets(cluster: ClusterClient, at: ClusterOffsets, options: ReadOptions) -> dict[TopicPartition, Offset]:
    """The offsets at which a new reader starts. DataLoss if the options name offsets that are gone."""
    where = options.start
    offsets = _by_time(cluster, at, where, "starting", strict=not options.no_later_record_is_latest)
    if offsets is None:
        offsets = _start_offsets(cluster, at, where)
    for tp, offset in offsets.items():
        if offset > at.latest[tp]:
            raise BadOption(f"startingOffsets: {tp} ends at {at.latest[tp]}; it cannot be read from {offset} on")
    lost = [
        Loss(Range(tp, offset, at.earliest[tp]), f"the log starts at {at.earliest[tp]}")
        for tp, offset in sorted(offsets.items())
        if offset < at.earliest[tp]
    ]
    if lost and options.fail_on_data_loss:
        raise data_loss(lost)
    return {tp: max(offset, at.earliest[tp]) for tp, offset in offsets.items()}


def _start_offsets(cluster: ClusterClient, at: ClusterOffsets, where: OffsetBound) -> dict[TopicPartition, Offset]:
    match where:
        case Edge.EARLIEST:
            return dict(at.earliest)
        case LastOffsets(count):
            return {tp: max(latest - count, at.earliest[tp]) for tp, latest in at.latest.items()}
        case StartingGroup(group):
            committed = cluster.committed(group, list(at.latest))
            return {tp: committed[tp].offset if tp in committed else at.earliest[tp] for tp in at.latest}
        case StartingOffsets(starting_offsets):
            return _offsets_by_partition("startingOffsets", starting_offsets, at)
    return dict(at.latest)


def end_offsets(cluster: ClusterClient, at: ClusterOffsets, options: ReadOptions) -> dict[TopicPartition, Offset]:
    """The offsets at which a batch read ends."""
    offsets = _by_time(cluster, at, options.end, "ending", strict=False)
    if offsets is not None:
        return offsets
    if not isinstance(options.end, StartingOffsets):
        return dict(at.latest)
    offsets = _offsets_by_partition("endingOffsets", options.end.by_partition, at)
    for tp, offset in offsets.items():
        if offset > at.latest[tp]:
            raise BadOption(f"endingOffsets: {tp} ends at {at.latest[tp]}; it cannot be read up to {offset}")
    return offsets


def _offsets_by_partition(
    name: str, offsets: Mapping[TopicPartition, Offset], at: ClusterOffsets
) -> dict[TopicPartition, Offset]:
    _check_same(name, offsets, at)
    edges = {EARLIEST: at.earliest, LATEST: at.latest}
    return {tp: edges[offset][tp] if offset in edges else offset for tp, offset in offsets.items()}


def _check_same(name: str, named: Mapping[TopicPartition, object], at: ClusterOffsets) -> None:
    """A rule of the connector: options that name partitions name all of them."""
    if named.keys() != at.latest.keys():
        missing = ", ".join(map(str, sorted(at.latest.keys() - named.keys())))
        unknown = ", ".join(map(str, sorted(named.keys() - at.latest.keys())))
        wrong = [f"missing: {missing}"] * bool(missing) + [f"not read: {unknown}"] * bool(unknown)
        raise BadOption(f"{name} must name all partitions that are read, and no others; {'; '.join(wrong)}")


def _by_time(
    cluster: ClusterClient, at: ClusterOffsets, where: OffsetBound, name: str, *, strict: bool
) -> dict[TopicPartition, Offset] | None:
    """The first offsets at or after times; None if `where` is no time. `strict`: there must be such records."""
    match where:
        case StartingTimes(times):
            _check_same(f"{name}OffsetsByTimestamp", times, at)
        case StartingTime(ms):
            times = dict.fromkeys(at.latest, ms)
        case StartingAgo(ms):
            times, strict = dict.fromkeys(at.latest, time.time_ns() // 1_000_000 - ms), False
        case _:
            return None
    offsets = cluster.offsets(times)
    for tp, offset in sorted(offsets.items()):
        if offset is None and strict:
            raise BadOption(
                f"{name}Timestamp: {tp} has no record at or after {times[tp]}; "
                "startingOffsetsByTimestampStrategy=latest starts at its end instead"
            )
    return {tp: at.latest[tp] if offset is None else min(offset, at.latest[tp]) for tp, offset in offsets.items()}


def bytes_per_offset(
    cluster: ClusterClient, earliest: Mapping[TopicPartition, Offset], latest: Mapping[TopicPartition, Offset]
) -> dict[TopicPartition, float]:
    """The average bytes of an offset, by partition; empty if the brokers do not report sizes to this user."""
    try:
        sizes = cluster.sizes(list(latest))
    except RequestFailed:
        return {}
    return {tp: size / (latest[tp] - earliest[tp]) for tp, size in sizes.items() if size and latest[tp] > earliest[tp]}
