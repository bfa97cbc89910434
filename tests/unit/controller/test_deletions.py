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
from tests.support.controlled import Paper

T0 = TopicPartition("t", 0)


def test_a_topic_goes_once_every_replica_of_it_is_deleted() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2), (2, 0))
    paper.nodes[znodes.config_path("topics", "t")] = (b"", 0)
    paper.delete("t")
    update = next(sent.request for sent in paper.last.requests if isinstance(sent.request, UpdateMetadataRequest))
    assert {state.leader for state in update.topic_states[0].partition_states} == {-2}
    stops = [sent.request for sent in paper.last.requests if isinstance(sent.request, StopReplicaRequest)]
    states = [state for stop in stops for topic in stop.topic_states for state in topic.partition_states]
    assert {state.leader_epoch for state in states} == {-2}
    assert sorted(id for id, _ in paper.deleting) == [0, 1, 2, 2]
    assert znodes.topic_path("t") in paper.nodes
    paper.answer_deletions()
    assert set(paper.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}
    paper.create("t", (0, 1))
    assert paper.led(T0) == LeaderAndIsr(0, 0, (0, 1), 0)


def test_a_topic_with_a_replica_on_a_dead_broker_waits_for_it() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.die(2)
    paper.delete("t")
    paper.answer_deletions()
    assert znodes.topic_path("t") in paper.nodes
    paper.restart()
    paper.answer_deletions()
    assert znodes.topic_path("t") in paper.nodes
    paper.join(2)
    paper.answer_deletions()
    assert set(paper.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}


def test_a_deletion_that_fails_is_tried_again_when_the_broker_is_back() -> None:

    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.delete("t")
    failed = [PartitionReplica(tp, id) for id, tp in paper.deleting if id == 2]
    paper.deleting = [(id, tp) for id, tp in paper.deleting if id != 2]
    paper.do(lambda: paper.decisions.deletions.failed(failed))
    paper.answer_deletions()
    assert znodes.topic_path("t") in paper.nodes
    paper.join(2)
    paper.answer_deletions()
    assert znodes.topic_path("t") not in paper.nodes


def test_the_next_controller_goes_on_with_a_deletion() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.delete("t")
    paper.deleting.clear()
    paper.restart()
    paper.answer_deletions()
    assert set(paper.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}


def test_the_deletion_of_an_unknown_topic_leaves_nothing() -> None:
    paper = Paper(3)
    paper.delete("nothing")
    assert set(paper.nodes) == {znodes.TOPICS, znodes.DELETE_TOPICS}


def test_a_topic_that_is_about_to_go_is_left_alone() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.die(2)
    paper.delete("t")
    assert isinstance(paper.do(lambda: paper.decisions.elect((T0,), unclean=False))[T0], InvalidTopic)
    assert isinstance(paper.do(lambda: paper.decisions.reassignments.alter({T0: (0,)}))[T0], UnknownTopicOrPartition)
