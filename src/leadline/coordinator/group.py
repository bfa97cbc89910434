"""One group: who belongs to it, and how its members come to share the work.

A *generation* is a set of members with an assignment. Whenever the set changes, the group rebalances: every member
joins again; once all have, or the time is up, the next generation begins, one member leads it and sends the assignment,
and each member gets its part when it syncs.

    generations only grow; a generation has one leader; whoever waits is answered exactly once

Pure: told what happened, and when; effects say whom to answer, which timers to set, what to write.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import NamedTuple

from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    Effect,
    End,
    Joined,
    Leaver,
    Returned,
    Set,
    Store,
    Synced,
    Ticket,
    session,
)
from leadline.coordinator.member import CONSUMER, NO_MEMBER, Join, Member, elected, names, subscribed_topics
from leadline.coordinator.offsets import Offsets
from leadline.coordinator.rebalances import Cause, History, Outcome, Rebalance, What
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

LONGEST_REASON = 255  # characters; Kafka's own clients send no more
AGAIN_MS = 100  # before members that did not come are waited for once more, however impatient they are
NEW_MEMBER_MS = 5 * 60 * 1000  # a first join is not held open longer, however long the session


class State(Enum):
    EMPTY = "Empty"  # no members; perhaps offsets
    PREPARING = "PreparingRebalance"  # members join again
    COMPLETING = "CompletingRebalance"  # waits for the leader's assignment
    STABLE = "Stable"
    DEAD = "Dead"  # deleted, or another's


MAY_FOLLOW: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset({State.DEAD}),
}


class Limits(NamedTuple):
    """The settings that groups obey."""

    max_size: int  # group.max.size
    initial_rebalance_delay_ms: int  # group.initial.rebalance.delay.ms


class Group:
    """A group. Each method that something happened to is one event; it returns what must be done, in order."""

    def __init__(self, group_id: str, limits: Limits, now_ms: int) -> None:
        self.id, self.limits = group_id, limits
        self.state = State.EMPTY
        self.since_ms: int | None = now_ms  # when it came into this state; None: not known
        self.generation = 0
        self.protocol_type: str | None = None  # of the members; outlives them
        self.protocol_name: str | None = None  # of the generation
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.instances: dict[str, str] = {}  # static members: their ids by their names
        self.pending: set[str] = set()  # ids that were given out, and have not joined yet
        self.joining: dict[str, Ticket] = {}  # members that wait for the next generation
        self.syncing: dict[str, Ticket] = {}  # members that wait for their assignment
        self.unsynced: set[str] = set()  # members that have not asked for theirs in this generation
        self.subscribed: frozenset[str] | None = None  # topics of consumers; None: not known
        self.offsets = Offsets()
        self.history = History()
        self._supporters: Counter[str] = Counter()  # members by protocol
        self._initial: tuple[int, int] | None = None  # while a new group waits for more: this delay, and what remains
        self._has_grown = False  # since that delay began
        self._effects: list[Effect] = []

    # What can be asked

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed(self, topic: str) -> bool:
        """If it is not known: perhaps, so yes."""
        return self.subscribed is None or topic in self.subscribed

    def check_deletion(self) -> None:
        if self.state is not State.EMPTY:
            raise NonEmptyGroup(f"group {self.id} is {self.state.value} with {len(self.members)} members")

    def verdicts_on_deletion(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Which offsets may be deleted: in an active group, those that none of its consumers reads. Error codes."""
        if not self.is_consumers:
            self.check_deletion()
        active = self.state is not State.EMPTY
        return {tp: GroupSubscribedToTopic.code if active and self.is_subscribed(tp.topic) else 0 for tp in partitions}

    def expired(self, now_ms: int, retention_ms: int) -> list[TopicPartition]:
        """Offsets that need not be kept any longer."""
        if self.protocol_type is None:  # commits without members
            return self.offsets.expired(now_ms, retention_ms)
        if self.state is State.EMPTY:
            return self.offsets.expired(now_ms, retention_ms, empty_since_ms=self.since_ms)
        if self.is_consumers and self.state is State.STABLE and self.subscribed is not None:
            return self.offsets.expired(now_ms, retention_ms, subscribed=self.subscribed)
        return []

    # Joining

    def join(self, asked: Join, new_id: str, ticket: Ticket, now_ms: int) -> list[Effect]:
        """`new_id`: what a member without an id will be called. Raises what the member is told instead."""
        self._check_alive()
        if not self._has_room_for(asked.member_id):
            self._remove(asked.member_id)
            self._answer(ticket, Joined(GroupMaxSizeReached.code))
        else:
            self._check_protocols(asked)
            if asked.member_id == NO_MEMBER:
                self._join_as_new(asked, new_id, ticket, now_ms)
            elif asked.member_id in self.pending:
                if asked.instance_id is not None:
                    raise UnknownServerError(f"member {asked.member_id} was given its id as a dynamic member")
                self._add(asked, asked.member_id, ticket, now_ms)
            else:
                self._rejoin(asked, self._member(asked.member_id, asked.instance_id), ticket, now_ms)
        self._complete_join_if_all_have(now_ms)
        return self._taken()

    def _has_room_for(self, member_id: str) -> bool:
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING:
            return member_id in self.joining or len(self.joining) < self.limits.max_size
        return member_id in self.members or len(self.members) < self.limits.max_size

    def _check_protocols(self, asked: Join) -> None:
        if self.state is State.EMPTY:
            fits = bool(asked.protocol_type and asked.protocols)
        else:
            everybodys = (self._supporters[name] == len(self.members) for name in names(asked.protocols))
            fits = asked.protocol_type == self.protocol_type and any(everybodys)
        if not fits:
            raise InconsistentGroupProtocol(
                f"group {self.id} of type {self.protocol_type} has no protocol in common with a member of type "
                f"{asked.protocol_type!r} that knows {sorted(names(asked.protocols))}"
            )

    def _join_as_new(self, asked: Join, new_id: str, ticket: Ticket, now_ms: int) -> None:
        if asked.instance_id is not None and asked.instance_id in self.instances:
            self._return_static(asked, self.instances[asked.instance_id], new_id, ticket, now_ms)
        elif asked.instance_id is None and asked.needs_known_id:
            self.pending.add(new_id)
            self._do(Set(session(new_id), asked.session_timeout_ms))
            self._answer(ticket, Joined(MemberIdRequired.code, new_id))
        else:
            self._add(asked, new_id, ticket, now_ms)

    def _add(self, asked: Join, member_id: str, ticket: Ticket, now_ms: int) -> None:
        if self.state is State.PREPARING and self.generation == 0:
            self._has_grown = True
        before = len(self.members)
        member = Member.of(asked, member_id)
        self._put(member, asked.protocol_type)
        self.joining[member_id] = ticket
        self._do(Set(session(member_id), NEW_MEMBER_MS))
        self._rebalance_if_settled(_cause(What.JOINED, member, asked.reason), before, now_ms)

    def _put(self, member: Member, protocol_type: str | None) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self.members[member.id] = member
        self._supporters.update(names(member.protocols))
        self.pending.discard(member.id)

    def _rejoin(self, asked: Join, member: Member, ticket: Ticket, now_ms: int) -> None:
        changed = asked.protocols != member.protocols
        is_leader = member.id == self.leader
        if changed or (self.state is State.STABLE and is_leader):
            self._update(asked, member, ticket)
            what = What.METADATA_CHANGED if changed else What.REJOINED
            self._rebalance_if_settled(_cause(what, member, asked.reason), len(self.members), now_ms)
        elif self.state is State.PREPARING:
            self._update(asked, member, ticket)
        else:  # it did not get the last answer; nothing has changed since
            with_members = is_leader and self.state is State.COMPLETING
            self._answer(ticket, self._joined(member, with_members=with_members))

    def _update(self, asked: Join, member: Member, ticket: Ticket) -> None:
        self._withdraw(member)
        member.update(asked)
        self._supporters.update(names(member.protocols))
        if (earlier := self.joining.get(member.id)) is not None:  # from a connection that it has given up
            self._answer(earlier, Joined(RebalanceInProgress.code, member.id))
        self.joining[member.id] = ticket

    def _withdraw(self, member: Member) -> None:
        """What it supports. Names that nobody supports are not remembered."""
        self._supporters.subtract(names(member.protocols))
        self._supporters = +self._supporters

    def _return_static(self, asked: Join, old_id: str, new_id: str, ticket: Ticket, now_ms: int) -> None:
        """A static member was restarted: it takes its place under a new id, and whoever had it is fenced."""
        leader, before = self.leader, replace(self.members[old_id])
        member = self._rename(old_id, new_id)
        self._do(Set(session(new_id), member.session_timeout_ms))
        self._update(asked, member, ticket)
        if self.state is State.STABLE and self._elected_protocol() == self.protocol_name:
            returned = Returned(ticket, before, member, leader, asked.may_skip_assignment)
            self._do(Store(self.generation, self._assignments(), returned))
        else:
            cause = _cause(What.STATIC_MEMBER_REPLACED, member, asked.reason)
            self._rebalance_if_settled(cause, len(self.members), now_ms)

    def _rename(self, old_id: str, new_id: str) -> Member:
        self._answer_join(old_id, Joined(FencedInstanceId.code, old_id))
        self._answer_sync(old_id, Synced(FencedInstanceId.code))
        member = self.members.pop(old_id)
        member.id = new_id
        self.members[new_id] = member
        assert member.instance_id is not None
        self.instances[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.unsynced:
            self.unsynced.remove(old_id)
            self.unsynced.add(new_id)
        self._do(End(session(old_id)))
        return member

    def _returned(self, told: Returned, error: WireError | None) -> None:
        member = told.member
        if self.joining.get(member.id) != told.ticket:
            return  # left, replaced or expelled meanwhile, and answered then
        if error is None:
            is_leader = member.id == self.leader
            if told.may_skip_assignment:
                answer = self._joined(member, with_members=is_leader)._replace(skip_assignment=is_leader)
            else:  # the id of its former self: so that it does not take itself for the leader
                answer = self._joined(member, with_members=False)._replace(leader=told.leader or "")
            self._answer_join(member.id, answer)
            self._do(Set(session(member.id), member.session_timeout_ms))  # it may have run out while this was written
            return
        self._withdraw(member)
        self._answer_join(
            member.id,
            self._joined(member, with_members=False)._replace(
                error=error.code, member_id=NO_MEMBER, leader=told.leader or ""
            ),
        )
        self._rename(member.id, told.before.id)
        self.members[told.before.id] = told.before
        self._supporters.update(names(told.before.protocols))
        self._do(Set(session(told.before.id), told.before.session_timeout_ms))

    # From one generation to the next

    def _rebalance_if_settled(self, cause: Cause, members_before: int, now_ms: int) -> None:
        if State.PREPARING in MAY_FOLLOW[self.state]:
            self._rebalance([cause], members_before, now_ms)
        else:
            self.history.add(cause)

    def _rebalance(self, causes: list[Cause], members_before: int, now_ms: int) -> None:
        if self.state is State.COMPLETING:
            self._propagate_error(RebalanceInProgress.code)
            self.history.end(Outcome.INTERRUPTED, self.generation, members_before, now_ms)
        self.history.begin(Rebalance(now_ms, self.state.value, self.generation, members_before))
        for cause in causes:
            self.history.add(cause)
        self.unsynced.clear()
        self._do(End(SYNC_TIMER))
        delay = self.limits.initial_rebalance_delay_ms
        if self.state is State.EMPTY:
            self._initial = delay, max(self.rebalance_timeout_ms - delay, 0)
        else:
            self._initial, delay = None, self.rebalance_timeout_ms
        self._enter(State.PREPARING, now_ms)
        self._do(Set(JOIN_TIMER, delay))
        self._complete_join_if_all_have(now_ms)

    def _complete_join_if_all_have(self, now_ms: int) -> None:
        have_all = len(self.joining) == len(self.members) and not self.pending
        if have_all and self.state is State.PREPARING and self._initial is None:
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        if self.state is not State.PREPARING:
            return
        if self._initial is not None and self._has_grown and self._initial[1]:
            delay, remaining = self._initial
            self._has_grown = False
            self._initial = min(self.limits.initial_rebalance_delay_ms, remaining), max(remaining - delay, 0)
            self._do(Set(JOIN_TIMER, self._initial[0]))
        else:
            self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        self._initial = None
        for member in list(self.members.values()):
            if member.id not in self.joining and member.instance_id is None:
                self.history.add(_cause(What.JOIN_TIMED_OUT, member))
                self._remove(member.id)
        if self.members and not self._elect_leader():
            self._do(Set(JOIN_TIMER, max(self.rebalance_timeout_ms, AGAIN_MS)))  # static members, and none has come
            return
        self._do(End(JOIN_TIMER))
        self.generation += 1
        self.unsynced.clear()
        if not self.members:
            self.protocol_name = None
            self.subscribed = frozenset() if self.is_consumers else None
            self._enter(State.EMPTY, now_ms)
            self.history.end(Outcome.EMPTY, self.generation, 0, now_ms)
            self._do(Store(self.generation, {}))
            return
        self.protocol_name = self._elected_protocol()
        self.subscribed = subscribed_topics(self.members.values(), self.protocol_name) if self.is_consumers else None
        self._enter(State.COMPLETING, now_ms)
        for member in self.members.values():
            self._answer_join(member.id, self._joined(member, with_members=member.id == self.leader))
            self._do(Set(session(member.id), member.session_timeout_ms))
            member.is_new = False
        self.unsynced.update(self.members)
        self._do(Set(SYNC_TIMER, self.rebalance_timeout_ms))

    def _elect_leader(self) -> bool:
        """A leader that has joined; it stays, if it has. False if nobody has."""
        if self.leader not in self.joining:
            joined = next(iter(self.joining), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def _elected_protocol(self) -> str:
        everybodys = [name for name, count in self._supporters.items() if count == len(self.members)]
        return elected(self.members.values(), everybodys)

    def _joined(self, member: Member, *, with_members: bool) -> Joined:
        told = self.members.values() if with_members else ()
        return Joined(
            member_id=member.id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            members=tuple((each.id, each.instance_id, each.metadata(self.protocol_name)) for each in told),
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
        ticket: Ticket,
    ) -> list[Effect]:
        """A member wants its assignment; the leader's brings those of all. Raises what it is told instead."""
        self._check_alive()
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if protocol_type not in (None, self.protocol_type) or protocol_name not in (None, self.protocol_name):
            raise InconsistentGroupProtocol(
                f"group {self.id} agreed on {self.protocol_type} {self.protocol_name}, "
                f"not on {protocol_type} {protocol_name}"
            )
        if self.state is State.PREPARING:
            raise RebalanceInProgress(f"group {self.id} prepares its next generation")
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._do(End(SYNC_TIMER))
        if self.state is State.STABLE:
            self._answer(ticket, self._synced(member))
            self._do(Set(session(member_id), member.session_timeout_ms))
            return self._taken()
        self._answer_sync(member_id, Synced(RebalanceInProgress.code))  # from a connection that it has given up
        self.syncing[member_id] = ticket
        if member_id == self.leader:
            self._do(Store(self.generation, {each: assignments.get(each, b"") for each in self.members}))
        return self._taken()

    def stored(self, store: Store, error: WireError | None, now_ms: int) -> list[Effect]:
        """What was to be written is on every in-sync replica, or cannot be."""
        if store.returned is not None:
            self._returned(store.returned, error)
        elif self.state is State.COMPLETING and store.generation == self.generation:
            if error is None:
                self._assign(store.assignments, now_ms)
            else:
                self._propagate_error(error.code)
                cause = Cause(What.NOT_STORED, reason=str(error))
                self._rebalance_if_settled(cause, len(self.members), now_ms)
        return self._taken()

    def _assign(self, assignments: Mapping[str, bytes], now_ms: int) -> None:
        for member in self.members.values():
            member.assignment = assignments.get(member.id, b"")
        for member in self.members.values():
            self._answer_sync(member.id, self._synced(member))
        self._enter(State.STABLE, now_ms)
        self.history.end(Outcome.STABLE, self.generation, len(self.members), now_ms)

    def _propagate_error(self, code: int) -> None:
        for member in self.members.values():
            member.assignment = b""
            self._answer_sync(member.id, Synced(code))

    def _synced(self, member: Member) -> Synced:
        return Synced(0, self.protocol_type, self.protocol_name, member.assignment)

    def _assignments(self) -> dict[str, bytes]:
        return {member.id: member.assignment for member in self.members.values()}

    # Signs of life

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> tuple[int, list[Effect]]:
        """An error code for a member that is alive but must join, and the session that goes on either way."""
        self._check_alive()
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        code = RebalanceInProgress.code if self.state is State.PREPARING else 0
        return code, [Set(session(member_id), member.session_timeout_ms)]

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> list[Effect]:
        """Raises why this member, or this stranger, must not commit. A commit of a member is a sign of life."""
        self._check_alive()
        if generation < 0 and self.state is State.EMPTY:
            return []
        if transactional and generation < 0 and member_id == NO_MEMBER and instance_id is None:
            return []  # of a producer that does not know about members
        member = self._member(member_id, instance_id)
        self._check_generation(generation)
        if transactional:
            return []
        if self.state is State.COMPLETING:
            raise RebalanceInProgress(f"group {self.id} waits for its assignment")
        return [Set(session(member_id), member.session_timeout_ms)]

    def rang(self, timer: tuple[str, str], now_ms: int) -> list[Effect]:
        """A timer has run out."""
        if self.state is State.DEAD:
            pass
        elif timer == JOIN_TIMER:
            self._join_time_is_up(now_ms)
        elif timer == SYNC_TIMER:
            self._sync_time_is_up(now_ms)
        else:
            self._session_is_over(timer[1], now_ms)
        return self._taken()

    def _session_is_over(self, member_id: str, now_ms: int) -> None:
        """Who waits for an answer is not expected to send anything, unless it is new."""
        if member_id in self.pending:
            self.pending.remove(member_id)
            self._complete_join_if_all_have(now_ms)
            return
        is_waiting = member_id in self.joining or member_id in self.syncing
        member = self.members.get(member_id)
        if member is not None and (member.is_new or not is_waiting):
            self._lose(member, _cause(What.SESSION_TIMED_OUT, member), now_ms)

    def _sync_time_is_up(self, now_ms: int) -> None:
        if self.state not in (State.COMPLETING, State.STABLE) or not self.unsynced:
            return
        before = len(self.members)
        late = [self.members[each] for each in sorted(self.unsynced)]
        for member in late:
            self._remove(member.id)
        self._rebalance([_cause(What.SYNC_TIMED_OUT, member) for member in late], before, now_ms)

    # Leaving

    def leave(self, leavers: Iterable[Leaver], now_ms: int) -> tuple[list[int], list[Effect]]:
        """An error code for each that leaves, in their order."""
        self._check_alive()
        codes = []
        for each in leavers:
            try:
                self._leave(each, now_ms)
                codes.append(0)
            except WireError as error:
                codes.append(error.code)
        return codes, self._taken()

    def _leave(self, leaver: Leaver, now_ms: int) -> None:
        if leaver.member_id in self.pending:
            self.pending.remove(leaver.member_id)
            self._do(End(session(leaver.member_id)))
            self._complete_join_if_all_have(now_ms)
            return
        member_id = leaver.member_id
        if member_id == NO_MEMBER and leaver.instance_id is not None:  # somebody else sends a static member away
            member_id = self.instances.get(leaver.instance_id, NO_MEMBER)
        member = self._member(member_id, leaver.instance_id if leaver.member_id != NO_MEMBER else None)
        self._lose(member, _cause(What.LEFT, member, leaver.reason), now_ms)

    def _lose(self, member: Member, cause: Cause, now_ms: int) -> None:
        before = len(self.members)
        self._remove(member.id)
        if self.state is State.PREPARING:
            self.history.add(cause)
            self._complete_join_if_all_have(now_ms)
        else:
            self._rebalance_if_settled(cause, before, now_ms)

    def _remove(self, member_id: str) -> None:
        self._answer_join(member_id, Joined(UnknownMemberId.code))
        self._answer_sync(member_id, Synced(UnknownMemberId.code))
        if (member := self.members.pop(member_id, None)) is not None:
            self._withdraw(member)
            if member.instance_id is not None:
                del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        self._do(End(session(member_id)))

    # The life of the group as a whole

    def load(
        self,
        generation: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader: str | None,
        since_ms: int | None,
        members: Iterable[Member],
    ) -> None:
        """As the journal knows it."""
        for member in members:
            self._put(member, protocol_type)
        self.state = State.STABLE if self.members else State.EMPTY
        self.generation, self.leader, self.since_ms = generation, leader, since_ms
        self.protocol_type, self.protocol_name = protocol_type or None, protocol_name
        if not self.is_consumers:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        elif protocol_name is not None:
            self.subscribed = subscribed_topics(self.members.values(), protocol_name)

    def loaded(self, now_ms: int) -> list[Effect]:
        """In use from now on: the sessions of its members begin anew."""
        if len(self.members) > self.limits.max_size:
            reason = f"{len(self.members)} members, and group.max.size={self.limits.max_size}"
            self._rebalance([Cause(What.OVER_CAPACITY, reason=reason)], len(self.members), now_ms)
        for member in self.members.values():
            self._do(Set(session(member.id), member.session_timeout_ms))
        return self._taken()

    def unload(self, now_ms: int) -> list[Effect]:
        """Another coordinator is responsible."""
        for member_id in list(self.joining):
            self._answer_join(member_id, Joined(NotCoordinator.code, member_id))
        for member_id in list(self.syncing):
            self._answer_sync(member_id, Synced(NotCoordinator.code))
        return self.die(now_ms)

    def die(self, now_ms: int) -> list[Effect]:
        self._enter(State.DEAD, now_ms)
        self._effects += [End(session(each)) for each in (*self.members, *self.pending)]
        self._effects += [End(JOIN_TIMER), End(SYNC_TIMER)]
        return self._taken()

    # Checks

    def _check_alive(self) -> None:
        if self.state is State.DEAD:
            raise CoordinatorNotAvailable(f"group {self.id} has just been deleted, or moved to another coordinator")

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"group {self.id} has no static member {instance_id!r}")
            if current != member_id:
                raise FencedInstanceId(f"{instance_id!r} of group {self.id} is member {current} now, not {member_id}")
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberId(f"group {self.id} has no member {member_id!r}")
        return found

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"group {self.id} is in generation {self.generation}, not {generation}")

    # Effects

    def _enter(self, state: State, now_ms: int) -> None:
        assert state in MAY_FOLLOW[self.state], f"{self.id}: {self.state} -> {state}"
        self.state, self.since_ms = state, now_ms

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _answer(self, ticket: Ticket, answer: Joined | Synced) -> None:
        self._effects.append(Answer(ticket, answer))

    def _answer_join(self, member_id: str, answer: Joined) -> None:
        if (ticket := self.joining.pop(member_id, None)) is not None:
            self._answer(ticket, answer)

    def _answer_sync(self, member_id: str, answer: Synced) -> None:
        """A member that waited is alive: its session begins anew."""
        if (ticket := self.syncing.pop(member_id, None)) is not None:
            self._answer(ticket, answer)
            self._do(Set(session(member_id), self.members[member_id].session_timeout_ms))

    def _taken(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects


def _cause(what: What, member: Member, reason: str | None = None) -> Cause:
    told = None if reason is None else reason[:LONGEST_REASON]
    return Cause(what, member.id, member.instance_id, member.client_id, member.client_host, told)
