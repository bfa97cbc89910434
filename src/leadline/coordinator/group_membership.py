"""The members of a group, and their requests that wait for a reply.

A static member has a group.instance.id and keeps its place across restarts. A pending member got its id and has not
joined with it yet.

    the leader is a member, if there is any; a request that waits gets exactly one reply

Pure: changes the members, and collects effects until they are taken.
"""

from collections import Counter

from leadline.coordinator.group_effects import (
    CancelTimer,
    Effect,
    JoinResult,
    RequestId,
    SendReply,
    SetTimer,
    SyncResult,
    session_timer,
)
from leadline.coordinator.group_member import GroupMember, JoinRequest, elected_protocol, protocol_names
from leadline.errors import (
    FencedInstanceId,
    RebalanceInProgress,
    UnknownMemberId,
)


class GroupMembership:
    """The members of one group, whatever its state."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.protocol_type: str | None = None  # of the members; stays when they have left
        self.leader: str | None = None
        self.members: dict[str, GroupMember] = {}
        self.static_members: dict[str, str] = {}  # member ids by group.instance.id
        self.pending_members: set[str] = set()  # ids that were assigned, and have not joined yet
        self.joining: dict[str, RequestId] = {}  # members that wait for the next generation
        self.syncing: dict[str, RequestId] = {}  # members that wait for their assignment
        self.unsynced: set[str] = set()  # members that have not sent a sync in this generation
        self._supporters: Counter[str] = Counter()  # members by protocol
        self._effects: list[Effect] = []

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _member(self, member_id: str, instance_id: str | None) -> GroupMember:
        if instance_id is not None:
            current = self.static_members.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.id} has no static member {instance_id!r}")
            if current != member_id:
                raise FencedInstanceId(f"{instance_id!r} of group {self.id} is member {current} now, not {member_id}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"group {self.id} has no member {member_id!r}")
        return member

    # Changes of the members

    def _put(self, member: GroupMember, protocol_type: str | None) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._supporters.update(protocol_names(member.protocols))
        self.pending_members.discard(member.id)

    def _update(self, request: JoinRequest, member: GroupMember, request_id: RequestId) -> None:
        self._remove_support(member)
        member.update(request)
        self._supporters.update(protocol_names(member.protocols))
        if (earlier_request := self.joining.get(member.id)) is not None:  # from a connection that the member has closed
            self._reply(earlier_request, JoinResult(RebalanceInProgress.code, member.id))
        self.joining[member.id] = request_id

    def _remove_support(self, member: GroupMember) -> None:
        """Remove the member's protocols from the counter. Names without supporters are dropped."""
        self._supporters.subtract(protocol_names(member.protocols))
        self._supporters = +self._supporters

    def _rename(self, old_id: str, new_id: str) -> GroupMember:
        self._reply_to_join(old_id, JoinResult(FencedInstanceId.code, old_id))
        self._reply_to_sync(old_id, SyncResult(FencedInstanceId.code))
        member = self.members.pop(old_id)
        member.id = new_id
        self.members[new_id] = member
        assert member.instance_id is not None
        self.static_members[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        self._add_effect(CancelTimer(session_timer(old_id)))
        return member

    def _remove(self, member_id: str) -> None:
        self._reply_to_join(member_id, JoinResult(UnknownMemberId.code))
        self._reply_to_sync(member_id, SyncResult(UnknownMemberId.code))
        if (member := self.members.pop(member_id, None)) is not None:
            self._remove_support(member)
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending_members.discard(member_id)
        self.unsynced.discard(member_id)
        self._add_effect(CancelTimer(session_timer(member_id)))

    # Elections

    def _elect_leader(self) -> bool:
        """Elect a leader that has joined; the current one stays if it has. False: no member has joined."""
        if self.leader not in self.joining:
            first = next(iter(self.joining), None)
            if first is None:
                return False
            self.leader = first
        return True

    def _elected_protocol(self) -> str:
        common = [name for name, count in self._supporters.items() if count == len(self.members)]
        return elected_protocol(self.members.values(), common)

    # Effects

    def _add_effect(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _reply(self, request_id: RequestId, result: JoinResult | SyncResult) -> None:
        self._effects.append(SendReply(request_id, result))

    def _reply_to_join(self, member_id: str, result: JoinResult) -> None:
        if (request_id := self.joining.pop(member_id, None)) is not None:
            self._reply(request_id, result)

    def _reply_to_sync(self, member_id: str, result: SyncResult) -> None:
        """A member that waited is alive, so its session starts again."""
        if (request_id := self.syncing.pop(member_id, None)) is not None:
            self._reply(request_id, result)
            self._add_effect(SetTimer(session_timer(member_id), self.members[member_id].session_timeout_ms))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
