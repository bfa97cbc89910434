"""A classic group with the simplest shell around it."""

from collections.abc import Callable
from itertools import count

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_effects import (
    JOIN_TIMER,
    Effect,
    JoinResult,
    LeavingMember,
    SendReply,
    SetTimer,
    SyncResult,
    WriteGroup,
)
from leadline.coordinator.group_member import JoinRequest, MemberProtocol
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_state import GroupState
from leadline.errors import (
    CoordinatorNotAvailable,
)
from leadline.wire.codec import to_bytes
from leadline.wire.messages import ConsumerProtocolSubscription

TOPIC = b"\0\0" + to_bytes(ConsumerProtocolSubscription(topics=["t"]), 0)
NOW = 1000
DELAY_MS = 3000


class GroupShell:
    """A group with the simplest shell: a write is committed at once, and the test expires timers."""

    def __init__(self, max_size: int = 100) -> None:
        self.group = ClassicGroup("g", GroupLimits(max_size, DELAY_MS), NOW)
        self.replies: dict[int, JoinResult | SyncResult] = {}
        self.timers: dict[tuple[str, str], int] = {}
        self.stored: list[WriteGroup] = []
        self.request_ids = count(1)
        self.error: CoordinatorNotAvailable | None = None  # of writes
        self.meanwhile: Callable[[], None] = lambda: None  # happens during a write

    def do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendReply):
                assert effect.request_id not in self.replies
                self.replies[effect.request_id] = effect.result
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
        needs_known_id: bool = False,
        skips: bool = False,
    ) -> int:
        supported = tuple(MemberProtocol(name, TOPIC) for name in protocols)
        request = JoinRequest(
            member_id, instance, "c", "/h", 10_000, 60_000, "consumer", supported, "why not", needs_known_id, skips
        )
        request_id = next(self.request_ids)
        self.do(self.group.join(request, new_id, request_id, NOW))
        return request_id

    def sync(self, member_id: str, **assignments: bytes) -> int:
        request_id = next(self.request_ids)
        self.do(self.group.sync(member_id, None, self.group.generation, None, None, assignments, request_id))
        return request_id

    def expire(self, timer: tuple[str, str]) -> None:
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
            self.expire(JOIN_TIMER)
        for member_id in reversed(ids):
            self.sync(member_id, **{id: id.encode() for id in ids})
        assert self.group.state is GroupState.STABLE
