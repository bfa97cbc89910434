"""The records of __consumer_offsets: Kafka's bytes, and back."""

import pytest

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_member import GroupMember, MemberProtocol
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_records import (
    GroupKey,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)
from leadline.coordinator.group_state import GroupState
from leadline.errors import CorruptMessage
from leadline.model import TopicPartition

TP = TopicPartition("orders", 3)


def test_the_bytes_of_a_commit() -> None:
    assert offset_key("g", TP).hex() == "000100016700066f726465727300000003"
    value = offset_value(OffsetAndMetadata(7, "m", 9, leader_epoch=2))
    assert value.hex() == "000300000000000000070000000200016d0000000000000009"
    old = offset_value(OffsetAndMetadata(7, "m", 9, expire_ms=10))
    assert old.hex() == "0001000000000000000700016d0000000000000009000000000000000a"


@pytest.mark.parametrize(
    "commit", [OffsetAndMetadata(7, "m", 9, 2, None, 4), OffsetAndMetadata(0, "", -5, expire_ms=11, record_offset=4)]
)
def test_a_commit_is_read_back(commit: OffsetAndMetadata) -> None:
    assert read_key(offset_key("g", TP)) == OffsetKey("g", TP)
    assert read_offset(offset_value(commit), base_offset=4) == commit


def test_the_bytes_of_a_group_without_members() -> None:
    group = ClassicGroup("g", GroupLimits(1, 0), now_ms=1)
    group.load(5, "consumer", None, None, 2, [])
    assert group_key("g").hex() == "0002000167"
    assert group_value(group, {}).hex() == ("00030008636f6e73756d657200000005ffffffff000000000000000200000000")


def test_a_group_is_read_back() -> None:
    group = ClassicGroup("g", GroupLimits(9, 0), now_ms=1)
    members = [
        GroupMember("m-1", None, "c", "/h", 300, 100, (MemberProtocol("range", b"r"), MemberProtocol("sticky", b"s"))),
        GroupMember("m-2", "i", "c", "/h", 300, 100, (MemberProtocol("range", b"q"),)),
    ]
    group.load(5, "anything", "range", "m-2", None, members)
    loaded = ClassicGroup("g", GroupLimits(9, 0), now_ms=1)
    read_group(group_value(group, {"m-1": b"1", "m-2": b"2"}), loaded)
    assert read_key(group_key("g")) == GroupKey("g")
    assert (loaded.generation, loaded.leader, loaded.state, loaded.state_since_ms) == (
        5,
        "m-2",
        GroupState.STABLE,
        None,
    )
    assert loaded.static_members == {"i": "m-2"}
    assert [(m.protocols, m.assignment) for m in loaded.members.values()] == [
        ((MemberProtocol("range", b"r"),), b"1"),
        ((MemberProtocol("range", b"q"),), b"2"),
    ]


def test_a_member_of_the_first_version_has_no_rebalance_timeout_of_its_own() -> None:
    value = bytes.fromhex("00000001 78000000010001 720001 6d00000001")
    value += bytes.fromhex("0001 6d0001 630001 68000000640000000000000000")
    group = ClassicGroup("g", GroupLimits(9, 0), now_ms=1)
    read_group(value, group)
    assert group.members["m"].rebalance_timeout_ms == 100


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\0\1g", b"\0\2\0\5g"])
def test_keys_that_are_cut_off(data: bytes) -> None:
    with pytest.raises(CorruptMessage):
        read_key(data)


def test_a_key_of_another_kind_is_not_ours_to_judge() -> None:
    assert read_key(b"\0\7whatever") is None
    for data in (b"\0\7", b"\0\3\0"):
        with pytest.raises(CorruptMessage):
            read_offset(data, 0)
        with pytest.raises(CorruptMessage):
            read_group(data, ClassicGroup("g", GroupLimits(9, 0), 1))
