"""leadline pipeline audit: the replicas of topics, compared from their files."""

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from leadline.cli.client import Failure, Paint, add_command, complain
from leadline.cli.pipeline_job import ProgressLine, add_spark_options, count_text, job, start_spark
from leadline.cli.terminal import size_text, time_text

if TYPE_CHECKING:
    from leadline.spark.audit.checks import Finding
    from leadline.spark.audit.job import AuditResult, AuditTask
    from leadline.spark.files.segments import LogFiles

EXAMPLES = """
  leadline pipeline audit /data/1 /data/2 /data/3               the log directories of three brokers
  leadline pipeline audit /data --topic orders                  one topic of one broker
  leadline pipeline audit /kafka/data --headers-only            quick: no checksums
  leadline pipeline audit /data/* --json | jq -r .file          findings for a script
"""
DESCRIPTION = """\
Hold the replicas of topics against each other and against what must hold of each, by their files alone: of brokers
that run or are stopped, of Leadline or of Apache Kafka. Nothing is written.

Of each replica: checksums, whole batches, offsets in order and without gaps, epochs as their checkpoint has them,
indexes that point to what they are about, snapshots and checkpoints that can be read, an end behind the high watermark.
Of several: the same batches below the high watermark; where one was compacted, record by record.

Each finding names the file and the position in it. Exit status, for cron: 0 healthy, 1 findings, 2 could not run."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "audit",
        run,
        help="replicas against each other, from their files",
        usage="pipeline audit DIRECTORY ... [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
        connects=False,
    )
    parser.add_argument("paths", nargs="+", metavar="DIRECTORY", help="a log directory, or the folder of a partition")
    parser.add_argument("--topic", action="append", default=[], metavar="NAME", help="only this one; may be repeated")
    parser.add_argument("--headers-only", action="store_true", help="leave the checksums out: only headers are read")
    parser.add_argument("--json", action="store_true", help="one JSON object a line for each finding")
    add_spark_options(parser)


def run(options: argparse.Namespace) -> int:
    try:
        return _audit(options)
    except Failure as error:
        complain(str(error))
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return 2


@job
def _audit(options: argparse.Namespace) -> int:
    from leadline.spark.audit.job import AuditResult, logs_of, units

    logs, findings = logs_of(options.paths, options.topic)
    if not logs:
        raise Failure(f"no log of {', '.join(options.topic) or 'any topic'} in {', '.join(options.paths)}")
    total = AuditResult(findings)
    for finding in findings:
        _tell(options, finding)
    work = list(units(logs, checksums=not options.headers_only))
    seconds = _work(options, work, total)
    _summary(options, logs, total, seconds)
    return 1 if total.findings else 0


def _work(options: argparse.Namespace, work: "list[AuditTask]", total: "AuditResult") -> float:
    """How long it took once Spark was there."""
    from leadline.spark.audit.job import audit_all

    spark = start_spark(options, "audit")
    started = time.monotonic()
    try:
        with ProgressLine() as line:
            for done, result in enumerate(audit_all(spark, work), start=1):
                total.add(result)
                for finding in result.findings:
                    _tell(options, finding)
                found = count_text(len(total.findings), "finding")
                line.show(f"{done:,} of {count_text(len(work), 'range')}, {size_text(total.bytes)}, {found}")
        return time.monotonic() - started
    finally:
        spark.stop()


def _tell(options: argparse.Namespace, finding: "Finding") -> None:
    if not options.json:
        paint = Paint(sys.stdout)
        where = f"{finding.path}: at byte {finding.position}"
        print(f"{paint.bold(where)}: {paint.red(finding.kind)}: {finding.text}", flush=True)
        return
    topic, partition = finding.tp or (None, None)
    told = {
        "file": finding.path,
        "position": finding.position,
        "kind": finding.kind,
        "topic": topic,
        "partition": partition,
        "offset": finding.offset,
        "text": finding.text,
    }
    print(json.dumps(told), flush=True)


def _summary(options: argparse.Namespace, logs: "list[LogFiles]", total: "AuditResult", seconds: float) -> None:
    rate = f"{size_text(int(total.bytes / max(total.seconds, 0.001)))}/s a core"
    read = (
        f"{count_text(len({log.tp for log in logs}), 'partition')}, {count_text(len(logs), 'replica')}, "
        f"{count_text(total.files, 'file')}, {total.batches:,} batches, "
        f"{size_text(total.bytes)} in {time_text(seconds)}, {rate}"
    )
    more = f" and {total.untold:,} more" if total.untold else ""
    verdict = f"{count_text(len(total.findings), 'finding')}{more}" if total.findings else "healthy"
    print(f"{verdict}: {read}", file=sys.stderr if options.json else sys.stdout)
