"""leadline pipeline table: writes a topic to a Delta or Iceberg table, exactly once."""

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.cli.errors import Failure, print_error
from leadline.cli.formatting import size_text, time_text
from leadline.cli.options import add_command, at_least
from leadline.cli.pipeline.job import (
    ProgressLine,
    add_spark_options,
    check_reachable,
    client_properties,
    count_text,
    job,
    lag_text,
    start_spark,
    until_ended,
)
from leadline.cli.times import duration_ms

if TYPE_CHECKING:
    from leadline.spark.table.table import Table
    from leadline.spark.table.table_writer import BatchSummary, TableSpec, TableWriter
    from leadline.spark.table.writer_lock import WriterLock

FORMATS = ("raw", "json", "avro", "protobuf")
SAFE_HOURS = 24  # uncommitted files of a running writer are younger
NEED_REGISTRY = ("avro", "protobuf")

FOLLOW = """
  leadline pipeline table orders /data/orders --once            all records, then exit
  leadline pipeline table orders /data/orders                   and new records, until Ctrl-C
  leadline pipeline table orders /data/orders --format json --partition-by day
  leadline pipeline table users /data/users --format json --mode upsert      one row per key; tombstones delete
  leadline pipeline table orders /data/orders --format avro --registry http://localhost:8081
  leadline pipeline table orders /data/orders --table-format iceberg
  leadline pipeline table orders prod:sales.orders --table-format iceberg    in a catalog of pyiceberg
  leadline pipeline table -- compact /data/compact              a topic with the name of a command, such as compact
"""
DESCRIPTION = """\
Write a topic to a table, from the first record of the topic, and keep the table up to date.

Each record is in the table once. Files, offsets and the batch number are one commit of the table, so no checkpoint can
get lost. After a crash the same command continues where the table ends. A second writer on the same table is refused.
Bad records (no JSON, a value that contradicts its column, no key to update by) go to TABLE_dead_letters with the cause.

raw has the columns of Spark's Kafka connector. json, avro and protobuf have one column per field, and _key, _partition,
_offset, _timestamp and _headers. New fields become columns."""
COMPACT = """
  leadline pipeline table compact /data/orders
"""
VACUUM = """
  leadline pipeline table vacuum /data/orders --dry-run         list the files
  leadline pipeline table vacuum /data/orders --older-than 30d
"""
REPLAY = """
  leadline pipeline table replay-dead-letters /data/orders      after the schema registry has what it lacked
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "table",
        run,
        help="write a topic to a Delta or Iceberg table, exactly once",
        usage="pipeline table TOPIC TABLE [options]",
        examples=FOLLOW,
        description=DESCRIPTION,
    )
    parser.add_argument("topic", metavar="TOPIC")
    add_table_options(parser)
    _add_reading_options(parser)
    add_spark_options(parser)
    _add_maintenance(commands)


def _add_maintenance(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    compact = add_command(
        commands,
        "table compact",
        _compact,
        help="merge small files",
        usage="pipeline table compact TABLE [options]",
        examples=COMPACT,
        description="Merge small files. The table may be written and read meanwhile.",
        connects=False,
    )
    vacuum = add_command(
        commands,
        "table vacuum",
        _vacuum,
        help="delete files that the table does not need any more",
        usage="pipeline table vacuum TABLE [options]",
        examples=VACUUM,
        description="Delete files that the table does not need any more: files that compaction and updates replaced, "
        "and files that were written but never committed.",
        connects=False,
    )
    vacuum.add_argument(
        "--older-than",
        type=duration_ms,
        default=7 * 86_400_000,
        metavar="TIME",
        help="minimum age of the files (default 7d)",
    )
    vacuum.add_argument("--dry-run", action="store_true", help="list the files, delete nothing")
    replay = add_command(
        commands,
        "table replay-dead-letters",
        _replay,
        help="process the dead letters again",
        usage="pipeline table replay-dead-letters TABLE [options]",
        examples=REPLAY,
        description="Process the dead letters of a table again. Records that now fit become rows of the table, exactly "
        "once, and are removed from the dead letters.",
        connects=False,
    )
    replay.add_argument(
        "--registry", default="", metavar="URL|DIR", help="schema registry for avro and protobuf: a URL or a directory"
    )
    for parser in (compact, vacuum, replay):
        add_table_options(parser)


def add_table_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "table", metavar="TABLE", help="directory of the table; for Iceberg also CATALOG:NAMESPACE.NAME"
    )
    parser.add_argument("--table-format", choices=["delta", "iceberg"], default="delta")


def _add_reading_options(parser: argparse.ArgumentParser) -> None:
    table = parser.add_argument_group("the table")
    table.add_argument("--format", choices=FORMATS, default="raw", help="format of the values (default raw)")
    table.add_argument(
        "--mode",
        choices=["append", "upsert"],
        default="append",
        help="one row per record, or one row per key (default append)",
    )
    table.add_argument(
        "--partition-by",
        choices=["day", "hour", "none"],
        default="none",
        help="partition the table by the time of records (default none)",
    )
    table.add_argument(
        "--registry", default="", metavar="URL|DIR", help="schema registry for avro and protobuf: a URL or a directory"
    )
    reading = parser.add_argument_group("how to read")
    reading.add_argument("--once", action="store_true", help="process what is available, then exit")
    reading.add_argument(
        "--interval", type=duration_ms, default=2000, metavar="TIME", help="poll interval (default 2s)"
    )
    reading.add_argument(
        "--batch-bytes", type=at_least(1), default=512 << 20, metavar="N", help="maximum bytes per commit"
    )
    reading.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], default="read_committed")
    reading.add_argument(
        "--allow-data-loss", action="store_true", help="continue if records were deleted before they were read"
    )
    reading.add_argument(
        "--group", metavar="G", help="group that offsets are committed to, for lag tools (default table-NAME)"
    )


def table_of(options: argparse.Namespace, suffix: str = "") -> "Table":
    """The table, or the table with this suffix."""
    from leadline.spark.table.table_format import open_table

    return open_table(options.table_format, options.table.rstrip("/") + suffix)


@dataclass(slots=True)
class TableTotals:
    """What all batches of a run did."""

    batches: int = 0
    records: int = 0
    size: int = 0
    dead: int = 0
    newest_ms: int = -1

    def add(self, summary: "BatchSummary") -> None:
        self.batches += 1
        self.records += summary.records
        self.size += summary.size
        self.dead += summary.dead
        self.newest_ms = max(self.newest_ms, summary.newest_ms)

    def line(self, summary: "BatchSummary", seconds: float) -> str:
        rate = f"{self.records / max(seconds, 0.001):,.0f}/s"
        behind = lag_text(summary.lag_offsets, summary.lag_bytes, summary.newest_ms)
        return f"batch {summary.batch}: {count_text(self.records, 'record')} ({size_text(self.size)}), {rate}; {behind}"

    def summary(self, options: argparse.Namespace, seconds: float) -> str:
        dead = (
            f", {count_text(self.dead, 'dead letter')} in {options.table.rstrip('/')}_dead_letters" if self.dead else ""
        )
        return (
            f"{options.topic} to {options.table}: {count_text(self.records, 'record')} ({size_text(self.size)}) "
            f"in {count_text(self.batches, 'commit')}, in {time_text(seconds)}{dead}"
        )


@job
def run(options: argparse.Namespace) -> int:
    if options.format in NEED_REGISTRY and not options.registry:
        raise Failure(f"--format {options.format} needs --registry: a URL, or a directory with schema files")
    check_reachable(client_properties(options), options.timeout, [options.topic])
    with ExitStack() as resources:
        return _run(options, resources)


def _run(options: argparse.Namespace, resources: ExitStack) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.table_writer import DEAD, TableWriter, check_table

    spec = spec_of(options)
    cluster = resources.enter_context(ClusterClient(spec.properties))
    table, dead = table_of(options), table_of(options, DEAD)
    check_table(cluster, table, spec)
    resources.enter_context(_locked(options))
    spark = start_spark(options, f"table {options.topic}")
    resources.callback(spark.stop)
    return _follow(options, TableWriter(spark, cluster, table, dead, spec))


def spec_of(options: argparse.Namespace) -> "TableSpec":
    from leadline.spark.table.table_writer import TableSpec

    name = options.table.rstrip("/").rpartition("/")[2].rpartition(":")[2]
    return TableSpec(
        options.topic,
        client_properties(options),
        options.format,
        options.mode,
        options.partition_by,
        options.registry,
        options.isolation == "read_committed",
        not options.allow_data_loss,
        options.batch_bytes,
        f"table-{name}" if options.group is None else options.group,
    )


def local_directory(options: argparse.Namespace) -> Path | None:
    is_remote = "://" in options.table or (options.table_format == "iceberg" and "/" not in options.table)
    return None if is_remote else Path(options.table)


def _follow(options: argparse.Namespace, writer: "TableWriter") -> int:
    """Write until the table is up to date (--once) or Ctrl-C, then print a summary."""
    totals, started = TableTotals(), time.monotonic()

    def work() -> None:
        with ProgressLine() as line:
            while True:
                for summary in writer.batches():
                    totals.add(summary)
                    line.show(totals.line(summary, time.monotonic() - started))
                if options.once:
                    break
                time.sleep(options.interval / 1000)

    code = until_ended(work, endless=not options.once)
    print(totals.summary(options, time.monotonic() - started), file=sys.stderr)
    return code


def _existing(options: argparse.Namespace) -> "Table":
    table = table_of(options)
    if table.state() is None:
        raise Failure(f"there is no {options.table_format} table at {options.table}")
    return table


def _locked(options: argparse.Namespace) -> "WriterLock":
    from leadline.spark.table.writer_lock import WriterLock

    return WriterLock(local_directory(options), options.table)


@job
def _compact(options: argparse.Namespace) -> int:
    result = _existing(options).compact()
    print(f"{options.table}: {count_text(result['removed'], 'file')} became {result['added']:,}")
    return 0


@job
def _vacuum(options: argparse.Namespace) -> int:
    hours = options.older_than // 3_600_000
    with ExitStack() as resources:
        table = _existing(options)
        if hours < SAFE_HOURS and not options.dry_run:  # a running writer may have uncommitted files
            resources.enter_context(_locked(options))
        files = table.vacuum(hours, options.dry_run)
    for file in files if options.dry_run else ():
        print(file)
    print(f"{options.table}: {count_text(len(files), 'file')} {'would be deleted' if options.dry_run else 'deleted'}")
    return 0


@job
def _replay(options: argparse.Namespace) -> int:
    from leadline.spark.table.dead_letters import replay
    from leadline.spark.table.table_writer import DEAD

    with ExitStack() as resources:
        table, dead = _existing(options), table_of(options, DEAD)
        resources.enter_context(_locked(options))
        result = replay(table, dead, options.registry)
    if result.left:
        print_error(f"{count_text(result.left, 'dead letter')} left, the first because {result.cause}")
    print(f"{options.table}: {count_text(result.replayed, 'dead letter')} became rows, {result.left:,} left")
    return 0
