"""One group: what it decides, seen by its effects."""

from collections.abc import Callable
from itertools import count

import pytest

from leadline.coordinator.classic_group import NEW_MEMBER_MS, ClassicGroup
from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    SYNC_TIMER,
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
from leadline.coordinator.group_rebalance import MIN_JOIN_WAIT_MS, GroupLimits
from leadline.coordinator.group_state import MAY_FOLLOW, GroupState
from leadline.coordinator.rebalance_history import RebalanceOutcome, RebalanceReason
from leadline.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    MemberIdRequired,
    NonEmptyGroup,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMemberId,
)
from leadline.model import TopicPartition
from leadline.wire.codec import to_bytes
from leadline.wire.messages import ConsumerProtocolSubscription

TOPIC = b"\0\0" + to_bytes(ConsumerProtocolSubscription(topics=["t"]), 0)
NOW = 1000
DELAY_MS = 3000


class Life:
    """A group with a shell as simple as can be: what is written is safe at once, and timers ring when told to."""

    def __init__(self, max_size: int = 100) -> None:
        self.group = ClassicGroup("g", GroupLimits(max_size, DELAY_MS), NOW)
        self.answers: dict[int, JoinResult | SyncResult] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.stored: list[WriteGroup] = []
        self.tickets = count(1)
        self.error: CoordinatorNotAvailable | None = None  # of what is written
        self.meanwhile: Callable[[], None] = lambda: None  # happens while it is written

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendReply):
                assert effect.request_id not in self.answers
                self.answers[effect.request_id] = effect.result
            elif isinstance(effect, SetTimer):
                self.timers[effect.timer] = effect.after_ms
            elif isinstance(effect, WriteGroup):
                self.stored.append(effect)
                self.meanwhile()
                self.do(self.group.written(effect, self.error, NOW))
            else:
                self.timers.pop(effect.timer, None)

    def join(
        self,
        member_id: str = "",
        new_id: str = "",
        instance: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        known: bool = False,
        skips: bool = False,
    ) -> int:
        told = tuple(MemberProtocol(name, TOPIC) for name in protocols)
        asked = JoinRequest(member_id, instance, "c", "/h", 10_000, 60_000, "consumer", told, "why not", known, skips)
        ticket = next(self.tickets)
        self.do(self.group.join(asked, new_id, ticket, NOW))
        return ticket

    def sync(self, member_id: str, **assignments: bytes) -> int:
        ticket = next(self.tickets)
        self.do(self.group.sync(member_id, None, self.group.generation, None, None, assignments, ticket))
        return ticket

    def ring(self, timer: tuple[str, str]) -> None:
        del self.timers[timer]
        self.do(self.group.timer_expired(timer, NOW))

    def leave(self, member_id: str, instance: str | None = None) -> int:
        (code,), effects = self.group.leave([LeavingMember(member_id, instance)], NOW)
        self.do(effects)
        return code

    def settle(self, *ids: str, instance: str | None = None) -> None:
        """A stable generation of these members; the first one leads."""
        for member_id in ids:
            self.join(new_id=member_id, instance=instance)
        while JOIN_TIMER in self.timers:
            self.ring(JOIN_TIMER)
        for member_id in reversed(ids):
            self.sync(member_id, **{each: each.encode() for each in ids})
        assert self.group.state is GroupState.STABLE


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_group_moves_along_the_table_and_not_otherwise(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g", GroupLimits(1, 0), NOW)
    group.state = before
    if after in MAY_FOLLOW[before]:
        group._enter(after, NOW + 1)
        assert (group.state, group.state_since_ms) == (after, NOW + 1)
    else:
        with pytest.raises(AssertionError):
            group._enter(after, NOW + 1)


def test_a_new_member_is_told_its_id_first() -> None:
    life = Life()
    ticket = life.join(new_id="m", known=True)
    assert life.answers[ticket] == JoinResult(MemberIdRequired.code, "m")
    assert life.timers == {session_timer("m"): 10_000}
    life.join("m", known=True)
    assert life.timers[session_timer("m")] == NEW_MEMBER_MS
    assert life.timers[JOIN_TIMER] == DELAY_MS


def test_a_new_group_waits_longer_while_more_members_come() -> None:
    life = Life()
    first = life.join(new_id="a")
    second = life.join(new_id="b")
    life.ring(JOIN_TIMER)
    assert life.timers[JOIN_TIMER] == DELAY_MS
    assert not life.answers
    life.ring(JOIN_TIMER)
    assert {life.answers[ticket].error for ticket in (first, second)} == {0}
    assert life.group.generation == 1


def test_a_new_group_waits_no_longer_than_its_members_would() -> None:
    life = Life()
    life.join(new_id="a")
    delays = [life.timers[JOIN_TIMER]]
    for n in range(100):
        life.join(new_id=f"b{n}")
        life.ring(JOIN_TIMER)
        if JOIN_TIMER not in life.timers:
            break
        delays.append(life.timers[JOIN_TIMER])
    assert sum(delays) <= 60_000 + DELAY_MS
    assert life.group.state is GroupState.COMPLETING


def test_each_gets_what_the_leader_assigned() -> None:
    life = Life()
    tickets = [life.join(new_id=each) for each in "ab"]
    life.ring(JOIN_TIMER)
    life.ring(JOIN_TIMER)
    leader, follower = (life.answers[ticket] for ticket in tickets)
    assert isinstance(leader, JoinResult)
    assert isinstance(follower, JoinResult)
    assert [told[0] for told in leader.members] == ["a", "b"]
    assert follower.members == ()
    waits = life.sync("b")
    assert waits not in life.answers
    life.sync("a", a=b"1", b=b"2")
    assert life.answers[waits] == SyncResult(0, "consumer", "range", b"2")
    assert life.stored[-1].assignments == {"a": b"1", "b": b"2"}
    assert SYNC_TIMER not in life.timers


def test_an_assignment_that_cannot_be_written_is_not_handed_out() -> None:
    life = Life()
    life.join(new_id="a")
    life.ring(JOIN_TIMER)
    life.error = CoordinatorNotAvailable("the disk is full")
    ticket = life.sync("a", a=b"1")
    assert life.answers[ticket] == SyncResult(CoordinatorNotAvailable.code)
    assert life.group.state is GroupState.PREPARING
    assert life.group.rebalances.rebalances[-1].causes[0].what is RebalanceReason.NOT_STORED


def test_who_sends_two_joins_gets_two_answers() -> None:
    life = Life()
    life.settle("a", "b")
    first, second = life.join("a"), life.join("a")
    assert life.answers[first] == JoinResult(RebalanceInProgress.code, "a")
    assert second not in life.answers
    life.join("b")
    assert life.answers[second].error == 0


def test_who_leaves_while_it_syncs_is_answered() -> None:
    life = Life()
    life.settle("a", "b")
    life.join("a")
    life.join("b")
    ticket = life.sync("b")
    assert life.leave("b") == 0
    assert life.answers[ticket] == SyncResult(UnknownMemberId.code)


def test_a_static_leader_that_returns_keeps_its_generation() -> None:
    life = Life()
    life.settle("a-1", instance="a")
    ticket = life.join(new_id="a-2", instance="a", skips=True)
    joined = life.answers[ticket]
    assert isinstance(joined, JoinResult)
    assert (joined.generation, joined.leader, joined.skip_assignment) == (1, "a-2", True)
    ticket = life.join(new_id="a-3", instance="a")
    joined = life.answers[ticket]
    assert isinstance(joined, JoinResult)
    assert (joined.leader, joined.skip_assignment, joined.members) == ("a-2", False, ())
    assert session_timer("a-1") not in life.timers
    assert isinstance(synced := life.answers[life.sync("a-3")], SyncResult)
    assert synced.assignment == b"a-1"
    with pytest.raises(FencedInstanceId):
        life.group.heartbeat("a-2", "a", 1)


def test_a_static_member_that_cannot_be_written_has_not_returned() -> None:
    life = Life()
    life.settle("a-1", instance="a")
    life.error = CoordinatorNotAvailable("the disk is full")
    ticket = life.join(new_id="a-2", instance="a", protocols=("range", "sticky"))
    assert life.answers[ticket].error == CoordinatorNotAvailable.code
    assert life.group.static_members == {"a": "a-1"}
    assert life.group.heartbeat("a-1", "a", 1)[0] == 0
    assert life.timers[session_timer("a-1")] == 10_000


def test_a_static_member_whose_session_ran_out_while_it_was_written_has_another() -> None:
    life = Life()
    life.settle("a-1", instance="a")
    life.meanwhile = lambda: life.ring(session_timer("a-2"))
    ticket = life.join(new_id="a-2", instance="a")
    assert life.answers[ticket].error == 0
    assert life.timers == {session_timer("a-2"): 10_000}


def test_a_static_member_that_is_replaced_before_it_synced_must_sync_under_its_new_id() -> None:
    life = Life()
    life.join(new_id="b")
    life.join(new_id="a-1", instance="a")
    life.ring(JOIN_TIMER)
    life.ring(JOIN_TIMER)
    life.sync("b")
    assert life.group.state is GroupState.STABLE
    life.join(new_id="a-2", instance="a")
    assert life.group.unsynced == {"a-2"}
    life.sync("a-2")
    assert SYNC_TIMER not in life.timers


def test_static_members_are_waited_for() -> None:
    life = Life()
    life.settle("a-1", instance="a")
    life.join("a-1", instance="a")
    life.sync("a-1")
    life.join(new_id="b")
    life.ring(JOIN_TIMER)
    assert life.group.members.keys() == {"a-1", "b"}
    assert life.group.leader == "b"


def test_only_silent_static_members_make_no_generation() -> None:
    life = Life()
    life.settle("a-1", instance="a")
    ticket = life.join(new_id="b")
    life.leave("b")
    assert life.answers[ticket] == JoinResult(UnknownMemberId.code)
    life.ring(JOIN_TIMER)
    assert (life.group.generation, life.timers[JOIN_TIMER]) == (1, 60_000)
    life.group.members["a-1"].rebalance_timeout_ms = 0
    life.ring(JOIN_TIMER)
    assert life.timers[JOIN_TIMER] == MIN_JOIN_WAIT_MS


def test_a_full_group_takes_nobody_in() -> None:
    life = Life(max_size=1)
    life.settle("a")
    assert life.answers[life.join(new_id="b")] == JoinResult(GroupMaxSizeReached.code)
    assert life.group.state is GroupState.STABLE


def test_a_group_that_is_loaded_with_too_many_members_rebalances() -> None:
    life = Life()
    life.settle("a", "b")
    small = Life(max_size=1)
    members = life.group.members.values()
    small.group.load(5, "consumer", "range", "a", NOW, members)
    small.do(small.group.loaded(NOW))
    assert small.group.state is GroupState.PREPARING
    assert {session_timer("a"), session_timer("b"), JOIN_TIMER} == small.timers.keys()
    small.join("a")
    assert small.answers[small.join("b")] == JoinResult(GroupMaxSizeReached.code)
    assert small.group.members.keys() == {"a"}
    assert small.group.generation == 6


def test_who_waits_is_not_expelled_but_who_is_silent_is() -> None:
    life = Life()
    life.settle("a", "b")
    life.join("a")
    life.ring(session_timer("a"))
    assert "a" in life.group.members
    life.ring(session_timer("b"))
    assert life.group.members.keys() == {"a"}
    assert life.group.generation == 2


def test_another_coordinator_answers_from_now_on() -> None:
    life = Life()
    life.settle("a", "b")
    ticket = life.join("a")
    life.do(life.group.unload(NOW))
    assert life.answers[ticket] == JoinResult(NotCoordinator.code, "a")
    assert not life.timers
    with pytest.raises(CoordinatorNotAvailable):
        life.group.heartbeat("a", None, 2)


def test_only_members_of_the_generation_commit() -> None:
    life = Life()
    assert life.group.check_commit("", None, -1, transactional=False) == []
    life.settle("a")
    assert life.group.check_commit("a", None, 1, transactional=False) == [SetTimer(session_timer("a"), 10_000)]
    assert life.group.check_commit("", None, -1, transactional=True) == []
    for member_id, generation, error in (
        ("", -1, UnknownMemberId),
        ("a", 0, IllegalGeneration),
        ("b", 1, UnknownMemberId),
    ):
        with pytest.raises(error):
            life.group.check_commit(member_id, None, generation, transactional=False)
    life.join("a")
    assert life.group.state is GroupState.COMPLETING
    with pytest.raises(RebalanceInProgress):
        life.group.check_commit("a", None, 2, transactional=False)


def test_offsets_that_nobody_reads_may_be_deleted() -> None:
    life = Life()
    read, unread = TopicPartition("t", 0), TopicPartition("u", 0)
    life.settle("a")
    assert life.group.check_offset_deletion([read, unread]) == {read: 86, unread: 0}
    with pytest.raises(NonEmptyGroup):
        life.group.check_deletion()
    life.leave("a")
    assert life.group.check_offset_deletion([read, unread]) == {read: 0, unread: 0}
    life.group.check_deletion()


def test_the_history_tells_who_came_who_went_and_how_long_it_took() -> None:
    life = Life()
    life.settle("a", "b")
    life.leave("b")
    first, second = life.group.rebalances.rebalances
    assert [(cause.what, cause.member_id) for cause in first.causes] == [
        (RebalanceReason.JOINED, "a"),
        (RebalanceReason.JOINED, "b"),
    ]
    assert (first.outcome, first.members_before, first.members_after) == (RebalanceOutcome.STABLE, 0, 2)
    assert (second.state, second.causes[0].what, second.outcome) == ("Stable", RebalanceReason.LEFT, None)
    life.join("a")
    life.join("a", protocols=("range", "sticky"))
    assert (second.outcome, second.generation_after) == (RebalanceOutcome.INTERRUPTED, 2)
    told = life.group.rebalances.rebalances[-1].to_json()
    assert told["causes"] == [
        {
            "what": "metadata changed",
            "member_id": "a",
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "reason": "why not",
        }
    ]
    assert (told["generation_before"], told["took_ms"]) == (2, None)
