"""The records of `__consumer_offsets`, in Kafka's own formats.

Key and value each begin with a version (2 bytes). The version of the key is the type of the record:
    0, 1   a committed offset of a group: OffsetCommitKey, OffsetCommitValue
    2      a group and its members: GroupMetadataKey, GroupMetadataValue
A record without a value deletes its key. We write the versions that Kafka 3.8 writes, and read all of them.

Pure: bytes from values, and back.
"""

from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_member import GroupMember, MemberProtocol
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.record_serde import deserialize, serialize, version_of
from leadline.model import Offset, TopicPartition
from leadline.wire.messages import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue

COMMIT_KEY, GROUP_KEY = 1, 2
COMMIT_VALUE, COMMIT_VALUE_THAT_EXPIRES = 3, 1
GROUP_VALUE = 3
NO_TIME_MS = -1

_COMMIT_FRONT, _COMMIT_MS = Struct(">hqih"), Struct(">q")  # version, offset, leader epoch, length of the metadata
_Member = GroupMetadataValue.MemberMetadata


class OffsetKey(NamedTuple):
    group: str
    tp: TopicPartition


class GroupKey(NamedTuple):
    group: str


@lru_cache(maxsize=10_000)  # a group commits the same partitions often
def offset_key(group: str, tp: TopicPartition) -> bytes:
    return serialize(OffsetCommitKey(group=group, topic=tp.topic, partition=tp.partition), COMMIT_KEY)


def offset_value(commit: OffsetAndMetadata) -> bytes:
    """An offset with its own expiration time is written in the old version, the only one with a field for it."""
    if commit.expire_ms is None:  # a hot path, so without the general codec
        metadata = commit.metadata.encode()
        front = _COMMIT_FRONT.pack(COMMIT_VALUE, commit.offset, commit.leader_epoch, len(metadata))
        return front + metadata + _COMMIT_MS.pack(commit.commit_ms)
    value = OffsetCommitValue(
        offset=commit.offset,
        metadata=commit.metadata,
        commit_timestamp=commit.commit_ms,
        expire_timestamp=commit.expire_ms,
    )
    return serialize(value, COMMIT_VALUE_THAT_EXPIRES)


def group_key(group: str) -> bytes:
    return serialize(GroupMetadataKey(group=group), GROUP_KEY)


def group_value(group: ClassicGroup, assignments: Mapping[str, bytes]) -> bytes:
    members = [
        _Member(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata(group.protocol_name),
            assignment=assignments[member.id],
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=NO_TIME_MS if group.state_since_ms is None else group.state_since_ms,
        members=members,
    )
    return serialize(value, GROUP_VALUE)


def read_key(data: bytes | None) -> OffsetKey | GroupKey | None:
    """None: an unknown type of record, perhaps from a newer Kafka."""
    version = version_of(data)
    if version in OffsetCommitKey.VERSIONS:
        key = deserialize(OffsetCommitKey, data)
        return OffsetKey(key.group, TopicPartition(key.topic, key.partition))
    return GroupKey(deserialize(GroupMetadataKey, data).group) if version in GroupMetadataKey.VERSIONS else None


def read_offset(data: bytes, base_offset: Offset) -> OffsetAndMetadata:
    """`base_offset`: of the batch that holds the record."""
    value = deserialize(OffsetCommitValue, data)
    expire_ms = None if value.expire_timestamp == NO_TIME_MS else value.expire_timestamp
    return OffsetAndMetadata(
        value.offset, value.metadata, value.commit_timestamp, value.leader_epoch, expire_ms, base_offset
    )


def read_group(data: bytes, group: ClassicGroup) -> None:
    """Fill a new group from its record."""
    value, version = deserialize(GroupMetadataValue, data), version_of(data)
    since_ms = None if value.current_state_timestamp == NO_TIME_MS else value.current_state_timestamp
    members = [_member(stored, value.protocol, version) for stored in value.members]
    group.load(value.generation, value.protocol_type, value.protocol, value.leader, since_ms, members)


def _member(stored: _Member, protocol: str | None, version: int) -> GroupMember:
    return GroupMember(
        stored.member_id,
        stored.group_instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout if version == 0 else stored.rebalance_timeout,
        stored.session_timeout,
        (MemberProtocol(protocol or "", stored.subscription),),
        stored.assignment,
    )
