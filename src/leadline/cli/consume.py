"""leadline consume: the records of a topic, to a pipe or a terminal.

Text is what Kafka's console consumer prints: the value alone, or with --print, separated by tabs and in this order,

    CreateTime:1700000000000   Partition:0   Offset:42   name:value,name:value   key   value

JSON is one object a line. Bytes that are not UTF-8 are base64 there, under keyBase64 and valueBase64.

Without --group nobody else is disturbed: partitions are read directly and no offset is committed. With it, the group
hands out the partitions, and what was written out is committed.
"""

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS
from leadline.cli.client import (
    ClusterConnection,
    Failure,
    Json,
    Paint,
    add_command,
    at_least,
    complain,
    escaped,
    json_bytes,
    moment_ms,
    text_of,
)
from leadline.cli.leaders import led, trouble_of
from leadline.cli.offset_plan import OffsetRange
from leadline.cli.offsets import edges_of
from leadline.cli.terminal import StatusLine, ctrl_c, size_text, time_text
from leadline.model import TopicPartition as Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

FIELDS = ("key", "partition", "offset", "timestamp", "headers")
AT_ONCE = 1000
NO_ASSIGNMENT = "the group has handed out no partition to this reader yet"
STALL_S = 3.0  # without a record, until a person is told why
OFFSET_TAIL_BASE = -2000  # librdkafka's: so many before the end
WAIT_S = 0.2
TIME_TYPES = {1: "CreateTime", 2: "LogAppendTime"}

EXAMPLES = """
  leadline consume orders                                     what comes from now on; Ctrl-C ends
  leadline consume orders --from-beginning --to-end           all there is
  leadline consume orders --offset -10 --to-end               the last ten of each partition
  leadline consume orders --from-time -1h --format json | jq .value
  leadline consume orders --from-time 2024-05-01T12:00 --max 100
  leadline consume orders --partition 0 --offset 42 --max 1 --print key,timestamp,headers
  leadline consume orders --group billing                     as one of a group; commits what it wrote out
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "consume",
        run,
        help=COMMANDS["consume"],
        usage="consume TOPIC [options]",
        examples=EXAMPLES,
    )
    parser.add_argument("topic", metavar="TOPIC")
    where = parser.add_argument_group("where to start (default: at the end)")
    where.add_argument("--partition", type=partitions, action="extend", metavar="N[,N...]", help="only these")
    start = where.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true")
    start.add_argument("--offset", type=int, metavar="N", help="this one; -N: N before the end")
    start.add_argument("--from-time", type=moment_ms, metavar="TIME", help="ISO 8601, ms since 1970, or -1h")
    end = parser.add_argument_group("where to stop (default: at Ctrl-C)")
    end.add_argument("--to-end", action="store_true", help="at what is the end when it starts")
    end.add_argument("--max", type=at_least(1), metavar="N", help="after so many records")
    how = parser.add_argument_group("how to read")
    how.add_argument("--group", metavar="G", help="as one of this group, which goes on where it left off")
    how.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], default="read_uncommitted")
    out = parser.add_argument_group("what to write")
    out.add_argument("--format", choices=["text", "json"], default="text")
    out.add_argument("--print", type=fields, default=(), metavar="FIELD,...", help=f"some of {', '.join(FIELDS)}")
    out.add_argument("--key-separator", type=escaped, default=b"\t", metavar="TEXT", help="between fields (tab)")


def partitions(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"expected numbers separated by commas, not {text!r}")
    return [int(part) for part in text.split(",")]


def fields(text: str) -> tuple[str, ...]:
    asked = tuple(text.split(","))
    for name in asked:
        if name not in FIELDS:
            raise argparse.ArgumentTypeError(f"no field {name!r}: expected some of {', '.join(FIELDS)}")
    return asked


# What a record looks like

Layout = Callable[["Message"], bytes]


def as_text(print_fields: Sequence[str], separator: bytes = b"\t") -> Layout:
    def layout(message: "Message") -> bytes:
        parts: list[bytes] = []
        if "timestamp" in print_fields:
            kind, timestamp = message.timestamp()
            parts.append(f"{TIME_TYPES[kind]}:{timestamp}".encode() if kind in TIME_TYPES else b"NO_TIMESTAMP")
        if "partition" in print_fields:
            parts.append(b"Partition:%d" % (message.partition() or 0))
        if "offset" in print_fields:
            parts.append(b"Offset:%d" % (message.offset() or 0))
        if "headers" in print_fields:
            found = [name.encode() + b":" + _or_null(value) for name, value in headers_of(message)]
            parts.append(b",".join(found) or b"NO_HEADERS")
        if "key" in print_fields:
            parts.append(_or_null(message.key()))
        parts.append(_or_null(message.value()))
        return separator.join(parts) + b"\n"

    return layout


def headers_of(message: "Message") -> list[tuple[str, bytes | None]]:
    given = message.headers() or []
    pairs = given.items() if isinstance(given, dict) else given
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]


def _or_null(data: bytes | None) -> bytes:
    return b"null" if data is None else data


def as_json(print_fields: Sequence[str]) -> Layout:
    """Everything, or the value and what was asked for."""
    wanted = frozenset(print_fields or FIELDS)

    def layout(message: "Message") -> bytes:
        kind, timestamp = message.timestamp()
        headers: list[Json] = [{"key": name, **json_bytes("value", value)} for name, value in headers_of(message)]
        every: dict[str, dict[str, Json]] = {
            "partition": {"partition": message.partition()},
            "offset": {"offset": message.offset()},
            "timestamp": {"timestamp": timestamp, "timestampType": TIME_TYPES.get(kind)},
            "headers": {"headers": headers},
            "key": json_bytes("key", message.key()),
        }
        found: dict[str, Json] = {"topic": message.topic()}
        for name, members in every.items():
            found |= members if name in wanted else {}
        found |= json_bytes("value", message.value())
        return json.dumps(found, ensure_ascii=False).encode() + b"\n"

    return layout


# Reading


@dataclass(slots=True)
class TopicReader:
    """How far it has come, and whether that is far enough."""

    topic: str
    most: int | None  # records
    ends: dict[int, int] | None  # of the partitions still to be read to their end; None: read on
    layout: Layout
    stores: bool = False  # for a group
    count: int = 0
    size: int = 0

    @property
    def finished(self) -> bool:
        return self.count == self.most or (self.ends is not None and not self.ends)

    @property
    def is_bounded(self) -> bool:
        return self.most is not None or self.ends is not None

    def take(self, messages: "Sequence[Message]") -> "tuple[bytes, dict[int, Message]]":
        """What to write out, and the last record of each partition in it."""
        from confluent_kafka import KafkaError

        out: list[bytes] = []
        last: dict[int, Message] = {}
        for message in messages:
            partition, offset = message.partition() or 0, message.offset() or 0
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise Failure(f"{self.topic}: {text_of(error)}")
                if self.ends is not None:
                    self.ends.pop(partition, None)
            elif not self.finished and self._is_wanted(partition, offset):
                out.append(self.layout(message))
                last[partition] = message
                self.count += 1
                self.size += len(message) + len(message.key() or b"")
        return b"".join(out), last

    def _is_wanted(self, partition: int, offset: int) -> bool:
        if self.ends is None:
            return True
        end = self.ends.get(partition, -1)
        if offset >= end - 1:
            self.ends.pop(partition, None)
        return offset < end

    def summary(self, seconds: float) -> str:
        count = f"{self.count:,} record{'s' if self.count != 1 else ''} ({size_text(self.size)})"
        return f"consumed {count} from {self.topic}, in {time_text(seconds)}"


NO_END = 1 << 63  # a group's partition ends where the client says so


def run(options: argparse.Namespace) -> int:
    connection = ClusterConnection(options)
    group = options.group or connection.properties.get("group.id")
    if group is not None and (options.partition or options.offset is not None or options.from_time is not None):
        raise Failure("--group hands out partitions and offsets: leave out --partition, --offset and --from-time")
    layout = as_json(options.print) if options.format == "json" else as_text(options.print, options.key_separator)
    reading = TopicReader(options.topic, options.max, {} if options.to_end else None, layout, group is not None)
    consumer = connection.consumer(
        {
            "group.id": group or "leadline",
            "enable.auto.commit": "true" if group is not None else "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest" if options.from_beginning else "latest",
            "isolation.level": options.isolation,
            **({"fetch.wait.max.ms": "100"} if options.to_end else {}),  # the end is found by waiting behind it
        }
    )
    try:
        known = sorted(connection.partitions_of(consumer, options.topic))
        if group is not None:
            _join(consumer, reading)
        else:
            _assign(connection, consumer, reading, options, known)
        return _read(connection, consumer, reading)
    finally:
        consumer.close()


def _join(consumer: "Consumer", reading: TopicReader) -> None:
    """To the end means: to the end of all that the group hands to this member, once it has handed out something."""

    def assigned(_: "Consumer", given: "list[TopicPartition]") -> None:
        if reading.ends is not None:
            reading.ends.pop(-1, None)
            reading.ends |= {found.partition: NO_END for found in given}

    if reading.ends is not None:
        reading.ends[-1] = NO_END
    consumer.subscribe([reading.topic], on_assign=assigned)


def _assign(
    connection: ClusterConnection,
    consumer: "Consumer",
    reading: TopicReader,
    options: argparse.Namespace,
    known: Sequence[int],
) -> None:
    from confluent_kafka import TopicPartition

    for partition in options.partition or ():
        if partition not in known:
            raise Failure(f"{reading.topic} has the partitions 0 to {len(known) - 1}: there is no {partition}")
    chosen = [TopicPartition(reading.topic, partition) for partition in options.partition or known]
    edges = _edges(connection, consumer, reading, chosen, needed=options.from_time is not None)
    for found in chosen:
        if (at := edges.get(Partition(found.topic, found.partition))) is None:
            found.offset = logical_offset(options)
            continue
        found.offset = start_offset(options, found, at.start, at.end)
        if reading.ends is not None and found.offset < at.end:
            reading.ends[found.partition] = at.end
    if options.from_time is not None:
        _seek_time(connection, consumer, chosen, options.from_time, reading)
    consumer.assign(chosen)


def _edges(
    connection: ClusterConnection,
    consumer: "Consumer",
    reading: TopicReader,
    chosen: "list[TopicPartition]",
    *,
    needed: bool,
) -> dict[Partition, OffsetRange]:
    """Where partitions start and end. What nobody leads is told, and waited for if it cannot be read without."""
    partitions = [Partition(each.topic, each.partition) for each in chosen]
    complained, needed = "", needed or reading.ends is not None
    while True:
        cluster = connection.metadata(consumer)
        trouble = trouble_of(connection, cluster, reading.topic, [tp.partition for tp in partitions])
        if trouble and trouble != complained:
            complained = trouble
            complain(f"{trouble}; waiting{f' for {connection.timeout_s:g} s (--timeout)' if needed else ''}")
        if not trouble or not needed:
            break
        time.sleep(WAIT_S)
        if connection.left_s < STALL_S / 3:  # too little to ask once more
            raise Failure(f"{trouble}: not all of it can be read")
        connection.look_again(cluster)
    connection.start_again()
    admin = connection.admin()
    return edges_of(connection, admin, led(connection, admin, partitions))


def logical_offset(options: argparse.Namespace) -> int:
    """Where to start in a partition whose offsets nobody can tell now: its leader will."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

    if options.from_beginning:
        return OFFSET_BEGINNING
    if options.offset is None:
        return OFFSET_END
    return int(options.offset) if options.offset >= 0 else OFFSET_TAIL_BASE + int(options.offset)


def start_offset(options: argparse.Namespace, at: "TopicPartition", low: int, high: int) -> int:
    if options.from_beginning or options.from_time is not None:
        return low
    if options.offset is None:
        return high
    if options.offset < 0:
        return max(low, high + int(options.offset))
    if not low <= options.offset <= high:
        raise Failure(f"{at.topic}-{at.partition} holds the offsets {low} to {high}: there is no {options.offset}")
    return int(options.offset)


def _seek_time(
    connection: ClusterConnection,
    consumer: "Consumer",
    chosen: "list[TopicPartition]",
    timestamp: int,
    reading: TopicReader,
) -> None:
    """To the first record that is as young as this; to the end where there is none."""
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(found.topic, found.partition, timestamp) for found in chosen]
    answers = consumer.offsets_for_times(asked, timeout=connection.timeout_s)
    for found, answer in zip(chosen, answers, strict=True):
        if answer.error is not None:
            raise Failure(f"{found.topic}-{found.partition}: {text_of(answer.error)}")
        found.offset = answer.offset
        if answer.offset < 0 and reading.ends is not None:
            reading.ends.pop(found.partition, None)


def _read(connection: ClusterConnection, consumer: "Consumer", reading: TopicReader) -> int:
    """Until it is finished or a person ends it; with a summary, unless the reader behind the pipe has gone."""
    started = time.monotonic()
    with ctrl_c() as pressed:
        _copy(connection, consumer, reading, pressed)
    if pressed.is_set():
        print(file=sys.stderr)  # the terminal wrote ^C there
    print(reading.summary(time.monotonic() - started), file=sys.stderr)
    return 130 if pressed.is_set() and reading.is_bounded else 0


class StallWatch:
    """Tells why nothing comes, if that is because of a leader; a Failure once a reader with an end waited too long."""

    def __init__(self, connection: ClusterConnection, consumer: "Consumer", reading: TopicReader) -> None:
        self._connection, self._consumer, self._reading = connection, consumer, reading
        self._since = self._looked = time.monotonic()
        self._told = ""

    def ended(self) -> None:
        self._since = time.monotonic()
        self._told = ""

    def check(self) -> None:
        now = time.monotonic()
        if now - max(self._since, self._looked) < STALL_S:
            return
        self._looked = now
        trouble = self._trouble()
        if not self._consumer.assignment():
            trouble = NO_ASSIGNMENT
        if trouble and trouble != self._told:
            self._told = trouble
            complain(f"{trouble}; waiting")
        if self._is_fatal(trouble) and now - self._since > self._connection.timeout_s + STALL_S:
            raise Failure(f"{trouble}: not all of it can be read")

    def _is_fatal(self, trouble: str) -> bool:
        """A member that its group does not need may wait. One that reads to the end would be done, if it had joined."""
        if trouble == NO_ASSIGNMENT:
            return self._reading.ends is not None
        return self._reading.is_bounded and bool(trouble)

    def _trouble(self) -> str:
        partitions = [each.partition for each in self._consumer.assignment()]
        if self._reading.ends is not None:
            partitions = [number for number in partitions if number in self._reading.ends]
        self._connection.start_again()
        try:
            cluster = self._connection.metadata(self._consumer)
        except Failure as error:
            return str(error)
        if self._reading.is_bounded:  # who follows a topic may hear nothing for hours: nobody is asked meanwhile
            self._connection.look_again(cluster)
        return trouble_of(self._connection, cluster, self._reading.topic, partitions)


def _copy(connection: ClusterConnection, consumer: "Consumer", reading: TopicReader, ended: Event) -> None:
    out = sys.stdout.buffer
    paint, piped = Paint(sys.stdout), not sys.stdout.isatty()
    shown, stall = 0.0, StallWatch(connection, consumer, reading)
    with StatusLine() as status:
        while not (reading.finished or ended.is_set()):
            first = consumer.poll(WAIT_S)
            if first is None:
                stall.check()
            else:
                stall.ended()
                data, last = reading.take([first, *consumer.consume(AT_ONCE, 0)])
                out.write(data if piped else paint.harmless(data.decode("utf-8", "replace")).encode())
                out.flush()
                for message in last.values() if reading.stores else ():
                    consumer.store_offsets(message=message)
            now = time.monotonic()
            if piped and now - shown > WAIT_S:  # on a terminal, the records themselves show it
                shown = now
                status.show(f"{reading.count:,} records, {size_text(reading.size)}")
