"""The leader of a partition: what each fetch, answer and decision changes, and what clients are told."""

import pytest

from leadline.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OperationNotAttempted,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.replication.partition import (
    ANY_EPOCH,
    NOTHING,
    FollowerProgress,
    IsrLimits,
    LastContact,
    LeaderAndIsr,
    LeaderEffects,
    LeaderState,
    LogOffsets,
    Proposal,
)

NOW_MS = 1_000_000
LAG_MS = 30_000
LATE_MS = NOW_MS + LAG_MS + 1
DECISION = LeaderAndIsr(leader=1, leader_epoch=4, isr=(1, 2, 3), partition_epoch=7)


def leader(*isr: int, min_isr: int = 1, replicas: tuple[int, ...] = (1, 2, 3)) -> LeaderState:
    """Of a log that ends at 10, with all below 5 safe."""
    return LeaderState(
        DECISION._replace(isr=isr),
        replicas,
        LogOffsets(high_watermark=5, log_end=10, durable_end=10),
        NOW_MS,
        dict.fromkeys(replicas, ANY_EPOCH),
        IsrLimits(min_isr, LAG_MS),
    )


def shrinking() -> tuple[LeaderState, Proposal]:
    """A leader that wants to go on alone."""
    leader_state = leader(1, 2)
    proposal = leader_state.shrink(LATE_MS).alter_isr
    assert proposal is not None
    return leader_state, proposal


# Records


def test_alone_all_is_safe_at_once() -> None:
    alone = leader(1, replicas=(1,), min_isr=3)
    assert alone.appended(11, NOW_MS) == LeaderEffects(advance_to=11)
    assert alone.appended(11, NOW_MS) is NOTHING
    assert alone.is_safe(11)
    assert not alone.is_safe(12)


def test_alone_nothing_is_safe_before_it_is_flushed() -> None:
    alone = leader(1, replicas=(1,))
    assert alone.appended(12, NOW_MS, durable_end=11) == LeaderEffects(advance_to=11)
    assert alone.flushed(12, NOW_MS) == LeaderEffects(advance_to=12)
    assert alone.flushed(12, NOW_MS) is NOTHING


def test_the_leaders_own_flush_counts_as_that_of_a_follower() -> None:
    leader_state = leader(1, 2)
    leader_state.appended(12, NOW_MS, durable_end=10)
    assert leader_state.follower_fetched(2, 12, 0, LATE_MS).advance_to == 10
    assert leader_state.flushed(11, LATE_MS) == LeaderEffects(advance_to=11)
    assert leader_state.flushed(12, LATE_MS) == LeaderEffects(advance_to=12)


def test_what_is_in_sync_decides_what_is_safe() -> None:
    leader_state = leader(1, 2)
    assert leader_state.appended(12, NOW_MS) is NOTHING
    assert leader_state.follower_fetched(2, 8, 0, NOW_MS) == LeaderEffects(advance_to=8, wake_deletes=True)
    assert leader_state.follower_fetched(3, 6, 0, NOW_MS).advance_to is None
    assert leader_state.follower_fetched(2, 9, 0, LATE_MS) == LeaderEffects(
        advance_to=9
    )  # 3 does not keep up, so it does not count


def test_a_fetch_without_news_changes_nothing() -> None:
    leader_state = leader(1, 2)
    leader_state.follower_fetched(2, 10, 0, NOW_MS)
    assert leader_state.follower_fetched(2, 10, 0, NOW_MS + 1) is NOTHING


def test_a_follower_that_goes_back_does_not_take_the_high_watermark_along() -> None:
    leader_state = leader(1, 2)
    leader_state.follower_fetched(2, 10, 0, NOW_MS)
    assert leader_state.follower_fetched(2, 3, 0, NOW_MS) is NOTHING
    assert leader_state.high_watermark == 10


@pytest.mark.parametrize(
    ("offset", "leader_end", "caught_up_ms"),
    [
        (10, 10, 200),  # it has all
        (12, 10, 200),
        (8, 10, 100),  # it has all that there was when it fetched last
        (7, 10, 50),
    ],
)
def test_when_a_follower_was_caught_up_last(offset: int, leader_end: int, caught_up_ms: int) -> None:
    follower = FollowerProgress(log_end=7, leader_end=8, fetched_ms=100, caught_up_ms=50)
    follower.fetched(offset, 0, leader_end, 200, ANY_EPOCH)
    assert (follower.caught_up_ms, follower.leader_end, follower.fetched_ms) == (caught_up_ms, leader_end, 200)


def test_a_follower_without_news_was_caught_up_at_its_last_fetch() -> None:
    """In a fetch session a follower does not repeat partitions that have not changed."""
    leader_state, last_contact = leader(1, 2, 3), LastContact(NOW_MS)
    leader_state.follower_fetched(2, 10, 0, NOW_MS, last_contact=last_contact)
    leader_state.follower_fetched(3, 9, 0, NOW_MS, last_contact=last_contact)
    last_contact.last_ms = LATE_MS
    leader_state.appended(11, LATE_MS + 1)
    assert [leader_state.followers[replica].caught_up_ms for replica in (2, 3)] == [LATE_MS, NOW_MS]
    shrunk = leader_state.shrink(LATE_MS + 2).alter_isr
    assert shrunk is not None
    assert shrunk.proposed.isr == (1, 2)


@pytest.mark.parametrize(("epoch", "error"), [(-1, NotLeaderOrFollower), (4, UnknownLeaderEpoch)])
def test_an_unassigned_replica_is_no_follower(epoch: int, error: type[WireError]) -> None:
    with pytest.raises(error, match="9 is not one of"):
        leader(1).follower(9, epoch)


def test_a_process_that_is_gone_does_not_fetch() -> None:
    leader_state = leader(1)
    leader_state.brokers = {2: 100}
    with pytest.raises(NotLeaderOrFollower, match="broker epoch 99"):
        leader_state.follower_fetched(2, 10, 0, NOW_MS, broker_epoch=99)
    assert leader_state.followers[2] == FollowerProgress()


def test_the_low_watermark_is_that_of_the_living() -> None:
    leader_state = leader(1, 2, 3)
    assert leader_state.low_watermark(4) == -1
    assert leader_state.follower_fetched(2, 10, 3, NOW_MS).wake_deletes
    leader_state.follower_fetched(3, 10, 0, NOW_MS)
    assert leader_state.low_watermark(4) == 0
    leader_state.brokers = {1: ANY_EPOCH, 2: ANY_EPOCH}
    assert leader_state.low_watermark(4) == 3
    assert leader(1, replicas=(1,)).low_watermark(4) == 4


# In sync


@pytest.mark.parametrize(("offset", "joins"), [(9, False), (10, True), (11, True)])
def test_a_replica_that_joins_has_all_that_earlier_leaders_had(offset: int, joins: bool) -> None:
    leader_state = leader(1, 2)
    leader_state.log_end = 12
    proposal = leader_state.follower_fetched(3, offset, 0, NOW_MS).alter_isr
    expected = Proposal(DECISION, (ANY_EPOCH,) * 3) if joins else None
    assert proposal == expected


@pytest.mark.parametrize(
    ("live_brokers", "joins"), [({}, False), ({3: ANY_EPOCH}, True), ({3: 8}, True), ({3: 7}, False)]
)
def test_a_replica_that_joins_is_alive_and_the_same_process(live_brokers: dict[int, int], joins: bool) -> None:
    leader_state = leader(1)
    leader_state.brokers = live_brokers
    proposal = leader_state.follower_fetched(3, 10, 0, NOW_MS, broker_epoch=8).alter_isr
    assert (proposal is not None) is joins
    if proposal is not None:
        assert proposal.broker_epochs == (ANY_EPOCH, 8)


def missing(leader_state: LeaderState, *silent: int) -> tuple[int, ...] | None:
    """The ISR that is proposed a moment after the last fetches."""
    proposal = leader_state.shrink(NOW_MS + 1, silent).alter_isr
    return None if proposal is None else proposal.proposed.isr


@pytest.mark.parametrize(
    ("silent", "min_isr", "isr"),
    [
        ((), 2, None),
        ((3,), 2, (1, 2)),
        ((3,), 3, None),  # too few would stay in sync: nothing is won
        ((2, 3), 2, None),
        ((2, 3), 1, (1,)),
    ],
)
def test_a_silent_follower_leaves_at_once_if_enough_stay_in_sync(
    silent: tuple[int, ...], min_isr: int, isr: tuple[int, ...] | None
) -> None:
    leader_state = leader(1, 2, 3, min_isr=min_isr)
    for replica in (2, 3):
        leader_state.follower_fetched(replica, 9, 0, NOW_MS)
    assert missing(leader_state, *silent) == isr


def test_a_silent_follower_that_lacks_nothing_stays_in_sync() -> None:
    leader_state = leader(1, 2, 3)
    for replica in (2, 3):
        leader_state.follower_fetched(replica, 10, 0, NOW_MS)
    assert missing(leader_state, 3) is None


def test_a_silent_follower_that_left_is_not_waited_for() -> None:
    leader_state = leader(1, 2, 3, min_isr=2)
    leader_state.follower_fetched(2, 10, 0, NOW_MS)
    leader_state.follower_fetched(3, 10, 0, NOW_MS)
    leader_state.appended(12, NOW_MS)
    leader_state.follower_fetched(2, 12, 0, NOW_MS)
    assert leader_state.high_watermark == 10
    proposal = leader_state.shrink(NOW_MS + 1, (3,)).alter_isr
    assert proposal is not None
    decision = proposal.proposed._replace(partition_epoch=8)
    assert leader_state.isr_altered(proposal, decision, NOW_MS + 2).advance_to == 12


def test_a_late_replica_is_named_with_the_reason() -> None:
    leader_state = leader(1, 2, 3)
    leader_state.follower_fetched(2, 10, 0, NOW_MS)
    leader_state.follower_fetched(3, 9, 0, NOW_MS)
    assert leader_state.shrink(LATE_MS - 1) is NOTHING
    effects = leader_state.shrink(LATE_MS)
    assert effects.alter_isr is not None
    assert effects.alter_isr.proposed.isr == (1, 2)
    assert effects.why == "replica 3 is at 9, the log ends at 10; caught up 30001 ms ago, replica.lag.time.max.ms=30000"


def test_there_is_one_proposal_at_a_time() -> None:
    leader_state, _ = shrinking()
    assert leader_state.shrink(LATE_MS) is NOTHING
    assert leader_state.follower_fetched(3, 10, 0, LATE_MS).alter_isr is None


def test_what_the_controller_decided_counts_and_may_make_more_safe() -> None:
    leader_state, proposal = shrinking()
    assert leader_state.isr_altered(proposal, proposal.proposed._replace(partition_epoch=8), LATE_MS) == LeaderEffects(
        advance_to=10
    )
    assert (leader_state.isr, leader_state.partition_epoch, leader_state.pending) == ((1,), 8, None)


@pytest.mark.parametrize("answer", [LeaderAndIsr(1, 5, (1,), 8), LeaderAndIsr(1, 4, (1,), 6)])
def test_an_answer_of_another_time_is_passed_over(answer: LeaderAndIsr) -> None:
    leader_state, proposal = shrinking()
    assert leader_state.isr_altered(proposal, answer, LATE_MS) is NOTHING
    assert (leader_state.isr, leader_state.pending) == ((1, 2), proposal)


def test_an_answer_to_another_proposal_is_passed_over() -> None:
    leader_state, proposal = shrinking()
    twin = Proposal(*proposal)
    assert leader_state.isr_altered(twin, twin.proposed, LATE_MS) is NOTHING
    assert leader_state.alter_refused(twin, IneligibleReplica.code, LATE_MS) is NOTHING
    assert leader_state.pending is proposal


@pytest.mark.parametrize("error", [IneligibleReplica, OperationNotAttempted])
def test_a_proposal_that_was_not_applied_is_forgotten(error: type[WireError]) -> None:
    leader_state, proposal = shrinking()
    assert leader_state.alter_refused(proposal, error.code, LATE_MS) is NOTHING
    assert leader_state.pending is None


@pytest.mark.parametrize(
    "error",
    [
        UnknownTopicOrPartition,
        UnknownTopicId,
        FencedLeaderEpoch,
        InvalidUpdateVersion,
        InvalidRequest,
        NewLeaderElected,
    ],
)
def test_a_leader_with_stale_metadata_waits_for_the_controller(error: type[WireError]) -> None:
    leader_state, proposal = shrinking()
    assert leader_state.alter_refused(proposal, error.code, LATE_MS) is NOTHING
    assert leader_state.pending is proposal
    leader_state.decided(DECISION._replace(isr=(1, 2)), (1, 2, 3), LATE_MS)
    assert leader_state.pending is None


@pytest.mark.parametrize("error", [UnknownServerError, NotController])
def test_a_proposal_with_an_unknown_outcome_is_sent_again(error: type[WireError]) -> None:
    leader_state, proposal = shrinking()
    assert leader_state.alter_refused(proposal, error.code, LATE_MS).alter_isr is proposal


# Decisions


@pytest.mark.parametrize("old", [LeaderAndIsr(1, 3, (1,), 7), LeaderAndIsr(1, 4, (1,), 6)])
def test_a_decision_that_is_over_changes_nothing(old: LeaderAndIsr) -> None:
    leader_state = leader(1, 2, 3)
    assert leader_state.decided(old, (1,), NOW_MS) is NOTHING
    assert (leader_state.isr, leader_state.replicas) == ((1, 2, 3), (1, 2, 3))


def test_a_repeated_decision_does_not_end_a_pending_proposal() -> None:
    leader_state, proposal = shrinking()
    leader_state.decided(DECISION._replace(isr=(1, 2)), (1, 2, 3), LATE_MS)
    assert leader_state.pending is proposal


def test_a_new_epoch_ends_it_and_begins_where_the_log_ends() -> None:
    leader_state, _ = shrinking()
    leader_state.appended(20, LATE_MS)
    leader_state.decided(LeaderAndIsr(1, 5, (1, 2), 8), (1, 2, 3), LATE_MS)
    assert (leader_state.epoch, leader_state.epoch_start, leader_state.partition_epoch, leader_state.pending) == (
        5,
        20,
        8,
        None,
    )
    assert leader_state.followers[2].caught_up_ms == LATE_MS
    assert leader_state.followers[3].caught_up_ms == 0


def test_a_decision_adds_and_removes_followers() -> None:
    leader_state = leader(1, 2, 3)
    leader_state.follower_fetched(2, 8, 0, NOW_MS)
    assert leader_state.decided(LeaderAndIsr(1, 5, (1, 2), 8), (1, 2, 4), NOW_MS) == LeaderEffects(advance_to=8)
    assert (sorted(leader_state.followers), leader_state.followers[2].log_end, leader_state.followers[4]) == (
        [2, 4],
        8,
        FollowerProgress(leader_end=10),
    )


# Clients


def test_too_few_in_sync_are_too_few_before_and_after() -> None:
    leader_state = leader(1, 2, min_isr=3)
    with pytest.raises(NotEnoughReplicas, match=r"\[1, 2\], smaller than min.insync.replicas=3"):
        leader_state.check_in_sync()
    too_few = leader_state.too_few_in_sync()
    assert isinstance(too_few, NotEnoughReplicasAfterAppend)
    assert "min.insync.replicas=3" in str(too_few)
    leader_state.follower_fetched(3, 10, 0, NOW_MS)  # proposed: that is enough afterwards, but not before
    assert leader_state.too_few_in_sync() is None
    with pytest.raises(NotEnoughReplicas):
        leader_state.check_in_sync()


def test_with_too_few_in_sync_the_high_watermark_stands_still() -> None:
    leader_state = leader(1, 2, min_isr=3)
    assert leader_state.follower_fetched(2, 10, 0, NOW_MS).advance_to is None


def test_min_isr_is_capped_by_the_number_of_replicas() -> None:
    leader_state = leader(1, 2, min_isr=3, replicas=(1, 2))
    leader_state.check_in_sync()
    assert leader_state.follower_fetched(2, 10, 0, NOW_MS).advance_to == 10
