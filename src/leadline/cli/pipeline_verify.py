"""leadline pipeline verify: a table against its topic, as a report that is a proof."""

import argparse
import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING

from leadline.cli.client import Paint, add_command, show
from leadline.cli.pipeline_job import add_spark_options, client_properties, count_text, job, reach, start_spark
from leadline.cli.pipeline_table import add_table_options
from leadline.cli.terminal import StatusLine, time_text

if TYPE_CHECKING:
    from leadline.spark.table.tables import TableState
    from leadline.spark.table.verify import Verdict

EXAMPLES = """
  leadline pipeline verify /data/orders                          exit status 0: the table is the topic
  leadline pipeline verify /data/orders --json > proof.json
  leadline pipeline verify /data/orders --table-format iceberg
"""
DESCRIPTION = """\
Hold a table against the topic that it follows: every offset below the table's next one, partition by partition.

Each record that readers see must be a row or a dead letter, once. Offsets without a record are told apart: control
records and aborted ones of transactions, and what was compacted away. A checksum over offsets, times, keys and (of raw
tables) values is taken on both sides. Exit status: 0 all agrees, 1 it does not."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "verify",
        run,
        help="a table against its topic: gaps, duplicates, checksums",
        usage="pipeline verify TABLE [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
    )
    add_table_options(parser)
    parser.add_argument("--json", action="store_true", help="the whole report as one JSON object")
    add_spark_options(parser)


@job
def run(options: argparse.Namespace) -> int:
    reach(client_properties(options), options.timeout)
    with ExitStack() as held:
        return _run(options, held)


def _run(options: argparse.Namespace, held: ExitStack) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.following import DEAD
    from leadline.spark.table.homes import home
    from leadline.spark.table.tables import TableError
    from leadline.spark.table.verify import check_topic, verify

    uri = options.table.rstrip("/")
    started = time.monotonic()
    state = home(options.table_format, uri).state()
    if state is None:
        raise TableError(f"there is no {options.table_format} table at {uri}")
    reach(client_properties(options), options.timeout, [state.origin.topic])
    cluster = held.enter_context(ClusterClient(client_properties(options)))
    check_topic(cluster, state.origin, uri)
    spark = start_spark(options, f"verify {uri}")
    held.callback(spark.stop)
    with StatusLine() as status:
        status.show(f"{state.origin.topic} against {uri} ...")
        state, verdicts = verify(spark, cluster, options.table_format, uri, uri + DEAD)
    _tell(options, state, verdicts, time.monotonic() - started)
    return 0 if all(verdict.is_good for verdict in verdicts) else 1


def _tell(options: argparse.Namespace, state: "TableState", verdicts: "list[Verdict]", seconds: float) -> None:
    if options.json:
        print(json.dumps(report(options.table, state, verdicts)))
        return
    heads = "PARTITION OFFSETS RECORDS ROWS DEAD REPLACED CONTROL ABORTED COMPACTED MISSING REPEATED WRONG CHECKSUM"
    show(heads.split(), [_row(verdict) for verdict in verdicts])
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
        judgement = paint.red(f"{table} is not {state.origin.topic}: {count_text(len(bad), 'partition')} differ")
    else:
        judgement = paint.bold(f"{table} is {state.origin.topic}, each record once")
    return f"{judgement} ({records} in {count_text(len(verdicts), 'partition')}, {time_text(seconds)})"


def report(table: str, state: "TableState", verdicts: "list[Verdict]") -> dict[str, object]:
    return {
        "table": table,
        "origin": asdict(state.origin),
        "batch": state.progress.batch,
        "offsets": {str(partition): offset for partition, offset in state.progress.offsets.items()},
        "good": all(verdict.is_good for verdict in verdicts),
        "partitions": [{**asdict(verdict), "good": verdict.is_good} for verdict in verdicts],
    }
