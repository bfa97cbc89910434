"""Elections: who leads next, who stays in sync, and which epochs count up."""

import pytest

from leadline.controller import elections
from leadline.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    WireError,
)
from leadline.model import NO_LEADER
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal

ASSIGNED = (1, 2, 3)
NOW = LeaderAndIsr(leader=1, leader_epoch=5, isr=(3, 1, 2), partition_epoch=9)


def elected(leader: int, *isr: int, recovering: bool = False) -> LeaderAndIsr:
    return LeaderAndIsr(leader, NOW.leader_epoch + 1, isr, NOW.partition_epoch, recovering)


@pytest.mark.parametrize(
    ("alive", "decision"),
    [({1, 2, 3}, LeaderAndIsr(1, 0, (1, 2, 3))), ({3, 2}, LeaderAndIsr(2, 0, (2, 3))), (set(), None)],
)
def test_the_first_leader_is_the_first_that_is_alive(alive: set[int], decision: LeaderAndIsr | None) -> None:
    assert elections.first(ASSIGNED, alive) == decision


@pytest.mark.parametrize(
    ("isr", "alive", "decision"),
    [
        ((3, 1, 2), {2, 3}, elected(2, 3, 2)),  # by the assignment; the ISR keeps its own order
        ((3,), {2, 3}, elected(3, 3)),
        ((1, 3), {2, 3}, elected(3, 3)),
        ((1,), {2, 3}, None),
        ((1,), set(), None),
    ],
)
def test_a_new_leader_is_the_first_assigned_that_lives_and_is_in_sync(
    isr: tuple[int, ...], alive: set[int], decision: LeaderAndIsr | None
) -> None:
    assert elections.offline(NOW._replace(isr=isr), ASSIGNED, alive) == decision


def test_an_unclean_election_takes_any_live_replica_and_says_so() -> None:
    alone = NOW._replace(isr=(1,))
    assert elections.offline(alone, ASSIGNED, {3, 2}, unclean=True) == elected(2, 2, recovering=True)
    assert elections.offline(alone, ASSIGNED, set(), unclean=True) is None


def test_an_unclean_election_is_clean_if_it_can_be() -> None:
    assert elections.offline(NOW, ASSIGNED, {3}, unclean=True) == elected(3, 3)


@pytest.mark.parametrize(
    ("isr", "alive", "decision"),
    [((2, 1), {1, 2}, elected(1, 2, 1)), ((2,), {1, 2}, None), ((2, 1), {2}, None)],
)
def test_the_preferred_leader_must_live_and_be_in_sync(
    isr: tuple[int, ...], alive: set[int], decision: LeaderAndIsr | None
) -> None:
    assert elections.preferred(NOW._replace(leader=2, isr=isr), ASSIGNED, alive) == decision


def test_a_broker_that_shuts_down_hands_over_and_leaves_the_isr() -> None:
    assert elections.controlled_shutdown(NOW, ASSIGNED, {1, 2, 3}, {1}) == elected(2, 3, 2)
    assert elections.controlled_shutdown(NOW, ASSIGNED, {1, 2, 3}, {1, 2}) == elected(3, 3)
    assert elections.controlled_shutdown(NOW._replace(isr=(1,)), ASSIGNED, {1, 2, 3}, {1}) is None


def test_a_reassigned_partition_is_led_by_one_of_its_new_replicas() -> None:
    assert elections.reassigned(NOW, (4, 3, 2), {1, 2, 3, 4}) == elected(3, 3, 1, 2)
    assert elections.reassigned(NOW, (4, 5), {1, 2, 3, 4}) is None
    assert elections.is_reassigned(NOW, (3, 2))
    assert not elections.is_reassigned(NOW, (3, 4))
    assert elections.new_epoch(NOW) == elected(1, 3, 1, 2)


@pytest.mark.parametrize(
    ("replica", "isr", "decision"),
    [
        (2, (3, 1, 2), elected(1, 3, 1)),
        (1, (3, 1, 2), elected(NO_LEADER, 3, 2)),
        (1, (1,), elected(NO_LEADER, 1)),
        (2, (1,), None),
    ],
)
def test_a_broker_that_goes_leaves_the_isr_unless_it_is_the_last(
    replica: int, isr: tuple[int, ...], decision: LeaderAndIsr | None
) -> None:
    assert elections.without(NOW._replace(isr=isr), replica) == decision


def proposal(
    *isr: int,
    epochs: tuple[int, ...] = (),
    leader_epoch: int = NOW.leader_epoch,
    partition_epoch: int = NOW.partition_epoch,
    recovering: bool = False,
) -> Proposal:
    state = LeaderAndIsr(NOW.leader, leader_epoch, isr, partition_epoch, recovering)
    return Proposal(state, epochs or (ANY_EPOCH,) * len(isr))


BROKERS = {1: 100, 2: 200, 3: 300}


@pytest.mark.parametrize("isr", [(1,), (1, 2), (3, 1, 2)])
def test_a_leader_alters_its_isr(isr: tuple[int, ...]) -> None:
    assert elections.altered(NOW, proposal(*isr), BROKERS) == NOW._replace(isr=isr)


def test_a_repeated_proposal_is_applied_once() -> None:
    done = NOW._replace(isr=(1, 2), partition_epoch=10)
    assert elections.altered(done, proposal(1, 2), BROKERS) is done


@pytest.mark.parametrize(
    ("proposed", "error"),
    [
        (proposal(1, leader_epoch=6), NotController),
        (proposal(1, partition_epoch=10), NotController),
        (proposal(1, leader_epoch=4), FencedLeaderEpoch),
        (proposal(3, 1, 2, leader_epoch=4), FencedLeaderEpoch),
        (proposal(1, partition_epoch=8), InvalidUpdateVersion),
        (proposal(1, 2, recovering=True), InvalidRequest),
        (proposal(1, recovering=True), InvalidRequest),
        (proposal(1, 4), IneligibleReplica),
        (proposal(1, 2, epochs=(100, 199)), IneligibleReplica),
        (proposal(1, 2, epochs=(100, 201)), IneligibleReplica),
    ],
)
def test_an_isr_that_may_not_be(proposed: Proposal, error: type[WireError]) -> None:
    with pytest.raises(error):
        elections.altered(NOW, proposed, BROKERS)


def test_a_process_is_known_by_its_broker_epoch_if_both_sides_tell() -> None:
    assert elections.altered(NOW, proposal(1, 2, epochs=(100, 200)), BROKERS).isr == (1, 2)
    assert elections.altered(NOW, proposal(1, 2, epochs=(100, 199)), BROKERS | {2: ANY_EPOCH}).isr == (1, 2)


def test_a_leader_that_is_about_to_stop_lets_others_join_to_take_over() -> None:
    alone, others = NOW._replace(isr=(1,)), {2: 200, 3: 300}
    assert elections.altered(alone, proposal(1, 2, epochs=(100, 200)), others).isr == (1, 2)


def test_a_leader_that_was_not_in_sync_becomes_one_like_any_other() -> None:
    recovering = NOW._replace(isr=(1,), recovering=True)
    assert elections.altered(recovering, proposal(1), BROKERS) == recovering._replace(recovering=False)
    assert elections.altered(recovering, proposal(1, recovering=True), BROKERS) is recovering
