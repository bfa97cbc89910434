"""Records as text and as JSON, and how far a reader has come."""

import json
from typing import cast
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from leadline.cli.connection import ClusterConnection
from leadline.cli.consume import topic_reader
from leadline.cli.consume.record_format import FIELDS, Layout, as_json, as_text
from leadline.cli.consume.topic_reader import StallWatch, TopicReader
from leadline.cli.errors import Failure

CREATE_TIME = 1


def message(
    offset: int = 42, key: bytes | None = b"k", value: bytes | None = b"v", error: KafkaError | None = None
) -> Message:
    return Message("orders", 3, offset, key, value, [("h", b"1"), ("n", None)], error, (CREATE_TIME, 1_700_000_000_000))


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


def test_json_holds_everything_or_what_was_asked_for() -> None:
    assert json.loads(as_json(())(message(value=b"\xff"))) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "timestampType": "CreateTime",
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
        "key": "k",
        "valueBase64": "/w==",
    }
    assert json.loads(as_json(["offset"])(message())) == {"topic": "orders", "offset": 42, "value": "v"}


def reading(most: int | None = None, ends: dict[int, int] | None = None) -> TopicReader:
    return TopicReader("orders", most, ends, as_text(["offset"]))


def test_reading_stops_after_so_many_records() -> None:
    found = reading(most=2)
    out, last = found.take([message(1), message(2), message(3)])
    assert out == b"Offset:1\tv\nOffset:2\tv\n"
    assert last[3].offset() == 2
    assert found.finished


def test_reading_to_the_end_stops_at_the_last_record_there_was() -> None:
    found = reading(ends={3: 3})
    assert found.take([message(1)])[0] == b"Offset:1\tv\n"
    assert not found.finished
    assert found.take([message(2), message(3)])[0] == b"Offset:2\tv\n"
    assert found.finished


@pytest.mark.parametrize("behind", [message(7), message(3, error=KafkaError(KafkaError._PARTITION_EOF))])
def test_the_end_is_found_though_the_last_offsets_hold_no_records(behind: Message) -> None:
    found = reading(ends={3: 3})
    assert found.take([behind])[0] == b""
    assert found.finished


def test_another_error_ends_the_reading() -> None:
    with pytest.raises(Failure, match="TOPIC_AUTHORIZATION_FAILED"):
        reading().take([message(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])


def stalled_in_a_group(reading: TopicReader, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was handed no partition, over this time; --timeout is 10 seconds."""
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    monkeypatch.setattr(topic_reader, "leader_problem", lambda *_: "")
    stall = StallWatch(
        cast(ClusterConnection, Mock(timeout_s=10)), cast(Consumer, Mock(**{"assignment.return_value": []})), reading
    )
    for _ in range(seconds):
        now_s += 1
        stall.check()


def test_who_reads_to_the_end_gives_up_a_group_that_hands_out_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failure, match="assigned no partition to this member yet: the topic cannot be read to its end"):
        stalled_in_a_group(reading(ends={-1: 0}), 20, monkeypatch)
    assert capsys.readouterr().err.count("assigned no partition to this member yet; waiting") == 1


def test_a_member_that_its_group_does_not_need_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stalled_in_a_group(reading(most=5), 100, monkeypatch)
    assert capsys.readouterr().err.count("assigned no partition to this member yet; waiting") == 1
