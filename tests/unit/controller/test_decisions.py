"""The controller's decisions: a test causes events and asserts who leads. `ModelCluster` checks the invariants."""

from uuid import UUID

import pytest

from leadline.controller.decisions import Decisions, PendingChanges
from leadline.controller.state import ControlledPartition, ControlledTopic, ControllerState, RegisteredBroker
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
from leadline.runtime.steps import exhaust
from leadline.wire.messages import LeaderAndIsrRequest, UpdateMetadataRequest
from tests.support.controlled import ModelCluster

T0 = TopicPartition("t", 0)


def proposal_of(proposed: LeaderAndIsr) -> Proposal:
    return Proposal(proposed, (ANY_EPOCH,) * len(proposed.isr))


def test_the_live_replicas_of_a_new_partition_are_in_sync_and_the_first_leads() -> None:
    cluster = ModelCluster(3)
    cluster.die(1)
    cluster.create("t", (1, 2, 0))
    assert cluster.led(T0) == LeaderAndIsr(2, 0, (2, 0), 0)
    assert cluster.received[2][T0] == cluster.received[0][T0] == (0, 2)


def test_replicas_are_updated_first_and_then_all_brokers() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2))
    requests = [(sent.broker, type(sent.request)) for sent in cluster.last.requests]
    assert requests == [
        (1, LeaderAndIsrRequest),
        (2, LeaderAndIsrRequest),
        *((id, UpdateMetadataRequest) for id in range(4)),
    ]
    lead = cluster.last.requests[0].request
    assert isinstance(lead, LeaderAndIsrRequest)
    assert lead.topic_states[0].partition_states[0].is_new
    assert [leader.port for leader in lead.live_leaders] == [9001]


def test_a_partition_without_a_live_replica_begins_when_one_comes() -> None:
    cluster = ModelCluster(2)
    cluster.die(1)
    cluster.create("t", (1,))
    assert cluster.state_of(T0) is None
    cluster.join(1)
    assert cluster.led(T0) == LeaderAndIsr(1, 0, (1,), 0)


def test_the_next_in_sync_leads_when_the_leader_dies_and_the_dead_leave_the_isr() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2, 0))
    cluster.in_sync(T0, 1, 0)
    cluster.die(1)
    assert cluster.led(T0) == LeaderAndIsr(0, 1, (0,), 2)
    cluster.join(1)
    assert cluster.led(T0) == LeaderAndIsr(0, 1, (0,), 2)
    assert cluster.received[1][T0] == (1, 0)


def test_a_follower_that_dies_leaves_the_isr_in_a_new_epoch() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2, 0))
    cluster.die(2)
    assert cluster.led(T0) == LeaderAndIsr(1, 1, (1, 0), 1)


def test_the_last_in_sync_replica_is_waited_for() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.in_sync(T0, 1)
    cluster.die(1)
    assert cluster.led(T0)[:3] == (-1, 1, (1,))
    assert cluster.last.stranded == {"t"}
    cluster.join(1)
    assert cluster.led(T0)[:3] == (1, 2, (1,))


def test_an_unclean_election_says_that_it_was_one() -> None:
    cluster = ModelCluster(3)
    cluster.unclean = {"t"}
    cluster.create("t", (1, 2))
    cluster.in_sync(T0, 1)
    cluster.die(1)
    decision = cluster.led(T0)
    assert (decision.leader, decision.isr, decision.recovering) == (2, (2,), True)


def test_a_broker_that_came_back_unseen_was_away() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.register(1)
    cluster.brokers_changed()
    assert cluster.led(T0)[:3] == (2, 1, (2,))
    assert cluster.received[1][T0] == (1, 2)


def test_a_silent_broker_is_failed_until_it_answers() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    epoch = cluster.registered[1].epoch
    cluster.do(lambda: cluster.decisions.broker_gone(1, epoch - 1))
    assert cluster.led(T0).leader == 1, "it is another run of that broker that is gone"
    cluster.do(lambda: cluster.decisions.broker_gone(1, epoch))
    assert cluster.led(T0)[:3] == (2, 1, (2,))
    cluster.brokers_changed()
    assert cluster.led(T0).isr == (2,), "that it is still registered says nothing"
    cluster.do(lambda: cluster.decisions.broker_back(1, epoch))
    assert cluster.in_sync(T0, 2, 1).isr == (2, 1)


def test_a_broker_that_is_gone_comes_back_with_another_epoch() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1,))
    cluster.do(lambda: cluster.decisions.broker_gone(1, cluster.registered[1].epoch))
    assert cluster.led(T0).leader == -1
    cluster.join(1)
    assert cluster.led(T0).leader == 1


def test_a_broker_that_shuts_down_hands_over_what_others_can_lead() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2), (2, 1), (1,))
    left = cluster.do(lambda: cluster.decisions.shut_down(1, cluster.registered[1].epoch))
    assert left == []
    assert cluster.led(T0)[:3] == (2, 1, (2,))
    assert cluster.led(TopicPartition("t", 1))[:3] == (2, 1, (2,))
    assert cluster.led(TopicPartition("t", 2)).leader == 1
    cluster.create("u", (1, 2))
    assert cluster.led(TopicPartition("u", 0)).isr == (2,)


def test_a_controlled_shutdown_lists_the_partitions_without_another_leader() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.in_sync(T0, 1)
    assert cluster.do(lambda: cluster.decisions.shut_down(1)) == [T0]
    with pytest.raises(StaleBrokerEpoch):
        exhaust(cluster.decisions.shut_down(1, 0))
    with pytest.raises(BrokerNotAvailable):
        exhaust(cluster.decisions.shut_down(9))


def test_the_last_brokers_shut_down_without_waiting() -> None:
    cluster = ModelCluster(2)
    cluster.create("t", (0, 1))
    assert cluster.do(lambda: cluster.decisions.shut_down(0)) == []
    assert cluster.led(T0).leader == 1
    assert cluster.do(lambda: cluster.decisions.shut_down(1)) == []
    assert cluster.led(T0).leader == 1


def test_what_lies_in_a_failed_directory_is_led_by_others() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2), (1, 0))
    epoch = cluster.registered[1].epoch
    cluster.do(lambda: cluster.decisions.log_dir_failed((1,)))
    assert {sent.broker for sent in cluster.last.requests if isinstance(sent.request, LeaderAndIsrRequest)} == {1}
    codes = {T0: StorageError.code, TopicPartition("t", 1): 0}
    cluster.do(lambda: cluster.decisions.replicas_answered(1, epoch - 1, codes))
    assert cluster.led(T0).leader == 1, "another run of that broker had the failed directory"
    cluster.do(lambda: cluster.decisions.replicas_answered(1, epoch, codes))
    assert cluster.led(T0)[:3] == (2, 1, (2,))
    assert cluster.led(TopicPartition("t", 1)).leader == 1
    cluster.join(1)
    assert cluster.received[1][T0] == (1, 2)


# What leaders ask for


def test_a_leader_gets_the_isr_it_proposes_and_all_brokers_are_updated() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    assert cluster.in_sync(T0, 1) == LeaderAndIsr(1, 0, (1,), 1)
    assert {type(sent.request) for sent in cluster.last.requests} == {UpdateMetadataRequest}
    assert cluster.in_sync(T0, 1, 2) == LeaderAndIsr(1, 0, (1, 2), 2)


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
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2, 0))
    cluster.die(2)
    cluster.join(2)
    cluster.in_sync(T0, 1, 0, 2)
    epoch = cluster.registered[1].epoch
    answers = cluster.do(lambda: cluster.decisions.alter_partition(1, epoch, {T0: proposal_of(proposal)}))
    assert type(answers[T0]) is error
    assert cluster.led(T0) == LeaderAndIsr(1, 1, (1, 0, 2), 2)


def test_a_stale_broker_epoch_may_not_alter_partitions() -> None:
    cluster = ModelCluster(3)
    for id, epoch in ((1, 0), (7, 1)):
        with pytest.raises(StaleBrokerEpoch):
            cluster.decisions.alter_partition(id, epoch, {})
    answers = cluster.decisions.alter_partition(
        1, cluster.registered[1].epoch, {T0: proposal_of(LeaderAndIsr(1, 0, (1,)))}
    )
    assert isinstance(answers[T0], UnknownTopicOrPartition)


# Elections that somebody asks for


def test_the_preferred_leader_leads_again_if_it_can() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2), (2, 1))
    cluster.die(1)
    cluster.join(1)
    answers = cluster.do(lambda: cluster.decisions.elect((T0,), unclean=False))
    assert isinstance(answers[T0], PreferredLeaderNotAvailable)
    cluster.in_sync(T0, 2, 1)
    assert cluster.do(lambda: cluster.decisions.elect((T0,), unclean=False)) == {T0: 1}
    assert cluster.led(T0)[:3] == (1, 2, (2, 1))
    answers = cluster.do(lambda: cluster.decisions.elect((T0, TopicPartition("t", 7)), unclean=False))
    assert [type(answer) for answer in answers.values()] == [ElectionNotNeeded, UnknownTopicOrPartition]


def test_a_requested_unclean_election_needs_no_setting() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    cluster.in_sync(T0, 1)
    elect = cluster.decisions.elect
    assert isinstance(cluster.do(lambda: elect((T0,), unclean=True))[T0], ElectionNotNeeded)
    cluster.die(1)
    assert cluster.do(lambda: elect((T0,), unclean=True)) == {T0: 2}
    assert cluster.led(T0).leader == 2
    cluster.die(2)
    assert isinstance(cluster.do(lambda: elect((T0,), unclean=True))[T0], EligibleLeadersNotAvailable)


def test_leadership_goes_back_where_too_much_is_led_by_others() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", *([(1, 2)] * 10))
    for number in (3, 4):
        tp = TopicPartition("t", number)
        now = cluster.led(tp)
        cluster.decisions.state.existing(tp).assigned = ReplicaAssignment((1, 2))
        cluster.decisions.transitions.decide(tp, now._replace(leader=2, leader_epoch=1))
        cluster.do(lambda: None)
    assert cluster.do(lambda: cluster.decisions.rebalance(20)) == []
    moved = cluster.do(lambda: cluster.decisions.rebalance(19))
    assert [tp.partition for tp in moved] == [3, 4]
    assert {cluster.led(TopicPartition("t", n)).leader for n in range(10)} == {1}


# Partitions and topics that come and go


def test_partitions_are_added() -> None:
    cluster = ModelCluster(3)
    cluster.create("t", (1, 2))
    path = znodes.topic_path("t")
    grown = znodes.decode_topic("t", cluster.nodes[path][0])
    partitions = {**grown.partitions, 1: ReplicaAssignment((2, 0))}
    cluster.nodes[path] = (znodes.encode_topic(grown._replace(partitions=partitions)), 1)
    cluster.do(lambda: cluster.decisions.partitions("t", partitions))
    assert cluster.led(TopicPartition("t", 1)) == LeaderAndIsr(2, 0, (2, 0), 0)
    assert cluster.led(T0).leader_epoch == 0


@pytest.mark.parametrize(("decided_zxid", "leader", "isr"), [(5, 2, (2, 3)), (9, 1, (1, 2, 3)), (0, 1, (1, 2, 3))])
def test_a_new_controller_notices_that_a_broker_restarted_since_the_last_decision(
    decided_zxid: int, leader: int, isr: tuple[int, ...]
) -> None:
    """Broker 1 registered at 7. It may have lost records that it acknowledged before. 0: the tree keeps no such id."""
    brokers = {id: RegisteredBroker(id, 7 if id == 1 else 1, (), None) for id in (1, 2, 3)}
    partition = ControlledPartition(ReplicaAssignment((1, 2, 3)), LeaderAndIsr(1, 0, (1, 2, 3), 4), 1)
    partition.decided_zxid = decided_zxid
    state = ControllerState(2, 2, brokers=brokers)
    state.put_topic(ControlledTopic("t", UUID(int=1), {0: partition}))
    exhaust(Decisions(state, "PLAINTEXT").start(PendingChanges()))
    assert partition.decision is not None
    assert (partition.decision.leader, partition.decision.isr) == (leader, isr)
    assert (partition.decision.leader_epoch > 0) is (leader != 1)
    assert set(state.brokers) == {1, 2, 3}
