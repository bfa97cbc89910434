"""Members and coordinators of groups as text and JSON, and the refusal of active groups."""

import pytest

from leadline.admin.diagnosis import ServerAddress
from leadline.admin.errors import Failure
from leadline.admin.group import GroupDescription, MemberDescription, node_json, node_text, refuse_active
from leadline.model import TopicPartition

BROKERS = {1: ServerAddress("here", 9092)}


def member(n: int, *partitions: int, assignment: bytes = b"") -> MemberDescription:
    assigned = [TopicPartition("orders", partition) for partition in partitions]
    return MemberDescription(f"reader-{n}-id", f"reader-{n}", "/127.0.0.1", None, assigned, assignment)


def group(*members: MemberDescription) -> GroupDescription:
    return GroupDescription("billing", "Stable", "consumer", "range", 1, list(members))


@pytest.mark.parametrize(
    ("described", "text"),
    [
        (member(0, 0, 1, 4, assignment=b"\x00\x01"), "orders:0-1,4"),
        (member(0, assignment=b"task-7"), "task-7"),
        (member(0, assignment=b"task\n7"), "6 B of its protocol"),
        (member(0, assignment=b"\xff\x00\x01"), "3 B of its protocol"),
        (member(0), "none"),
    ],
)
def test_an_assignment_is_partitions_or_printable_text_or_a_size(described: MemberDescription, text: str) -> None:
    assert described.assignment_text == text


def test_a_coordinator_without_metadata_has_only_an_id() -> None:
    assert (node_text(1, BROKERS), node_text(2, BROKERS)) == ("here:9092 (1)", "broker 2")
    assert (node_json(1, BROKERS), node_json(2, BROKERS)) == ({"id": 1, "host": "here", "port": 9092}, {"id": 2})


def test_an_active_group_is_refused_with_the_names_of_its_members() -> None:
    refuse_active(group(), "reset")
    with pytest.raises(Failure, match=r"until its members stop: reader-0 on /127.0.0.1 \(reader-0-id\), .* and 2 more"):
        refuse_active(group(*(member(n) for n in range(7))), "reset")
