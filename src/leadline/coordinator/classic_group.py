"""One group of the classic protocol: its members, and how they share the work.

A *generation* is a set of members with an assignment. When the set changes, the group rebalances: every member joins
again. Once all have joined, or the time is up, the next generation begins. Its leader sends the assignment, and each
member gets its part when it syncs.

    generations only grow; a generation has one leader; a request that waits gets exactly one reply

Pure: events in, effects out; the time is a parameter.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    CancelTimer,
    Effect,
    JoinResult,
    LeavingMember,
    RequestId,
    SendReply,
    SetTimer,
    StaticMemberRejoin,
    SyncResult,
    WriteGroup,
    session_timer,
)
from leadline.coordinator.group_member import (
    CONSUMER,
    NO_MEMBER,
    GroupMember,
    JoinRequest,
    elected_protocol,
    protocol_names,
    subscribed_topics,
)
from leadline.coordinator.group_offsets import GroupOffsets
from leadline.coordinator.rebalance_history import (
    Rebalance,
    RebalanceCause,
    RebalanceHistory,
    RebalanceOutcome,
    RebalanceReason,
)
from leadline.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
    UnknownServerError,
    WireError,
)
from leadline.model import TopicPartition

MAX_REASON_CHARS = 255  # Kafka's own clients send no more
MIN_JOIN_WAIT_MS = 100  # when static members are waited for once more; a lower bound
NEW_MEMBER_MS = 5 * 60 * 1000  # how long a first join may wait, whatever the session timeout


class GroupState(Enum):
    EMPTY = "Empty"  # no members; it may have offsets
    PREPARING = "PreparingRebalance"  # members join again
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # deleted, or moved to another coordinator


MAY_FOLLOW: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}


class GroupLimits(NamedTuple):
    """The settings of groups."""

    max_size: int  # group.max.size
    initial_rebalance_delay_ms: int  # group.initial.rebalance.delay.ms


class ClassicGroup:
    """A group. Each event is a method; it returns effects, which must be carried out in order."""

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        self.id, self.limits = group_id, limits
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = now_ms  # None: not known
        self.generation = 0
        self.protocol_type: str | None = None  # of the members; stays when they have left
        self.protocol_name: str | None = None  # of the generation
        self.leader: str | None = None
        self.members: dict[str, GroupMember] = {}
        self.static_members: dict[str, str] = {}  # member ids by group.instance.id
        self.pending_members: set[str] = set()  # ids that were assigned, and have not joined yet
        self.joining: dict[str, RequestId] = {}  # members that wait for the next generation
        self.syncing: dict[str, RequestId] = {}  # members that wait for their assignment
        self.unsynced: set[str] = set()  # members that have not sent a sync in this generation
        self.subscribed: frozenset[str] | None = None  # topics that consumers subscribe to; None: not known
        self.offsets = GroupOffsets()
        self.rebalances = RebalanceHistory()
        self._supporters: Counter[str] = Counter()  # members by protocol
        self._initial: tuple[int, int] | None = None  # of a new group: the current delay, and the time that remains
        self._has_grown = False  # since that delay began
        self._effects: list[Effect] = []

    # Queries

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to the topic; True if that is not known."""
        return self.subscribed is None or topic in self.subscribed

    def check_deletion(self) -> None:
        if self.state is not GroupState.EMPTY:
            raise NonEmptyGroup(f"group {self.id} is {self.state.value} with {len(self.members)} members")

    def check_offset_deletion(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Error codes. The offsets of topics that an active group subscribes to must not be deleted."""
        if not self.is_consumers:
            self.check_deletion()
        active = self.state is not GroupState.EMPTY
        return {tp: GroupSubscribedToTopic.code if active and self.is_subscribed(tp.topic) else 0 for tp in partitions}

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Partitions whose offset has expired."""
        if self.protocol_type is None:  # commits without members
            return self.offsets.expired(now_ms, retention_ms)
        if self.state is GroupState.EMPTY:
            return self.offsets.expired(now_ms, retention_ms, empty_since_ms=self.state_since_ms)
        if self.is_consumers and self.state is GroupState.STABLE and self.subscribed is not None:
            return self.offsets.expired(now_ms, retention_ms, subscribed=self.subscribed)
        return []

    # Joining

    def join(self, request: JoinRequest, new_id: str, request_id: RequestId, now_ms: int) -> list[Effect]:
        """`new_id`: for a member without an id. Raises the error that the member gets instead of a result."""
        self._check_alive()
        if not self._has_room_for(request.member_id):
            self._remove(request.member_id)
            self._reply(request_id, JoinResult(GroupMaxSizeReached.code))
        else:
            self._check_protocols(request)
            if request.member_id == NO_MEMBER:
                self._join_as_new(request, new_id, request_id, now_ms)
            elif request.member_id in self.pending_members:
                if request.instance_id is not None:
                    raise UnknownServerError(f"member {request.member_id} got its id as a dynamic member")
                self._add(request, request.member_id, request_id, now_ms)
            else:
                self._rejoin(request, self._member(request.member_id, request.instance_id), request_id, now_ms)
        self._complete_join_if_all_joined(now_ms)
        return self._take_effects()

    def _has_room_for(self, member_id: str) -> bool:
        if self.state is GroupState.EMPTY:
            return True
        if self.state is GroupState.PREPARING:
            return member_id in self.joining or len(self.joining) < self.limits.max_size
        return member_id in self.members or len(self.members) < self.limits.max_size

    def _check_protocols(self, request: JoinRequest) -> None:
        if self.state is GroupState.EMPTY:
            fits = bool(request.protocol_type and request.protocols)
        else:
            common = (self._supporters[name] == len(self.members) for name in protocol_names(request.protocols))
            fits = request.protocol_type == self.protocol_type and any(common)
        if not fits:
            raise InconsistentGroupProtocol(
                f"group {self.id} of type {self.protocol_type} has no protocol in common with a member of type "
                f"{request.protocol_type!r} that supports {sorted(protocol_names(request.protocols))}"
            )

    def _join_as_new(self, request: JoinRequest, new_id: str, request_id: RequestId, now_ms: int) -> None:
        if request.instance_id is not None and request.instance_id in self.static_members:
            self._rejoin_static(request, self.static_members[request.instance_id], new_id, request_id, now_ms)
        elif request.instance_id is None and request.needs_known_id:
            self.pending_members.add(new_id)
            self._add_effect(SetTimer(session_timer(new_id), request.session_timeout_ms))
            self._reply(request_id, JoinResult(MemberIdRequired.code, new_id))
        else:
            self._add(request, new_id, request_id, now_ms)

    def _add(self, request: JoinRequest, member_id: str, request_id: RequestId, now_ms: int) -> None:
        if self.state is GroupState.PREPARING and self.generation == 0:
            self._has_grown = True
        before = len(self.members)
        member = GroupMember.of(request, member_id)
        self._put(member, request.protocol_type)
        self.joining[member_id] = request_id
        self._add_effect(SetTimer(session_timer(member_id), NEW_MEMBER_MS))
        self._rebalance_if_settled(_cause(RebalanceReason.JOINED, member, request.reason), before, now_ms)

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

    def _rejoin(self, request: JoinRequest, member: GroupMember, request_id: RequestId, now_ms: int) -> None:
        changed = request.protocols != member.protocols
        is_leader = member.id == self.leader
        if changed or (self.state is GroupState.STABLE and is_leader):
            self._update(request, member, request_id)
            what = RebalanceReason.METADATA_CHANGED if changed else RebalanceReason.REJOINED
            self._rebalance_if_settled(_cause(what, member, request.reason), len(self.members), now_ms)
        elif self.state is GroupState.PREPARING:
            self._update(request, member, request_id)
        else:  # it did not get the last reply; nothing has changed since
            with_members = is_leader and self.state is GroupState.COMPLETING
            self._reply(request_id, self._join_result(member, with_members=with_members))

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

    def _rejoin_static(
        self, request: JoinRequest, old_id: str, new_id: str, request_id: RequestId, now_ms: int
    ) -> None:
        """A static member was restarted: it takes its place under a new id, and the old id is fenced."""
        leader, before = self.leader, replace(self.members[old_id])
        member = self._rename(old_id, new_id)
        self._add_effect(SetTimer(session_timer(new_id), member.session_timeout_ms))
        self._update(request, member, request_id)
        if self.state is GroupState.STABLE and self._elected_protocol() == self.protocol_name:
            rejoin = StaticMemberRejoin(request_id, before, member, leader, request.may_skip_assignment)
            self._add_effect(WriteGroup(self.generation, self._assignments(), rejoin))
        else:
            cause = _cause(RebalanceReason.STATIC_MEMBER_REPLACED, member, request.reason)
            self._rebalance_if_settled(cause, len(self.members), now_ms)

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

    def _static_member_rejoined(self, rejoin: StaticMemberRejoin, error: WireError | None) -> None:
        member = rejoin.member
        if self.joining.get(member.id) != rejoin.request_id:
            return  # it left, was replaced or was removed meanwhile, and got its reply then
        if error is None:
            is_leader = member.id == self.leader
            if rejoin.may_skip_assignment:
                result = self._join_result(member, with_members=is_leader)._replace(skip_assignment=is_leader)
            else:  # the former leader id, so that the member does not act as leader
                result = self._join_result(member, with_members=False)._replace(leader=rejoin.leader or "")
            self._reply_to_join(member.id, result)
            self._add_effect(
                SetTimer(session_timer(member.id), member.session_timeout_ms)
            )  # it may have expired during the write
            return
        self._remove_support(member)
        self._reply_to_join(
            member.id,
            self._join_result(member, with_members=False)._replace(
                error=error.code, member_id=NO_MEMBER, leader=rejoin.leader or ""
            ),
        )
        self._rename(member.id, rejoin.before.id)
        self.members[rejoin.before.id] = rejoin.before
        self._supporters.update(protocol_names(rejoin.before.protocols))
        self._add_effect(SetTimer(session_timer(rejoin.before.id), rejoin.before.session_timeout_ms))

    # Rebalancing

    def _rebalance_if_settled(self, cause: RebalanceCause, members_before: int, now_ms: int) -> None:
        if GroupState.PREPARING in MAY_FOLLOW[self.state]:
            self._rebalance([cause], members_before, now_ms)
        else:
            self.rebalances.add(cause)

    def _rebalance(self, causes: list[RebalanceCause], members_before: int, now_ms: int) -> None:
        if self.state is GroupState.COMPLETING:
            self._propagate_error(RebalanceInProgress.code)
            self.rebalances.end(RebalanceOutcome.INTERRUPTED, self.generation, members_before, now_ms)
        self.rebalances.begin(Rebalance(now_ms, self.state.value, self.generation, members_before))
        for cause in causes:
            self.rebalances.add(cause)
        self.unsynced.clear()
        self._add_effect(CancelTimer(SYNC_TIMER))
        delay = self.limits.initial_rebalance_delay_ms
        if self.state is GroupState.EMPTY:
            self._initial = delay, max(self.rebalance_timeout_ms - delay, 0)
        else:
            self._initial, delay = None, self.rebalance_timeout_ms
        self._enter(GroupState.PREPARING, now_ms)
        self._add_effect(SetTimer(JOIN_TIMER, delay))
        self._complete_join_if_all_joined(now_ms)

    def _complete_join_if_all_joined(self, now_ms: int) -> None:
        have_all = len(self.joining) == len(self.members) and not self.pending_members
        if have_all and self.state is GroupState.PREPARING and self._initial is None:
            self._complete_join(now_ms)

    def _join_timer_expired(self, now_ms: int) -> None:
        if self.state is not GroupState.PREPARING:
            return
        if self._initial is not None and self._has_grown and self._initial[1]:
            delay, remaining = self._initial
            self._has_grown = False
            self._initial = min(self.limits.initial_rebalance_delay_ms, remaining), max(remaining - delay, 0)
            self._add_effect(SetTimer(JOIN_TIMER, self._initial[0]))
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        self._initial = None
        for member in list(self.members.values()):
            if member.id not in self.joining and member.instance_id is None:
                self.rebalances.add(_cause(RebalanceReason.JOIN_TIMED_OUT, member))
                self._remove(member.id)
        if self.members and not self._elect_leader():
            # All members are static, and none has joined.
            self._add_effect(SetTimer(JOIN_TIMER, max(self.rebalance_timeout_ms, MIN_JOIN_WAIT_MS)))
            return
        self._add_effect(CancelTimer(JOIN_TIMER))
        self.generation += 1
        self.unsynced.clear()
        if not self.members:
            self.protocol_name = None
            self.subscribed = frozenset() if self.is_consumers else None
            self._enter(GroupState.EMPTY, now_ms)
            self.rebalances.end(RebalanceOutcome.EMPTY, self.generation, 0, now_ms)
            self._add_effect(WriteGroup(self.generation, {}))
            return
        self.protocol_name = self._elected_protocol()
        self.subscribed = subscribed_topics(self.members.values(), self.protocol_name) if self.is_consumers else None
        self._enter(GroupState.COMPLETING, now_ms)
        for member in self.members.values():
            self._reply_to_join(member.id, self._join_result(member, with_members=member.id == self.leader))
            self._add_effect(SetTimer(session_timer(member.id), member.session_timeout_ms))
            member.is_new = False
        self.unsynced.update(self.members)
        self._add_effect(SetTimer(SYNC_TIMER, self.rebalance_timeout_ms))

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

    def _join_result(self, member: GroupMember, *, with_members: bool) -> JoinResult:
        members = self.members.values() if with_members else ()
        return JoinResult(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            members=tuple((other.id, other.instance_id, other.metadata(self.protocol_name)) for other in members),
        )

    # The assignment

    def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        assignments: Mapping[str, bytes],
        request_id: RequestId,
    ) -> list[Effect]:
        """A member asks for its assignment; the leader sends all of them. Raises the error for the member."""
        self._check_alive()
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if protocol_type not in (None, self.protocol_type) or protocol_name not in (None, self.protocol_name):
            raise InconsistentGroupProtocol(
                f"group {self.id} agreed on {self.protocol_type} {self.protocol_name}, "
                f"not on {protocol_type} {protocol_name}"
            )
        if self.state is GroupState.PREPARING:
            raise RebalanceInProgress(f"group {self.id} prepares its next generation")
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._add_effect(CancelTimer(SYNC_TIMER))
        if self.state is GroupState.STABLE:
            self._reply(request_id, self._sync_result(member))
            self._add_effect(SetTimer(session_timer(member_id), member.session_timeout_ms))
            return self._take_effects()
        self._reply_to_sync(
            member_id, SyncResult(RebalanceInProgress.code)
        )  # from a connection that the member has closed
        self.syncing[member_id] = request_id
        if member_id == self.leader:
            self._add_effect(WriteGroup(self.generation, {id: assignments.get(id, b"") for id in self.members}))
        return self._take_effects()

    def written(self, write: WriteGroup, error: WireError | None, now_ms: int) -> list[Effect]:
        """The group's record is committed, or could not be."""
        if write.rejoin is not None:
            self._static_member_rejoined(write.rejoin, error)
        elif self.state is GroupState.COMPLETING and write.generation == self.generation:
            if error is None:
                self._assign(write.assignments, now_ms)
            else:
                self._propagate_error(error.code)
                cause = RebalanceCause(RebalanceReason.NOT_STORED, reason=str(error))
                self._rebalance_if_settled(cause, len(self.members), now_ms)
        return self._take_effects()

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        for member in self.members.values():
            self._reply_to_sync(member.id, self._sync_result(member))
        self._enter(GroupState.STABLE, now_ms)
        self.rebalances.end(RebalanceOutcome.STABLE, self.generation, len(self.members), now_ms)

    def _propagate_error(self, code: int) -> None:
        for member in self.members.values():
            member.assignment = b""
            self._reply_to_sync(member.id, SyncResult(code))

    def _sync_result(self, member: GroupMember) -> SyncResult:
        return SyncResult(0, self.protocol_type, self.protocol_name, member.assignment)

    def _assignments(self) -> dict[str, bytes]:
        return {member.id: member.assignment for member in self.members.values()}

    # Sessions

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[int, list[Effect]]:
        """Returns an error code if the member must join again. Its session is extended either way."""
        self._check_alive()
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        code = RebalanceInProgress.code if self.state is GroupState.PREPARING else 0
        return code, [SetTimer(session_timer(member_id), member.session_timeout_ms)]

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> list[Effect]:
        """Raises an error if the client must not commit now. A commit extends a member's session."""
        self._check_alive()
        if generation < 0 and self.state is GroupState.EMPTY:
            return []
        if transactional and generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return []  # from a producer that sends no group metadata
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if transactional:
            return []
        if self.state is GroupState.COMPLETING:
            raise RebalanceInProgress(f"group {self.id} waits for its assignment")
        return [SetTimer(session_timer(member_id), member.session_timeout_ms)]

    def timer_expired(self, timer: tuple[str, str], now_ms: int) -> list[Effect]:
        """A timer has expired."""
        if self.state is GroupState.DEAD:
            pass
        elif timer == JOIN_TIMER:
            self._join_timer_expired(now_ms)
        elif timer == SYNC_TIMER:
            self._sync_timer_expired(now_ms)
        else:
            self._session_expired(timer[1], now_ms)
        return self._take_effects()

    def _session_expired(self, member_id: str, now_ms: int) -> None:
        """A member that waits for a reply sends nothing, so it is not removed unless it is new."""
        if member_id in self.pending_members:
            self.pending_members.remove(member_id)
            self._complete_join_if_all_joined(now_ms)
            return
        is_waiting = member_id in self.joining or member_id in self.syncing
        member = self.members.get(member_id)
        if member is not None and (member.is_new or not is_waiting):
            self._member_gone(member, _cause(RebalanceReason.SESSION_TIMED_OUT, member), now_ms)

    def _sync_timer_expired(self, now_ms: int) -> None:
        if self.state not in (GroupState.COMPLETING, GroupState.STABLE) or not self.unsynced:
            return
        before = len(self.members)
        late = [self.members[id] for id in sorted(self.unsynced)]
        for member in late:
            self._remove(member.id)
        self._rebalance([_cause(RebalanceReason.SYNC_TIMED_OUT, member) for member in late], before, now_ms)

    # Leaving

    def leave(self, members: Iterable[LeavingMember], now_ms: int) -> tuple[list[int], list[Effect]]:
        """Returns an error code for each member, in order."""
        self._check_alive()
        codes = []
        for member in members:
            try:
                self._leave(member, now_ms)
                codes.append(0)
            except WireError as error:
                codes.append(error.code)
        return codes, self._take_effects()

    def _leave(self, leaving: LeavingMember, now_ms: int) -> None:
        if leaving.member_id in self.pending_members:
            self.pending_members.remove(leaving.member_id)
            self._add_effect(CancelTimer(session_timer(leaving.member_id)))
            self._complete_join_if_all_joined(now_ms)
            return
        member_id = leaving.member_id
        if member_id == NO_MEMBER and leaving.instance_id is not None:  # an administrator removes a static member
            member_id = self.static_members.get(leaving.instance_id, NO_MEMBER)
        member = self._member(member_id, leaving.instance_id if leaving.member_id != NO_MEMBER else None)
        self._member_gone(member, _cause(RebalanceReason.LEFT, member, leaving.reason), now_ms)

    def _member_gone(self, member: GroupMember, cause: RebalanceCause, now_ms: int) -> None:
        before = len(self.members)
        self._remove(member.id)
        if self.state is GroupState.PREPARING:
            self.rebalances.add(cause)
            self._complete_join_if_all_joined(now_ms)
        else:
            self._rebalance_if_settled(cause, before, now_ms)

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

    # The group as a whole

    def load(
        self,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader: str | None,
        since_ms: int | None,
        members: Iterable[GroupMember],
    ) -> None:
        """Set the state from the group's record."""
        for member in members:
            self._put(member, protocol_type)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.generation, self.leader, self.state_since_ms = generation, leader, since_ms
        self.protocol_type, self.protocol_name = protocol_type or None, protocol_name
        if not self.is_consumers:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        elif protocol_name is not None:
            self.subscribed = subscribed_topics(self.members.values(), protocol_name)

    def loaded(self, now_ms: int) -> list[Effect]:
        """The shard is loaded: the sessions of the members start again."""
        if len(self.members) > self.limits.max_size:
            reason = f"{len(self.members)} members, but group.max.size={self.limits.max_size}"
            self._rebalance([RebalanceCause(RebalanceReason.OVER_CAPACITY, reason=reason)], len(self.members), now_ms)
        for member in self.members.values():
            self._add_effect(SetTimer(session_timer(member.id), member.session_timeout_ms))
        return self._take_effects()

    def unload(self, now_ms: int) -> list[Effect]:
        """Another broker is the coordinator now."""
        for member_id in list(self.joining):
            self._reply_to_join(member_id, JoinResult(NotCoordinator.code, member_id))
        for member_id in list(self.syncing):
            self._reply_to_sync(member_id, SyncResult(NotCoordinator.code))
        return self.die(now_ms)

    def die(self, now_ms: int) -> list[Effect]:
        self._enter(GroupState.DEAD, now_ms)
        self._effects += [CancelTimer(session_timer(id)) for id in (*self.members, *self.pending_members)]
        self._effects += [CancelTimer(JOIN_TIMER), CancelTimer(SYNC_TIMER)]
        return self._take_effects()

    # Checks

    def _check_alive(self) -> None:
        if self.state is GroupState.DEAD:
            raise CoordinatorNotAvailable(f"group {self.id} has just been deleted, or moved to another coordinator")

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

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")

    # Effects

    def _enter(self, state: GroupState, now_ms: int) -> None:
        assert state in MAY_FOLLOW[self.state], f"{self.id}: {self.state} -> {state}"
        self.state, self.state_since_ms = state, now_ms

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


def _cause(what: RebalanceReason, member: GroupMember, reason: str | None = None) -> RebalanceCause:
    short_reason = None if reason is None else reason[:MAX_REASON_CHARS]
    return RebalanceCause(what, member.id, member.instance_id, member.client_id, member.client_host, short_reason)
