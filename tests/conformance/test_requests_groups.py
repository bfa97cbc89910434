"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups and DeleteGroups, answered as Kafka does."""

from collections.abc import Iterator

import pytest

from leadline.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conformance.both import Both
from tests.conformance.mirrored_group import MirroredGroup, coordinators, mirrored_group, subscription

pytestmark = pytest.mark.conformance

REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID = 27, 22, 25, 82
INCONSISTENT_GROUP_PROTOCOL = 23
SHORT_MS = 4000  # a session or a rebalance that is soon over, yet longer than a busy machine takes for one step


@pytest.fixture
def group(both: Both, request: pytest.FixtureRequest) -> Iterator[MirroredGroup]:
    coordinators(both)
    with mirrored_group(both, request.node.name) as mirrored:
        yield mirrored


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_a_member_joins_syncs_beats_and_leaves_as_in_kafka(group: MirroredGroup, version: int) -> None:
    """From the first join to the last leave, in all versions."""
    sync, beat, leave = min(version, 5), min(version, 4), min(version, 5)
    first, second = group.member("first"), group.member("second")
    group.describe(beat)
    first.become_known(version)
    assert first.join(version).error_code == 0
    group.describe(beat)
    assert first.heartbeat(beat) == 0
    assert first.sync({first: b"all"}, sync).assignment == b"all"
    assert first.sync(version=sync).assignment == b"all"
    group.describe(beat)
    assert first.heartbeat(beat) == 0
    second.become_known(version)
    second.send_join(version)
    group.until("PreparingRebalance")
    group.describe(beat)
    assert first.heartbeat(beat) == REBALANCE_IN_PROGRESS
    first.send_join(version)
    assert len(first.joined(version).members) == 2
    assert second.joined(version).members == []
    second.send_sync(version=sync)
    first.send_sync({first: b"one", second: b"two"}, sync)
    assert second.synced(sync).assignment == b"two"
    assert first.synced(sync).assignment == b"one"
    group.describe(beat)
    second.leave(leave)
    group.until("PreparingRebalance")
    assert first.heartbeat(beat) == REBALANCE_IN_PROGRESS
    assert first.join(version).generation_id == 3
    group.describe(beat)
    first.leave(leave)
    group.until("Empty")
    group.describe(beat)


@pytest.mark.parametrize("version", JoinGroupRequest.VERSIONS)
def test_joins_that_are_refused(both: Both, group: MirroredGroup, version: int) -> None:
    member = group.member("refused")
    for session_timeout_ms in (99, 1_800_001, -1, 0):
        member.session_timeout_ms = session_timeout_ms
        member.join(version)
    member.session_timeout_ms = 10_000
    for protocol_type, protocols in (("", {"range": b""}), ("consumer", {})):
        member.protocol_type, member.protocols = protocol_type, protocols
        assert member.join(version).error_code == INCONSISTENT_GROUP_PROTOCOL
    group.describe()
    member.ids = ["nobody", "nobody"]
    member.join(version)
    nameless = JoinGroupRequest(group_id="", session_timeout_ms=10_000, protocol_type="consumer")
    both.ask_and_compare(JoinGroupResponse, nameless, version)
    unknown = JoinGroupRequest(group_id="never-heard-of", member_id="x", session_timeout_ms=10_000)
    both.ask_and_compare(JoinGroupResponse, unknown, version)


def test_members_must_have_a_protocol_in_common(group: MirroredGroup) -> None:
    first = group.alone()
    other = group.member("other")
    for protocol_type, protocols in (
        ("consumer", {"sticky": b""}),
        ("connect", {"range": b""}),
        ("consumer", {}),
        ("", {"range": b""}),
    ):
        other.protocol_type, other.protocols = protocol_type, protocols
        assert other.join().error_code == INCONSISTENT_GROUP_PROTOCOL
    first.protocols = {"sticky": b""}
    assert first.join().error_code == INCONSISTENT_GROUP_PROTOCOL
    group.describe()


@pytest.mark.parametrize(
    ("ones", "others"),
    [
        (["range", "sticky"], ["sticky", "range"]),
        (["a", "b", "c"], ["c", "b"]),
        (["roundrobin", "range", "x"], ["x", "range", "roundrobin"]),
    ],
)
def test_members_vote_for_a_protocol(group: MirroredGroup, ones: list[str], others: list[str]) -> None:
    first, second = group.member("first"), group.member("second")
    first.protocols = {name: subscription(name) for name in ones}
    second.protocols = {name: subscription(name) for name in others}
    first.become_known()
    first.join()
    first.sync({first: b""})
    second.become_known()
    second.send_join()
    group.until("PreparingRebalance")
    first.join()
    assert second.joined().protocol_name in ones


@pytest.mark.parametrize("version", SyncGroupRequest.VERSIONS)
def test_syncs_that_are_refused(both: Both, group: MirroredGroup, version: int) -> None:
    member = group.alone()
    ids = member.ids
    generation = member.generation
    for generation_id in (0, generation + 1, -1):
        member.generation = generation_id
        assert member.sync(version=version).error_code == ILLEGAL_GENERATION
    member.generation, member.ids = generation, ["nobody", "nobody"]
    assert member.sync(version=version).error_code == UNKNOWN_MEMBER_ID
    member.ids = ["", ""]
    assert member.sync(version=version).error_code == UNKNOWN_MEMBER_ID
    member.ids = ids
    for group_id in ("", "never-heard-of"):
        request = SyncGroupRequest(group_id=group_id, generation_id=1, member_id="x")
        if version >= 5:
            request.protocol_type, request.protocol_name = "consumer", "range"
        both.ask_and_compare(SyncGroupResponse, request, version)
    if version >= 5:
        for protocol_type, name in ((None, "range"), ("consumer", None), ("consumer", "sticky"), ("connect", "range")):
            member.ask_and_compare(
                SyncGroupResponse,
                lambda member_id, protocol=(protocol_type, name): SyncGroupRequest(  # type: ignore[misc]
                    group_id=group.group,
                    generation_id=generation,
                    member_id=member_id,
                    protocol_type=protocol[0],
                    protocol_name=protocol[1],
                ),
                version,
            )


@pytest.mark.parametrize("version", HeartbeatRequest.VERSIONS)
def test_heartbeats_that_are_refused(both: Both, group: MirroredGroup, version: int) -> None:
    member = group.alone()
    for generation in (0, 2, -1):
        assert member.heartbeat(version, generation) == ILLEGAL_GENERATION
    member.ids = ["nobody", "nobody"]
    assert member.heartbeat(version) == UNKNOWN_MEMBER_ID
    for group_id in ("", "never-heard-of"):
        both.ask_and_compare(
            HeartbeatResponse, HeartbeatRequest(group_id=group_id, generation_id=1, member_id="x"), version
        )


@pytest.mark.parametrize("version", LeaveGroupRequest.VERSIONS)
def test_members_leave_or_are_refused_as_kafka_does(both: Both, group: MirroredGroup, version: int) -> None:
    member, pending = group.alone(), group.member("pending")
    pending.become_known()
    for group_id in ("", "never-heard-of"):
        if version < 3:
            request = LeaveGroupRequest(group_id=group_id, member_id="x")
        else:
            identity = LeaveGroupRequest.MemberIdentity
            members = [identity(member_id="x"), identity(member_id="", group_instance_id="y"), identity(member_id="")]
            request = LeaveGroupRequest(group_id=group_id, members=members)
        both.ask_and_compare(LeaveGroupResponse, request, version)
    pending.leave(version)
    pending.leave(version)
    assert member.heartbeat() == 0
    member.leave(version)
    member.leave(version)
    group.until("Empty")
    group.describe()


def test_several_leave_at_once(group: MirroredGroup) -> None:
    first, second, third = group.settled("first", "second", "third")
    identity = LeaveGroupRequest.MemberIdentity
    sides = iter(range(2))

    def request(member_id: str) -> LeaveGroupRequest:
        ids = [member.ids[next_side] for next_side in [next(sides)] for member in (second, third)]
        members = [identity(member_id=id, reason="enough") for id in (*ids, "nobody", ids[0])]
        return LeaveGroupRequest(group_id=group.group, members=members)

    answer = first.ask_and_compare(LeaveGroupResponse, request, 5)
    assert [member.error_code for member in answer.members] == [0, 0, UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]
    assert first.join().generation_id == 3


def test_a_member_leaves_while_the_group_rebalances(group: MirroredGroup) -> None:
    first, second, third = group.settled("first", "second", "third")
    fourth = group.member("fourth")
    fourth.become_known()
    fourth.send_join()
    group.until("PreparingRebalance")
    second.send_join()
    second_again = group.member("second")
    second_again.ids = second.ids
    third.leave()
    second_again.leave()
    assert second.joined().error_code == UNKNOWN_MEMBER_ID
    first.send_join()
    assert len(first.joined().members) == 2
    assert fourth.joined().generation_id == 3


def test_a_member_leaves_before_the_assignment_is_there(group: MirroredGroup) -> None:
    first, second, third = group.settled("first", "second", "third")
    first.send_join()
    group.until("PreparingRebalance")
    second.send_join()
    third.send_join()
    for member in (first, second, third):
        member.joined()
    second.send_sync()
    third.leave()
    assert second.synced().error_code == REBALANCE_IN_PROGRESS
    group.until("PreparingRebalance")
    second.send_join()
    first.send_join()
    assert len(first.joined().members) == 2
    second.joined()


def test_a_join_that_changes_nothing_is_answered_at_once(group: MirroredGroup) -> None:
    first, second = group.settled("first", "second")
    assert second.join().generation_id == 2
    assert second.heartbeat() == 0
    first.send_join()
    group.until("PreparingRebalance")
    second.send_join()
    first.joined()
    second.joined()
    assert second.join().members == []
    assert len(first.join().members) == 2
    second.protocols = {"range": subscription("others")}
    second.send_join()
    group.until("PreparingRebalance")
    first.send_join()
    assert first.joined().generation_id == 4
    second.joined()


def test_a_leader_that_forgets_members_assigns_them_nothing(group: MirroredGroup) -> None:
    first, second = group.settled("first", "second")
    second.send_join()
    second.joined()
    first.send_join()
    group.until("PreparingRebalance")
    second.send_join()
    first.joined()
    second.joined()
    second.send_sync()
    assert first.sync({first: b"all of it"}).assignment == b"all of it"
    assert second.synced().assignment == b""
    group.describe()


def test_silent_members_are_expelled(group: MirroredGroup) -> None:
    first = group.member("first")
    first.session_timeout_ms = SHORT_MS
    first.become_known()
    first.join()
    group.until("Empty")
    group.describe()
    assert first.heartbeat() == UNKNOWN_MEMBER_ID
    first.session_timeout_ms = 60_000
    first.join()
    first.ids = ["", ""]
    first.become_known()
    first.join()
    first.sync({first: b""})
    second = group.member("second")
    second.session_timeout_ms = SHORT_MS
    second.become_known()
    second.send_join()
    group.until("PreparingRebalance")
    first.send_join()
    first.joined()
    second.joined()
    assert first.sync({first: b"", second: b""}).error_code in (0, REBALANCE_IN_PROGRESS)
    group.wait_for(1)
    assert first.join().error_code == 0


def test_a_member_that_does_not_join_in_time_is_removed(group: MirroredGroup) -> None:
    first, second = group.member("first"), group.member("second")
    for member in (first, second):
        member.rebalance_timeout_ms = SHORT_MS
    first.become_known()
    first.join()
    first.sync({first: b""})
    second.become_known()
    second.send_join()
    assert second.joined().leader == second.ids[1]
    assert first.heartbeat() == UNKNOWN_MEMBER_ID
    group.describe()


def test_a_member_that_does_not_sync_in_time_is_removed(group: MirroredGroup) -> None:
    first, second = group.member("first"), group.member("second")
    first.rebalance_timeout_ms = second.rebalance_timeout_ms = SHORT_MS
    first.become_known()
    first.join()
    first.sync({first: b""})
    second.become_known()
    second.send_join()
    group.until("PreparingRebalance")
    first.send_join()
    first.joined()
    second.joined()
    assert first.sync({first: b"1", second: b"2"}).assignment == b"1"
    group.until("PreparingRebalance")
    group.describe()
    assert first.join().generation_id == 3
    assert second.heartbeat() == UNKNOWN_MEMBER_ID


def test_a_pending_member_holds_the_others_up_until_its_session_is_over(group: MirroredGroup) -> None:
    first, pending = group.alone(), group.member("pending")
    pending.session_timeout_ms = SHORT_MS
    pending.become_known()
    group.describe()
    first.send_join()
    group.until("PreparingRebalance")
    assert first.joined().generation_id == 2
    pending.join()


def test_a_full_group_refuses_further_members(both: Both, group: MirroredGroup) -> None:
    names = [f"member-{n}" for n in range(10)]
    members = group.settled(*names)
    late = group.member("late")
    assert late.join().error_code == 81
    assert late.join(3).error_code == 81
    assert members[3].heartbeat() == 0
    members[3].leave()
    group.until("PreparingRebalance")
    late.become_known()
    late.send_join()
    for member in (*members[:3], *members[4:]):
        member.send_join()
    assert len(members[0].joined().members) == 10
    for member in (*members[1:3], *members[4:], late):
        member.joined()


# Static members


def test_a_static_member_takes_its_place_again(group: MirroredGroup) -> None:
    first = group.member("first", "i-1")
    first.join()
    first.sync({first: b"mine"})
    group.describe()
    for version in (5, 8, 9):
        again = group.member("first", "i-1")
        assert again.join(version).generation_id == 1
        assert again.sync().assignment == b"mine"
        assert first.heartbeat() == FENCED_INSTANCE_ID
        assert first.join().error_code == FENCED_INSTANCE_ID
        assert first.sync().error_code == FENCED_INSTANCE_ID
        first.leave()
        assert again.heartbeat() == 0
        first = again
    group.describe()


def test_static_members_with_a_wrong_identity_are_refused_as_kafka_does(group: MirroredGroup) -> None:
    first = group.alone(instance="i-1")
    ids = first.ids
    first.instance = "i-2"
    assert first.heartbeat() == UNKNOWN_MEMBER_ID
    assert first.join().error_code == UNKNOWN_MEMBER_ID
    assert first.sync().error_code == UNKNOWN_MEMBER_ID
    first.leave()
    first.instance, first.ids = "i-1", ["x", "x"]
    assert first.heartbeat() == FENCED_INSTANCE_ID
    first.leave()
    first.ids = ids
    pending = group.member("pending")
    pending.become_known()
    pending.instance = "i-3"
    pending.join()


def test_a_static_member_returns_in_the_middle_of_a_rebalance(group: MirroredGroup) -> None:
    first, second = group.member("first", "i-1"), group.member("second", "i-2")
    first.join()
    first.sync({first: b""})
    second.send_join()
    group.until("PreparingRebalance")
    again = group.member("second", "i-2")
    again.send_join()
    assert second.joined().error_code == FENCED_INSTANCE_ID
    first.send_join()
    first.joined()
    again.joined()
    again.send_sync()
    group.until("CompletingRebalance")
    yet_again = group.member("second", "i-2")
    yet_again.send_join()
    assert again.synced().error_code == FENCED_INSTANCE_ID
    group.until("PreparingRebalance")
    first.join()
    yet_again.joined()
    group.describe()


def test_a_static_member_that_wants_another_protocol_makes_the_group_rebalance(group: MirroredGroup) -> None:
    first, second = group.member("first", "i-1"), group.member("second", "i-2")
    first.protocols = second.protocols = {"range": b"r", "sticky": b"s"}
    first.join()
    first.sync({first: b""})
    second.send_join()
    group.until("PreparingRebalance")
    first.send_join()
    first.joined()
    second.joined()
    second.send_sync()
    first.sync({first: b"1", second: b"2"})
    second.synced()
    again = group.member("second", "i-2")
    again.protocols = {"sticky": b"s"}
    again.send_join()
    group.until("PreparingRebalance")
    first.send_join()
    assert first.joined().protocol_name == "sticky"
    again.joined()


def test_a_static_member_is_sent_away_by_its_name(group: MirroredGroup) -> None:
    first = group.alone(instance="i-1")
    first.ids = ["", ""]
    assert first.leave().members[0].error_code == 0
    assert first.leave().members[0].error_code == UNKNOWN_MEMBER_ID
    group.until("Empty")
    group.describe()


# All groups


@pytest.mark.parametrize("version", ListGroupsRequest.VERSIONS)
def test_groups_are_listed_by_state_and_type_as_kafka_does(both: Both, group: MirroredGroup, version: int) -> None:
    member = group.alone()

    def only_ours(answer: ListGroupsResponse) -> None:
        answer.groups = [listed for listed in answer.groups if listed.group_id == group.group]

    assert len(both.ask_and_compare(ListGroupsResponse, ListGroupsRequest(), version, differ=only_ours).groups) == 1
    for states in (["Stable"], ["stable", "EMPTY"], ["Dead"], ["nonsense"]) if version >= 4 else ():
        both.ask_and_compare(ListGroupsResponse, ListGroupsRequest(states_filter=states), version, differ=only_ours)
    for types in (["classic"], ["Consumer"], ["classic", "consumer"]) if version >= 5 else ():
        both.ask_and_compare(ListGroupsResponse, ListGroupsRequest(types_filter=types), version, differ=only_ours)
    member.leave()


@pytest.mark.parametrize("version", DescribeGroupsRequest.VERSIONS)
def test_unknown_groups_are_described_as_kafka_does(both: Both, version: int) -> None:
    both.ask_and_compare(
        DescribeGroupsResponse, DescribeGroupsRequest(groups=["never-heard-of", "", "no", "no"]), version
    )
    both.ask_and_compare(DescribeGroupsResponse, DescribeGroupsRequest(), version)


@pytest.mark.parametrize("version", DeleteGroupsRequest.VERSIONS)
def test_only_empty_groups_are_deleted(both: Both, group: MirroredGroup, version: int) -> None:
    topic = both.create(f"deleted-with-its-group-{version}", 2)
    member = group.alone()
    assert member.commit(topic, 3, 4) == [0, 0]
    delete = DeleteGroupsRequest(groups_names=[group.group, "never-heard-of", "", group.group])
    both.ask_and_compare(DeleteGroupsResponse, delete, version)
    member.leave()
    group.until("Empty")
    both.ask_and_compare(DeleteGroupsResponse, delete, version)
    group.describe()
    both.ask_and_compare(DeleteGroupsResponse, delete, version)
