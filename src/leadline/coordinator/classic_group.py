"""One group of the classic protocol: the requests of its members.

A *generation* is a set of members with an assignment. When the set changes, the group rebalances: every member joins
again. Once all have joined, or the time is up, the next generation begins. Its leader sends the assignment, and each
member gets its part when it syncs. `group_membership` keeps the members, `group_rebalance` leads from one generation to
the next.

    generations only grow; a generation has one leader; a request that waits gets exactly one reply

Pure: events in, effects out; the time is a parameter.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    CancelTimer,
    Effect,
    JoinResult,
    LeavingMember,
    RequestId,
    SetTimer,
    StaticMemberRejoin,
    SyncResult,
    WriteGroup,
    session_timer,
)
from leadline.coordinator.group_member import (
    NO_MEMBER,
    GroupMember,
    JoinRequest,
    protocol_names,
    subscribed_topics,
)
from leadline.coordinator.group_offsets import GroupOffsets
from leadline.coordinator.group_rebalance import GroupLimits, RebalancingGroup, rebalance_cause
from leadline.coordinator.group_state import GroupState
from leadline.coordinator.rebalance_history import (
    RebalanceCause,
    RebalanceReason,
)
from leadline.errors import (
    CoordinatorNotAvailable,
    GroupMaxSizeReached,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InconsistentGroupProtocol,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownServerError,
    WireError,
)
from leadline.model import TopicPartition

NEW_MEMBER_MS = 5 * 60 * 1000  # how long a first join may wait, whatever the session timeout


class ClassicGroup(RebalancingGroup):
    """A group. Each event is a method; it returns effects, which must be carried out in order."""

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        super().__init__(group_id, limits, now_ms)
        self.offsets = GroupOffsets()

    # Queries

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
        self._rebalance_if_settled(rebalance_cause(RebalanceReason.JOINED, member, request.reason), before, now_ms)

    def _rejoin(self, request: JoinRequest, member: GroupMember, request_id: RequestId, now_ms: int) -> None:
        changed = request.protocols != member.protocols
        is_leader = member.id == self.leader
        if changed or (self.state is GroupState.STABLE and is_leader):
            self._update(request, member, request_id)
            what = RebalanceReason.METADATA_CHANGED if changed else RebalanceReason.REJOINED
            self._rebalance_if_settled(rebalance_cause(what, member, request.reason), len(self.members), now_ms)
        elif self.state is GroupState.PREPARING:
            self._update(request, member, request_id)
        else:  # it did not get the last reply; nothing has changed since
            with_members = is_leader and self.state is GroupState.COMPLETING
            self._reply(request_id, self._join_result(member, with_members=with_members))

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
            cause = rebalance_cause(RebalanceReason.STATIC_MEMBER_REPLACED, member, request.reason)
            self._rebalance_if_settled(cause, len(self.members), now_ms)

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
            self._member_gone(member, rebalance_cause(RebalanceReason.SESSION_TIMED_OUT, member), now_ms)

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
        self._member_gone(member, rebalance_cause(RebalanceReason.LEFT, member, leaving.reason), now_ms)

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

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")
