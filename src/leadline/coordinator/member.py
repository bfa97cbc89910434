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


class Protocol(NamedTuple):
    """A way to share the work, e.g. an assignor of consumers, and what a member has to say for it."""

    name: str
    metadata: bytes


class Join(NamedTuple):
    """What a member that joins says of itself."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    reason: str | None = None
    needs_known_id: bool = False  # a new one is told its id first, and joins with it
    may_skip_assignment: bool = False  # a leader that returns need not assign anew


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None  # static members keep their place across restarts by it
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]  # the preferred one first
    assignment: bytes = b""
    is_new: bool = False  # has not been part of a generation yet

    @classmethod
    def of(cls, asked: Join, member_id: str) -> "Member":
        return cls(
            member_id,
            asked.instance_id,
            asked.client_id,
            asked.client_host,
            asked.rebalance_timeout_ms,
            asked.session_timeout_ms,
            asked.protocols,
            is_new=True,
        )

    def update(self, asked: Join) -> None:
        self.protocols = asked.protocols
        self.rebalance_timeout_ms, self.session_timeout_ms = asked.rebalance_timeout_ms, asked.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Collection[str]) -> str:
        return next(each.name for each in self.protocols if each.name in candidates)


def names(protocols: Iterable[Protocol]) -> frozenset[str]:
    return frozenset(each.name for each in protocols)


def elected(members: Collection[Member], candidates: Collection[str]) -> str:
    """The protocol with most votes; among equals, the first that Kafka's hash table hands out."""
    votes = Counter(member.vote(candidates) for member in members)
    return max(hash_order.trie(votes, hash_order.string_hash), key=votes.__getitem__)


def subscribed_topics(members: Iterable[Member], protocol: str) -> frozenset[str] | None:
    """What consumers subscribe to; None if their metadata is not that of consumers."""
    topics: set[str] = set()
    try:
        for member in members:
            found, _ = decode_from(ConsumerProtocolSubscription, member.metadata(protocol), 0, _VERSION_BYTES)
            topics.update(found.topics)
    except MalformedRequest:
        return None
    return frozenset(topics)
