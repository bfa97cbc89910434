"""What an administrator asked for, beside what the cluster has at rest.

Pure: no file, no clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from leadline.model import NO_LEADER, BrokerId, TopicPartition
from leadline.simulation.client_history import ClientHistory


class PartitionAtRest(NamedTuple):
    leader: BrokerId
    replicas: Sequence[BrokerId]
    isr: Sequence[BrokerId]


def misplaced_topics(history: ClientHistory, cluster: Mapping[TopicPartition, PartitionAtRest]) -> Iterator[str]:
    """Created topics exist with all their partitions; deleted ones do not."""
    for topic in history.topics:
        count = sum(tp.topic == topic.name for tp in cluster)
        if topic.is_deleted and count:
            yield f"undead topic: {topic.name} was deleted, and has {count} partitions"
        elif topic.is_created and not topic.is_deletion_requested and count < topic.partitions:
            yield f"lost topic: {topic.name} was created, and has {count} of {topic.partitions} partitions"


def unhealthy_partitions(cluster: Mapping[TopicPartition, PartitionAtRest]) -> Iterator[str]:
    """Once faults are over, each partition has a leader, and all of its replicas are in sync."""
    for tp, state in sorted(cluster.items()):
        if state.leader == NO_LEADER:
            yield f"no leader: {tp} has none"
        elif sorted(state.isr) != sorted(state.replicas):
            yield f"out of sync: {tp} has {sorted(state.isr)} in sync of {sorted(state.replicas)}"


def left_over_replicas(
    cluster: Mapping[TopicPartition, PartitionAtRest], hosted: Mapping[BrokerId, Sequence[TopicPartition]]
) -> Iterator[str]:
    """A broker holds the replicas that it is assigned, and no others."""
    for broker, partitions in sorted(hosted.items()):
        for tp in sorted(partitions):
            state = cluster.get(tp)
            if state is None or broker not in state.replicas:
                yield f"left-over replica: broker {broker} holds {tp}, which it is not assigned"
    for tp, state in sorted(cluster.items()):
        for broker in state.replicas:
            if tp not in hosted.get(broker, ()):
                yield f"missing replica: broker {broker} does not hold {tp}"
