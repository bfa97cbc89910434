"""leadline pipeline audit: compares the replicas of topics by their files."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, size_text, time_text
from leadline.admin.json_values import Json
from leadline.cli.errors import print_error
from leadline.cli.options import add_command
from leadline.cli.output import Results, add_output_option, is_text
from leadline.cli.pipeline.job import ProgressLine, add_spark_options, job, start_spark
from leadline.cli.terminal import TextStyles

if TYPE_CHECKING:
    from leadline.spark.audit.audit_job import AuditResult, AuditTask
    from leadline.spark.audit.checks import Finding
    from leadline.spark.files.segments import LogFiles

EXAMPLES = """
  leadline pipeline audit /data/1 /data/2 /data/3               the log directories of three brokers
  leadline pipeline audit /data --topic orders                  one topic of one broker
  leadline pipeline audit /kafka/data --headers-only            quick: no checksums
  leadline pipeline audit /data/* --json | jq -r .file          findings for a script
"""
DESCRIPTION = """\
Check the replicas of topics and compare them with each other, by their files alone. The brokers may be running or
stopped, and may be Leadline or Apache Kafka. Nothing is written.

Checks of each replica: checksums, complete batches, offsets in order and without gaps, leader epochs that agree with
their checkpoint, index entries that point to their batches, readable snapshots and checkpoints, a log end at or after
the high watermark. Replicas of one partition must have the same batches below the high watermark. Where a replica was
compacted, records are compared instead.

Each finding names the file and the position in it. Exit code: 0 healthy, 1 findings, 2 could not run."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "audit",
        run,
        help="compare the replicas of topics, by their files",
        usage="pipeline audit DIRECTORY ... [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
        connects=False,
    )
    parser.add_argument("paths", nargs="+", metavar="DIRECTORY", help="log directory, or directory of a partition")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this topic; repeatable")
    parser.add_argument("--headers-only", action="store_true", help="read only headers, without checksums")
    add_output_option(parser, "finding")
    add_spark_options(parser)


def run(options: argparse.Namespace) -> int:
    try:
        return _audit(options)
    except Failure as error:
        print_error(str(error))
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return 2


@job
def _audit(options: argparse.Namespace) -> int:
    from leadline.spark.audit.audit_job import AuditResult, logs_of, units

    logs, findings = logs_of(options.paths, options.topic)
    if not logs:
        raise Failure(f"no log of {', '.join(options.topic) or 'any topic'} in {', '.join(options.paths)}")
    total = AuditResult(findings)
    with Results(options) as results:
        for finding in findings:
            _add_finding(results, finding)
        tasks = list(units(logs, checksums=not options.headers_only))
        seconds = _run_tasks(options, tasks, total, results)
    _print_summary(options, logs, total, seconds)
    return 1 if total.findings else 0


def _run_tasks(options: argparse.Namespace, tasks: "list[AuditTask]", total: "AuditResult", results: Results) -> float:
    """Run the tasks on Spark. Returns the seconds without the start of Spark."""
    from leadline.spark.audit.audit_job import audit_all

    spark = start_spark(options, "audit")
    started = time.monotonic()
    try:
        with ProgressLine() as line:
            for done, result in enumerate(audit_all(spark, tasks), start=1):
                total.add(result)
                for finding in result.findings:
                    _add_finding(results, finding)
                findings = count_text(len(total.findings), "finding")
                line.show(f"{done:,} of {count_text(len(tasks), 'range')}, {size_text(total.bytes)}, {findings}")
        return time.monotonic() - started
    finally:
        spark.stop()


def _add_finding(results: Results, finding: "Finding") -> None:
    topic, partition = finding.tp or (None, None)
    members: Json = {
        "file": finding.path,
        "position": finding.position,
        "kind": finding.kind,
        "topic": topic,
        "partition": partition,
        "offset": finding.offset,
        "text": finding.text,
    }
    results.add(members, lambda: _print_finding(finding))


def _print_finding(finding: "Finding") -> None:
    paint = TextStyles(sys.stdout)
    where = f"{finding.path}: at byte {finding.position}"
    print(f"{paint.bold(where)}: {paint.red(finding.kind)}: {finding.text}", flush=True)


def _print_summary(options: argparse.Namespace, logs: "list[LogFiles]", total: "AuditResult", seconds: float) -> None:
    rate = f"{size_text(int(total.bytes / max(total.seconds, 0.001)))}/s a core"
    read = (
        f"{count_text(len({log.tp for log in logs}), 'partition')}, {count_text(len(logs), 'replica')}, "
        f"{count_text(total.files, 'file')}, {total.batches:,} batches, "
        f"{size_text(total.bytes)} in {time_text(seconds)}, {rate}"
    )
    more = f" and {total.unreported:,} more" if total.unreported else ""
    verdict = f"{count_text(len(total.findings), 'finding')}{more}" if total.findings else "healthy"
    print(f"{verdict}: {read}", file=sys.stdout if is_text(options) else sys.stderr)
