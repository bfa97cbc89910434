"""The schema text: how it is read."""

import pytest

from leadline.wire import schema
from tests.unit.wire.random_messages import MESSAGES


@pytest.mark.parametrize(
    ("notation", "expected"), [("3+", range(3, 10)), ("0-7", range(8)), ("4", range(4, 5)), ("0", range(1))]
)
def test_versions_are_read_as_ranges(notation: str, expected: range) -> None:
    assert schema.versions(notation, 9) == expected


def test_a_head_says_key_versions_and_flexible_versions() -> None:
    assert schema.heads()["FetchRequest"][:4] == ("FetchRequest", 1, range(17), range(12, 17))
    assert schema.heads()["OffsetCommitKey"][:4] == ("OffsetCommitKey", None, range(2), schema.NEVER)


def test_a_field_says_all_that_its_line_says() -> None:
    fields = {field.name: field for field in schema.message("FetchRequest").root.fields}
    cluster_id = fields["cluster_id"]
    assert cluster_id == schema.FieldSchema(
        "cluster_id", "string", False, range(12, 17), range(12, 17), 0, None, True, False, None
    )
    assert (fields["max_bytes"].default, fields["max_bytes"].versions) == (2147483647, range(3, 17))
    assert fields["topics"].is_array
    assert fields["topics"].struct is not None
    assert [field.name for field in fields["topics"].struct.fields] == ["topic", "topic_id", "partitions"]


def test_a_struct_that_is_used_twice_is_one() -> None:
    fields = {field.name: field for field in schema.message("LeaderAndIsrRequest").root.fields}
    topic_states = fields["topic_states"].struct
    assert topic_states is not None
    assert fields["ungrouped_partition_states"].struct is topic_states.fields[-1].struct


def test_a_field_may_be_nullable_in_some_versions() -> None:
    topics = schema.message("OffsetFetchRequest").root.fields[1]
    assert (topics.name, topics.versions, topics.nullable) == ("topics", range(8), range(2, 8))


@pytest.mark.parametrize("name", MESSAGES)
def test_a_line_of_the_text_is_a_field_or_opens_a_struct(name: str) -> None:
    message = schema.message(name)
    lines = message.head.body.splitlines()
    fields = sum(len(struct.fields) for struct in message.structs)
    assert fields == sum(not line.lstrip().startswith("struct ") for line in lines)
    assert all(field.versions for struct in message.structs for field in struct.fields)
