"""A group under whatever may happen to it: nobody waits in vain, and what was written tells what it is."""

from collections import Counter
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
    CancelTimer,
    Effect,
    JoinResult,
    LeavingMember,
    SendReply,
    SetTimer,
    SyncResult,
    WriteGroup,
    session_timer,
)
from leadline.coordinator.group_member import JoinRequest, MemberProtocol
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_records import group_value, read_group
from leadline.coordinator.group_state import MAY_FOLLOW, GroupState
from leadline.errors import CoordinatorNotAvailable, WireError

MAX_SIZE = 4
PROTOCOLS = st.sampled_from(["a", "a", "ab", "ba", "abc", "b"]).map(
    lambda names: tuple(MemberProtocol(name, b"") for name in names)
)
WHICH = st.integers(0, 11)  # of the members, or of those that are about to be; a stranger now and then


class WatchedGroup(ClassicGroup):
    """Notes how it goes from state to state."""

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        super().__init__(group_id, limits, now_ms)
        self.moves: list[tuple[GroupState, GroupState]] = []

    def _enter(self, state: GroupState, now_ms: int) -> None:
        self.moves.append((self.state, state))
        super()._enter(state, now_ms)


class GroupMachine(RuleBasedStateMachine):
    """The shell around the group is this machine: it keeps the tickets, the timers and the journal."""

    @initialize(delay_ms=st.sampled_from([0, 1000]))
    def begin(self, delay_ms: int) -> None:
        self.group = WatchedGroup("g", GroupLimits(MAX_SIZE, delay_ms), 0)
        self.waiting: dict[int, tuple[type, str]] = {}  # tickets, with what they wait for, and who it is
        self.seasoned: set[str] = set()  # have been part of a generation
        self.timers: set[tuple[str, str]] = set()
        self.stores: list[tuple[WriteGroup, bytes]] = []  # written, not yet committed
        self.journal: bytes | None = None  # the last that is
        self.is_told = True  # the journal agrees with the group
        self.member_of_id = {"stranger": "stranger"}  # members by their ids: a static one is the same under all of its
        self.leaders: dict[int, str] = {}  # by generation
        self.generation = self.now = self.tickets = 0

    def one(self, which: int) -> str:
        ids = [*self.group.members, *sorted(self.group.pending_members), "stranger"]
        return ids[which % len(ids)]

    def ticket(self, kind: type, member_id: str) -> int:
        self.tickets += 1
        self.waiting[self.tickets] = kind, self.member_of_id[member_id]
        return self.tickets

    def carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendReply(ticket, answer):
                    kind, member = self.waiting.pop(ticket)  # KeyError: answered twice
                    assert kind is type(answer)
                    self.check(answer, member)
                case SetTimer(timer, _):
                    self.timers.add(timer)
                case CancelTimer(timer):
                    self.timers.discard(timer)
                case WriteGroup():
                    self.stores.append((effect, group_value(self.group, effect.assignments)))

    def check(self, answer: JoinResult | SyncResult, member: str) -> None:
        if answer.error:
            return
        if isinstance(answer, SyncResult):
            assert answer.assignment == f"{self.group.generation}:{member}".encode()
            return
        assert self.member_of_id[answer.member_id] == member
        self.seasoned.add(answer.member_id)
        if answer.leader == answer.member_id:
            assert self.leaders.setdefault(answer.generation, member) == member
            assert member in {self.member_of_id[member_id] for member_id, _, _ in answer.members}

    def attempt(self, ticket: int, request: JoinRequest, new_id: str) -> None:
        try:
            self.carry_out(self.group.join(request, new_id, ticket, self.now))
        except WireError:
            del self.waiting[ticket]

    def join_request(
        self, member_id: str, instance: str | None, protocols: tuple[MemberProtocol, ...], knows_ids: bool
    ) -> JoinRequest:
        return JoinRequest(
            member_id, instance, "client", "/host", 1000, 2000, "type", protocols, None, knows_ids, knows_ids
        )

    @rule(protocols=PROTOCOLS, knows_ids=st.booleans(), instance=st.sampled_from([None, None, "i", "k"]))
    def somebody_joins(self, protocols: tuple[MemberProtocol, ...], knows_ids: bool, instance: str | None) -> None:
        new_id = f"{instance or 'm'}-{self.tickets}"
        self.member_of_id[new_id] = instance or new_id
        needs_known_id = knows_ids and instance is None
        request = self.join_request("", instance, protocols, knows_ids)._replace(needs_known_id=needs_known_id)
        self.attempt(self.ticket(JoinResult, new_id), request, new_id)

    @rule(which=WHICH, protocols=st.none() | PROTOCOLS, named=st.booleans())
    def one_joins_again(self, which: int, protocols: tuple[MemberProtocol, ...] | None, named: bool) -> None:
        self.join_again(self.one(which), protocols, named)

    def join_again(self, member_id: str, protocols: tuple[MemberProtocol, ...] | None, named: bool) -> None:
        member = self.group.members.get(member_id)
        if protocols is None:
            protocols = member.protocols if member is not None else (MemberProtocol("a", b""),)
        instance = member.instance_id if member is not None and named else None
        self.attempt(
            self.ticket(JoinResult, member_id), self.join_request(member_id, instance, protocols, True), "unused"
        )

    @rule(which=WHICH, late=st.sampled_from([0, 0, 0, 1]))
    def one_syncs(self, which: int, late: int) -> None:
        self.sync(self.one(which), late)

    def sync(self, member_id: str, late: int = 0) -> None:
        ticket, generation = self.ticket(SyncResult, member_id), self.group.generation - late
        assignments = {member: f"{generation}:{self.member_of_id[member]}".encode() for member in self.group.members}
        try:
            self.carry_out(self.group.sync(member_id, None, generation, None, None, assignments, ticket))
        except WireError:
            del self.waiting[ticket]

    @rule(which=WHICH)
    def one_is_heard_of(self, which: int) -> None:
        member_id = self.one(which)
        try:
            code, effects = self.group.heartbeat(member_id, None, self.group.generation)
        except WireError:
            assert member_id not in self.group.members
        else:
            assert (code != 0) == (self.group.state is GroupState.PREPARING)
            self.carry_out(effects)

    @rule(which=WHICH)
    def one_leaves(self, which: int) -> None:
        member_id = self.one(which)
        is_member = member_id in self.group.members or member_id in self.group.pending_members
        (code,), effects = self.group.leave([LeavingMember(member_id)], self.now)
        assert (code == 0) == is_member
        self.carry_out(effects)

    @rule(data=st.data())
    def a_timer_rings(self, data: st.DataObject) -> None:
        if self.timers:
            self.ring(data.draw(st.sampled_from(sorted(self.timers))))

    def ring(self, timer: tuple[str, str]) -> None:
        waits = {timer[1]} & (self.group.joining.keys() | self.group.syncing.keys()) & self.seasoned
        self.timers.remove(timer)
        self.now += 1000
        self.carry_out(self.group.timer_expired(timer, self.now))
        assert waits <= self.group.members.keys()  # who waits for us is not blamed for its silence

    @rule(without=st.none() | st.integers(0, 5))
    def all_join_and_sync(self, without: int | None) -> None:
        """All but one, perhaps."""
        for member_id in list(self.group.members):
            if member_id not in self.group.joining:
                self.join_again(member_id, None, True)
        if JOIN_TIMER in self.timers:
            self.ring(JOIN_TIMER)
        for member_id in [member for n, member in enumerate(self.group.members) if n != without]:
            self.sync(member_id)
        while self.stores:
            self.the_journal_answers(False)

    @rule(fails=st.sampled_from([False, False, False, True]))
    def the_journal_answers(self, fails: bool) -> None:
        if not self.stores:
            return
        store, value = self.stores.pop(0)
        error = CoordinatorNotAvailable("no disk") if fails else None
        if fails:
            self.is_told = False
        else:
            self.journal, self.is_told = value, True
        self.carry_out(self.group.written(store, error, self.now))

    @invariant()
    def whoever_waits_is_known_to_wait(self) -> None:
        tickets = [*self.group.joining.values(), *self.group.syncing.values()]
        assert Counter(tickets) == Counter(self.waiting.keys())
        assert self.group.joining.keys() <= self.group.members.keys()
        assert self.group.syncing.keys() <= self.group.members.keys()
        assert not self.group.syncing or self.group.state is GroupState.COMPLETING

    @invariant()
    def a_timer_is_set_for_all_that_may_take_forever(self) -> None:
        group = self.group
        members = {name for kind, name in self.timers if kind == "member"}
        assert members <= group.members.keys() | group.pending_members
        silent = group.members.keys() - group.joining.keys() - group.syncing.keys()
        assert members >= {member for member in silent | group.pending_members if session_timer(member)}
        assert (group.state is GroupState.PREPARING) == (JOIN_TIMER in self.timers)
        assert bool(group.unsynced) == (SYNC_TIMER in self.timers)

    @invariant()
    def it_moves_along_the_table_and_its_generation_grows(self) -> None:
        assert all(after in MAY_FOLLOW[before] for before, after in self.group.moves)
        self.group.moves.clear()
        assert self.group.generation >= self.generation
        self.generation = self.group.generation

    @invariant()
    def what_it_knows_agrees(self) -> None:
        group = self.group
        assert (not group.members) == (group.state is GroupState.EMPTY or (not group.members and group.leader is None))
        assert group.leader in group.members if group.members else group.leader is None
        named = {member.instance_id: member.id for member in group.members.values() if member.instance_id is not None}
        assert group.static_members == named
        supporters = Counter(p.name for member in group.members.values() for p in member.protocols)
        assert group._supporters == supporters
        assert all(member_id == member.id for member_id, member in group.members.items())

    @invariant()
    def no_more_members_than_allowed_are_part_of_a_generation(self) -> None:
        if self.group.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert len(self.group.members) <= MAX_SIZE

    @invariant()
    def what_was_written_tells_what_it_is(self) -> None:
        group = self.group
        if self.stores or not self.is_told or group.state not in (GroupState.STABLE, GroupState.EMPTY):
            return
        loaded = ClassicGroup("g", group.limits, 0)
        if self.journal is not None:
            read_group(self.journal, loaded)
        assert (loaded.generation, loaded.state, loaded.leader) == (group.generation, group.state, group.leader)
        assert (loaded.protocol_name, loaded.subscribed) == (group.protocol_name, group.subscribed)
        chosen = {
            member.id: replace(member, protocols=(MemberProtocol(group.protocol_name or "", member.metadata("a")),))
            for member in group.members.values()
        }
        assert loaded.members == chosen

    def teardown(self) -> None:
        """However long it takes: in the end everybody has got an answer."""
        for _ in range(100):
            if not self.waiting:
                return
            for store, _value in self.stores[:]:
                self.carry_out(self.group.written(store, None, self.now))
            self.stores.clear()
            for timer in sorted(self.timers):
                if timer in self.timers:
                    self.ring(timer)
        raise AssertionError(f"{len(self.waiting)} still wait")


TestAGroup = GroupMachine.TestCase
TestAGroup.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
