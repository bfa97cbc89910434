"""Topics that are deleted: what a deletion waits for, and what the next controller continues."""

from leadline.controller.state import (
    PartitionReplica,
)
from leadline.coordination import znodes
from leadline.errors import (
    InvalidTopic,
    UnknownTopicOrPartition,
)
from leadline.model import TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.wire.messages import StopReplicaRequest, UpdateMetadataRequest
from tests.support.controlled import ModelCluster

T0 = TopicPartition("t", 0)


def test_a_topic_goes_once_every_replica_of_it_is_deleted() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2), (2, 0))
    cluster.nodes[znodes.config_path("topics", "t")] = (b"", 0)
    cluster.delete("t")
    update = next(sent.request for sent in cluster.last.requests if isinstance(sent.request, UpdateMetadataRequest))
    assert {state.leader for state in update.topic_states[0].partition_states} == {-2}
    stops = [sent.request for sent in cluster.last.requests if isinstance(sent.request, StopReplicaRequest)]
    states = [state for stop in stops for topic in stop.topic_states for state in topic.partition_states]
    assert {state.leader_epoch for state in states} == {-2}
    assert sorted(id for id, _ in cluster.deleting) == [0, 1, 2, 2]
    assert znodes.topic_path("t") in cluster.nodes
    cluster.answer_deletions()
    assert set(cluster.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}
    cluster.create("t", (0, 1))
    assert cluster.led(T0) == LeaderAndIsr(0, 0, (0, 1), 0)


def test_a_topic_with_a_replica_on_a_dead_broker_waits_for_it() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.die(2)
    cluster.delete("t")
    cluster.answer_deletions()
    assert znodes.topic_path("t") in cluster.nodes
    cluster.restart()
    cluster.answer_deletions()
    assert znodes.topic_path("t") in cluster.nodes
    cluster.join(2)
    cluster.answer_deletions()
    assert set(cluster.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}


def test_a_deletion_that_fails_is_tried_again_when_the_broker_is_back() -> None:

    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.delete("t")
    failed = [PartitionReplica(tp, id) for id, tp in cluster.deleting if id == 2]
    cluster.deleting = [(id, tp) for id, tp in cluster.deleting if id != 2]
    cluster.do(lambda: cluster.decisions.deletions.failed(failed))
    cluster.answer_deletions()
    assert znodes.topic_path("t") in cluster.nodes
    cluster.join(2)
    cluster.answer_deletions()
    assert znodes.topic_path("t") not in cluster.nodes


def test_the_next_controller_goes_on_with_a_deletion() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.delete("t")
    cluster.deleting.clear()
    cluster.restart()
    cluster.answer_deletions()
    assert set(cluster.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}


def test_the_deletion_of_an_unknown_topic_leaves_nothing() -> None:
    cluster = ModelCluster(3)
    cluster.delete("nothing")
    assert set(cluster.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}


def test_a_topic_that_is_about_to_go_is_left_alone() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.die(2)
    cluster.delete("t")
    assert isinstance(cluster.do(lambda: cluster.decisions.elect((T0,), unclean=False))[T0], InvalidTopic)
    assert isinstance(
        cluster.do(lambda: cluster.decisions.reassignments.alter({T0: (0,)}))[T0], UnknownTopicOrPartition
    )
