"""A group from one generation to the next: whom it waits for, and what becomes of the assignment."""

from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    JoinResult,
    SyncResult,
)
from leadline.coordinator.group_rebalance import MIN_JOIN_WAIT_MS
from leadline.coordinator.group_state import GroupState
from leadline.coordinator.rebalance_history import RebalanceOutcome, RebalanceReason
from leadline.errors import (
    CoordinatorNotAvailable,
    UnknownMemberId,
)
from tests.support.groups import DELAY_MS, GroupShell


def test_a_new_group_waits_longer_while_more_members_come() -> None:
    shell = GroupShell()
    first = shell.join(new_id="a")
    second = shell.join(new_id="b")
    shell.expire(JOIN_TIMER)
    assert shell.timers[JOIN_TIMER] == DELAY_MS
    assert not shell.replies
    shell.expire(JOIN_TIMER)
    assert {shell.replies[ticket].error for ticket in (first, second)} == {0}
    assert shell.group.generation == 1


def test_a_new_group_waits_no_longer_than_its_members_would() -> None:
    shell = GroupShell()
    shell.join(new_id="a")
    delays = [shell.timers[JOIN_TIMER]]
    for n in range(100):
        shell.join(new_id=f"b{n}")
        shell.expire(JOIN_TIMER)
        if JOIN_TIMER not in shell.timers:
            break
        delays.append(shell.timers[JOIN_TIMER])
    assert sum(delays) <= 60_000 + DELAY_MS
    assert shell.group.state is GroupState.COMPLETING


def test_each_gets_what_the_leader_assigned() -> None:
    shell = GroupShell()
    request_ids = [shell.join(new_id=id) for id in "ab"]
    shell.expire(JOIN_TIMER)
    shell.expire(JOIN_TIMER)
    leader, follower = (shell.replies[ticket] for ticket in request_ids)
    assert isinstance(leader, JoinResult)
    assert isinstance(follower, JoinResult)
    assert [id for id, *_ in leader.members] == ["a", "b"]
    assert follower.members == ()
    waits = shell.sync("b")
    assert waits not in shell.replies
    shell.sync("a", a=b"1", b=b"2")
    assert shell.replies[waits] == SyncResult(0, "consumer", "range", b"2")
    assert shell.stored[-1].assignments == {"a": b"1", "b": b"2"}
    assert SYNC_TIMER not in shell.timers


def test_an_assignment_that_cannot_be_written_is_not_handed_out() -> None:
    shell = GroupShell()
    shell.join(new_id="a")
    shell.expire(JOIN_TIMER)
    shell.error = CoordinatorNotAvailable("the disk is full")
    ticket = shell.sync("a", a=b"1")
    assert shell.replies[ticket] == SyncResult(CoordinatorNotAvailable.code)
    assert shell.group.state is GroupState.PREPARING
    assert shell.group.rebalances.rebalances[-1].causes[0].what is RebalanceReason.NOT_STORED


def test_static_members_are_waited_for() -> None:
    shell = GroupShell()
    shell.settle("a-1", instance="a")
    shell.join("a-1", instance="a")
    shell.sync("a-1")
    shell.join(new_id="b")
    shell.expire(JOIN_TIMER)
    assert shell.group.members.keys() == {"a-1", "b"}
    assert shell.group.leader == "b"


def test_only_silent_static_members_make_no_generation() -> None:
    shell = GroupShell()
    shell.settle("a-1", instance="a")
    ticket = shell.join(new_id="b")
    shell.leave("b")
    assert shell.replies[ticket] == JoinResult(UnknownMemberId.code)
    shell.expire(JOIN_TIMER)
    assert (shell.group.generation, shell.timers[JOIN_TIMER]) == (1, 60_000)
    shell.group.members["a-1"].rebalance_timeout_ms = 0
    shell.expire(JOIN_TIMER)
    assert shell.timers[JOIN_TIMER] == MIN_JOIN_WAIT_MS


def test_the_history_holds_joins_leaves_and_durations_of_rebalances() -> None:
    shell = GroupShell()
    shell.settle("a", "b")
    shell.leave("b")
    first, second = shell.group.rebalances.rebalances
    assert [(cause.what, cause.member_id) for cause in first.causes] == [
        (RebalanceReason.JOINED, "a"),
        (RebalanceReason.JOINED, "b"),
    ]
    assert (first.outcome, first.members_before, first.members_after) == (RebalanceOutcome.STABLE, 0, 2)
    assert (second.state, second.causes[0].what, second.outcome) == ("Stable", RebalanceReason.LEFT, None)
    shell.join("a")
    shell.join("a", protocols=("range", "sticky"))
    assert (second.outcome, second.generation_after) == (RebalanceOutcome.INTERRUPTED, 2)
    rebalance = shell.group.rebalances.rebalances[-1].to_json()
    assert rebalance["causes"] == [
        {
            "what": "metadata changed",
            "member_id": "a",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "reason": "why not",
        }
    ]
    assert (rebalance["generation_before"], rebalance["took_ms"]) == (2, None)
