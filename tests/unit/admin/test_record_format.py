"""Records as text and as JSON."""

import json

import pytest
from confluent_kafka import Message

from leadline.admin.record_format import FIELDS, Layout, as_json, as_text

CREATE_TIME = 1


def message(offset: int = 42, key: bytes | None = b"k", value: bytes | None = b"v") -> Message:
    return Message("orders", 3, offset, key, value, [("h", b"1"), ("n", None)], None, (CREATE_TIME, 1_700_000_000_000))


@pytest.mark.parametrize(
    ("layout", "line"),
    [
        (as_text(()), b"v\n"),
        (as_text(["key"]), b"k\tv\n"),
        (as_text(FIELDS), b"CreateTime:1700000000000\tPartition:3\tOffset:42\th:1,n:null\tk\tv\n"),
        (as_text(["key", "offset"], b" | "), b"Offset:42 | k | v\n"),
    ],
)
def test_text_is_what_the_console_consumer_prints(layout: Layout, line: bytes) -> None:
    assert layout(message()) == line


def test_nulls_and_missing_fields_have_a_text() -> None:
    assert as_text(["key"])(message(key=None, value=None)) == b"null\tnull\n"
    bare = Message("orders", 3, 42, None, b"v", None, None, (0, -1))
    assert as_text(["timestamp", "headers"])(bare) == b"NO_TIMESTAMP\tNO_HEADERS\tv\n"


def test_json_holds_all_fields_or_the_chosen_ones() -> None:
    assert json.loads(as_json(())(message(value=b"\xff"))) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "CreateTime",
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
        "key": "k",
        "value_base64": "/w==",
    }
    assert json.loads(as_json(["offset"])(message())) == {"topic": "orders", "offset": 42, "value": "v"}
