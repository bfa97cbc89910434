"""leadline pipeline table: writes a topic to a Delta or Iceberg table, exactly once."""

import argparse
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, size_text, time_text
from leadline.admin.json_values import Json
from leadline.admin.times import duration_ms
from leadline.cli.errors import print_error
from leadline.cli.options import add_command
from leadline.cli.output import add_output_option, print_result
from leadline.cli.pipeline.job import (
    ProgressLine,
    add_spark_options,
    check_reachable,
    client_properties,
    job,
    lag_text,
    print_totals,
    start_spark,
    stop_spark,
    until_ended,
)
from leadline.cli.pipeline.outages import OutageReport
from leadline.cli.pipeline.table_options import (
    NEED_REGISTRY,
    SAFE_HOURS,
    add_column_options,
    add_quality_options,
    add_reading_options,
    add_registry_options,
    add_table_options,
    declared_columns,
    local_directory,
    place_of,
    quality_of,
    registry_of,
    spec_of,
)
from leadline.spark.errors import JobFailed

if TYPE_CHECKING:
    from leadline.spark.table.table import Table
    from leadline.spark.table.table_writer import BatchSummary, TableWriter
    from leadline.spark.table.writer_lock import WriterLock


FOLLOW = """
  leadline pipeline table orders /data/orders --once            all records, then exit
  leadline pipeline table orders /data/orders                   and new records, until Ctrl-C
  leadline pipeline table orders /data/orders --format json --partition-by day
  leadline pipeline table orders /data/orders --format json --column 'price=decimal(18,2)' --column paid=timestamp
  leadline pipeline table users /data/users --format json --mode upsert      one row per key; tombstones delete
  leadline pipeline table shop.public.users /data/users --format debezium --mode upsert      a table of a database
  leadline pipeline table shop.public.users /data/users --format debezium --mode scd2        with all versions of a row
  leadline pipeline table orders /data/orders --format avro --registry http://localhost:8081
  leadline pipeline table orders /data/orders --format json --rule 'price: range 0..10000' --rule 'id: not null'
  leadline pipeline table orders /data/orders --format json --mask email=hash --mask card=last4 --mask-key-file key
  leadline pipeline table orders /data/orders --table-format iceberg
  leadline pipeline table orders s3://lake/orders --table-option s3.region=eu-central-1
  leadline pipeline table orders prod:sales.orders --table-format iceberg --table-option uri=http://catalog:8181
  leadline pipeline table -- compact /data/compact              a topic with the name of a command, such as compact
"""
DESCRIPTION = """\
Write a topic to a table, from the first record of the topic, and keep the table up to date.

Each record is in the table once. Files, offsets and the batch number are one commit of the table, so no checkpoint can
get lost. After a crash the same command continues where the table ends. A second writer on the same table is refused.
Bad records (no JSON, a value that contradicts its column, no key to update by) go to TABLE_dead_letters with the cause.

A table may be in a directory, in an object store (s3://, s3a://, gs://, abfss://), or, for Iceberg, in a catalog of any
kind that pyiceberg has: CATALOG:NAMESPACE.NAME. Options of store and catalog have pyiceberg's names (s3.endpoint,
s3.access-key-id, s3.secret-access-key, s3.region, gcs.*, adls.*, uri, type, warehouse, ...); what is not set comes from
the environment or from pyiceberg's own configuration.

raw has the columns of Spark's Kafka connector. json, avro and protobuf have one column per field, and kafka_key,
kafka_partition, kafka_offset, kafka_timestamp and kafka_headers. New fields become columns. A table that was made with
other names for these columns (_offset, ...) gets the new names when its writer starts.

debezium (JSON) and debezium-avro take changes of a database as Debezium writes them: op, before, after. With --mode
upsert the table is that of the database: c, r and u are the row of their key, d removes it, t (truncate) removes all.
With --mode append it has a row for each change; of a delete, that of `before`. The columns cdc_op, cdc_source_ms and
cdc_source_position say what happened, when, and where in the log of the database. New columns of the database become
columns. The newest change is the one with the highest position (LSN, binlog position, SCN, ...), whenever it comes; a
change that comes after a newer one of its key is late, and one that comes twice is repeated: both are counted. Deletes
are remembered in TABLE_deletes, so that a late change does not bring its row back.

With --mode scd2 the table has a row for each version of a key (slowly changing dimension, type 2): valid_from and
valid_to say when it was valid, is_current which one is. A delete closes the last one. A late change gets its place
between the others. The names of these three columns can be chosen when the table is created.

A column has the type that --column or --schema declares, else that of its first values: long, double, string, boolean,
array or struct. Types: boolean, int, long, float, double, decimal(P,S), string, binary (in JSON base64), date,
timestamp (a moment; its text has a zone), timestamp_ntz (without a zone), array<T>, map<string,T>, struct<NAME:T,...>.
An existing column becomes wider by a declaration: int to long, float to double, decimal(P,S) to more digits, and whole
numbers to double or decimal; a column that is wider already stays. Iceberg changes the first three without touching a
file. All others, and all in Delta, rewrite the table once. Then replay-dead-letters brings back what did not fit.

Rules say what rows must be like. A row that breaks one is a dead letter, or ends the job before its batch is committed
(refuse), or is marked in the column kafka_broken_rules (mark). Rules:
  customer.id: not null
  price: range 0..10000                   both belong to it, either may be missing; dates, too
  status: in new,paid,shipped
  expr: price * amount < 1e6 and (status != 'paid' or paid is not null)
Expressions have = != < <= > >=, and, or, not, + - * /, is null, is not null, in ('a', 'b'), numbers, 'texts', true,
false, and paths of columns (`odd name` in backticks). Null breaks `not null` alone, as with CHECK in SQL. Tombstones
and deletes are not checked.

Masks hide columns before anything is written, in dead letters and errors as well: hash (HMAC-SHA-256 under the key of
--mask-key-file, so that equal values stay equal and can be joined), last4, redact, null. Rules see the values before
that. The key of the records is kafka_key (key with --format raw): mask it as well if it shows what is to be hidden. A
table keeps its masks and its key: other ones are refused. verify and replay-dead-letters take the same options."""
COMPACT = """
  leadline pipeline table compact /data/orders
"""
VACUUM = """
  leadline pipeline table vacuum /data/orders --dry-run         list the files
  leadline pipeline table vacuum /data/orders --older-than 30d
"""
REPLAY = """
  leadline pipeline table replay-dead-letters /data/orders      after the schema registry has what it lacked
  leadline pipeline table replay-dead-letters /data/orders --column price=double      with a wider column
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
    add_reading_options(parser)
    add_output_option(parser)
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
    add_registry_options(replay)
    for parser in (compact, vacuum, replay):
        add_table_options(parser)
        add_output_option(parser)
    add_column_options(replay)
    add_quality_options(replay)


def late_and_repeated(late: int, repeated: int) -> str:
    return "".join(f", {count:,} {kind}" for count, kind in ((late, "late"), (repeated, "repeated")) if count)


@dataclass(slots=True)
class TableTotals:
    """What all batches of a run did."""

    batches: int = 0
    records: int = 0
    size: int = 0
    dead: int = 0
    late: int = 0
    repeated: int = 0
    newest_ms: int = -1

    def add(self, summary: "BatchSummary") -> None:
        self.batches += 1
        self.records += summary.records
        self.size += summary.size
        self.dead += summary.dead
        self.late += summary.late
        self.repeated += summary.repeated
        self.newest_ms = max(self.newest_ms, summary.newest_ms)

    def line(self, summary: "BatchSummary", seconds: float) -> str:
        rate = f"{self.records / max(seconds, 0.001):,.0f}/s"
        behind = lag_text(summary.lag_offsets, summary.lag_bytes, summary.newest_ms)
        return f"batch {summary.batch}: {count_text(self.records, 'record')} ({size_text(self.size)}), {rate}; {behind}"

    def summary(self, options: argparse.Namespace, seconds: float) -> str:
        place = place_of(options).dead_letters.uri
        dead = f", {count_text(self.dead, 'dead letter')} in {place}" if self.dead else ""
        changes = late_and_repeated(self.late, self.repeated)
        return (
            f"{options.topic} to {options.table}: {count_text(self.records, 'record')} ({size_text(self.size)}) "
            f"in {count_text(self.batches, 'commit')}, in {time_text(seconds)}{dead}{changes}"
        )

    def json(self, options: argparse.Namespace, seconds: float) -> Json:
        return {
            "topic": options.topic,
            "table": options.table,
            "records": self.records,
            "bytes": self.size,
            "commits": self.batches,
            "dead_letters": self.dead,
            "late_changes": self.late,
            "repeated_changes": self.repeated,
            "seconds": round(seconds, 3),
        }


@job
def run(options: argparse.Namespace) -> int:
    if options.format in NEED_REGISTRY and not options.registry:
        raise Failure(f"--format {options.format} needs --registry: a URL, or a directory with schema files")
    if options.format == "raw" and (options.column or options.schema):
        raise Failure("--column and --schema are for values with fields: choose --format json, avro or protobuf")
    check_reachable(client_properties(options), options.timeout, [options.topic])
    with ExitStack() as resources:
        return _run(options, resources)


def _run(options: argparse.Namespace, resources: ExitStack) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.quality import check_quality
    from leadline.spark.table.table_writer import TableWriter, check_table

    spec = spec_of(options)
    check_quality(spec.quality, spec.format, spec.mode)
    cluster = resources.enter_context(ClusterClient(spec.properties))
    table, dead = place_of(options).open(), place_of(options).dead_letters.open()
    check_table(cluster, table, spec)
    resources.enter_context(_locked(options))
    spark = start_spark(options, f"table {options.topic}")
    resources.callback(stop_spark, spark)
    return _follow(options, TableWriter(spark, cluster, table, dead, spec))


def _follow(options: argparse.Namespace, writer: "TableWriter") -> int:
    """Write until the table is up to date (--once) or Ctrl-C, then print a summary."""
    from leadline.spark.client.connection import is_outage

    totals, started, outage = TableTotals(), time.monotonic(), OutageReport()

    def work() -> None:
        with ProgressLine() as line:
            while True:
                began = time.monotonic()
                try:
                    summary = writer.write_next()
                except JobFailed as error:
                    if options.once or not is_outage(error):
                        raise
                    time.sleep(outage.failed(error))
                    continue
                outage.over()
                if summary is not None:
                    totals.add(summary)
                    line.show(totals.line(summary, time.monotonic() - started))
                is_behind = summary is not None and summary.lag_offsets > 0
                if options.once and not is_behind:
                    break
                time.sleep(pause_s(is_behind, options.interval / 1000, time.monotonic() - began))

    code = until_ended(work, endless=not options.once)
    seconds = time.monotonic() - started
    print_totals(options, totals.json(options, seconds), totals.summary(options, seconds))
    return code


def pause_s(is_behind: bool, interval_s: float, taken_s: float) -> float:
    """The pause after a batch: none while the table is behind its topic, otherwise what is left of the interval."""
    return 0.0 if is_behind else max(interval_s - taken_s, 0.0)


def _existing(options: argparse.Namespace) -> "Table":
    table = place_of(options).open()
    if table.state() is None:
        raise Failure(f"there is no {options.table_format} table at {options.table}")
    return table


def _locked(options: argparse.Namespace) -> "WriterLock":
    from leadline.spark.table.writer_lock import WriterLock

    return WriterLock(local_directory(options), options.table)


@job
def _compact(options: argparse.Namespace) -> int:
    result = _existing(options).compact()
    text = f"{options.table}: {count_text(result['removed'], 'file')} became {result['added']:,}"
    values: Json = {"table": options.table, "removed_files": result["removed"], "added_files": result["added"]}
    print_result(options, values, text)
    return 0


@job
def _vacuum(options: argparse.Namespace) -> int:
    hours = options.older_than // 3_600_000
    may_meet_a_writer = hours < SAFE_HOURS and not options.dry_run  # whose files are not committed yet
    if may_meet_a_writer and local_directory(options) is None:
        raise Failure(
            f"{options.table} has no lock that would keep a writer away, whose files are not committed yet: "
            f"--older-than must be {SAFE_HOURS}h or more"
        )
    with ExitStack() as resources:
        table = _existing(options)
        if may_meet_a_writer:
            resources.enter_context(_locked(options))
        files = table.vacuum(hours, options.dry_run)
    listed = [str(file) for file in files] if options.dry_run else []
    text = f"{options.table}: {count_text(len(files), 'file')} {'would be deleted' if options.dry_run else 'deleted'}"
    values: Json = {"table": options.table, "deleted_files": len(files), "dry_run": options.dry_run, "files": [*listed]}
    print_result(options, values, "\n".join([*listed, text]))
    return 0


@job
def _replay(options: argparse.Namespace) -> int:
    from leadline.spark.table.dead_letters import replay

    with ExitStack() as resources:
        table, dead = _existing(options), place_of(options).dead_letters.open()
        resources.enter_context(_locked(options))
        result = replay(table, dead, registry_of(options), declared_columns(options), quality_of(options))
    if result.left:
        print_error(f"{count_text(result.left, 'dead letter')} left, the first because {result.cause}")
    text = f"{options.table}: {count_text(result.replayed, 'dead letter')} became rows, {result.left:,} left"
    print_result(options, {"table": options.table, "replayed": result.replayed, "left": result.left}, text)
    return 0
