"""Requests about groups."""
# mypy: disable-error-code="import-untyped"

from collections.abc import Collection
from typing import Any

from leadline.admin.group import CONSUMER, GroupDescription, GroupListing, MemberDescription
from leadline.admin.kafka_python.admin import KafkaPythonAdmin, error_text
from leadline.model import TopicPartition

COORDINATOR_TYPE = 0  # of groups


def _member(member: Any, protocol_type: str) -> MemberDescription:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    assignment, partitions = bytes(member.member_assignment or b""), []
    if assignment and protocol_type == CONSUMER:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        partitions = [
            TopicPartition(topic.topic, number) for topic in decoded.assigned_partitions for number in topic.partitions
        ]
    return MemberDescription(
        member.member_id, member.client_id, member.client_host, member.group_instance_id, sorted(partitions), assignment
    )


def delete_offsets(admin: KafkaPythonAdmin, group: str, partitions: Collection[TopicPartition]) -> list[str]:
    """Delete committed offsets of a group. Returns the errors, one line per partition."""
    from kafka import TopicPartition as Theirs
    from kafka.errors import NoError

    theirs = [Theirs(*tp) for tp in partitions]
    answers = admin.request(f"group {group}", lambda: admin.client.delete_group_offsets(group, theirs))
    return [
        f"{tp.topic}-{tp.partition}: {error_text(error())}" for tp, error in answers.items() if error is not NoError
    ]


def list_groups(admin: KafkaPythonAdmin, states: Collection[str] = ()) -> list[GroupListing]:
    """The groups of all protocol types, sorted by name."""
    answers = admin.request_each(
        "groups",
        lambda broker: admin.client.list_groups(broker_ids=[broker], states_filter=list(states) or None),
        admin.answering,
    )
    groups = [
        GroupListing(group["group_id"], group.get("group_state") or "Unknown", group["protocol_type"], broker)
        for broker, listings in answers.items()
        for group in listings
    ]
    return sorted(groups, key=lambda group: group.group_id)


def describe_group(admin: KafkaPythonAdmin, group_id: str) -> GroupDescription:
    """The description of a group by its coordinator. A group that does not exist is Dead and has no members."""
    from kafka.errors import NoError, for_code
    from kafka.protocol.admin import DescribeGroupsRequest

    what = f"group {group_id}"
    coordinator = admin.coordinator(what, group_id, COORDINATOR_TYPE)
    manager = admin.client._manager

    def ask() -> GroupDescription:
        answer = manager.run(manager.send, DescribeGroupsRequest(groups=[group_id]), coordinator)
        (group,) = answer.groups
        if (error := for_code(group.error_code)) is not NoError:
            raise error()
        members = [_member(member, group.protocol_type) for member in group.members]
        return GroupDescription(
            group_id, group.group_state, group.protocol_type, group.protocol_data, coordinator, members
        )

    return admin.request(what, ask, coordinator)
