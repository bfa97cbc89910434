"""Responses about groups become our own types."""

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition as KafkaTopicPartition  # type: ignore[import-untyped]
from kafka.errors import GroupSubscribedToTopicError, NoError  # type: ignore[import-untyped]
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment  # type: ignore[import-untyped]

from leadline.admin.errors import Failure
from leadline.admin.group import GroupListing
from leadline.admin.kafka_python.groups import delete_offsets, describe_group, list_groups
from leadline.model import TopicPartition
from tests.support.kafka_python_client import answering_admin


def test_groups_of_all_answering_brokers_are_sorted_by_name() -> None:
    def listing(broker_ids: list[int], states_filter: list[str] | None) -> list[dict[str, Any]]:
        assert states_filter == ["Empty"]
        name = {1: "zebra", 2: "apple"}[broker_ids[0]]
        return [{"group_id": name, "group_state": None if name == "apple" else "Empty", "protocol_type": "consumer"}]

    admin = answering_admin(brokers=(1, 2, 3), silent={3: "silent"}, list_groups=listing)
    assert list_groups(admin, ["Empty"]) == [
        GroupListing("apple", "Unknown", "consumer", 2),
        GroupListing("zebra", "Empty", "consumer", 1),
    ]


def described(protocol_type: str, assignment: bytes, error_code: int = 0) -> dict[str, Any]:
    member = SimpleNamespace(
        member_id="m-1", client_id="m", client_host="/here", group_instance_id=None, member_assignment=assignment
    )
    group = SimpleNamespace(
        error_code=error_code,
        group_state="Stable",
        protocol_type=protocol_type,
        protocol_data="range",
        members=[member],
    )
    return {
        "_find_coordinator_id": lambda key, kind: 2,
        "send": lambda request, broker: SimpleNamespace(groups=[group]),
    }


def assignment_of(*partitions: int) -> bytes:
    topic = ConsumerProtocolAssignment.TopicPartition(topic="orders", partitions=list(partitions))
    encoded: bytes = ConsumerProtocolAssignment(assigned_partitions=[topic], user_data=b"").encode(version=0)
    return encoded


def test_only_the_assignment_of_a_consumer_is_decoded() -> None:
    assignment = assignment_of(3, 1)
    group = describe_group(answering_admin(**described("consumer", assignment)), "billing")
    assert (group.coordinator, group.members[0].partitions) == (2, [TopicPartition("orders", n) for n in (1, 3)])
    group = describe_group(answering_admin(**described("connect", assignment)), "billing")
    assert (group.members[0].partitions, group.members[0].assignment) == ([], assignment)


def test_an_error_of_the_coordinator_is_one_line() -> None:
    with pytest.raises(Failure, match=r"group billing: .* \(GROUP_AUTHORIZATION_FAILED\)"):
        describe_group(answering_admin(**described("consumer", b"", error_code=30)), "billing")


def test_offsets_that_cannot_be_deleted_are_lines() -> None:
    errors = {
        KafkaTopicPartition("orders", 0): NoError,
        KafkaTopicPartition("orders", 1): GroupSubscribedToTopicError,
    }
    admin = answering_admin(delete_group_offsets=lambda group, partitions: errors)
    (line,) = delete_offsets(admin, "billing", [TopicPartition("orders", 0), TopicPartition("orders", 1)])
    assert line.startswith("orders-1: ")
    assert line.endswith("(GROUP_SUBSCRIBED_TO_TOPIC)")
