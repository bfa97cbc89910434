"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups: groups and their members."""

from leadline.api.context import Context
from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_coordinator import GroupCoordinator
from leadline.coordinator.group_effects import JoinResult, LeavingMember
from leadline.coordinator.group_member import JoinRequest, MemberProtocol
from leadline.coordinator.group_state import GroupState
from leadline.errors import CoordinatorLoadInProgress, InconsistentGroupProtocol, WireError
from leadline.model import NONE
from leadline.security.acls import ResourceType
from leadline.security.hosts import unnamed_address
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

KNOWN_ID_FROM = 4  # versions of JoinGroup
NULL_PROTOCOL_FROM = 7
SKIPS_ASSIGNMENT_FROM = 9
PROTOCOL_FROM = 5  # of SyncGroup
MANY_LEAVE_FROM = 3  # of LeaveGroup
CLASSIC = "classic"  # the type of a group; the newer type, consumer, needs Kafka without ZooKeeper

_Described = DescribeGroupsResponse.DescribedGroup
_Listed = ListGroupsResponse.ListedGroup


async def join_group(request: JoinGroupRequest, ctx: Context) -> JoinGroupResponse:
    """JoinGroup, v0-9.  v1 rebalance timeout · v4 member id required · v5 static members · v7 protocol type · v8 reason
    · v9 a static leader that returns may skip the assignment.

    The response waits until all members have joined, or the rebalance timeout is over.
    """
    if (refusal := ctx.refused("group", request.group_id)) is not None:
        return _join_response(JoinResult(refusal.code), ctx.version)
    join = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=unnamed_address(ctx.client.host),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if ctx.version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(protocol.name, protocol.metadata) for protocol in request.protocols),
        reason=request.reason,
        needs_known_id=ctx.version >= KNOWN_ID_FROM and request.group_instance_id is None,
        may_skip_assignment=ctx.version >= SKIPS_ASSIGNMENT_FROM,
    )
    return _join_response(await ctx.services.groups.join(request.group_id, join), ctx.version)


def _join_response(joined: JoinResult, version: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name or (None if version >= NULL_PROTOCOL_FROM else ""),
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in joined.members
        ],
    )


async def sync_group(request: SyncGroupRequest, ctx: Context) -> SyncGroupResponse:
    """SyncGroup, v0-5.  v3 static members · v5 protocol. The response waits for the assignment of the leader."""
    protocol = request.protocol_type, request.protocol_name
    if ctx.version >= PROTOCOL_FROM and None in protocol:
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code)
    if (refusal := ctx.refused("group", request.group_id)) is not None:
        return SyncGroupResponse(error_code=refusal.code)
    synced = await ctx.services.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        protocol,
        {member.member_id: member.assignment for member in request.assignments},
    )
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def heartbeat(request: HeartbeatRequest, ctx: Context) -> HeartbeatResponse:
    """Heartbeat, v0-4.  v3 static members."""
    if (refusal := ctx.refused("group", request.group_id)) is not None:
        return HeartbeatResponse(error_code=refusal.code)
    return HeartbeatResponse(
        error_code=ctx.services.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    )


def leave_group(request: LeaveGroupRequest, ctx: Context) -> LeaveGroupResponse:
    """LeaveGroup, v0-5.  v3 several members at once, static ones too · v5 reason."""
    if (refusal := ctx.refused("group", request.group_id)) is not None:
        return LeaveGroupResponse(error_code=refusal.code)
    leavers = [LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members]
    if ctx.version < MANY_LEAVE_FROM:
        leavers = [LeavingMember(request.member_id)]
    try:
        codes = ctx.services.groups.leave(request.group_id, leavers)
    except WireError as error:
        return LeaveGroupResponse(error_code=error.code)
    if ctx.version < MANY_LEAVE_FROM:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code
            )
            for leaver, code in zip(leavers, codes, strict=True)
        ]
    )


def describe_groups(request: DescribeGroupsRequest, ctx: Context) -> DescribeGroupsResponse:
    """DescribeGroups, v0-5.  v3 operations · v4 static members. An unknown group is Dead.

    Groups that the client may not describe come first.
    """
    described, refused = [], []
    for group_id in request.groups:
        if (refusal := ctx.refused("groups", group_id)) is not None:
            refused.append(_Described(group_id=group_id, error_code=refusal.code))
            continue
        group = _describe(group_id, ctx.services.groups)
        if request.include_authorized_operations and group.error_code == NONE:
            group.authorized_operations = ctx.authorized_operations(ResourceType.GROUP, group_id)
        described.append(group)
    return DescribeGroupsResponse(groups=refused + described)


def _describe(group_id: str, groups: GroupCoordinator) -> _Described:
    described = _Described(group_id=group_id)
    try:
        group = groups.find(group_id)
    except WireError as error:
        described.error_code = error.code
        return described
    if group is None:
        described.group_state = GroupState.DEAD.value
        return described
    stable = group.state is GroupState.STABLE
    described.group_state, described.protocol_type = group.state.value, group.protocol_type or ""
    described.protocol_data = (group.protocol_name or "") if stable else ""
    described.members = [
        DescribeGroupsResponse.DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol_name) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members.values()
    ]
    return described


def list_groups(request: ListGroupsRequest, ctx: Context) -> ListGroupsResponse:
    """ListGroups, v0-5.  v4 states · v5 types. Only the groups that this broker coordinates.

    Groups that the client may not describe are left out.
    """
    groups = ctx.services.groups
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}

    def is_requested(group: ClassicGroup) -> bool:
        return (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)

    return ListGroupsResponse(
        error_code=CoordinatorLoadInProgress.code if groups.is_loading else NONE,
        groups=[
            _Listed(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in groups.all()
            if is_requested(group) and ctx.permits("groups", group.id)
        ],
    )


async def delete_groups(request: DeleteGroupsRequest, ctx: Context) -> DeleteGroupsResponse:
    """DeleteGroups, v0-2: deletes groups without members, with their offsets. Each group fails by itself."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        result = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
        try:
            if (refusal := ctx.refused("groups", group_id)) is not None:
                raise refusal
            await ctx.services.offsets.delete(group_id)
        except WireError as error:
            result.error_code = error.code
        results.append(result)
    return DeleteGroupsResponse(results=results)
