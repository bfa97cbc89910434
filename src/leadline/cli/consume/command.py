"""leadline consume: the records of a topic, to a pipe or a terminal.

Text is what Kafka's console consumer prints: the value alone, or with --print, separated by tabs and in this order,

    CreateTime:1700000000000   Partition:0   Offset:42   name:value,name:value   key   value

JSON is one object a line. Bytes that are not UTF-8 are base64 there, under key_base64 and value_base64.

Without --group, partitions are read directly and no offset is committed. With it, the group assigns the partitions, and
the offsets of printed records are committed.
"""

import argparse
import re
import sys
import time
from collections.abc import Sequence
from threading import Event
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure, client_error_text
from leadline.admin.formatting import size_text
from leadline.admin.leaders import leader_problem, partitions_with_leader
from leadline.admin.offsets import offset_ranges
from leadline.admin.partitions import OffsetRange
from leadline.admin.record_format import FIELDS, as_json, as_text
from leadline.admin.times import moment_ms
from leadline.cli import COMMANDS
from leadline.cli.consume.topic_reader import CLOSE_S, FAILED_CLOSE_S, STALL_S, StallWatch, TopicReader, leave
from leadline.cli.errors import print_error
from leadline.cli.options import add_command, at_least, escaped
from leadline.cli.output import add_output_option, is_text
from leadline.cli.signals import ctrl_c
from leadline.cli.terminal import StatusLine, TextStyles
from leadline.model import TopicPartition as Partition

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

MAX_BATCH_RECORDS = 1000
OFFSET_TAIL_BASE = -2000  # librdkafka's: OFFSET_TAIL_BASE - N is N records before the end
WAIT_S = 0.2

EXAMPLES = """
  leadline consume orders                                     new records, until Ctrl-C
  leadline consume orders --from-beginning --to-end           all records, then exit
  leadline consume orders --offset -10 --to-end               the last 10 records of each partition
  leadline consume orders --from-time -1h --output jsonl | jq .value
  leadline consume orders --from-time 2024-05-01T12:00 --max 100
  leadline consume orders --partition 0 --offset 42 --max 1 --print key,timestamp,headers
  leadline consume orders --group billing                     as a member of a group, which commits offsets
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "consume",
        run,
        help=COMMANDS["consume"].help,
        usage="consume TOPIC [options]",
        examples=EXAMPLES,
    )
    parser.add_argument("topic", metavar="TOPIC")
    where = parser.add_argument_group("where to start (default: at the end)")
    where.add_argument(
        "--partition", type=partitions, action="extend", metavar="N[,N...]", help="only these partitions"
    )
    start = where.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="the first record of each partition")
    start.add_argument("--offset", type=int, metavar="N", help="offset N; -N: N records before the end")
    start.add_argument(
        "--from-time", type=moment_ms, metavar="TIME", help="first record at or after: ISO 8601, ms since 1970, or -1h"
    )
    end = parser.add_argument_group("where to stop (default: at Ctrl-C)")
    end.add_argument("--to-end", action="store_true", help="at the end of the log, as it is when the command starts")
    end.add_argument("--max", type=at_least(1), metavar="N", help="after N records")
    how = parser.add_argument_group("how to read")
    how.add_argument("--group", metavar="G", help="read as a member of this group, from its committed offsets")
    how.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], default="read_uncommitted")
    out = parser.add_argument_group("output")
    add_output_option(out, "record", stream=True)
    out.add_argument(
        "--print",
        type=fields,
        default=(),
        metavar="FIELD,...",
        help=f"fields to print with the value: {', '.join(FIELDS)}",
    )
    out.add_argument(
        "--key-separator", type=escaped, default=b"\t", metavar="TEXT", help="separator between fields (default tab)"
    )


def partitions(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(f"expected numbers separated by commas, not {text!r}")
    return [int(part) for part in text.split(",")]


def fields(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in FIELDS:
            raise argparse.ArgumentTypeError(f"no field {name!r}: expected some of {', '.join(FIELDS)}")
    return names


NO_END = 1 << 63  # with a group, the end of a partition is reported by the client


def run(options: argparse.Namespace) -> int:
    connection = ClusterConnection(options)
    group = options.group or connection.properties.get("group.id")
    if group is not None and (options.partition or options.offset is not None or options.from_time is not None):
        raise Failure("--group assigns partitions and offsets: leave out --partition, --offset and --from-time")
    layout = as_text(options.print, options.key_separator) if is_text(options) else as_json(options.print)
    reader = TopicReader(options.topic, options.max, {} if options.to_end else None, layout, group is not None)
    consumer = connection.consumer(
        {
            "group.id": group or "leadline",
            "enable.auto.commit": "true" if group is not None else "false",
            "enable.auto.offset.store": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "earliest" if options.from_beginning else "latest",
            "isolation.level": options.isolation,
            **({"fetch.wait.max.ms": "100"} if options.to_end else {}),  # an empty fetch shows the end
        }
    )
    leave_s = FAILED_CLOSE_S
    try:
        numbers = sorted(connection.partitions_of(consumer, options.topic))
        if group is not None:
            _join(consumer, reader)
        else:
            _assign(connection, consumer, reader, options, numbers)
        code = _read(connection, consumer, reader, summarizes=is_text(options))
        if options.to_end and group is None and is_text(options) and starts_at_end(options):
            print("it started at the end of the log; --from-beginning reads all records", file=sys.stderr)
        leave_s = min(connection.timeout_s, CLOSE_S)
        return code
    finally:
        leave(consumer, leave_s)


def starts_at_end(options: argparse.Namespace) -> bool:
    """Whether no option says where to start."""
    return not options.from_beginning and options.offset is None and options.from_time is None


def _join(consumer: "Consumer", reader: TopicReader) -> None:
    """With --to-end, read to the end of all partitions that the group assigns to this member."""

    def assigned(_: "Consumer", partitions: "list[TopicPartition]") -> None:
        if reader.ends is not None:
            reader.ends.pop(-1, None)
            reader.ends |= {partition.partition: NO_END for partition in partitions}

    if reader.ends is not None:
        reader.ends[-1] = NO_END
    consumer.subscribe([reader.topic], on_assign=assigned)


def _assign(
    connection: ClusterConnection,
    consumer: "Consumer",
    reader: TopicReader,
    options: argparse.Namespace,
    numbers: Sequence[int],
) -> None:
    from confluent_kafka import TopicPartition

    for partition in options.partition or ():
        if partition not in numbers:
            raise Failure(f"{reader.topic} has the partitions 0 to {len(numbers) - 1}: there is no {partition}")
    positions = [TopicPartition(reader.topic, partition) for partition in options.partition or numbers]
    ranges = _offset_ranges(connection, consumer, reader, positions, needed=options.from_time is not None)
    for position in positions:
        if (at := ranges.get(Partition(position.topic, position.partition))) is None:
            if reader.ends is not None:
                place = f"{position.topic}-{position.partition}"
                raise Failure(f"{place}: no leader, or one that does not answer: the topic cannot be read to its end")
            position.offset = logical_offset(options)
            continue
        position.offset = start_offset(options, position, at.start, at.end)
        if reader.ends is not None and position.offset < at.end:
            reader.ends[position.partition] = at.end
    if options.from_time is not None:
        _seek_time(connection, consumer, positions, options.from_time, reader)
    consumer.assign(positions)


def _offset_ranges(
    connection: ClusterConnection,
    consumer: "Consumer",
    reader: TopicReader,
    positions: "list[TopicPartition]",
    *,
    needed: bool,
) -> dict[Partition, OffsetRange]:
    """Where partitions start and end. Partitions without a leader are reported, and waited for if `needed`."""
    partitions = [Partition(partition.topic, partition.partition) for partition in positions]
    reported, needed = "", needed or reader.ends is not None
    while True:
        cluster = connection.metadata(consumer)
        problem = leader_problem(connection, cluster, reader.topic, [tp.partition for tp in partitions])
        if problem and problem != reported:
            reported = problem
            print_error(f"{problem}; waiting{f' for {connection.timeout_s:g} s (--timeout)' if needed else ''}")
        if not problem or not needed:
            break
        time.sleep(WAIT_S)
        if connection.remaining_s < STALL_S / 3:  # too short for another attempt
            raise Failure(f"{problem}: the topic cannot be read to its end")
        connection.refresh(cluster)
    connection.restart_timeout()
    admin = connection.admin()
    return offset_ranges(connection, admin, partitions_with_leader(connection, admin, partitions))


def logical_offset(options: argparse.Namespace) -> int:
    """Where to start in a partition whose offsets are not known yet. Its next leader finds the offset."""
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
    positions: "list[TopicPartition]",
    timestamp: int,
    reader: TopicReader,
) -> None:
    """Start at the first record at or after a time, or at the end if there is none."""
    from confluent_kafka import TopicPartition

    times = [TopicPartition(position.topic, position.partition, timestamp) for position in positions]
    responses = consumer.offsets_for_times(times, timeout=connection.timeout_s)
    for position, answer in zip(positions, responses, strict=True):
        if answer.error is not None:
            raise Failure(f"{position.topic}-{position.partition}: {client_error_text(answer.error)}")
        position.offset = answer.offset
        if answer.offset < 0 and reader.ends is not None:
            reader.ends.pop(position.partition, None)


def _read(connection: ClusterConnection, consumer: "Consumer", reader: TopicReader, *, summarizes: bool) -> int:
    """Print records until the end or Ctrl-C, then a summary."""
    started = time.monotonic()
    with ctrl_c() as pressed:
        _write_records(connection, consumer, reader, pressed)
    if summarizes:
        if pressed.is_set():
            print(file=sys.stderr)  # the terminal wrote ^C there
        print(reader.summary(time.monotonic() - started), file=sys.stderr)
    return 130 if pressed.is_set() and reader.is_bounded else 0


def _write_records(connection: ClusterConnection, consumer: "Consumer", reader: TopicReader, ended: Event) -> None:
    out = sys.stdout.buffer
    paint, piped = TextStyles(sys.stdout), not sys.stdout.isatty()
    shown, stall = 0.0, StallWatch(connection, consumer, reader)
    with StatusLine() as status:
        while not (reader.finished or ended.is_set()):
            first = consumer.poll(WAIT_S)
            if first is None:
                stall.check()
            else:
                stall.ended()
                data, last = reader.take([first, *consumer.consume(MAX_BATCH_RECORDS, 0)])
                out.write(data if piped else paint.escape(data.decode("utf-8", "replace")).encode())
                out.flush()
                for message in last.values() if reader.stores_offsets else ():
                    consumer.store_offsets(message=message)
            now = time.monotonic()
            if piped and now - shown > WAIT_S:  # a terminal shows the records themselves
                shown = now
                status.show(f"{reader.count:,} records, {size_text(reader.size)}")
