"""The members of a group: who leads, which protocols all support, and what a change of a member does."""

from collections import Counter

import pytest

from leadline.coordinator.group_effects import CancelTimer, JoinResult, SendReply, SetTimer, SyncResult, session_timer
from leadline.coordinator.group_member import GroupMember, JoinRequest, MemberProtocol
from leadline.coordinator.group_membership import GroupMembership
from leadline.errors import FencedInstanceId, RebalanceInProgress, UnknownMemberId


def member(id: str, *protocols: str, instance: str | None = None, rebalance_timeout_ms: int = 60_000) -> GroupMember:
    supported = tuple(MemberProtocol(name, b"") for name in protocols or ("range",))
    return GroupMember(id, instance, "client", "/host", rebalance_timeout_ms, 10_000, supported)


def membership(*members: GroupMember) -> GroupMembership:
    group = GroupMembership("g")
    for joined in members:
        group._put(joined, "consumer")
    return group


def test_the_first_member_leads_and_sets_the_type_of_the_group() -> None:
    group = membership(member("a"))
    group._put(member("b"), "connect")
    assert (group.leader, group.protocol_type) == ("a", "consumer")


def test_the_next_member_leads_when_the_leader_is_removed_and_an_empty_group_has_none() -> None:
    group = membership(member("a"), member("b"))
    group._remove("a")
    assert group.leader == "b"
    group._remove("b")
    assert group.leader is None


def test_a_leader_that_has_not_joined_is_replaced_by_the_first_member_that_has() -> None:
    group = membership(member("a"), member("b"), member("c"))
    assert not group._elect_leader()
    group.joining = {"c": 1, "b": 2}
    assert group._elect_leader()
    assert group.leader == "c"
    group.joining = {"b": 2, "c": 1}
    assert group._elect_leader()
    assert group.leader == "c", "a leader that has joined stays"


def test_only_a_protocol_that_all_members_support_is_elected() -> None:
    group = membership(member("a", "sticky", "range"), member("b", "range"))
    assert group._elected_protocol() == "range"
    group._remove("b")
    assert group._elected_protocol() == "sticky"


def test_an_update_changes_what_a_member_supports_and_answers_its_earlier_join() -> None:
    group = membership(member("a", "range"))
    group.joining["a"] = 1
    request = JoinRequest("a", None, "client", "/host", 1, 2, "consumer", (MemberProtocol("sticky", b"m"),))
    group._update(request, group.members["a"], 2)
    assert group._supporters == Counter({"sticky": 1})
    assert group.members["a"].metadata("sticky") == b"m"
    assert group.joining == {"a": 2}
    assert group._take_effects() == [SendReply(1, JoinResult(RebalanceInProgress.code, "a"))]


def test_a_member_that_is_removed_gets_the_replies_that_it_waits_for() -> None:
    group = membership(member("a", instance="i"))
    group.joining["a"], group.syncing["a"], group.unsynced = 1, 2, {"a"}
    group._remove("a")
    assert not group.members
    assert (group.static_members, group.unsynced, group._supporters) == ({}, set(), Counter())
    assert group._take_effects() == [
        SendReply(1, JoinResult(UnknownMemberId.code)),
        SendReply(2, SyncResult(UnknownMemberId.code)),
        SetTimer(session_timer("a"), 10_000),
        CancelTimer(session_timer("a")),
    ]
    assert group._take_effects() == []


def test_a_member_with_a_new_id_keeps_its_place_and_its_old_id_is_fenced() -> None:
    group = membership(member("a-1", instance="a"), member("b"))
    group.unsynced = {"a-1", "b"}
    group.syncing["a-1"] = 7
    group._rename("a-1", "a-2")
    assert (group.leader, group.static_members, group.unsynced) == ("a-2", {"a": "a-2"}, {"a-2", "b"})
    assert group.members["a-2"].id == "a-2"
    assert SendReply(7, SyncResult(FencedInstanceId.code)) in group._take_effects()
    with pytest.raises(FencedInstanceId):
        group._member("a-1", "a")
    assert group._member("a-2", "a") is group._member("a-2", None)


@pytest.mark.parametrize(("member_id", "instance_id"), [("x", None), ("", None), ("a", "unknown")])
def test_an_unknown_member_or_instance_is_refused(member_id: str, instance_id: str | None) -> None:
    with pytest.raises(UnknownMemberId):
        membership(member("a"))._member(member_id, instance_id)


def test_the_slowest_member_sets_the_time_of_a_rebalance() -> None:
    assert membership().rebalance_timeout_ms == 0
    assert membership(member("a"), member("b", rebalance_timeout_ms=90_000)).rebalance_timeout_ms == 90_000
