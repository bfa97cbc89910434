"""leadline pipeline report: writes an HTML page about topics."""

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from leadline import __version__
from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, moment_text, size_text, time_text
from leadline.admin.json_values import Json
from leadline.cli.options import add_command
from leadline.cli.output import add_output_option, print_result
from leadline.cli.pipeline.job import (
    ProgressLine,
    add_spark_options,
    check_reachable,
    client_properties,
    job,
    start_spark,
    stop_spark,
)
from leadline.cli.terminal import TextStyles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leadline.spark.report.remarks import Remark
    from leadline.spark.report.report_plan import ReportPlan
    from leadline.spark.report.topic_report import Report

POLL_S = 0.3
REMARKS_SHOWN = 8

EXAMPLES = """
  leadline pipeline report                                       all topics of localhost:9092, to report.html
  leadline pipeline report orders payments --out orders.html
  leadline pipeline report --dir /var/lib/leadline               from files; the broker may be stopped
  leadline pipeline report --dir /data/1 --dir /data/2 orders    files of Apache Kafka work, too
"""
DESCRIPTION = """\
Read topics once and report on them: skew, hot keys, message sizes, compression and the gain of another codec, traffic
over time, growth and when a limit is reached, what compaction would leave, the lag of consumer groups.

The result is one HTML file that needs only a browser: plots with their numbers, and a list of remarkable facts at the
top. Frequent keys are counted in one pass, and the page states the error. What compaction leaves is exact up to 20,000
keys and an estimate above. All times are UTC."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "report",
        run,
        help="write an HTML page: skew, hot keys, sizes, traffic, growth, lag",
        usage="pipeline report [TOPIC ...] [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
    )
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="topics to read (default: all but internal ones)")
    parser.add_argument(
        "--dir",
        action="append",
        default=[],
        metavar="DIR",
        help="read this log directory instead of a broker; repeatable",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("report.html"), metavar="FILE", help="file to write (default report.html)"
    )
    add_output_option(parser)
    add_spark_options(parser)


@job
def run(options: argparse.Namespace) -> int:
    started = time.monotonic()
    with ExitStack() as resources:
        if not options.dir:
            check_reachable(client_properties(options), options.timeout, options.topics)
        _check_writable(options.out)
        plan = _plan(options)
        spark = start_spark(options, "report")
        resources.callback(stop_spark, spark)
        return write(options, spark, plan, started)


def _check_writable(path: Path) -> None:
    """Refuse a file that cannot be written before anything is read."""
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise Failure(f"--out {path}: cannot write a file there")


def _plan(options: argparse.Namespace) -> "ReportPlan":
    """What to read."""
    from leadline.spark.report import report_plan

    if options.dir:
        return report_plan.plan_from_files(options.dir, options.topics)
    return report_plan.plan_from_brokers(client_properties(options), options.topics)


def write(options: argparse.Namespace, spark: "SparkSession", plan: "ReportPlan", started: float) -> int:
    from leadline.spark.report import report_job
    from leadline.spark.report.page import page

    with _progress(spark, plan):
        result = report_job.make_report(spark, plan, {} if options.dir else client_properties(options))
    seconds = time.monotonic() - started
    heading = f"Leadline {__version__}, {moment_text(time.time_ns() // 1_000_000)}: "
    text = page(result, f"{heading}{size_text(plan.size)} read in {time_text(seconds)}, including the start of Spark.")
    new = options.out.with_name(f".{options.out.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(options.out)
    _print_result(options, result, plan, seconds)
    return 0


def _print_result(options: argparse.Namespace, result: "Report", plan: "ReportPlan", seconds: float) -> None:
    from leadline.spark.report.remarks import remarks

    facts = remarks(result)
    values: Json = {
        "file": str(options.out),
        "topics": [topic.name for topic in result.topics],
        "records": sum(topic.figures.records for topic in result.topics),
        "bytes": plan.size,
        "seconds": round(seconds, 3),
        "remarks": [{"weight": fact.weight.name.lower(), "topic": fact.topic, "text": fact.text} for fact in facts],
    }
    print_result(options, values, lambda: _print_remarks(options.out, facts, result, plan, seconds))


def _print_remarks(out: Path, facts: "Sequence[Remark]", result: "Report", plan: "ReportPlan", seconds: float) -> None:
    paint = TextStyles(sys.stdout)
    for fact in facts[:REMARKS_SHOWN]:
        print(f"{paint.bold(paint.escape(fact.topic))}{': ' if fact.topic else ''}{paint.escape(fact.text)}")
    if len(facts) > REMARKS_SHOWN:
        print(f"... and {len(facts) - REMARKS_SHOWN} more")
    records = count_text(sum(topic.figures.records for topic in result.topics), "record")
    what = f"{records} in {count_text(len(result.topics), 'topic')}, {size_text(plan.size)}, {time_text(seconds)}"
    print(f"{paint.bold(str(out))}: {what}; open it in a browser")


@contextmanager
def _progress(spark: "SparkSession", plan: "ReportPlan") -> Iterator[None]:
    """A status line with the bytes that Spark has read."""
    stop, tracker = threading.Event(), spark.sparkContext.statusTracker()
    started = time.monotonic()

    def watch() -> None:
        with ProgressLine() as line:
            while not stop.wait(POLL_S):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                done = max((stage.numCompletedTasks for stage in stages if stage is not None), default=0)
                share = min(done / max(len(plan.tasks), 1), 1.0)
                spent = time_text(time.monotonic() - started)
                line.show(f"{size_text(round(plan.size * share))} of {size_text(plan.size)} read, {share:.0%}, {spent}")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
