"""leadline pipeline verify: compares a table with its topic, offset by offset."""

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from leadline.admin.formatting import count_text, time_text
from leadline.admin.json_values import Json
from leadline.cli.options import add_command
from leadline.cli.output import add_output_option, is_text, print_result
from leadline.cli.pipeline.job import (
    add_spark_options,
    check_reachable,
    client_properties,
    job,
    start_spark,
    stop_spark,
)
from leadline.cli.pipeline.table_options import (
    add_quality_options,
    add_registry_options,
    add_table_options,
    place_of,
    quality_of,
    registry_of,
)
from leadline.cli.terminal import StatusLine, TextStyles, print_table

if TYPE_CHECKING:
    from leadline.spark.table.table import TableState
    from leadline.spark.table.verification import Verdict

EXAMPLES = """
  leadline pipeline verify /data/orders                          exit code 0: table and topic agree
  leadline pipeline verify /data/orders --json > proof.json
  leadline pipeline verify /data/orders --table-format iceberg
  leadline pipeline verify /data/orders --mask email=hash --mask-key-file key      as its writer has them
"""
DESCRIPTION = """\
Compare a table with its topic: every offset up to the table's position, partition by partition.

Each record that readers see must be a row or a dead letter, exactly once. Offsets without a record are counted by
cause: control records, aborted transactions, compaction. Times, keys, headers and values are compared, too: those of
documents field by field, for which avro and protobuf need the --registry of the writer. A table by key must have the
rows, and with --mode scd2 the versions, that all changes of the topic leave. Records after the table's position are
counted and not compared. The values of a table with masks are compared masked: --mask and --mask-key-file are those of
its writer. With --rule, a row that breaks a rule is a difference; with --on-violation mark, one that is not marked is.
Exit code: 0 they agree, 1 they do not."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "verify",
        run,
        help="compare a table with its topic: gaps, duplicates, checksums",
        usage="pipeline verify TABLE [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
    )
    add_table_options(parser)
    add_registry_options(parser)
    add_quality_options(parser)
    add_output_option(parser)
    add_spark_options(parser)


@job
def run(options: argparse.Namespace) -> int:
    check_reachable(client_properties(options), options.timeout)
    with ExitStack() as resources:
        return _run(options, resources)


def _run(options: argparse.Namespace, resources: ExitStack) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.table import TableError
    from leadline.spark.table.verification import check_topic, verify

    place, quality, started = place_of(options), quality_of(options), time.monotonic()
    uri, state = place.uri, place.open().state()
    if state is None:
        raise TableError(f"there is no {options.table_format} table at {uri}")
    check_reachable(client_properties(options), options.timeout, [state.origin.topic])
    cluster = resources.enter_context(ClusterClient(client_properties(options)))
    check_topic(cluster, state.origin, uri)
    spark = start_spark(options, f"verify {uri}")
    resources.callback(stop_spark, spark)
    with StatusLine() as status:
        status.show(f"comparing {uri} with {state.origin.topic} ...")
        state, verdicts, lag_offsets = verify(spark, cluster, place, registry_of(options), quality)
    seconds = time.monotonic() - started
    print_result(
        options, report(options.table, state, verdicts), lambda: _print_table(options.table, state, verdicts, seconds)
    )
    if lag_offsets and is_text(options):
        print(f"{lag_offsets:,} offsets of {state.origin.topic} are after the table's position")
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def _print_table(table: str, state: "TableState", verdicts: "list[Verdict]", seconds: float) -> None:
    heads = "PARTITION OFFSETS RECORDS ROWS DEAD REPLACED CONTROL ABORTED COMPACTED MISSING REPEATED WRONG CHECKSUM"
    print_table(heads.split(), [_row(verdict) for verdict in verdicts])
    for verdict in verdicts:
        for what in ("missing", "repeated", "wrong", "different"):
            if at := getattr(verdict, f"{what}_at"):
                more = ", ..." if getattr(verdict, what) > len(at) else ""
                print(f"partition {verdict.partition}: {what} at offset {', '.join(map(str, at))}{more}")
    print(summary(table, state, verdicts, seconds))


def _row(verdict: "Verdict") -> list[str]:
    counts = (
        verdict.records,
        verdict.rows,
        verdict.dead,
        verdict.replaced,
        verdict.control,
        verdict.aborted,
        verdict.compacted,
        verdict.missing,
        verdict.repeated,
        verdict.wrong,
    )
    checksum = f"{verdict.topic_checksum:016x}"
    if verdict.topic_checksum != verdict.table_checksum:
        checksum += f" != {verdict.table_checksum:016x}"
    return [str(verdict.partition), f"{verdict.first} to {verdict.until - 1}", *(f"{n:,}" for n in counts), checksum]


def summary(table: str, state: "TableState", verdicts: "list[Verdict]", seconds: float) -> str:
    records = count_text(sum(verdict.records for verdict in verdicts), "record")
    bad = [verdict for verdict in verdicts if not verdict.is_good]
    paint = TextStyles(sys.stdout)
    if bad:
        verdict_text = paint.red(
            f"{table} does not equal {state.origin.topic}: {count_text(len(bad), 'partition')} with differences"
        )
    else:
        verdict_text = paint.bold(f"{table} has each record of {state.origin.topic} once")
    return f"{verdict_text} ({records} in {count_text(len(verdicts), 'partition')}, {time_text(seconds)})"


def report(table: str, state: "TableState", verdicts: "list[Verdict]") -> dict[str, Json]:
    return {
        "table": table,
        "origin": asdict(state.origin),
        "batch": state.progress.batch,
        "offsets": {str(partition): offset for partition, offset in state.progress.offsets.items()},
        "good": all(verdict.is_good for verdict in verdicts),
        "partitions": [{**asdict(verdict), "good": verdict.is_good} for verdict in verdicts],
    }
