"""What a group answers, and what it wants done.

Effects are carried out in their order. A timer is named by the member whose session it is, or as the group's for joins
or syncs; to set one again replaces it.

Pure: values only.
"""

from collections.abc import Mapping
from typing import NamedTuple

from leadline.coordinator.group_member import NO_MEMBER, GroupMember

NO_GENERATION = -1

RequestId = int  # who waits for an answer


class JoinResult(NamedTuple):
    """The answer to a join."""

    error: int = 0
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # id, instance and metadata, for the leader alone


class SyncResult(NamedTuple):
    """The answer to a sync."""

    error: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class SendReply(NamedTuple):
    request_id: RequestId
    result: JoinResult | SyncResult


class SetTimer(NamedTuple):
    timer: tuple[str, str]
    after_ms: int


class CancelTimer(NamedTuple):
    timer: tuple[str, str]


class StaticMemberRejoin(NamedTuple):
    """A static member that takes its place again, while all others go on."""

    request_id: RequestId
    before: GroupMember
    member: GroupMember
    leader: str | None  # before it returned
    may_skip_assignment: bool


class WriteGroup(NamedTuple):
    """Write the group as it is, with these assignments; then say so: `stored`."""

    generation: int
    assignments: Mapping[str, bytes]
    rejoin: StaticMemberRejoin | None = None


Effect = SendReply | SetTimer | CancelTimer | WriteGroup


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


def session_timer(member_id: str) -> tuple[str, str]:
    """The timer of a member's session. Members choose no names of timers: hence the pair."""
    return "member", member_id


JOIN_TIMER, SYNC_TIMER = ("group", "join"), ("group", "sync")
