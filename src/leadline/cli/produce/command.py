"""leadline produce: writes records from a pipe, a file or the keyboard to a topic.

One line is one record. Its parts have the order of Kafka's console producer:

    headers   name:value,name:value   then a tab     with --parse-headers
    key       up to the separator                    with --key-separator
    value     the rest

With --transactional-id, all records of a run are one transaction. It is committed if all records are stored, and
aborted otherwise.
"""

import argparse
import sys
import time
from collections.abc import Iterable

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.admin.formatting import size_text
from leadline.admin.times import moment_ms
from leadline.cli import COMMANDS
from leadline.cli.delivery import DeliveryGivenUp, DeliveryWatch
from leadline.cli.errors import print_error
from leadline.cli.options import add_command, at_least, escaped, key_value
from leadline.cli.output import add_output_option, print_result
from leadline.cli.produce.lines import LineLayout, ParsedLine, files_in, lines_from, lines_in
from leadline.cli.produce.record_sender import RecordSender
from leadline.cli.terminal import StatusLine, TextStyles

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

EXAMPLES = r"""
  echo hello | leadline produce greetings
  leadline produce greetings                                  type one record per line; Ctrl-D ends
  leadline produce users --key-separator : < users.txt        lines like 42:Ada
  leadline produce users --key-separator : --null-marker NULL       42:NULL deletes key 42
  leadline produce orders --parse-headers < lines             lines like trace:7,source:web<tab>value
  leadline produce images --file cat.png --key cat            the whole file is one record
  leadline produce orders --transactional-id load-1 < orders.txt    all lines or none
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "produce",
        run,
        help=COMMANDS["produce"].help,
        usage="produce TOPIC [options]",
        examples=EXAMPLES,
    )
    parser.add_argument("topic", metavar="TOPIC")
    lines = parser.add_argument_group("format of a line")
    lines.add_argument(
        "--key-separator",
        type=escaped,
        metavar="TEXT",
        help=r"separator after the key, such as \t for a tab (default: no key)",
    )
    lines.add_argument(
        "--parse-headers", action="store_true", help="lines start with headers: name:value,name:value<tab>"
    )
    lines.add_argument(
        "--headers-delimiter",
        type=escaped,
        default=b"\t",
        metavar="TEXT",
        help="separator after the headers (default tab)",
    )
    lines.add_argument(
        "--headers-separator",
        type=escaped,
        default=b",",
        metavar="TEXT",
        help="separator between two headers (default ,)",
    )
    lines.add_argument(
        "--headers-key-separator",
        type=escaped,
        default=b":",
        metavar="TEXT",
        help="separator between the name and the value of a header (default :)",
    )
    lines.add_argument("--null-marker", type=escaped, metavar="TEXT", help="text that stands for a null key or value")
    lines.add_argument(
        "--file", action="append", default=[], metavar="FILE", help="send this whole file as one record; repeatable"
    )
    all_records = parser.add_argument_group("for all records")
    all_records.add_argument("--key", metavar="TEXT", help="key of all records")
    all_records.add_argument(
        "--header",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="header of all records; repeatable",
    )
    all_records.add_argument(
        "--partition",
        type=at_least(0),
        default=-1,
        metavar="N",
        help="partition of all records (default: chosen by the key)",
    )
    all_records.add_argument(
        "--timestamp", type=moment_ms, metavar="TIME", help="time of all records: ISO 8601, ms since 1970, or -1h"
    )
    sending = parser.add_argument_group("how records are sent")
    sending.add_argument("--compression", choices=CODECS)
    sending.add_argument(
        "--acks",
        choices=["0", "1", "all"],
        help="replicas that must store a record before it is acknowledged (default all)",
    )
    sending.add_argument("--idempotent", action="store_true", help="store each record once, even after retries")
    sending.add_argument("--transactional-id", metavar="ID", help="send all records in one transaction")
    add_output_option(parser)


def run(options: argparse.Namespace) -> int:
    connection = ClusterConnection(options)
    watch = DeliveryWatch(connection, options.topic, properties_of(options))
    partitions = connection.metadata(watch.producer, options.topic).topics[options.topic].partitions
    if partitions and options.partition >= len(partitions):
        raise Failure(f"{options.topic} has the partitions 0 to {len(partitions) - 1}: there is no {options.partition}")
    sender = RecordSender(
        watch,
        options.partition,
        options.timestamp,
        None if options.key is None else options.key.encode(),
        [(key, value.encode()) for key, value in options.header],
    )
    started = time.monotonic()
    try:
        if options.transactional_id is None:
            _send_all(sender, options)
        else:
            _send_in_transaction(sender, options, connection.timeout_s)
    except DeliveryGivenUp:
        sender.give_up()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the terminal wrote ^C there
        return 130
    finally:
        _print_summary(options, sender, time.monotonic() - started)
    return 1 if sender.failed else 0


def _print_summary(options: argparse.Namespace, sender: RecordSender, seconds: float) -> None:
    """Prints the summary, for a person to stderr: stdout stays free in a pipe."""
    print_result(options, sender.as_json(seconds), lambda: print(sender.summary(seconds), file=sys.stderr))


def properties_of(options: argparse.Namespace) -> dict[str, str]:
    """The client properties that the options set."""
    optional = {
        "compression.type": options.compression,
        "acks": options.acks,
        "transactional.id": options.transactional_id,
    }
    properties: dict[str, str] = {key: value for key, value in optional.items() if value is not None}
    if options.idempotent or options.transactional_id is not None:
        if options.acks in ("0", "1"):
            raise Failure(f"--acks {options.acks}: an idempotent or transactional producer waits for all replicas")
        properties["enable.idempotence"] = "true"
    return properties


def _send_all(sender: RecordSender, options: argparse.Namespace) -> None:
    """Send all records and wait for them. Records before a malformed line are stored."""
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
            _send_lines(sender, files_in(options.file))
        elif sys.stdin.isatty():
            _send_typed_lines(sender, layout)
        else:
            lines = lines_from(sys.stdin.fileno(), lambda: sender.wait(0))
            _send_lines(sender, lines_in(lines, layout))
    except (Failure, KeyboardInterrupt):
        sender.finish()
        raise
    sender.finish()


def _send_lines(sender: RecordSender, lines: Iterable[ParsedLine]) -> None:
    with StatusLine() as status:
        shown = 0.0
        for line in lines:
            sender.send(line)
            now = time.monotonic()
            if now - shown > 0.2:
                shown = now
                status.show(f"{sender.stored:,} records, {size_text(sender.size)}")


def _send_typed_lines(sender: RecordSender, layout: LineLayout) -> None:
    """Send lines from a terminal. Each record is stored before the next prompt, and its offset is printed."""
    paint = TextStyles(sys.stderr)
    print(paint.dim("one record per line; Ctrl-D ends"), file=sys.stderr)
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
            print_error(str(error))
            continue
        sender.last = None
        try:
            sender.send(line)
            sender.finish()
        except DeliveryGivenUp:
            sender.give_up()
        if sender.last is not None:
            place = f"  partition {sender.last.partition()}, offset {sender.last.offset()}"
            print(paint.dim(place), file=sys.stderr)


def _send_in_transaction(sender: RecordSender, options: argparse.Namespace, timeout_s: float) -> None:
    producer = sender.producer
    producer.init_transactions(timeout_s)
    producer.begin_transaction()
    complete = False
    try:
        _send_all(sender, options)
        complete = not sender.failed
    finally:
        if complete:
            producer.commit_transaction(timeout_s)
        else:
            producer.abort_transaction(timeout_s)
            print_error("the transaction was aborted: read_committed consumers see none of its records")
