"""leadline pipeline replay: writes a table or Parquet files back to a topic, exactly once."""

import argparse
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, time_text
from leadline.admin.json_values import Json
from leadline.cli.options import add_command, at_least
from leadline.cli.output import add_output_option
from leadline.cli.pipeline.job import (
    ProgressLine,
    add_spark_options,
    check_reachable,
    client_properties,
    job,
    print_totals,
    start_spark,
    stop_spark,
    until_ended,
)
from leadline.cli.pipeline.table_options import add_store_options

if TYPE_CHECKING:
    from leadline.spark.table.replay import Replay

EXAMPLES = """
  leadline pipeline replay /data/orders orders-again             at full speed
  leadline pipeline replay /data/orders orders-again --rate 500  500 records per second
  leadline pipeline replay /data/files orders-again --table-format parquet
  leadline pipeline replay /data/orders orders-again --name second-time      all rows again
"""
DESCRIPTION = """\
Write the rows of a raw table, or of Parquet files with the columns partition, offset and value (and key, timestamp,
headers), to a topic: in their partitions, in the order of their offsets, with their times.

Each row is written once: the records of a batch and the progress are one transaction. The same command continues where
an earlier run stopped. To write the same rows again, give the replay another --name."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "replay",
        run,
        help="write a table or Parquet files back to a topic, exactly once",
        usage="pipeline replay TABLE TOPIC [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
    )
    parser.add_argument(
        "table", metavar="TABLE", help="directory or URL of the table; for Iceberg also CATALOG:NAMESPACE.NAME"
    )
    parser.add_argument("topic", metavar="TOPIC", help="existing topic with at least as many partitions")
    parser.add_argument("--table-format", choices=["delta", "iceberg", "parquet"], default="delta")
    add_store_options(parser)
    parser.add_argument("--rate", type=float, metavar="N", help="maximum records per second")
    parser.add_argument(
        "--batch-records",
        type=at_least(1),
        default=100_000,
        metavar="N",
        help="records per transaction (default 100000)",
    )
    parser.add_argument(
        "--name", default="", metavar="NAME", help="name of this replay; another name writes the same rows again"
    )
    add_output_option(parser)
    add_spark_options(parser)


@job
def run(options: argparse.Namespace) -> int:
    if options.rate is not None and options.rate <= 0:
        raise Failure(f"--rate {options.rate}: expected a number above 0")
    check_reachable(client_properties(options), options.timeout, [options.topic])
    with ExitStack() as resources:
        return _run(options, resources)


def _run(options: argparse.Namespace, resources: ExitStack) -> int:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.replay import Replay, ReplaySource, ReplaySpec, check_source

    source = ReplaySource(options.table_format, options.table.rstrip("/"), dict(options.table_option))
    properties = client_properties(options)
    spec = ReplaySpec(source, options.topic, properties, options.name, options.rate, options.batch_records)
    cluster = resources.enter_context(ClusterClient(properties))
    check_source(source)
    spark = start_spark(options, f"replay {options.table}")
    resources.callback(stop_spark, spark)
    return _replay(options, Replay(spark, cluster, spec))


def _replay(options: argparse.Namespace, replay: "Replay") -> int:
    records, started = 0, time.monotonic()

    def work() -> None:
        nonlocal records
        with ProgressLine() as line:
            for summary in replay.batches():
                records += summary.records
                seconds = time.monotonic() - started
                rate = records / max(seconds, 0.001)
                left = f"{summary.left:,} offsets left, {time_text(summary.left / max(rate, 0.001))}"
                line.show(f"{count_text(records, 'record')}, {rate:,.0f}/s; {left}")

    code = until_ended(work)
    seconds = time.monotonic() - started
    text = f"{options.table} to {options.topic}: {count_text(records, 'record')}, in {time_text(seconds)}"
    totals: Json = {"table": options.table, "topic": options.topic, "records": records, "seconds": round(seconds, 3)}
    print_totals(options, totals, text)
    return code
