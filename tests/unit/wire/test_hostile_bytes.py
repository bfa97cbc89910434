"""Bytes that are no message: MalformedRequest and nothing else, and memory in proportion to the bytes."""

import random
import tracemalloc
from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.wire.classes import Message, message_class
from leadline.wire.codec import decode, to_bytes
from leadline.wire.decoder import compile_decoder
from leadline.wire.frames import parse_response, request_head
from leadline.wire.messages import (
    DescribeProducersRequest,
    DescribeUserScramCredentialsRequest,
    FetchRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    ProduceRequest,
    SyncGroupRequest,
    UpdateMetadataRequest,
)
from leadline.wire.primitives import MOST_ELEMENTS, MOST_TAGS, MalformedRequest, read_varint, write_varint
from tests.unit.wire.random_messages import MESSAGES, VERSIONS_OF_MESSAGES, RandomValues

MOST = b"\xff\xff\xff\xff\7"  # the largest varint


def refused(kind: type[Message], data: bytes, version: int) -> MalformedRequest:
    with pytest.raises(MalformedRequest) as raised:
        decode(kind, data, version)
    return raised.value


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_that_is_cut_off_anywhere_is_refused(name: str) -> None:
    kind = message_class(name)
    for version in kind.VERSIONS:
        data = to_bytes(RandomValues(f"{name} {version}", most=1).message(name, version), version)[:1500]
        for end in range(len(data)):
            with pytest.raises(MalformedRequest):
                decode(kind, data[:end], version)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_with_changed_bytes_is_read_or_refused(name: str) -> None:
    chance = random.Random(name)
    kind = message_class(name)
    for version in kind.VERSIONS:
        valid = to_bytes(RandomValues(f"{name} {version}").message(name, version), version)
        for _ in range(60):
            data = bytearray(valid)
            for _ in range(chance.randint(1, 4) if data else 0):
                data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
            with suppress(MalformedRequest):
                decode(kind, data, version)


@given(st.sampled_from(VERSIONS_OF_MESSAGES), st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(which: tuple[str, int], data: bytes) -> None:
    name, version = which
    try:
        message = decode(message_class(name), data, version)
    except MalformedRequest:
        return
    decode(message_class(name), to_bytes(message, version), version)


COUNTS = [
    (FetchRequest, 4, b"\0" * 17 + b"\x7f\xff\xff\xff"),
    (FetchRequest, 4, b"\0" * 17 + b"\x80\0\0\0"),
    (FetchRequest, 16, b"\0" * 21 + MOST),
    (MetadataRequest, 0, b"\x7f\xff\xff\xff"),
    (MetadataRequest, 12, MOST),
    (ProduceRequest, 11, b"\0" + b"\0" * 6 + b"\2" + b"\2t" + MOST),
    (DescribeUserScramCredentialsRequest, 0, MOST),
    (DescribeUserScramCredentialsRequest, 0, b"\1" + MOST),
]


@pytest.mark.parametrize(("kind", "version", "data"), COUNTS)
@pytest.mark.parametrize("padding", [0, 1000])
def test_a_count_is_not_believed(kind: type[FetchRequest], version: int, data: bytes, padding: int) -> None:
    decode(kind, to_bytes(kind(), version), version)  # compiled beforehand
    tracemalloc.start()
    try:
        refused(kind, data + bytes(padding), version)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize("name", MESSAGES)
def test_memory_stays_in_proportion_to_the_bytes(name: str) -> None:
    """Whatever count stands where: 4 KB of zeros or of ones, or any other byte, make no more than some hundred KB."""
    kind = message_class(name)
    for version in {kind.VERSIONS[0], kind.VERSIONS[-1]}:
        decode(kind, to_bytes(kind(), version), version)
        for byte in (0, 1, 2, 0x7F, 0xFF):
            tracemalloc.start()
            with suppress(MalformedRequest):
                decode(kind, bytes([byte]) * 4096, version)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 4096 * 200


HEARTBEAT = b"\2g" + b"\0\0\0\1" + b"\2m" + b"\0"  # as far as its tagged fields


@pytest.mark.parametrize(
    ("kind", "version", "data", "position", "reason"),
    [
        (HeartbeatRequest, 4, b"", 0, "truncated"),
        (HeartbeatRequest, 4, b"\x0bgroup", 1, "a length of 10, but 5 bytes are left"),
        (HeartbeatRequest, 4, b"\0", 1, "null, which it must not be"),
        (HeartbeatRequest, 3, b"\xff\xff", 2, "null, which it must not be"),
        (HeartbeatRequest, 3, b"\xff\xfe", 2, "a negative length: -2"),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\xff\1", 0, "a varint of more than 31 bits"),
        (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0f", 0, "a varint of more than 31 bits"),
        (HeartbeatRequest, 4, b"\x82\x80\2" + b"x" * 40_000, 3, "a string of 32769 bytes, and 32767 are the limit"),
        (HeartbeatRequest, 4, HEARTBEAT + b"\1\0\5ab", 12, "a length of 5, but 2 bytes are left"),
        (HeartbeatRequest, 4, HEARTBEAT + b"\xff\xff\xff\xff\7", 14, "a length of 2147483647, but 0 bytes are left"),
        (HeartbeatRequest, 4, HEARTBEAT + b"\0x", 10, "1 bytes after the end"),
        (SyncGroupRequest, 0, b"\0\1g\0\0\0\1\0\1m\0\0\0\1\0\1m\x80\0\0\0", 21, "a negative length: -2147483648"),
    ],
)
def test_an_error_names_its_place(
    kind: type[FetchRequest], version: int, data: bytes, position: int, reason: str
) -> None:
    refusal = refused(kind, data, version)
    assert (refusal.position, reason in refusal.reason) == (position, True), str(refusal)
    assert str(refusal).startswith(f"{kind.__name__} v{version}")


def test_a_tag_that_stands_twice_is_refused() -> None:
    data = to_bytes(FetchRequest(), 16)[:-1] + b"\2" + b"\0\2\2c" * 2
    assert "was there before" in refused(FetchRequest, data, 16).reason


@pytest.mark.parametrize("size", [1, 3])
def test_a_tagged_field_of_another_size_than_it_says_is_refused(size: int) -> None:
    data = to_bytes(FetchRequest(), 16)[:-1] + b"\1" + bytes([0, size]) + b"\2cxx"
    assert "should end at byte" in refused(FetchRequest, data, 16).reason


def test_a_varint_that_is_longer_than_it_need_be_is_read_as_kafka_does() -> None:
    assert read_varint(b"\x85\x80\0", 0, "test") == (5, 3)


class Counted(bytes):
    """Counts how many of its bytes are looked at one by one."""

    checks = 0

    def __getitem__(self, at: object) -> object:  # type: ignore[override]
        self.checks += 1
        return super().__getitem__(at)  # type: ignore[call-overload]


HEARTBEAT_HEAD = pack(">hhih", 12, 4, 7, 2) + b"me"
TAGS = [MOST_TAGS + 1, 400_000, 5_000_000]


@pytest.mark.parametrize("count", TAGS)
def test_the_tagged_fields_of_a_header_are_counted_before_any_is_looked_at(count: int) -> None:
    frame = Counted(HEARTBEAT_HEAD + write_varint(count) + b"\5\0" * count)
    with pytest.raises(MalformedRequest, match=f"{count} tagged fields, and {MOST_TAGS} are the limit"):
        request_head(frame)
    assert frame.checks < 10


def test_a_header_may_have_some_tagged_fields() -> None:
    frame = HEARTBEAT_HEAD + write_varint(MOST_TAGS) + b"\5\0" * MOST_TAGS
    assert request_head(frame).body_at == len(frame)


@pytest.mark.parametrize("count", TAGS)
def test_the_tagged_fields_of_a_response_header_are_counted_too(count: int) -> None:
    data = pack(">i", 7) + write_varint(count) + b"\5\0" * count
    with pytest.raises(MalformedRequest, match="tagged fields, and"):
        parse_response(HeartbeatResponse, data, 4)


@pytest.mark.parametrize("count", TAGS)
@pytest.mark.parametrize(("kind", "version", "data"), [(HeartbeatRequest, 4, HEARTBEAT), (FetchRequest, 16, b"")])
def test_the_tagged_fields_of_a_structure_are_counted_before_any_is_looked_at(
    kind: type[FetchRequest], version: int, data: bytes, count: int
) -> None:
    data = data or to_bytes(kind(), version)[:-1]
    refusal = refused(kind, data + write_varint(count) + b"\5\0" * count, version)
    assert (refusal.position, refusal.reason) == (
        len(data) + len(write_varint(count)),
        f"{count} tagged fields, and {MOST_TAGS} are the limit",
    )


def test_structures_with_few_tagged_fields_each_share_the_limit_of_all_elements() -> None:
    tags = write_varint(MOST_TAGS) + b"\5\0" * MOST_TAGS
    topic = bytes(16) + b"\0" + tags  # an id, no name
    count = MOST_ELEMENTS // MOST_TAGS
    data = write_varint(count + 1) + topic * count + bytes(4)
    refusal = refused(MetadataRequest, data, 12)
    assert f"more than {MOST_ELEMENTS}" in refusal.reason


def test_an_update_may_hold_two_hundred_thousand_partitions() -> None:
    state = UpdateMetadataRequest.UpdateMetadataPartitionState(isr=[1, 2, 3], replicas=[1, 2, 3])
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(topic_name="t", partition_states=[state] * 200_000)
    data = to_bytes(UpdateMetadataRequest(topic_states=[topic]), 8)
    assert len(decode(UpdateMetadataRequest, data, 8).topic_states[0].partition_states) == 200_000


def test_numbers_are_counted_too() -> None:
    count = 4 * MOST_ELEMENTS + 4
    data = b"\2\2t" + write_varint(count + 1) + bytes(4 * count) + b"\0\0"
    assert f"more than {MOST_ELEMENTS}" in refused(DescribeProducersRequest, data, 0).reason


@pytest.mark.parametrize("name", MESSAGES)
def test_no_element_takes_no_bytes(name: str) -> None:
    """Else a few bytes could stand for any number of elements. Compiling a decoder raises this."""
    kind = message_class(name)
    for version in kind.VERSIONS:
        compile_decoder(kind, version)
