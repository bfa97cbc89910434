"""The effects of an event on a group: replies to send, timers to set, records to write.

Effects are carried out in their order. A timer belongs to a member's session, or to the group's join or sync phase.
Setting a timer again replaces it.

Pure: values only.
"""

from collections.abc import Mapping
from typing import NamedTuple

from leadline.coordinator.group_member import NO_MEMBER, GroupMember

NO_GENERATION = -1

RequestId = int  # of a join or sync that waits for its reply


class JoinResult(NamedTuple):
    """The result of a JoinGroup request."""

    error: int = 0
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # id, instance id and metadata; for the leader only


class SyncResult(NamedTuple):
    """The result of a SyncGroup request."""

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
    """A static member that rejoins without a rebalance."""

    request_id: RequestId
    before: GroupMember
    member: GroupMember
    leader: str | None  # before the member rejoined
    may_skip_assignment: bool


class WriteGroup(NamedTuple):
    """Write the group as it is, with these assignments; then call `ClassicGroup.written`."""

    generation: int
    assignments: Mapping[str, bytes]
    rejoin: StaticMemberRejoin | None = None


Effect = SendReply | SetTimer | CancelTimer | WriteGroup


class LeavingMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    reason: str | None = None


def session_timer(member_id: str) -> tuple[str, str]:
    """The timer of a member's session. It is a pair, so that no member id can equal the name of another timer."""
    return "member", member_id


JOIN_TIMER, SYNC_TIMER = ("group", "join"), ("group", "sync")
