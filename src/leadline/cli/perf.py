"""leadline perf: measures the throughput of writes and reads, and the latency from producer to consumer.

The measurement includes the client: librdkafka, and Python around it. It serves to compare clusters and settings on one
machine, not to find the limit of a broker.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure, client_error_text, is_about_group
from leadline.admin.formatting import count_text, size_text, time_text
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.delivery import DeliveryGivenUp, DeliveryWatch
from leadline.cli.options import add_command, at_least
from leadline.cli.output import add_output_option, print_result
from leadline.cli.produce.command import CODECS
from leadline.cli.terminal import StatusLine, TextStyles

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message, Producer

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
SECONDS = 10.0
MAX_BATCH_RECORDS = 10_000
BURST = 100
WAIT_S = 0.2

PRODUCE = """
  leadline perf produce bench --records 1000000 --size 100
  leadline perf produce bench --seconds 30 --size 1000 --compression lz4 --property linger.ms=20
  leadline perf produce bench --seconds 30 --rate 5000       latencies under a steady load
"""
CONSUME = """
  leadline perf consume bench                                for 10 seconds, from the beginning
  leadline perf consume bench --records 1000000 --json
"""
LATENCY = """
  leadline perf latency bench --records 1000                 1000 round trips
  leadline perf latency bench --seconds 5 --size 1000
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "perf",
        prog="leadline perf",
        help=COMMANDS["perf"].help,
        usage="leadline perf (produce | consume | latency) TOPIC ...",
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    produce = add_command(
        subcommands,
        "produce",
        _produce,
        help="measure how fast records are written",
        usage="perf produce TOPIC [options]",
        examples=PRODUCE,
    )
    consume = add_command(
        subcommands,
        "consume",
        _consume,
        help="measure how fast records are read",
        usage="perf consume TOPIC [options]",
        examples=CONSUME,
    )
    latency = add_command(
        subcommands,
        "latency",
        _latency,
        help="measure the time from producer to consumer, one record at a time",
        usage="perf latency TOPIC [options]",
        examples=LATENCY,
    )
    for leaf in (produce, consume, latency):
        leaf.add_argument("topic", metavar="TOPIC", help="an existing topic")
        duration = leaf.add_argument_group("duration")
        duration.add_argument("--records", type=at_least(1), metavar="N", help="number of records")
        duration.add_argument(
            "--seconds", type=float, metavar="S", help="seconds to run (default 10, unless --records is given)"
        )
        add_output_option(leaf)
    for leaf in (produce, latency):
        leaf.add_argument(
            "--size", type=at_least(0), default=100, metavar="BYTES", help="size of a record's value (default 100)"
        )
        leaf.add_argument("--acks", choices=["0", "1", "all"], default="all")
    produce.add_argument("--rate", type=at_least(1), metavar="N", help="maximum records per second")
    produce.add_argument("--compression", choices=CODECS, default="none")


class Latencies:
    """A histogram of microseconds, exact to one part in 128. Its size does not grow with the number of values."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        us = int(seconds * 1_000_000)
        shift = max(us.bit_length() - 8, 0)
        self._counts[us >> shift << shift] += 1

    def percentile_ms(self, percent: float) -> float | None:
        """The least time within which `percent` of all were done."""
        total = sum(self._counts.values())
        passed = 0
        for us in sorted(self._counts):
            passed += self._counts[us]
            if passed * 100 >= total * percent:
                return us / 1000
        return None

    def as_json(self) -> dict[str, Json]:
        percentiles: dict[str, Json] = {f"p{percent:g}": self.percentile_ms(percent) for percent in PERCENTILES}
        return percentiles | {"max": self.percentile_ms(100)}

    def __str__(self) -> str:
        named = [(f"p{percent:g}", self.percentile_ms(percent)) for percent in PERCENTILES]
        named.append(("max", self.percentile_ms(100)))
        return "  ".join(f"{name} {_ms(value)}" for name, value in named if value is not None)


def _ms(value: float) -> str:
    digits = 3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} ms"


@dataclass(slots=True)
class Measurement:
    """One measurement: bounds, progress and result."""

    max_records: int | None
    max_seconds: float | None
    started: float = field(default_factory=time.monotonic)
    ended: float | None = None
    count: int = 0
    size: int = 0
    latencies: dict[str, Latencies] = field(default_factory=dict)

    @classmethod
    def of(cls, options: argparse.Namespace) -> "Measurement":
        seconds = SECONDS if options.records is None and options.seconds is None else options.seconds
        return cls(options.records, seconds)

    @property
    def seconds(self) -> float:
        return max((self.ended or time.monotonic()) - self.started, 1e-9)

    def continues(self, done: int) -> bool:
        complete = self.max_records is not None and done >= self.max_records
        return not complete and (self.max_seconds is None or self.seconds < self.max_seconds)

    def next_burst(self, done: int, max_burst: int) -> int:
        """The number of records until the next check of the time."""
        return max_burst if self.max_records is None else min(max_burst, self.max_records - done)

    def progress(self) -> str:
        parts = [f"{self.count:,} records", f"{self.count / self.seconds:,.0f}/s"]
        parts.append(f"{size_text(round(self.size / self.seconds))}/s")
        if self.max_records is not None:
            parts.append(f"{self.count / self.max_records:.0%}")
        elif self.max_seconds is not None:
            parts.append(f"{min(self.seconds / self.max_seconds, 1):.0%}")
        return ", ".join(parts)

    def print_summary(self, options: argparse.Namespace) -> None:
        rate, mb = self.count / self.seconds, self.size / self.seconds / 1e6
        members: dict[str, Json] = {
            "records": self.count,
            "bytes": self.size,
            "seconds": round(self.seconds, 6),
            "records_per_second": round(rate, 1),
            "megabytes_per_second": round(mb, 3),
        }
        members |= {f"{name}_ms": latencies.as_json() for name, latencies in self.latencies.items()}
        paint = TextStyles(sys.stdout)
        lines = [
            f"records     {self.count:,} ({size_text(self.size)}) in {time_text(self.seconds)}",
            f"throughput  {paint.bold(f'{rate:,.0f} records/s')}, {paint.bold(f'{mb:,.2f} MB/s')}",
            *(f"{name:<10}  {taken}" for name, taken in self.latencies.items()),
        ]
        print_result(options, members, "\n".join(lines))


class _ProgressLine:
    """A status line, updated five times per second."""

    def __init__(self, status: StatusLine, measurement: Measurement) -> None:
        self._status, self._measurement, self._shown_s = status, measurement, 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._shown_s > WAIT_S:
            self._shown_s = now
            self._status.show(self._measurement.progress())


def _produce(options: argparse.Namespace) -> int:
    from confluent_kafka import KafkaError, KafkaException

    connection = ClusterConnection(options)
    watch = DeliveryWatch(connection, options.topic, {"acks": options.acks, "compression.type": options.compression})
    producer = watch.producer
    connection.partitions_of(producer, options.topic)
    values = payloads(options.size)
    measurement = Measurement.of(options)
    latencies = measurement.latencies["latency"] = Latencies()
    failures: list[KafkaError] = []

    def delivered(error: "KafkaError | None", message: "Message") -> None:
        watch.settled(stored=error is None)
        if error is not None:
            failures.append(error)
            return
        measurement.count += 1
        measurement.size += options.size
        latencies.add(message.latency() or 0.0)

    reason = ""
    sent, burst = 0, BURST if options.rate is None else 1 + options.rate // 1000
    with StatusLine() as status:
        show = _ProgressLine(status, measurement)
        try:
            while measurement.continues(sent) and not failures:
                try:
                    for _ in range(measurement.next_burst(sent, burst)):
                        producer.produce(options.topic, values[sent % len(values)], on_delivery=delivered)
                        watch.handing_over(options.size)
                        sent += 1
                except BufferError:
                    producer.poll(WAIT_S)
                except KafkaException as error:  # the client refuses it: too large
                    failures.append(error.args[0])
                producer.poll(0)
                watch.check()
                while options.rate is not None and (ahead := sent / options.rate - measurement.seconds) > 0:
                    producer.poll(min(ahead, WAIT_S))
                show()
        except KeyboardInterrupt:
            pass
        except DeliveryGivenUp:
            reason = watch.give_up()
        try:
            while watch.pending:
                producer.poll(WAIT_S)
                watch.check()
                show()
        except DeliveryGivenUp:
            reason = watch.give_up()
    measurement.ended = time.monotonic()
    measurement.print_summary(options)
    if failures:
        too_large = failures[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        text = watch.too_large_text(options.size) if too_large else reason or watch.reason_for(failures[0])
        raise Failure(f"{count_text(len(failures), 'record')} not stored: {text}")
    return 0


def payloads(size: int) -> list[bytes]:
    """Random letters and digits, the same in each run. They compress a little, as real values do."""
    random = Random(size)
    alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    return [bytes(random.choices(alphabet, k=size)) for _ in range(max(1, min(1000, 10_000_000 // max(size, 1))))]


def _consume(options: argparse.Namespace) -> int:
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    connection = ClusterConnection(options)
    consumer = connection.consumer(_CONSUMER)
    partitions = connection.partitions_of(consumer, options.topic)
    measurement, idle_since = Measurement.of(options), time.monotonic()
    consumer.assign([TopicPartition(options.topic, partition, OFFSET_BEGINNING) for partition in partitions])
    with StatusLine() as status:
        show = _ProgressLine(status, measurement)
        try:
            while measurement.continues(measurement.count) and time.monotonic() - idle_since < connection.timeout_s:
                burst = measurement.next_burst(measurement.count, MAX_BATCH_RECORDS)
                messages = _records(consumer.consume(burst, WAIT_S))
                if not messages:
                    show()
                    continue
                measurement.size += sum(map(len, messages))
                measurement.count += len(messages)
                idle_since = time.monotonic()
                measurement.ended = idle_since  # idle time at the end does not count
                show()
        except KeyboardInterrupt:
            pass
    consumer.close()
    measurement.print_summary(options)
    if (
        measurement.max_records is not None
        and measurement.count < measurement.max_records
        and measurement.max_seconds is None
    ):
        counts = f"{measurement.count:,} of {measurement.max_records:,} records"
        raise Failure(f"only {counts} within {connection.timeout_s:g} s (--timeout)")
    return 0


_CONSUMER = {"group.id": "leadline-perf", "enable.auto.commit": "false", "auto.offset.reset": "earliest"}


def _latency(options: argparse.Namespace) -> int:
    from confluent_kafka import OFFSET_END, TopicPartition

    connection = ClusterConnection(options)
    producer = connection.producer({"acks": options.acks, "linger.ms": "0", "socket.nagle.disable": "true"})
    consumer = connection.consumer({**_CONSUMER, "fetch.wait.max.ms": "500", "socket.nagle.disable": "true"})
    connection.partitions_of(consumer, options.topic)
    partition = TopicPartition(options.topic, 0, OFFSET_END)
    _, end = consumer.get_watermark_offsets(partition, timeout=connection.timeout_s)
    partition.offset = end
    consumer.assign([partition])
    values = payloads(options.size)
    _round_trip(
        producer, consumer, options.topic, values[0], connection.timeout_s
    )  # opens connections before the measurement
    measurement = Measurement.of(options)
    stored, received = measurement.latencies["stored"], measurement.latencies["received"] = Latencies(), Latencies()
    with StatusLine() as status:
        show = _ProgressLine(status, measurement)
        try:
            while measurement.continues(measurement.count):
                value = values[measurement.count % len(values)]
                at_broker, at_consumer = _round_trip(producer, consumer, options.topic, value, connection.timeout_s)
                stored.add(at_broker)
                received.add(at_consumer)
                measurement.count += 1
                measurement.size += options.size
                show()
        except KeyboardInterrupt:
            pass
    measurement.ended = time.monotonic()
    consumer.close()
    measurement.print_summary(options)
    return 0


def _round_trip(
    producer: "Producer", consumer: "Consumer", topic: str, value: bytes, timeout_s: float
) -> tuple[float, float]:
    """Seconds until the record was acknowledged, and until the consumer received it."""
    acknowledged: list[float] = []

    def delivered(error: "KafkaError | None", _: "Message") -> None:
        if error is not None:
            raise Failure(f"a record was not stored: {client_error_text(error)}")
        acknowledged.append(time.perf_counter())

    sent_s = time.perf_counter()
    producer.produce(topic, value, partition=0, on_delivery=delivered)
    while not acknowledged:
        if producer.poll(timeout_s) == 0 and not acknowledged:
            raise Failure(f"a record was not acknowledged within {timeout_s:g} s (--timeout)")
    received: list[Message] = []
    while not received:
        message = consumer.poll(timeout_s)
        if message is None:
            raise Failure(f"a record was not received within {timeout_s:g} s (--timeout)")
        received = _records([message])
    received_s = time.perf_counter()
    if received[0].value() != value:
        raise Failure(f"another producer writes to {topic}: the received record is not the one that was sent")
    return acknowledged[0] - sent_s, received_s - sent_s


def _records(messages: "Sequence[Message]") -> "list[Message]":
    """The records, without errors about the group, which is not used. Raises Failure for any other error."""
    errors = [error for message in messages if (error := message.error()) is not None and not is_about_group(error)]
    if errors:
        raise Failure(client_error_text(errors[0]))
    return [message for message in messages if message.error() is None]
