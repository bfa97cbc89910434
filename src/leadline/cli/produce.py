"""leadline produce: records from a pipe, a file or the keyboard, into a topic.

One line is one record. Its parts stand in the order of Kafka's console producer, each only where it is asked for:

    headers   name:value,name:value   then a tab     with --parse-headers
    key       up to the separator                    with --key-separator
    value     the rest

With --transactional-id, all records of a run are one transaction: it is committed once all of them are stored, and
aborted otherwise.
"""

import argparse
import os
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from leadline.cli import COMMANDS
from leadline.cli.client import (
    ClusterConnection,
    Failure,
    Paint,
    add_command,
    at_least,
    complain,
    escaped,
    key_value,
    moment_ms,
)
from leadline.cli.delivery import DeliveryGivenUp, DeliveryWatch
from leadline.cli.terminal import StatusLine, count_text, size_text, time_text

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
QUEUE_WAIT_S = IDLE_S = 0.1
CHUNK_BYTES = 1 << 16
FAILURES_SHOWN = 5

EXAMPLES = r"""
  echo hello | leadline produce greetings
  leadline produce greetings                                  typed, a record a line; Ctrl-D ends
  leadline produce users --key-separator : < users.txt        lines like 42:Ada
  leadline produce users --key-separator : --null-marker NULL       42:NULL deletes key 42
  leadline produce orders --parse-headers < lines             lines like trace:7,source:web<tab>value
  leadline produce images --file cat.png --key cat            the whole file is one record
  leadline produce orders --transactional-id load-1 < orders.txt    all of the lines or none
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "produce",
        run,
        help=COMMANDS["produce"],
        usage="produce TOPIC [options]",
        examples=EXAMPLES,
    )
    parser.add_argument("topic", metavar="TOPIC")
    lines = parser.add_argument_group("what a line holds")
    lines.add_argument("--key-separator", type=escaped, metavar="TEXT", help=r"a key comes first, up to this (\t: tab)")
    lines.add_argument("--parse-headers", action="store_true", help="headers come first: name:value,name:value<tab>")
    lines.add_argument("--headers-delimiter", type=escaped, default=b"\t", metavar="TEXT", help="ends them (tab)")
    lines.add_argument("--headers-separator", type=escaped, default=b",", metavar="TEXT", help="between two (,)")
    lines.add_argument("--headers-key-separator", type=escaped, default=b":", metavar="TEXT", help="in one (:)")
    lines.add_argument("--null-marker", type=escaped, metavar="TEXT", help="a key or value that is this is null")
    lines.add_argument("--file", action="append", default=[], metavar="FILE", help="this whole file is one record")
    all_records = parser.add_argument_group("for all records")
    all_records.add_argument("--key", metavar="TEXT", help="one key for all of them")
    all_records.add_argument("--header", type=key_value, action="append", default=[], metavar="KEY=VALUE")
    all_records.add_argument("--partition", type=at_least(0), default=-1, metavar="N", help="else the key decides")
    all_records.add_argument("--timestamp", type=moment_ms, metavar="TIME", help="ISO 8601, ms since 1970, or -1h")
    sending = parser.add_argument_group("how they are sent")
    sending.add_argument("--compression", choices=CODECS)
    sending.add_argument("--acks", choices=["0", "1", "all"], help="who must have a record before it counts (all)")
    sending.add_argument("--idempotent", action="store_true", help="no duplicates, whatever the network does")
    sending.add_argument("--transactional-id", metavar="ID", help="all records in one transaction")


class ParsedLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class LineLayout:
    """How a line is taken apart."""

    key_separator: bytes | None = None
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    def parse(self, line: bytes, number: int) -> ParsedLine:
        key: bytes | None = None
        headers: list[tuple[str, str | bytes | None]] = []
        rest = line
        if self.parse_headers:
            before, found, rest = rest.partition(self.headers_delimiter)
            if not found:
                raise Failure(
                    f"line {number}: no {_short(self.headers_delimiter)} behind the headers in {_short(line)}"
                )
            if before and before != self.null_marker:
                headers = [self._header(part, number) for part in before.split(self.headers_separator)]
        if self.key_separator is not None:
            key, found, rest = rest.partition(self.key_separator)
            if not found:
                raise Failure(f"line {number}: no key separator {_short(self.key_separator)} in {_short(line)}")
        return ParsedLine(self._or_null(key), self._or_null(rest), headers)

    def _header(self, part: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = part.partition(self.headers_key_separator)
        if not found:
            raise Failure(f"line {number}: no {_short(self.headers_key_separator)} in the header {_short(part)}")
        return name.decode("utf-8", "replace"), self._or_null(value)

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part


def _short(data: bytes) -> str:
    return repr(data[:40].decode("utf-8", "replace")) + ("..." if len(data) > 40 else "")


def lines_in(lines: Iterable[bytes], layout: LineLayout) -> Iterator[ParsedLine]:
    for number, line in enumerate(lines, start=1):
        yield layout.parse(line.removesuffix(b"\n").removesuffix(b"\r"), number)


def files_in(paths: Iterable[str]) -> Iterator[ParsedLine]:
    for path in paths:
        yield ParsedLine(None, sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes(), [])


def lines_from(fd: int, idle: Callable[[], None]) -> Iterator[bytes]:
    """The lines that can be read from a descriptor; `idle` is called while none comes."""
    parts: list[bytes] = []  # of a line that has no end yet
    while True:
        if not select.select([fd], [], [], IDLE_S)[0]:
            idle()
            continue
        chunk = os.read(fd, CHUNK_BYTES)
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        parts.append(first)
        if others:
            yield b"".join(parts)
            yield from others[:-1]
            parts = [others[-1]]
    if last := b"".join(parts):
        yield last


@dataclass(slots=True)
class RecordSender:
    """What was handed to the client, and what became of it."""

    watch: DeliveryWatch
    partition: int
    timestamp: int | None
    key: bytes | None
    headers: list[tuple[str, str | bytes | None]]
    stored: int = 0
    failed: int = 0
    doubtful: int = 0  # of those that failed: they were sent, and may be stored
    size: int = 0
    partitions: set[int] = field(default_factory=set)
    last: "Message | None" = None

    @property
    def producer(self) -> "Producer":
        return self.watch.producer

    def send(self, line: ParsedLine) -> None:
        """GaveUp if the queue is full and does not move."""
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
            except KafkaException as error:  # refused before it was sent: too large
                self._lost(error.args[0], size)
                break
        self.wait(0)

    def wait(self, seconds: float) -> None:
        self.producer.poll(seconds)
        self.watch.check()

    def finish(self) -> None:
        """Until all of it is stored or failed; GaveUp once that takes too long."""
        with StatusLine() as status:
            while left := self.watch.pending:
                status.show(f"waiting for the last {count_text(left, 'record')}")
                self.wait(QUEUE_WAIT_S)

    def give_up(self) -> None:
        reason = self.watch.give_up()
        complain(f"gave up: {reason}")

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
            return  # told once, by whoever gave up
        if self.failed <= FAILURES_SHOWN:
            too_large = error.code() == KafkaError.MSG_SIZE_TOO_LARGE
            text = self.watch.too_large_text(size) if too_large else self.watch.reason_for(error)
            complain(f"a record was not stored: {text}")

    def summary(self, seconds: float) -> str:
        count = f"{count_text(self.stored, 'record')} ({size_text(self.size)})"
        where = f"{self.watch.topic}, {count_text(len(self.partitions), 'partition')}"
        doubt = f", {self.doubtful:,} of which may be stored all the same" if self.doubtful else ""
        lost = f"; {count_text(self.failed, 'record')} not stored{doubt}" if self.failed else ""
        return f"produced {count} to {where}, in {time_text(seconds)}{lost}"


def run(options: argparse.Namespace) -> int:
    connection = ClusterConnection(options)
    watch = DeliveryWatch(connection, options.topic, properties_of(options))
    known = connection.metadata(watch.producer, options.topic).topics[options.topic].partitions
    if known and options.partition >= len(known):
        raise Failure(f"{options.topic} has the partitions 0 to {len(known) - 1}: there is no {options.partition}")
    sending = RecordSender(
        watch,
        options.partition,
        options.timestamp,
        None if options.key is None else options.key.encode(),
        [(key, value.encode()) for key, value in options.header],
    )
    started = time.monotonic()
    try:
        if options.transactional_id is None:
            _send_all(sending, options)
        else:
            _in_a_transaction(sending, options, connection.timeout_s)
    except DeliveryGivenUp:
        sending.give_up()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the terminal wrote ^C there
        return 130
    finally:
        print(sending.summary(time.monotonic() - started), file=sys.stderr)
    return 1 if sending.failed else 0


def properties_of(options: argparse.Namespace) -> dict[str, str]:
    """What the options ask of the client."""
    given = {
        "compression.type": options.compression,
        "acks": options.acks,
        "transactional.id": options.transactional_id,
    }
    found: dict[str, str] = {key: value for key, value in given.items() if value is not None}
    if options.idempotent or options.transactional_id is not None:
        if options.acks in ("0", "1"):
            raise Failure(f"--acks {options.acks}: an idempotent or transactional producer waits for all replicas")
        found["enable.idempotence"] = "true"
    return found


def _send_all(sending: RecordSender, options: argparse.Namespace) -> None:
    """Everything there is; stored, or counted as failed. What came before a line that makes no sense is stored."""
    layout = LineLayout(
        options.key_separator,
        options.parse_headers,
        options.headers_delimiter,
        options.headers_separator,
        options.headers_key_separator,
        options.null_marker,
    )
    try:
        if options.file:
            _pipe(sending, files_in(options.file))
        elif sys.stdin.isatty():
            _converse(sending, layout)
        else:
            lines = lines_from(sys.stdin.fileno(), lambda: sending.wait(0))
            _pipe(sending, lines_in(lines, layout))
    except (Failure, KeyboardInterrupt):
        sending.finish()
        raise
    sending.finish()


def _pipe(sending: RecordSender, lines: Iterable[ParsedLine]) -> None:
    with StatusLine() as status:
        shown = 0.0
        for line in lines:
            sending.send(line)
            now = time.monotonic()
            if now - shown > 0.2:
                shown = now
                status.show(f"{sending.stored:,} records, {size_text(sending.size)}")


def _converse(sending: RecordSender, layout: LineLayout) -> None:
    """Typed by a person: each record is stored before the next prompt, and it is said where."""
    paint = Paint(sys.stderr)
    print(paint.dim("a record a line; Ctrl-D ends"), file=sys.stderr)
    number = 0
    while True:
        print(paint.cyan("> "), end="", file=sys.stderr, flush=True)
        text = sys.stdin.buffer.readline()
        number += 1
        if not text:
            print(file=sys.stderr)
            return
        try:
            line = layout.parse(text.removesuffix(b"\n"), number)
        except Failure as error:
            complain(str(error))
            continue
        sending.last = None
        try:
            sending.send(line)
            sending.finish()
        except DeliveryGivenUp:
            sending.give_up()
        if sending.last is not None:
            place = f"  partition {sending.last.partition()}, offset {sending.last.offset()}"
            print(paint.dim(place), file=sys.stderr)


def _in_a_transaction(sending: RecordSender, options: argparse.Namespace, timeout_s: float) -> None:
    producer = sending.producer
    producer.init_transactions(timeout_s)
    producer.begin_transaction()
    done = False
    try:
        _send_all(sending, options)
        done = not sending.failed
    finally:
        if done:
            producer.commit_transaction(timeout_s)
        else:
            producer.abort_transaction(timeout_s)
            complain("the transaction was aborted: readers of committed records see none of it")
