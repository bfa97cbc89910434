"""Encoding and decoding: round trips, pieces, and what cannot be written."""

from typing import NamedTuple
from uuid import UUID

import pytest

from leadline.runtime.steps import exhaust
from leadline.wire.classes import message_class
from leadline.wire.codec import decode, decode_from, encode, encode_behind, encode_in_steps, length, to_bytes
from leadline.wire.encode_errors import NotInVersion
from leadline.wire.messages import (
    ConsumerProtocolSubscription,
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    LeaveGroupRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
    UpdateMetadataRequest,
)
from leadline.wire.primitives import MalformedRequest, Piece, read_varint, write_varint
from tests.unit.wire.random_messages import MESSAGES, RandomValues


class FileSlice(NamedTuple):
    file: str
    position: int
    length: int


@pytest.mark.parametrize("name", MESSAGES)
def test_every_version_of_every_message_comes_back_as_it_was(name: str) -> None:
    for version in message_class(name).VERSIONS:
        for seed in range(5):
            message = RandomValues(f"{name} {version} {seed}").message(name, version)
            data = to_bytes(message, version)
            for form in (data, bytearray(data), memoryview(data)):
                assert decode(type(message), form, version) == message


@pytest.mark.parametrize("name", ["MetadataResponse", "FetchResponse", "UpdateMetadataRequest"])
def test_a_message_that_is_encoded_in_steps_has_the_same_bytes(name: str) -> None:
    for version in message_class(name).VERSIONS:
        message = RandomValues(version).message(name, version)
        start = bytearray(b"start")
        assert exhaust(encode_in_steps(start, message, version)) == encode_behind(bytearray(b"start"), message, version)


def test_a_heartbeat_is_encoded_to_its_known_bytes() -> None:
    request = HeartbeatRequest(group_id="group", generation_id=3, member_id="me", group_instance_id="i")
    rigid = b"\0\5group" + b"\0\0\0\3" + b"\0\2me" + b"\0\1i"
    assert to_bytes(request, 3) == rigid
    assert to_bytes(request, 4) == b"\6group" + b"\0\0\0\3" + b"\3me" + b"\2i" + b"\0"
    assert decode(HeartbeatRequest, rigid, 3) == request


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**21, 2**28, 2**31 - 1])
def test_a_varint_is_read_back(value: int) -> None:
    data = write_varint(value)
    assert read_varint(b"x" + data, 1, "test") == (value, 1 + len(data))


def test_a_message_within_other_bytes_is_decoded() -> None:
    data = b"before" + to_bytes(HeartbeatRequest(group_id="g"), 4)
    assert decode(HeartbeatRequest, data, 4, position=6).group_id == "g"
    assert decode_from(HeartbeatRequest, data + b"behind", 4, 6) == (HeartbeatRequest(group_id="g"), len(data))
    assert encode_behind(bytearray(b"before"), HeartbeatRequest(group_id="g"), 4) == [data]


def test_a_subscription_may_have_been_extended() -> None:
    """Consumers of other versions put more behind what we know; group coordinators read the part they know."""
    data = to_bytes(ConsumerProtocolSubscription(topics=["a"], user_data=b"u"), 0)
    assert decode_from(ConsumerProtocolSubscription, data + b"more", 0)[0].topics == ["a"]


def fetched(*records: Piece | None) -> FetchResponse:
    partitions = [FetchResponse.PartitionData(partition_index=i, records=one) for i, one in enumerate(records)]
    return FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12, 16])
def test_slices_of_files_stand_between_the_bytes(version: int) -> None:
    one, two = FileSlice("log", 100, 300), FileSlice("log", 7, 70_000)
    pieces = encode(fetched(one, b"here", None, two, FileSlice("log", 0, 0), b""), version)
    assert [type(piece) for piece in pieces] == [bytearray, FileSlice, bytearray, FileSlice, bytearray]
    assert (pieces[1], pieces[3]) == (one, two)
    filled = [b"x" * piece.length if isinstance(piece, FileSlice) else piece for piece in pieces]
    data = b"".join(filled)  # type: ignore[arg-type]
    assert length(pieces) == len(data)
    partitions = decode(FetchResponse, data, version).responses[0].partitions
    assert [partition.records for partition in partitions] == [b"x" * 300, b"here", None, b"x" * 70_000, b"", b""]


def test_large_records_are_not_copied_and_small_ones_are_joined() -> None:
    large = memoryview(bytes(100_000))
    first, second, third = encode(fetched(b"small", large, bytearray(b"small")), 16)
    assert second is large
    assert isinstance(first, bytearray)
    assert isinstance(third, bytearray)
    assert b"small" in first
    assert b"small" in third


def test_decoded_records_are_slices_of_the_data() -> None:
    partition = ProduceRequest.PartitionProduceData(index=0, records=b"records")
    request = ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=[partition])])
    data = bytearray(to_bytes(request, 9))
    records = decode(ProduceRequest, data, 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is data
    records[0:1] = b"R"
    assert b"Records" in data


def test_a_tagged_field_is_written_only_if_it_is_not_the_default() -> None:
    bare = to_bytes(FetchRequest(), 16)
    assert to_bytes(FetchRequest(replica_state=FetchRequest.ReplicaState()), 16) == bare
    full = to_bytes(FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=7)), 16)
    assert full[len(bare) - 1 :] == b"\1" + b"\1\x0d" + b"\0\0\0\7" + b"\xff" * 8 + b"\0"
    assert decode(FetchRequest, full, 16).replica_state.replica_id == 7


def test_unknown_tagged_fields_are_skipped() -> None:
    data = to_bytes(FetchRequest(cluster_id="c"), 16)
    start = data[: -len(b"\1\0\2\2c")]
    with_unknown = start + b"\3" + b"\7\3abc" + b"\0\2\2c" + b"\xc8\1\0"
    assert decode(FetchRequest, with_unknown, 16) == FetchRequest(cluster_id="c")
    heartbeat = to_bytes(HeartbeatRequest(group_id="g"), 4)[:-1] + b"\1\5\2ab"
    assert decode(HeartbeatRequest, heartbeat, 4) == HeartbeatRequest(group_id="g")


def test_a_value_is_dropped_where_the_field_is_ignorable() -> None:
    request = FetchRequest(rack_id="rack", session_id=3)
    assert decode(FetchRequest, to_bytes(request, 4), 4) == FetchRequest()


def test_a_value_is_refused_where_the_field_is_not_ignorable() -> None:
    with pytest.raises(NotInVersion, match=r"^HeartbeatRequest\.group_instance_id is not in version 2"):
        encode(HeartbeatRequest(group_instance_id="me"), 2)
    partition = FetchRequest.FetchPartition(last_fetched_epoch=3)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(partitions=[partition])])
    with pytest.raises(NotInVersion, match=r"^FetchRequest\.topics\.partitions\.last_fetched_epoch is not in"):
        encode(request, 11)
    with pytest.raises(NotInVersion):
        encode(FetchRequest(replica_state=FetchRequest.ReplicaState(replica_id=1)), 14)


def test_a_default_is_dropped_even_if_it_is_not_ignorable() -> None:
    assert encode(HeartbeatRequest(group_instance_id=None), 2)
    assert encode(LeaveGroupRequest(members=[]), 0)


@pytest.mark.parametrize(
    ("message", "version", "complaint"),
    [
        (HeartbeatRequest(group_id=None), 4, "HeartbeatRequest.group_id is null"),  # type: ignore[arg-type]
        (HeartbeatRequest(generation_id=2**31), 4, "HeartbeatRequest.generation_id is 2147483648, not an int32"),
        (HeartbeatRequest(generation_id="x"), 4, "HeartbeatRequest.generation_id is 'x', not an int32"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="x" * 40_000), 4, "HeartbeatRequest.group_id has 40000 bytes"),
        (HeartbeatRequest(group_id="x" * 40_000), 3, "HeartbeatRequest.group_id has 40000 bytes"),
        (HeartbeatRequest(group_id="\ud800"), 4, "HeartbeatRequest.group_id is '\\ud800', which has no UTF-8"),
        (MetadataRequest(topics=None), 0, "MetadataRequest.topics is null"),
        (FetchRequest(topics=["t"]), 16, "FetchRequest.topics[0] is 't', not a FetchTopic"),  # type: ignore[list-item]
        (FetchRequest(topics=[FetchRequest.FetchTopic(partitions=None)]), 16, "topics[0].partitions is null"),  # type: ignore[arg-type]
        (UpdateMetadataRequest(live_brokers=3), 6, "UpdateMetadataRequest.live_brokers is 3, not a list"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_named(message: FetchRequest, version: int, complaint: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be written in version {version}") as raised:
        encode(message, version)
    assert complaint in str(raised.value)


@pytest.mark.parametrize("version", [-1, 17])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match="FetchRequest has no version"):
        encode(FetchRequest(), version)
    with pytest.raises(ValueError, match="only 0 to 16"):
        decode(FetchRequest, b"", version)


def test_ids_come_out_as_ids() -> None:
    topic_id = UUID(int=5)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=topic_id)])
    assert decode(FetchRequest, to_bytes(request, 13), 13).topics[0].topic_id == topic_id


def test_bytes_after_the_end_are_refused() -> None:
    data = to_bytes(OffsetCommitRequest(), 9)
    with pytest.raises(MalformedRequest, match=f"OffsetCommitRequest v9: at byte {len(data)}: 2 bytes after the end"):
        decode(OffsetCommitRequest, data + b"xx", 9)
