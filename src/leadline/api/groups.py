"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups, DeleteGroups: groups and their members."""

from ipaddress import IPv6Address, ip_address

from leadline.api.authorized_operations import ALL_GROUP_OPERATIONS, NOT_REQUESTED
from leadline.api.context import Context
from leadline.coordinator.classic_group import ClassicGroup, GroupState
from leadline.coordinator.group_effects import JoinResult, LeavingMember
from leadline.coordinator.group_member import JoinRequest, MemberProtocol
from leadline.errors import CoordinatorLoadInProgress, InconsistentGroupProtocol, WireError
from leadline.model import NONE
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
CLASSIC = "classic"  # the type of a group; the newer one, consumer, needs Kafka without ZooKeeper

_Described = DescribeGroupsResponse.DescribedGroup
_Listed = ListGroupsResponse.ListedGroup


async def join_group(request: JoinGroupRequest, ctx: Context) -> JoinGroupResponse:
    """JoinGroup, v0-9.  v1 rebalance timeout · v4 member id required · v5 static members · v7 protocol type · v8 reason
    · v9 a static leader that returns may skip the assignment.

    Answered when all members have joined, or the time is up.
    """
    asked = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host=_java_address(ctx.client.host),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.session_timeout_ms if ctx.version == 0 else request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(MemberProtocol(each.name, each.metadata) for each in request.protocols),
        reason=request.reason,
        needs_known_id=ctx.version >= KNOWN_ID_FROM and request.group_instance_id is None,
        may_skip_assignment=ctx.version >= SKIPS_ASSIGNMENT_FROM,
    )
    return _shaped(await ctx.services.groups.join(request.group_id, asked), ctx.version)


def _shaped(joined: JoinResult, version: int) -> JoinGroupResponse:
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


def _java_address(host: str) -> str:
    """As Java writes an address without a name: a slash, and of IPv6 all eight groups."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return f"/{host}"
    if isinstance(address, IPv6Address):
        groups = address.packed.hex(":", 2).split(":")
        return "/" + ":".join(group.lstrip("0") or "0" for group in groups)
    return f"/{address}"


async def sync_group(request: SyncGroupRequest, ctx: Context) -> SyncGroupResponse:
    """SyncGroup, v0-5.  v3 static members · v5 protocol. Answered when the leader has sent its assignment."""
    protocol = request.protocol_type, request.protocol_name
    if ctx.version >= PROTOCOL_FROM and None in protocol:
        return SyncGroupResponse(error_code=InconsistentGroupProtocol.code)
    synced = await ctx.services.groups.sync(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        protocol,
        {each.member_id: each.assignment for each in request.assignments},
    )
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def heartbeat(request: HeartbeatRequest, ctx: Context) -> HeartbeatResponse:
    """Heartbeat, v0-4.  v3 static members."""
    return HeartbeatResponse(
        error_code=ctx.services.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    )


def leave_group(request: LeaveGroupRequest, ctx: Context) -> LeaveGroupResponse:
    """LeaveGroup, v0-5.  v3 several at once, static ones too · v5 reason."""
    leavers = [LeavingMember(each.member_id, each.group_instance_id, each.reason) for each in request.members]
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
    """DescribeGroups, v0-5.  v3 operations · v4 static members. A group that nobody knows is Dead."""
    operations = ALL_GROUP_OPERATIONS if request.include_authorized_operations else NOT_REQUESTED
    return DescribeGroupsResponse(groups=[_describe(group_id, operations, ctx) for group_id in request.groups])


def _describe(group_id: str, operations: int, ctx: Context) -> _Described:
    told = _Described(group_id=group_id)
    try:
        group = ctx.services.groups.find(group_id)
    except WireError as error:
        told.error_code = error.code
        return told
    told.authorized_operations = operations
    if group is None:
        told.group_state = GroupState.DEAD.value
        return told
    stable = group.state is GroupState.STABLE
    told.group_state, told.protocol_type = group.state.value, group.protocol_type or ""
    told.protocol_data = (group.protocol_name or "") if stable else ""
    told.members = [
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
    return told


def list_groups(request: ListGroupsRequest, ctx: Context) -> ListGroupsResponse:
    """ListGroups, v0-5.  v4 states · v5 types. Of all groups, those that this broker coordinates."""
    groups = ctx.services.groups
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}

    def is_asked_for(group: ClassicGroup) -> bool:
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
            if is_asked_for(group)
        ],
    )


async def delete_groups(request: DeleteGroupsRequest, ctx: Context) -> DeleteGroupsResponse:
    """DeleteGroups, v0-2: groups without members, with their offsets. Each group on its own."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        told = DeleteGroupsResponse.DeletableGroupResult(group_id=group_id)
        try:
            await ctx.services.offsets.delete(group_id)
        except WireError as error:
            told.error_code = error.code
        results.append(told)
    return DeleteGroupsResponse(results=results)
