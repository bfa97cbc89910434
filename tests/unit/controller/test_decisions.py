"""The controller's decisions: a test makes things happen, and asserts who leads. `Paper` holds the invariants."""

import pytest

from leadline.coordination import znodes
from leadline.coordination.znodes import ReplicaAssignment
from leadline.errors import (
    BrokerNotAvailable,
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    StorageError,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import TopicPartition
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal
from leadline.wire.messages import LeaderAndIsrRequest, UpdateMetadataRequest
from tests.support.controlled import Paper

T0 = TopicPartition("t", 0)


def proposal_of(proposed: LeaderAndIsr) -> Proposal:
    return Proposal(proposed, (ANY_EPOCH,) * len(proposed.isr))


def test_the_live_replicas_of_a_new_partition_are_in_sync_and_the_first_leads() -> None:
    paper = Paper(3)
    paper.die(1)
    paper.create("t", (1, 2, 0))
    assert paper.led(T0) == LeaderAndIsr(2, 0, (2, 0), 0)
    assert paper.received[2][T0] == paper.received[0][T0] == (0, 2)


def test_replicas_are_updated_first_and_then_all_brokers() -> None:
    paper = Paper(4)
    paper.create("t", (1, 2))
    requests = [(sent.broker, type(sent.request)) for sent in paper.last.requests]
    assert requests == [
        (1, LeaderAndIsrRequest),
        (2, LeaderAndIsrRequest),
        *((id, UpdateMetadataRequest) for id in range(4)),
    ]
    lead = paper.last.requests[0].request
    assert isinstance(lead, LeaderAndIsrRequest)
    assert lead.topic_states[0].partition_states[0].is_new
    assert [leader.port for leader in lead.live_leaders] == [9001]


def test_a_partition_without_a_live_replica_begins_when_one_comes() -> None:
    paper = Paper(2)
    paper.die(1)
    paper.create("t", (1,))
    assert paper.state_of(T0) is None
    paper.join(1)
    assert paper.led(T0) == LeaderAndIsr(1, 0, (1,), 0)


def test_the_next_in_sync_leads_when_the_leader_dies_and_the_dead_leave_the_isr() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2, 0))
    paper.in_sync(T0, 1, 0)
    paper.die(1)
    assert paper.led(T0) == LeaderAndIsr(0, 1, (0,), 2)
    paper.join(1)
    assert paper.led(T0) == LeaderAndIsr(0, 1, (0,), 2)
    assert paper.received[1][T0] == (1, 0)


def test_a_follower_that_dies_leaves_the_isr_in_a_new_epoch() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2, 0))
    paper.die(2)
    assert paper.led(T0) == LeaderAndIsr(1, 1, (1, 0), 1)


def test_the_last_in_sync_replica_is_waited_for() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.in_sync(T0, 1)
    paper.die(1)
    assert paper.led(T0)[:3] == (-1, 1, (1,))
    assert paper.last.stranded == {"t"}
    paper.join(1)
    assert paper.led(T0)[:3] == (1, 2, (1,))


def test_an_unclean_election_says_that_it_was_one() -> None:
    paper = Paper(3)
    paper.unclean = {"t"}
    paper.create("t", (1, 2))
    paper.in_sync(T0, 1)
    paper.die(1)
    decision = paper.led(T0)
    assert (decision.leader, decision.isr, decision.recovering) == (2, (2,), True)


def test_a_broker_that_came_back_unseen_was_away() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.register(1)
    paper.brokers_changed()
    assert paper.led(T0)[:3] == (2, 1, (2,))
    assert paper.received[1][T0] == (1, 2)


def test_a_silent_broker_is_failed_until_it_answers() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    epoch = paper.registered[1].epoch
    paper.do(lambda: paper.decisions.broker_gone(1, epoch - 1))
    assert paper.led(T0).leader == 1, "it is another run of that broker that is gone"
    paper.do(lambda: paper.decisions.broker_gone(1, epoch))
    assert paper.led(T0)[:3] == (2, 1, (2,))
    paper.brokers_changed()
    assert paper.led(T0).isr == (2,), "that it is still registered says nothing"
    paper.do(lambda: paper.decisions.broker_back(1, epoch))
    assert paper.in_sync(T0, 2, 1).isr == (2, 1)


def test_a_broker_that_is_gone_comes_back_with_another_epoch() -> None:
    paper = Paper(3)
    paper.create("t", (1,))
    paper.do(lambda: paper.decisions.broker_gone(1, paper.registered[1].epoch))
    assert paper.led(T0).leader == -1
    paper.join(1)
    assert paper.led(T0).leader == 1


def test_a_broker_that_shuts_down_hands_over_what_others_can_lead() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2), (2, 1), (1,))
    left = paper.do(lambda: paper.decisions.shut_down(1, paper.registered[1].epoch))
    assert left == []
    assert paper.led(T0)[:3] == (2, 1, (2,))
    assert paper.led(TopicPartition("t", 1))[:3] == (2, 1, (2,))
    assert paper.led(TopicPartition("t", 2)).leader == 1
    paper.create("u", (1, 2))
    assert paper.led(TopicPartition("u", 0)).isr == (2,)


def test_a_controlled_shutdown_lists_the_partitions_without_another_leader() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.in_sync(T0, 1)
    assert paper.do(lambda: paper.decisions.shut_down(1)) == [T0]
    with pytest.raises(StaleBrokerEpoch):
        paper.decisions.shut_down(1, 0)
    with pytest.raises(BrokerNotAvailable):
        paper.decisions.shut_down(9)


def test_the_last_brokers_shut_down_without_waiting() -> None:
    paper = Paper(2)
    paper.create("t", (0, 1))
    assert paper.do(lambda: paper.decisions.shut_down(0)) == []
    assert paper.led(T0).leader == 1
    assert paper.do(lambda: paper.decisions.shut_down(1)) == []
    assert paper.led(T0).leader == 1


def test_what_lies_in_a_failed_directory_is_led_by_others() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2), (1, 0))
    epoch = paper.registered[1].epoch
    paper.do(lambda: paper.decisions.log_dir_failed((1,)))
    assert {sent.broker for sent in paper.last.requests if isinstance(sent.request, LeaderAndIsrRequest)} == {1}
    codes = {T0: StorageError.code, TopicPartition("t", 1): 0}
    paper.do(lambda: paper.decisions.replicas_answered(1, epoch - 1, codes))
    assert paper.led(T0).leader == 1, "another run of that broker had the failed directory"
    paper.do(lambda: paper.decisions.replicas_answered(1, epoch, codes))
    assert paper.led(T0)[:3] == (2, 1, (2,))
    assert paper.led(TopicPartition("t", 1)).leader == 1
    paper.join(1)
    assert paper.received[1][T0] == (1, 2)


# What leaders ask for


def test_a_leader_gets_the_isr_it_proposes_and_all_brokers_are_updated() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    assert paper.in_sync(T0, 1) == LeaderAndIsr(1, 0, (1,), 1)
    assert {type(sent.request) for sent in paper.last.requests} == {UpdateMetadataRequest}
    assert paper.in_sync(T0, 1, 2) == LeaderAndIsr(1, 0, (1, 2), 2)


@pytest.mark.parametrize(
    ("proposal", "error"),
    [
        (LeaderAndIsr(1, 0, (1,), 2), FencedLeaderEpoch),
        (LeaderAndIsr(1, 1, (1, 9), 2), IneligibleReplica),
        (LeaderAndIsr(1, 1, (1, 3), 2), InvalidRequest),
        (LeaderAndIsr(1, 1, (2,), 2), InvalidRequest),
        (LeaderAndIsr(2, 1, (2,), 2), InvalidRequest),
        (LeaderAndIsr(1, 1, (), 2), InvalidRequest),
        (LeaderAndIsr(1, 1, (1, 1), 2), InvalidRequest),
    ],
)
def test_what_a_leader_may_not_ask_for(proposal: LeaderAndIsr, error: type[WireError]) -> None:
    paper = Paper(4)
    paper.create("t", (1, 2, 0))
    paper.die(2)
    paper.join(2)
    paper.in_sync(T0, 1, 0, 2)
    epoch = paper.registered[1].epoch
    answers = paper.do(lambda: paper.decisions.alter_partition(1, epoch, {T0: proposal_of(proposal)}))
    assert type(answers[T0]) is error
    assert paper.led(T0) == LeaderAndIsr(1, 1, (1, 0, 2), 2)


def test_who_is_not_there_any_longer_may_not_ask_at_all() -> None:
    paper = Paper(3)
    for id, epoch in ((1, 0), (7, 1)):
        with pytest.raises(StaleBrokerEpoch):
            paper.decisions.alter_partition(id, epoch, {})
    answers = paper.decisions.alter_partition(1, paper.registered[1].epoch, {T0: proposal_of(LeaderAndIsr(1, 0, (1,)))})
    assert isinstance(answers[T0], UnknownTopicOrPartition)


# Elections that somebody asks for


def test_the_preferred_leader_leads_again_if_it_can() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2), (2, 1))
    paper.die(1)
    paper.join(1)
    answers = paper.do(lambda: paper.decisions.elect((T0,), unclean=False))
    assert isinstance(answers[T0], PreferredLeaderNotAvailable)
    paper.in_sync(T0, 2, 1)
    assert paper.do(lambda: paper.decisions.elect((T0,), unclean=False)) == {T0: 1}
    assert paper.led(T0)[:3] == (1, 2, (2, 1))
    answers = paper.do(lambda: paper.decisions.elect((T0, TopicPartition("t", 7)), unclean=False))
    assert [type(answer) for answer in answers.values()] == [ElectionNotNeeded, UnknownTopicOrPartition]


def test_a_requested_unclean_election_needs_no_setting() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    paper.in_sync(T0, 1)
    elect = paper.decisions.elect
    assert isinstance(paper.do(lambda: elect((T0,), unclean=True))[T0], ElectionNotNeeded)
    paper.die(1)
    assert paper.do(lambda: elect((T0,), unclean=True)) == {T0: 2}
    assert paper.led(T0).leader == 2
    paper.die(2)
    assert isinstance(paper.do(lambda: elect((T0,), unclean=True))[T0], EligibleLeadersNotAvailable)


def test_leadership_goes_back_where_too_much_is_led_by_others() -> None:
    paper = Paper(3)
    paper.create("t", *([(1, 2)] * 10))
    for number in (3, 4):
        tp = TopicPartition("t", number)
        now = paper.led(tp)
        paper.decisions.state.existing(tp).assigned = ReplicaAssignment((1, 2))
        paper.decisions.transitions.decide(tp, now._replace(leader=2, leader_epoch=1))
        paper.do(lambda: None)
    assert paper.do(lambda: paper.decisions.rebalance(20)) == []
    moved = paper.do(lambda: paper.decisions.rebalance(19))
    assert [tp.partition for tp in moved] == [3, 4]
    assert {paper.led(TopicPartition("t", n)).leader for n in range(10)} == {1}


# Partitions and topics that come and go


def test_partitions_are_added() -> None:
    paper = Paper(3)
    paper.create("t", (1, 2))
    path = znodes.topic_path("t")
    grown = znodes.decode_topic("t", paper.nodes[path][0])
    partitions = {**grown.partitions, 1: ReplicaAssignment((2, 0))}
    paper.nodes[path] = (znodes.encode_topic(grown._replace(partitions=partitions)), 1)
    paper.do(lambda: paper.decisions.partitions("t", partitions))
    assert paper.led(TopicPartition("t", 1)) == LeaderAndIsr(2, 0, (2, 0), 0)
    assert paper.led(T0).leader_epoch == 0
