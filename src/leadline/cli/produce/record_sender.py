"""The records that a producer sends, and their results."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leadline.admin.formatting import count_text, size_text, time_text
from leadline.admin.json_values import Json
from leadline.cli.delivery import DeliveryWatch
from leadline.cli.errors import print_error
from leadline.cli.produce.lines import QUEUE_WAIT_S, ParsedLine
from leadline.cli.terminal import StatusLine

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer


FAILURES_SHOWN = 5


@dataclass(slots=True)
class RecordSender:
    """Sends records and counts those that are stored and those that fail."""

    watch: DeliveryWatch
    partition: int
    timestamp: int | None
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    stored: int = 0
    failed: int = 0
    doubtful: int = 0  # failed records that were sent and may be stored
    size: int = 0
    partitions: set[int] = field(default_factory=set)
    last: "Message | None" = None

    @property
    def producer(self) -> "Producer":
        return self.watch.producer

    def send(self, line: ParsedLine) -> None:
        """DeliveryGivenUp if the queue stays full for --timeout."""
        from confluent_kafka import KafkaException

        key = line.key if self.key is None else self.key
        headers = self.headers + line.headers
        size = len(line.value or b"") + len(key or b"")
        self.watch.handing_over(size)
        timestamp = 0 if self.timestamp is None else self.timestamp
        while True:
            try:
                self.producer.produce(
                    self.watch.topic, line.value, key, self.partition, self._delivered, None, timestamp, headers or None
                )
                break
            except BufferError:
                self.wait(QUEUE_WAIT_S)
            except KafkaException as error:  # the client refuses it: too large
                self._lost(error.args[0], size)
                break
        self.wait(0)

    def wait(self, seconds: float) -> None:
        self.producer.poll(seconds)
        self.watch.check()

    def finish(self) -> None:
        """Wait until all records are stored or have failed. DeliveryGivenUp after --timeout."""
        with StatusLine() as status:
            while left := self.watch.pending:
                status.show(f"waiting for the last {count_text(left, 'record')}")
                self.wait(QUEUE_WAIT_S)

    def give_up(self) -> None:
        reason = self.watch.give_up()
        print_error(f"gave up: {reason}")

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if error is None:
            self.watch.settled(stored=True)
            self.stored += 1
            self.size += len(message) + len(message.key() or b"")
            self.partitions.add(message.partition() or 0)
            self.last = message
        else:
            self._lost(error, len(message) + len(message.key() or b""))

    def _lost(self, error: "KafkaError", size: int) -> None:
        from confluent_kafka import KafkaError

        self.watch.settled(stored=False)
        self.failed += 1
        self.doubtful += error.code() == KafkaError._PURGE_INFLIGHT
        if error.code() in (KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE):
            return  # `give_up` prints the reason once
        if self.failed <= FAILURES_SHOWN:
            too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            text = self.watch.too_large_text(size) if too_large else self.watch.reason_for(error)
            print_error(f"a record was not stored: {text}")

    def as_json(self, seconds: float) -> Json:
        return {
            "topic": self.watch.topic,
            "records": self.stored,
            "bytes": self.size,
            "partitions": sorted(self.partitions),
            "failed": self.failed,
            "doubtful": self.doubtful,
            "seconds": round(seconds, 3),
        }

    def summary(self, seconds: float) -> str:
        count = f"{count_text(self.stored, 'record')} ({size_text(self.size)})"
        where = f"{self.watch.topic}, {count_text(len(self.partitions), 'partition')}"
        doubt = f", {self.doubtful:,} of which may be stored" if self.doubtful else ""
        lost = f"; {count_text(self.failed, 'record')} not stored{doubt}" if self.failed else ""
        return f"produced {count} to {where}, in {time_text(seconds)}{lost}"
