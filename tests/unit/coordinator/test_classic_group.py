"""One group: what it decides, seen by its effects."""

import pytest

from leadline.coordinator.classic_group import NEW_MEMBER_MS
from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    JoinResult,
    SetTimer,
    SyncResult,
    session_timer,
)
from leadline.coordinator.group_state import GroupState
from leadline.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from leadline.model import TopicPartition
from tests.support.groups import DELAY_MS, NOW, GroupShell


def test_a_new_member_gets_its_id_first() -> None:
    shell = GroupShell()
    request_id = shell.join(new_id="m", needs_known_id=True)
    assert shell.replies[request_id] == JoinResult(MemberIdRequired.code, "m")
    assert shell.timers == {session_timer("m"): 10_000}
    shell.join("m", needs_known_id=True)
    assert shell.timers[session_timer("m")] == NEW_MEMBER_MS
    assert shell.timers[JOIN_TIMER] == DELAY_MS


def test_a_member_that_sends_two_joins_gets_two_answers() -> None:
    shell = GroupShell()
    shell.settle("a", "b")
    first, second = shell.join("a"), shell.join("a")
    assert shell.replies[first] == JoinResult(RebalanceInProgress.code, "a")
    assert second not in shell.replies
    shell.join("b")
    assert shell.replies[second].error == 0


def test_a_member_that_leaves_while_it_syncs_is_answered() -> None:
    shell = GroupShell()
    shell.settle("a", "b")
    shell.join("a")
    shell.join("b")
    request_id = shell.sync("b")
    assert shell.leave("b") == 0
    assert shell.replies[request_id] == SyncResult(UnknownMemberId.code)


def test_a_static_leader_that_returns_keeps_its_generation() -> None:
    shell = GroupShell()
    shell.settle("a-1", instance="a")
    request_id = shell.join(new_id="a-2", instance="a", skips=True)
    joined = shell.replies[request_id]
    assert isinstance(joined, JoinResult)
    assert (joined.generation, joined.leader, joined.skip_assignment) == (1, "a-2", True)
    request_id = shell.join(new_id="a-3", instance="a")
    joined = shell.replies[request_id]
    assert isinstance(joined, JoinResult)
    assert (joined.leader, joined.skip_assignment, joined.members) == ("a-2", False, ())
    assert session_timer("a-1") not in shell.timers
    assert isinstance(synced := shell.replies[shell.sync("a-3")], SyncResult)
    assert synced.assignment == b"a-1"
    with pytest.raises(FencedInstanceId):
        shell.group.heartbeat("a-2", "a", 1)


def test_a_static_member_that_cannot_be_written_has_not_returned() -> None:
    shell = GroupShell()
    shell.settle("a-1", instance="a")
    shell.error = CoordinatorNotAvailable("the disk is full")
    request_id = shell.join(new_id="a-2", instance="a", protocols=("range", "sticky"))
    assert shell.replies[request_id].error == CoordinatorNotAvailable.code
    assert shell.group.static_members == {"a": "a-1"}
    assert shell.group.heartbeat("a-1", "a", 1)[0] == 0
    assert shell.timers[session_timer("a-1")] == 10_000


def test_a_static_member_whose_session_ran_out_while_it_was_written_has_another() -> None:
    shell = GroupShell()
    shell.settle("a-1", instance="a")
    shell.meanwhile = lambda: shell.expire(session_timer("a-2"))
    request_id = shell.join(new_id="a-2", instance="a")
    assert shell.replies[request_id].error == 0
    assert shell.timers == {session_timer("a-2"): 10_000}


def test_a_static_member_that_is_replaced_before_it_synced_must_sync_under_its_new_id() -> None:
    shell = GroupShell()
    shell.join(new_id="b")
    shell.join(new_id="a-1", instance="a")
    shell.expire(JOIN_TIMER)
    shell.expire(JOIN_TIMER)
    shell.sync("b")
    assert shell.group.state is GroupState.STABLE
    shell.join(new_id="a-2", instance="a")
    assert shell.group.unsynced == {"a-2"}
    shell.sync("a-2")
    assert SYNC_TIMER not in shell.timers


def test_a_full_group_refuses_members() -> None:
    shell = GroupShell(max_size=1)
    shell.settle("a")
    assert shell.replies[shell.join(new_id="b")] == JoinResult(GroupMaxSizeReached.code)
    assert shell.group.state is GroupState.STABLE


def test_a_group_that_is_loaded_with_too_many_members_rebalances() -> None:
    shell = GroupShell()
    shell.settle("a", "b")
    small = GroupShell(max_size=1)
    members = shell.group.members.values()
    small.group.load(5, "consumer", "range", "a", NOW, members)
    small.do(small.group.loaded(NOW))
    assert small.group.state is GroupState.PREPARING
    assert {session_timer("a"), session_timer("b"), JOIN_TIMER} == small.timers.keys()
    small.join("a")
    assert small.replies[small.join("b")] == JoinResult(GroupMaxSizeReached.code)
    assert small.group.members.keys() == {"a"}
    assert small.group.generation == 6


def test_a_silent_member_is_expelled_and_a_waiting_one_is_not() -> None:
    shell = GroupShell()
    shell.settle("a", "b")
    shell.join("a")
    shell.expire(session_timer("a"))
    assert "a" in shell.group.members
    shell.expire(session_timer("b"))
    assert shell.group.members.keys() == {"a"}
    assert shell.group.generation == 2


def test_another_coordinator_answers_from_now_on() -> None:
    shell = GroupShell()
    shell.settle("a", "b")
    request_id = shell.join("a")
    shell.do(shell.group.unload(NOW))
    assert shell.replies[request_id] == JoinResult(NotCoordinator.code, "a")
    assert not shell.timers
    with pytest.raises(CoordinatorNotAvailable):
        shell.group.heartbeat("a", None, 2)


def test_only_members_of_the_generation_commit() -> None:
    shell = GroupShell()
    assert shell.group.check_commit("", None, -1, transactional=False) == []
    shell.settle("a")
    assert shell.group.check_commit("a", None, 1, transactional=False) == [SetTimer(session_timer("a"), 10_000)]
    assert shell.group.check_commit("", None, -1, transactional=True) == []
    for member_id, generation, error in (
        ("", -1, UnknownMemberId),
        ("a", 0, IllegalGeneration),
        ("b", 1, UnknownMemberId),
    ):
        with pytest.raises(error):
            shell.group.check_commit(member_id, None, generation, transactional=False)
    shell.join("a")
    assert shell.group.state is GroupState.COMPLETING
    with pytest.raises(RebalanceInProgress):
        shell.group.check_commit("a", None, 2, transactional=False)


def test_offsets_of_unsubscribed_topics_may_be_deleted() -> None:
    shell = GroupShell()
    read, unread = TopicPartition("t", 0), TopicPartition("u", 0)
    shell.settle("a")
    assert shell.group.check_offset_deletion([read, unread]) == {read: 86, unread: 0}
    with pytest.raises(NonEmptyGroup):
        shell.group.check_deletion()
    shell.leave("a")
    assert shell.group.check_offset_deletion([read, unread]) == {read: 0, unread: 0}
    shell.group.check_deletion()
