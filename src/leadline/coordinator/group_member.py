"""A member of a group, and how members agree on a protocol.

Pure: values only.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from leadline import hash_order
from leadline.wire.codec import decode_from
from leadline.wire.messages import ConsumerProtocolSubscription
from leadline.wire.primitives import MalformedRequest

CONSUMER = "consumer"  # the protocol type whose metadata we can read: subscriptions
NO_MEMBER = ""
_VERSION_BYTES = 2  # in front of a subscription; what is read is the same in all versions


class MemberProtocol(NamedTuple):
    """A way to share the work, e.g. an assignor of consumers, and what a member has to say for it."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """What a member that joins says of itself."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    reason: str | None = None
    needs_known_id: bool = False  # a new one is told its id first, and joins with it
    may_skip_assignment: bool = False  # a leader that returns need not assign anew


@dataclass(slots=True)
class GroupMember:
    id: str
    instance_id: str | None  # static members keep their place across restarts by it
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]  # the preferred one first
    assignment: bytes = b""
    is_new: bool = False  # has not been part of a generation yet

    @classmethod
    def of(cls, request: JoinRequest, member_id: str) -> "GroupMember":
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )

    def update(self, request: JoinRequest) -> None:
        self.protocols = request.protocols
        self.rebalance_timeout_ms, self.session_timeout_ms = request.rebalance_timeout_ms, request.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        return next(each.name for each in self.protocols if each.name in candidates)


def protocol_names(protocols: Iterable[MemberProtocol]) -> frozenset[str]:
    return frozenset(each.name for each in protocols)


def elected_protocol(members: Collection[GroupMember], candidates: Collection[str]) -> str:
    """The protocol with most votes; among equals, the first that Kafka's hash table hands out."""
    votes = Counter(member.vote(candidates) for member in members)
    return max(hash_order.trie(votes, hash_order.string_hash), key=votes.__getitem__)


def subscribed_topics(members: Iterable[GroupMember], protocol: str) -> frozenset[str] | None:
    """What consumers subscribe to; None if their metadata is not that of consumers."""
    topics: set[str] = set()
    try:
        for member in members:
            found, _ = decode_from(ConsumerProtocolSubscription, member.metadata(protocol), 0, _VERSION_BYTES)
            topics.update(found.topics)
    except MalformedRequest:
        return None
    return frozenset(topics)
