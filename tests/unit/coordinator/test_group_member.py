"""Members of a group, their votes and their subscriptions."""

from leadline.coordinator.group_member import (
    GroupMember,
    JoinRequest,
    MemberProtocol,
    elected_protocol,
    protocol_names,
    subscribed_topics,
)
from leadline.wire.codec import to_bytes
from leadline.wire.messages import ConsumerProtocolSubscription


def member(id: str, *protocols: tuple[str, bytes]) -> GroupMember:
    supported = tuple(MemberProtocol(name, metadata) for name, metadata in protocols)
    return GroupMember.of(JoinRequest("", None, "client", "/h", 10, 20, "consumer", supported), id)


def subscription(*topics: str) -> bytes:
    return b"\0\0" + to_bytes(ConsumerProtocolSubscription(topics=list(topics)), 0)


def test_a_member_is_new_and_has_what_its_request_says() -> None:
    joined = member("m", ("range", b"r"))
    assert (joined.id, joined.session_timeout_ms, joined.rebalance_timeout_ms) == ("m", 10, 20)
    assert joined.is_new
    assert (joined.metadata("range"), joined.metadata("other"), joined.metadata(None)) == (b"r", b"", b"")


def test_a_member_votes_for_the_first_candidate_that_it_supports() -> None:
    assert member("m", ("a", b""), ("b", b""), ("c", b"")).vote({"c", "b"}) == "b"


def test_the_protocol_with_most_votes_is_elected() -> None:
    members = [member("1", ("a", b""), ("b", b"")), member("2", ("b", b""), ("a", b"")), member("3", ("b", b""))]
    assert elected_protocol(members, {"a", "b"}) == "b"
    assert protocol_names(members[0].protocols) == {"a", "b"}


def test_a_group_subscribes_to_the_topics_of_all_its_members() -> None:
    members = [member("1", ("range", subscription("t", "u"))), member("2", ("range", subscription("u", "v")))]
    assert subscribed_topics(members, "range") == frozenset({"t", "u", "v"})


def test_subscriptions_are_unknown_if_the_metadata_of_one_member_is_none() -> None:
    members = [member("1", ("range", subscription("t"))), member("2", ("range", b"\0\0\0"))]
    assert subscribed_topics(members, "range") is None
