"""leadline pipeline verify: compares a table with its topic, offset by offset."""

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from leadline.cli.formatting import time_text
from leadline.cli.options import add_command
from leadline.cli.pipeline.job import (
    add_spark_options,
    check_reachable,
    client_properties,
    count_text,
    job,
    start_spark,
)
from leadline.cli.pipeline.table import add_table_options
from leadline.cli.terminal import Paint, StatusLine, print_table

if TYPE_CHECKING:
    from leadline.spark.table.table import TableState
    from leadline.spark.table.verification import Verdict

EXAMPLES = """
  leadline pipeline verify /data/orders                          exit code 0: table and topic agree
  leadline pipeline verify /data/orders --json > proof.json
  leadline pipeline verify /data/orders --table-format iceberg
"""
DESCRIPTION = """\
Compare a table with its topic: every offset up to the table's position, partition by partition.

Each record that readers see must be a row or a dead letter, exactly once. Offsets without a record are counted by
cause: control records, aborted transactions, compaction. A checksum over offsets, times, keys and (for raw tables)
values is computed on both sides. Exit code: 0 they agree, 1 they do not."""


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
    parser.add_argument("--json", action="store_true", help="print the whole report as one JSON object")
    add_spark_options(parser)


@job
def run(options: argparse.Namespace) -> int:
    check_reachable(client_properties(options), options.timeout)
    with ExitStack() as resources:
        return _run(options, resources)


def _run(options: argparse.Namespace, resources: ExitStack) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.table import TableError
    from leadline.spark.table.table_format import open_table
    from leadline.spark.table.table_writer import DEAD
    from leadline.spark.table.verification import check_topic, verify

    uri = options.table.rstrip("/")
    started = time.monotonic()
    state = open_table(options.table_format, uri).state()
    if state is None:
        raise TableError(f"there is no {options.table_format} table at {uri}")
    check_reachable(client_properties(options), options.timeout, [state.origin.topic])
    cluster = resources.enter_context(ClusterClient(client_properties(options)))
    check_topic(cluster, state.origin, uri)
    spark = start_spark(options, f"verify {uri}")
    resources.callback(spark.stop)
    with StatusLine() as status:
        status.show(f"comparing {uri} with {state.origin.topic} ...")
        state, verdicts = verify(spark, cluster, options.table_format, uri, uri + DEAD)
    _print_result(options, state, verdicts, time.monotonic() - started)
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def _print_result(options: argparse.Namespace, state: "TableState", verdicts: "list[Verdict]", seconds: float) -> None:
    if options.json:
        print(json.dumps(report(options.table, state, verdicts)))
        return
    heads = "PARTITION OFFSETS RECORDS ROWS DEAD REPLACED CONTROL ABORTED COMPACTED MISSING REPEATED WRONG CHECKSUM"
    print_table(heads.split(), [_row(verdict) for verdict in verdicts])
    for verdict in verdicts:
        for what in ("missing", "repeated", "wrong"):
            if at := getattr(verdict, f"{what}_at"):
                more = ", ..." if getattr(verdict, what) > len(at) else ""
                print(f"partition {verdict.partition}: {what} at offset {', '.join(map(str, at))}{more}")
    print(summary(options.table, state, verdicts, seconds))


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
    paint = Paint(sys.stdout)
    if bad:
        verdict_text = paint.red(
            f"{table} does not equal {state.origin.topic}: {count_text(len(bad), 'partition')} with differences"
        )
    else:
        verdict_text = paint.bold(f"{table} has each record of {state.origin.topic} once")
    return f"{verdict_text} ({records} in {count_text(len(verdicts), 'partition')}, {time_text(seconds)})"


def report(table: str, state: "TableState", verdicts: "list[Verdict]") -> dict[str, object]:
    return {
        "table": table,
        "origin": asdict(state.origin),
        "batch": state.progress.batch,
        "offsets": {str(partition): offset for partition, offset in state.progress.offsets.items()},
        "good": all(verdict.is_good for verdict in verdicts),
        "partitions": [{**asdict(verdict), "good": verdict.is_good} for verdict in verdicts],
    }
