"""Records as tests write them, and the schema of what was sent."""

import pytest
from kafka.partitioner.default import murmur2 as kafka_python_murmur2  # type: ignore[import-untyped]

from leadline.testing.records import ConsumedRecord, encoded, murmur2, partition_for, record_of, spread
from leadline.testing.topic_schema import schema_of


@pytest.mark.parametrize("size", range(9))
def test_a_key_has_the_hash_that_kafkas_clients_compute(size: int) -> None:
    key = bytes(range(250 - size, 250))
    assert murmur2(key) == kafka_python_murmur2(key) & 0xFFFFFFFF
    assert partition_for(key, 7) == (kafka_python_murmur2(key) & 0x7FFFFFFF) % 7


@pytest.mark.parametrize(
    ("value", "data"),
    [("text", b"text"), (b"bytes", b"bytes"), (None, None), ({"a": 1}, b'{"a": 1}'), ([1], b"[1]"), (3, b"3")],
)
def test_values_are_encoded_as_a_reader_expects(value: object, data: bytes | None) -> None:
    assert encoded(value) == data


def test_what_is_no_value_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match="not set: "):
        encoded({1})
    with pytest.raises(TypeError, match="a tuple of key and value, not \\('a', 'b', 'c'\\)"):
        record_of(("a", "b", "c"), 0, {})


def test_records_without_a_key_take_turns() -> None:
    records = [record_of(value, 0, {}) for value in "abcd"]
    assert {number: len(own) for number, own in spread(records, 3, None).items()} == {0: 2, 1: 1, 2: 1}
    assert list(spread(records, 3, 2)) == [2]


def test_the_schema_has_types_of_keys_and_values_and_fields_of_objects() -> None:
    values = [b'{"id": 1, "to": {"city": "Rome"}}', b'{"id": "2"}', b"plain", None, b"\xff\x00"]
    keys = [b"k", b"7", None, None, b"\xff"]
    pairs = enumerate(zip(keys, values, strict=True))
    records = [ConsumedRecord("t", 0, offset, 0, key, value) for offset, (key, value) in pairs]
    assert str(schema_of("t", records)).splitlines() == [
        "t: 5 records",
        "  keys    null (2), text (1), json integer (1), bytes (1)",
        "  values  json object (2), text (1), null (1), bytes (1)",
        "    id: integer or string",
        "    to: object, optional",
        "      city: string",
    ]
