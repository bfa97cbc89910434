"""A group from one generation to the next.

    Empty, Stable        a change of the members starts a rebalance
    PreparingRebalance   members join again, until all have joined or the join timer expires
    CompletingRebalance  the next generation has begun; the members sync before the sync timer expires

A new group waits for more members: its first join phase lasts for the initial delay, and is extended as long as members
come, but not beyond the rebalance timeout.

Pure: events in, effects out; the time is a parameter.
"""

from collections.abc import Mapping
from typing import NamedTuple

from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    CancelTimer,
    JoinResult,
    SetTimer,
    SyncResult,
    WriteGroup,
    session_timer,
)
from leadline.coordinator.group_member import CONSUMER, GroupMember, subscribed_topics
from leadline.coordinator.group_membership import GroupMembership
from leadline.coordinator.group_state import MAY_FOLLOW, GroupState
from leadline.coordinator.rebalance_history import (
    Rebalance,
    RebalanceCause,
    RebalanceHistory,
    RebalanceOutcome,
    RebalanceReason,
)
from leadline.errors import RebalanceInProgress

MAX_REASON_CHARS = 255  # Kafka's own clients send no more
MIN_JOIN_WAIT_MS = 100  # when static members are waited for once more; a lower bound


class GroupLimits(NamedTuple):
    """The settings of groups."""

    max_size: int  # group.max.size
    initial_rebalance_delay_ms: int  # group.initial.rebalance.delay.ms


class RebalancingGroup(GroupMembership):
    """The state and the generations of a group. `ClassicGroup` adds the requests of members."""

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        super().__init__(group_id)
        self.limits = limits
        self.state = GroupState.EMPTY
        self.state_since_ms: int | None = now_ms  # None: not known
        self.generation = 0
        self.protocol_name: str | None = None  # of the generation
        self.subscribed: frozenset[str] | None = None  # topics that consumers subscribe to; None: not known
        self.rebalances = RebalanceHistory()
        self._initial: tuple[int, int] | None = None  # of a new group: the current delay, and the time that remains
        self._has_grown = False  # since that delay began

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    def _enter(self, state: GroupState, now_ms: int) -> None:
        assert state in MAY_FOLLOW[self.state], f"{self.id}: {self.state} -> {state}"
        self.state, self.state_since_ms = state, now_ms

    # The join phase

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
                self.rebalances.add(rebalance_cause(RebalanceReason.JOIN_TIMED_OUT, member))
                self._remove(member.id)
        if self.members and not self._elect_leader():
            # All members are static, and none has joined.
            self._add_effect(SetTimer(JOIN_TIMER, max(self.rebalance_timeout_ms, MIN_JOIN_WAIT_MS)))
            return
        self._add_effect(CancelTimer(JOIN_TIMER))
        self.generation += 1
        self.unsynced.clear()
        if self.members:
            self._begin_generation(now_ms)
        else:
            self._become_empty(now_ms)

    def _become_empty(self, now_ms: int) -> None:
        self.protocol_name = None
        self.subscribed = frozenset() if self.is_consumers else None
        self._enter(GroupState.EMPTY, now_ms)
        self.rebalances.end(RebalanceOutcome.EMPTY, self.generation, 0, now_ms)
        self._add_effect(WriteGroup(self.generation, {}))

    def _begin_generation(self, now_ms: int) -> None:
        self.protocol_name = self._elected_protocol()
        self.subscribed = subscribed_topics(self.members.values(), self.protocol_name) if self.is_consumers else None
        self._enter(GroupState.COMPLETING, now_ms)
        for member in self.members.values():
            self._reply_to_join(member.id, self._join_result(member, with_members=member.id == self.leader))
            self._add_effect(SetTimer(session_timer(member.id), member.session_timeout_ms))
            member.is_new = False
        self.unsynced.update(self.members)
        self._add_effect(SetTimer(SYNC_TIMER, self.rebalance_timeout_ms))

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

    # The sync phase

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

    def _sync_timer_expired(self, now_ms: int) -> None:
        if self.state not in (GroupState.COMPLETING, GroupState.STABLE) or not self.unsynced:
            return
        before = len(self.members)
        late = [self.members[id] for id in sorted(self.unsynced)]
        for member in late:
            self._remove(member.id)
        self._rebalance([rebalance_cause(RebalanceReason.SYNC_TIMED_OUT, member) for member in late], before, now_ms)

    # Members that leave or fail

    def _member_gone(self, member: GroupMember, cause: RebalanceCause, now_ms: int) -> None:
        before = len(self.members)
        self._remove(member.id)
        if self.state is GroupState.PREPARING:
            self.rebalances.add(cause)
            self._complete_join_if_all_joined(now_ms)
        else:
            self._rebalance_if_settled(cause, before, now_ms)


def rebalance_cause(what: RebalanceReason, member: GroupMember, reason: str | None = None) -> RebalanceCause:
    short_reason = None if reason is None else reason[:MAX_REASON_CHARS]
    return RebalanceCause(what, member.id, member.instance_id, member.client_id, member.client_host, short_reason)
