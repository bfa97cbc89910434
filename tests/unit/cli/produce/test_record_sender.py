"""Records that a producer sends: what is stored, what fails, what may be stored."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Message

from leadline.cli.delivery import DeliveryGivenUp, DeliveryWatch
from leadline.cli.produce.lines import ParsedLine
from leadline.cli.produce.record_sender import FAILURES_SHOWN, RecordSender

Outcome = KafkaError | None


class WatchedProducer:
    """A DeliveryWatch and its producer. Each poll that waits settles the next record with the next outcome."""

    def __init__(self, outcomes: list[Outcome], queue: int = 100, patience: int = 100) -> None:
        self.topic, self.pending, self.producer = "orders", 0, self
        self.sent: list[tuple[Any, ...]] = []
        self._patience = patience  # checks until it gives up
        self._outcomes, self._queue, self._unsettled = outcomes, queue, list[Callable[[], None]]()

    def handing_over(self, size: int) -> None:
        self.pending += 1

    def settled(self, *, stored: bool) -> None:
        self.pending -= 1

    def check(self) -> None:
        self._patience -= 1
        if not self._patience:
            raise DeliveryGivenUp

    def reason_for(self, error: KafkaError) -> str:
        return error.name()

    def too_large_text(self, size: int) -> str:
        return f"it has {size} B"

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, delivered: Any, *others: Any) -> None:
        if len(self._unsettled) >= self._queue:
            raise BufferError
        if value == b"too large":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        self.sent.append((key, value, partition, *others))
        message = Message(topic, 3, 0, key, value, None, None, (0, -1))
        self._unsettled.append(lambda: delivered(self._outcomes.pop(0), message))

    def poll(self, seconds: float) -> None:
        if seconds and self._unsettled and self._outcomes:
            self._unsettled.pop(0)()


def sender_of(watch: WatchedProducer, key: bytes | None = None) -> RecordSender:
    return RecordSender(cast(DeliveryWatch, watch), -1, None, key, [("all", b"1")])


def line(value: bytes, key: bytes | None = None) -> ParsedLine:
    return ParsedLine(key, value, [("own", b"2")])


def test_the_key_and_the_headers_of_all_records_come_first() -> None:
    watch = WatchedProducer([None, None])
    sender_of(watch).send(line(b"v", key=b"k"))
    sender_of(watch, key=b"fixed").send(line(b"v", key=b"k"))
    assert [(key, value) for key, value, *_ in watch.sent] == [(b"k", b"v"), (b"fixed", b"v")]
    assert watch.sent[0][-1] == [("all", b"1"), ("own", b"2")]


def test_the_summary_counts_stored_failed_and_doubtful_records(capsys: pytest.CaptureFixture[str]) -> None:
    in_flight, refused = KafkaError(KafkaError._PURGE_INFLIGHT), KafkaError(KafkaError.INVALID_RECORD)
    sender = sender_of(WatchedProducer([None, in_flight, refused, None]))
    for _ in range(4):
        sender.send(line(b"abc", key=b"k"))
    sender.finish()
    assert (sender.stored, sender.failed, sender.doubtful) == (2, 2, 1)
    assert sender.summary(2.5) == (
        "produced 2 records (8 B) to orders, 1 partition, in 2.5 s; 2 records not stored, 1 of which may be stored"
    )
    assert capsys.readouterr().err == "leadline: a record was not stored: INVALID_RECORD\n"


def test_a_record_that_the_client_refuses_is_reported_with_its_size_and_the_next_is_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = WatchedProducer([None])
    sender = sender_of(watch)
    sender.send(line(b"too large"))
    sender.send(line(b"v"))
    sender.finish()
    assert (sender.failed, sender.stored, watch.pending) == (1, 1, 0)
    assert capsys.readouterr().err == "leadline: a record was not stored: it has 9 B\n"


def test_only_the_first_failures_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    sender = sender_of(WatchedProducer([KafkaError(KafkaError.INVALID_RECORD)] * 20))
    for _ in range(20):
        sender.send(line(b"v"))
    sender.finish()
    assert sender.failed == 20
    assert capsys.readouterr().err.count("a record was not stored") == FAILURES_SHOWN


def test_a_full_queue_is_waited_for() -> None:
    watch = WatchedProducer([None, None], queue=1)
    sender = sender_of(watch)
    sender.send(line(b"1"))
    assert sender.stored == 0
    sender.send(line(b"2"))
    assert (sender.stored, len(watch.sent)) == (1, 2)


def test_a_queue_that_stays_full_is_given_up() -> None:
    sender = sender_of(WatchedProducer([], queue=1, patience=10))
    sender.send(line(b"1"))
    with pytest.raises(DeliveryGivenUp):
        sender.send(line(b"2"))
