"""What `leadline consume` has read, and when it is complete or gives up."""

from threading import Event
from typing import cast
from unittest.mock import Mock

import pytest
from confluent_kafka import Consumer, KafkaError, Message

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.admin.record_format import as_text
from leadline.cli.consume import topic_reader
from leadline.cli.consume.topic_reader import StallWatch, TopicReader, leave


def message(offset: int = 42, error: KafkaError | None = None) -> Message:
    return Message("orders", 3, offset, b"k", b"v", None, error, (0, -1))


def reader_of(most: int | None = None, ends: dict[int, int] | None = None) -> TopicReader:
    return TopicReader("orders", most, ends, as_text(["offset"]))


def test_reading_stops_after_so_many_records() -> None:
    reader = reader_of(most=2)
    out, last = reader.take([message(1), message(2), message(3)])
    assert out == b"Offset:1\tv\nOffset:2\tv\n"
    assert last[3].offset() == 2
    assert reader.finished


def test_reading_to_the_end_stops_at_the_last_record_there_was() -> None:
    reader = reader_of(ends={3: 3})
    assert reader.take([message(1)])[0] == b"Offset:1\tv\n"
    assert not reader.finished
    assert reader.take([message(2), message(3)])[0] == b"Offset:2\tv\n"
    assert reader.finished


@pytest.mark.parametrize("later", [message(7), message(3, error=KafkaError(KafkaError._PARTITION_EOF))])
def test_the_end_is_found_though_the_last_offsets_hold_no_records(later: Message) -> None:
    reader = reader_of(ends={3: 3})
    assert reader.take([later])[0] == b""
    assert reader.finished


def test_another_error_ends_the_reading() -> None:
    with pytest.raises(Failure, match="TOPIC_AUTHORIZATION_FAILED"):
        reader_of().take([message(error=KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])


def stalled_in_a_group(reader: TopicReader, seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that was handed no partition, over this time; --timeout is 10 seconds."""
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    monkeypatch.setattr(topic_reader, "leader_problem", lambda *_: "")
    stall = StallWatch(
        cast(ClusterConnection, Mock(timeout_s=10)), cast(Consumer, Mock(**{"assignment.return_value": []})), reader
    )
    for _ in range(seconds):
        now_s += 1
        stall.check()


def test_a_consumer_to_the_end_gives_up_a_group_without_an_assignment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failure, match="assigned no partition to this member yet: the topic cannot be read to its end"):
        stalled_in_a_group(reader_of(ends={-1: 0}), 20, monkeypatch)
    assert capsys.readouterr().err.count("assigned no partition to this member yet; waiting") == 1


def test_a_member_that_its_group_does_not_need_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stalled_in_a_group(reader_of(most=5), 100, monkeypatch)
    assert capsys.readouterr().err.count("assigned no partition to this member yet; waiting") == 1


def stalled_on_a_leader(reader: TopicReader, problems: list[str], monkeypatch: pytest.MonkeyPatch) -> StallWatch:
    """A reader without records for a second per problem; --timeout is 10 seconds."""
    now_s = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    consumer = Mock(**{"assignment.return_value": [Mock(partition=3), Mock(partition=4)]})
    watch = StallWatch(cast(ClusterConnection, Mock(timeout_s=10)), cast(Consumer, consumer), reader)
    for problem in problems:
        monkeypatch.setattr(topic_reader, "leader_problem", lambda *_, problem=problem: problem)
        now_s += 1
        watch.check()
    return watch


def test_a_missing_leader_is_printed_once_and_is_fatal_only_for_a_reader_with_an_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stalled_on_a_leader(reader_of(), ["orders:3 has no leader"] * 100, monkeypatch)
    assert capsys.readouterr().err == "leadline: orders:3 has no leader; waiting\n"
    with pytest.raises(Failure, match="orders:3 has no leader: the topic cannot be read to its end"):
        stalled_on_a_leader(reader_of(ends={3: 7}), ["orders:3 has no leader"] * 20, monkeypatch)


def test_a_problem_that_comes_back_after_a_record_is_printed_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = stalled_on_a_leader(reader_of(), ["orders:3 has no leader"] * 5, monkeypatch)
    watch.ended()
    monkeypatch.setattr("time.monotonic", lambda: 20.0)
    watch.check()
    assert capsys.readouterr().err.count("orders:3 has no leader; waiting") == 2


def test_only_partitions_that_are_not_read_to_their_end_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = stalled_on_a_leader(reader_of(ends={4: 7}), [], monkeypatch)
    checked: list[list[int]] = []

    def no_problem(_: object, __: object, ___: str, partitions: list[int]) -> str:
        checked.append(partitions)
        return ""

    monkeypatch.setattr(topic_reader, "leader_problem", no_problem)
    monkeypatch.setattr("time.monotonic", lambda: 5.0)
    watch.check()
    assert checked == [[4]]


def test_the_summary_counts_records_and_bytes() -> None:
    reader = reader_of()
    reader.take([message(1)])
    assert reader.summary(0.5) == "consumed 1 record (2 B) from orders, in 500 ms"


def test_a_member_whose_coordinator_is_gone_leaves_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    answered = Event()
    leave(cast(Consumer, Mock(close=answered.wait)), 0.01)
    answered.set()
    assert capsys.readouterr().err.startswith("leadline: no coordinator answered within 0.01 s: the group was not left")


def test_a_member_leaves_its_group_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    consumer = Mock()
    leave(cast(Consumer, consumer), 60)
    assert consumer.close.called
    assert capsys.readouterr().err == ""
