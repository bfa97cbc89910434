"""What must hold at rest: all faults are over, and the cluster had time to settle."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from leadline.broker.broker import Broker
from leadline.model import Offset, TopicPartition
from leadline.simulation.checkers import groups, reads, replicas, topics, transactions, writes
from leadline.simulation.checkers.topics import PartitionAtRest
from leadline.simulation.checkers.writes import Stored
from leadline.simulation.client_history import ClientHistory


@dataclass(slots=True)
class StoredRecords:
    """The records in the logs at rest."""

    stored: Stored = field(default_factory=dict)  # all records
    visible: Stored = field(default_factory=dict)  # without transactions that were aborted
    transformed: dict[str, Mapping[TopicPartition, Offset]] = field(default_factory=dict)  # up to where, by group
    committed: dict[str, Mapping[TopicPartition, Offset]] = field(default_factory=dict)  # by group with members
    cluster: Mapping[TopicPartition, PartitionAtRest] = field(default_factory=dict)
    moves: Sequence[TopicPartition] = ()  # under way


def violations(history: ClientHistory, records: StoredRecords, brokers: Sequence[Broker]) -> Iterator[str]:
    yield from writes.lost_writes(history, records.stored)
    yield from writes.doubled_writes(history, records.stored)
    yield from writes.unordered_writes(history, records.stored)
    yield from writes.unsent_writes(history, records.stored)
    yield from writes.internal_errors(history)
    yield from transactions.torn_transactions(history, records.visible)
    yield from transactions.dependency_cycles(history)
    for group, offsets in records.transformed.items():
        yield from transactions.not_transformed_once(history, group, offsets, records.visible)
    yield from reads.changed_reads(history, records.stored)
    yield from reads.aborted_reads(history, records.stored, records.visible)
    yield from reads.skipped_reads(history, records.stored, records.visible)
    yield from reads.repeated_reads(history)
    yield from groups.doubled_owners(history)
    yield from groups.shrunken_generations(history)
    yield from groups.lost_commits(history, records.committed)
    yield from groups.unread_commits(history, records.committed)
    yield from topics.misplaced_topics(history, records.cluster)
    yield from topics.unhealthy_partitions(records.cluster)
    yield from topics.left_over_replicas(records.cluster, {b.metadata.me.id: list(b.replicas.hosted) for b in brokers})
    yield from (f"unfinished move: {tp} is still moving" for tp in records.moves)
    yield from replicas.different_replicas(brokers)
    yield from replicas.open_transactions(brokers)
    yield from replicas.inconsistent_epochs(brokers)
