"""A member of a group, and the election of the group's protocol.

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

CONSUMER = "consumer"  # the protocol type of consumers, whose metadata is a subscription
NO_MEMBER = ""
_VERSION_BYTES = 2  # before a subscription; the fields read here are the same in all versions


class MemberProtocol(NamedTuple):
    """A protocol that a member supports, such as a consumer's assignor, with the member's metadata for it."""

    name: str
    metadata: bytes


class JoinRequest(NamedTuple):
    """The JoinGroup request of a member."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    reason: str | None = None
    needs_known_id: bool = False  # a new member first gets its id, then joins with it
    may_skip_assignment: bool = False  # a static leader that rejoins need not send a new assignment


@dataclass(slots=True)
class GroupMember:
    id: str
    instance_id: str | None  # of a static member, which keeps its place across restarts
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
        return next((supported.metadata for supported in self.protocols if supported.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        return next(supported.name for supported in self.protocols if supported.name in candidates)


def protocol_names(protocols: Iterable[MemberProtocol]) -> frozenset[str]:
    return frozenset(protocol.name for protocol in protocols)


def elected_protocol(members: Collection[GroupMember], candidates: Collection[str]) -> str:
    """The protocol with most votes; of several, the first one in the order of Kafka's hash table."""
    votes = Counter(member.vote(candidates) for member in members)
    return max(hash_order.trie(votes, hash_order.string_hash), key=votes.__getitem__)


def subscribed_topics(members: Iterable[GroupMember], protocol: str) -> frozenset[str] | None:
    """The topics that consumers subscribe to; None if the metadata of a member is not a subscription."""
    topics: set[str] = set()
    try:
        for member in members:
            subscription, _ = decode_from(ConsumerProtocolSubscription, member.metadata(protocol), 0, _VERSION_BYTES)
            topics.update(subscription.topics)
    except MalformedRequest:
        return None
    return frozenset(topics)
