"""A topic and its partitions as the cluster describes them, and which partitions need attention."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.reassign.plan import OngoingReassignment
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin._topic import TopicDescription


class PartitionDescription(NamedTuple):
    """A partition as `describe` prints it."""

    id: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    moves: OngoingReassignment | None = None

    @property
    def replication_factor(self) -> int:
        """The number of replicas, without those that a reassignment adds."""
        if self.moves is None or not {*self.moves.adding, *self.moves.removing} & {*self.replicas}:
            return len(self.replicas)
        return len(self.moves.replicas) - len(self.moves.adding)


class FilterContext(NamedTuple):
    """The facts besides the partition that filters need."""

    alive: Collection[int]
    min_isr: int  # min.insync.replicas of the topic


Filter = Callable[[PartitionDescription, FilterContext], bool]


FILTERS: dict[str, tuple[str, Filter]] = {
    "under-replicated-partitions": (
        "have fewer in-sync replicas than replicas",
        lambda partition, _: len(partition.isr) < partition.replication_factor,
    ),
    "unavailable-partitions": (
        "have no leader that is alive",
        lambda partition, cluster: partition.leader is None or partition.leader not in cluster.alive,
    ),
    "at-min-isr-partitions": (
        "have exactly min.insync.replicas in-sync replicas",
        lambda partition, cluster: len(partition.isr) == cluster.min_isr,
    ),
    "under-min-isr-partitions": (
        "have fewer in-sync replicas than min.insync.replicas: acks=all fails",
        lambda partition, cluster: partition.leader is None or len(partition.isr) < cluster.min_isr,
    ),
}


OFFSETS_TOPIC, TRANSACTIONS_TOPIC = INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
INTERNAL = frozenset(INTERNAL_TOPICS)  # Kafka's own, by name


def partitions_of(
    topic: "TopicDescription", moving: Mapping[TopicPartition, OngoingReassignment]
) -> list[PartitionDescription]:
    partitions = []
    for part in topic.partitions:
        leader, replicas, isr = _nodes(part.leader, part.replicas, part.isr)
        partitions.append(
            PartitionDescription(part.id, leader, replicas, isr, moving.get(TopicPartition(topic.name, part.id)))
        )
    return sorted(partitions)


def id_of(topic: "TopicDescription") -> str:
    """The id in Kafka's form, which is base64 for URLs. librdkafka returns ordinary base64."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


def _nodes(
    leader: object, replicas: Sequence[object], isr: Sequence[object]
) -> tuple[int | None, list[int], list[int]]:
    """The ids. A partition without a leader has no node as leader, or one with a negative id."""
    ids = [[int(getattr(node, "id", -1)) for node in nodes] for nodes in (replicas, isr)]
    leader_id = int(getattr(leader, "id", -1))
    return (leader_id if leader_id >= 0 else None), ids[0], ids[1]
