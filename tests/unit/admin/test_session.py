"""Assignment and sizes of replicas, as `leadline reassign` sees them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.admin import session
from leadline.admin.kafka_python.partitions import LogDirReplica
from leadline.admin.reassign.plan import ReplicaMove
from leadline.admin.session import ClusterSession
from leadline.model import TopicPartition

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
HELD = {
    1: {ZERO: [LogDirReplica("/a", 500, 0, False)], ONE: [LogDirReplica("/a", 80, 0, False)]},
    2: {ZERO: [LogDirReplica("/b", 300, 0, False), LogDirReplica("/c", 900, 0, True)]},
}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ClusterSession:
    """Brokers 1 and 2 are alive, 3 is not."""
    partitions = {0: SimpleNamespace(replicas=(1, 2)), 1: SimpleNamespace(replicas=(1,))}
    metadata = SimpleNamespace(topics={"orders": SimpleNamespace(partitions=partitions)}, brokers={1: None, 2: None})
    connection = SimpleNamespace(metadata=lambda admin: metadata)
    monkeypatch.setattr(session, "describe_log_dirs", lambda client, brokers: {id: HELD[id] for id in brokers})
    return ClusterSession(cast(Any, connection), cast(Any, None), cast(Any, None))


def test_the_assignment_has_all_partitions(cluster: ClusterSession) -> None:
    assert cluster.assignment() == {ZERO: [1, 2], ONE: [1]}


def test_a_size_is_that_of_the_largest_replica_without_those_that_move_between_directories(
    cluster: ClusterSession,
) -> None:
    assert cluster.sizes([1, 2, 3]) == {ZERO: 500, ONE: 80}
    assert cluster.sizes([2]) == {ZERO: 300}


def test_copied_are_the_bytes_on_brokers_that_a_move_adds(cluster: ClusterSession) -> None:
    moves = [ReplicaMove(ZERO, [1], [1, 2], 500), ReplicaMove(ONE, [1], [2, 3], 160)]
    assert cluster.copied_bytes(moves) == 1200
