"""leadline pipeline run: writes many topics to their tables, in one process, until it is stopped."""

import argparse
import functools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import inf
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from leadline.admin.errors import Failure
from leadline.admin.formatting import time_text
from leadline.admin.times import duration_ms
from leadline.cli.errors import print_error
from leadline.cli.metrics_address import metrics_address, metrics_url
from leadline.cli.options import add_command, add_dry_run_option
from leadline.cli.output import Results, add_output_option, print_results
from leadline.cli.pipeline.job import (
    add_spark_options,
    check_reachable,
    client_properties,
    extras_of,
    job,
    require,
    start_spark,
    stop_spark,
)
from leadline.cli.pipeline.job_file import JobFile, TableEntry, options_of, parse_job_file
from leadline.cli.pipeline.run_report import RunReport, progress_text, reason
from leadline.cli.pipeline.table_options import local_directory, place_of, quality_of, spec_of
from leadline.cli.signals import ctrl_c
from leadline.cli.terminal import print_table
from leadline.cli.text_files import read_text
from leadline.runtime.notify_socket import NotifySender
from leadline.spark.errors import JobFailed

if TYPE_CHECKING:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.jobs.job_metrics import RunState
    from leadline.spark.jobs.job_runner import JobRunner
    from leadline.spark.jobs.lineage import CommitFacts
    from leadline.spark.jobs.table_job import TableJobSpec
    from leadline.spark.jobs.topic_discovery import TopicEntry

POLL_S = 0.5
PARALLEL, REFRESH_S, DRAIN_S = 4, 30.0, 60.0
COUNT_EVERY_S = 60.0  # files, if metrics are served
API_TIMEOUT_MS = 10_000
SETTINGS = {  # of Spark: its history of past tasks is bounded, and each worker has its share of the cores
    "spark.scheduler.mode": "FAIR",
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
}

EXAMPLES = """
  leadline pipeline run jobs.toml                               until Ctrl-C or SIGTERM
  leadline pipeline run jobs.toml --dry-run                     which topics would become which tables
  leadline pipeline run jobs.toml --once                        what is there, then exit: for cron or Airflow
  leadline pipeline run jobs.toml --metrics 127.0.0.1:9405      with metrics and health over HTTP
  leadline pipeline run jobs.toml --lineage http://marquez:5000 with the lineage of each commit
  leadline pipeline run jobs.toml --output jsonl                with an object for each commit on stdout

jobs.toml:
  [cluster]
  bootstrap-server = "localhost:9092"

  [defaults]
  interval = "30s"                          time between two commits of a table

  [[tables]]
  topics = ["orders", "users"]
  table = "/lake/{topic}"
  format = "json"

  [[tables]]
  pattern = "shop-.*"                       later topics too
  table = "s3://lake/raw/{topic}"
  table-options = { "s3.region" = "eu-central-1" }
  compact-every = "6h"
"""
DESCRIPTION = """\
Write many topics to their tables, each exactly once, as `leadline pipeline table` does for one.

One process and one Spark do it. Each topic has its own table, which holds its own position. Topics that match a pattern
are picked up when they appear. A job that fails is reported and retried, with pauses that double; the other jobs
continue. Outages of brokers, catalogs and object stores may last for any time.

Tables are maintained: small files are merged (compact-every, target-file-size), and files that no version needs any
more are deleted (vacuum-every, keep). Both wait until a table has all records of its topic.

SIGTERM and Ctrl-C finish the batches under way, for up to --drain, then exit with 0. The next run writes the rest. A
second signal does not wait.

Sections and keys of the file; an unknown one is refused:
  [cluster]    bootstrap-server, command-config, properties
  [spark]      master, conf
  [run]        parallel (batches at a time, 4), refresh (look for topics, 30s), drain (60s)
  [defaults]   any key of a table but topics and pattern
  [[tables]]   topics or pattern; table (with {topic}); table-format, table-options, format, mode, partition-by,
               registry, registry-options, columns, schema, interval (30s), batch-bytes, isolation,
               allow-data-loss, group: as for `pipeline table`;
               target-file-size (256MiB), compact-every (1h), vacuum-every (1d), keep (7d)"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "run",
        run,
        help="write many topics to their tables, from a file of jobs",
        usage="pipeline run FILE [options]",
        examples=EXAMPLES,
        description=DESCRIPTION,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the jobs, in TOML")
    parser.add_argument("--once", action="store_true", help="process what is available, then exit")
    add_dry_run_option(parser)
    parser.add_argument(
        "--metrics",
        type=metrics_address,
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz there",
    )
    parser.add_argument(
        "--lineage",
        metavar="URL|FILE",
        help="send the lineage of each commit there as OpenLineage events, or append it to a file",
    )
    parser.add_argument(
        "--drain", type=duration_ms, metavar="TIME", help="time for the batches under way after a signal (default 60s)"
    )
    add_output_option(parser, "commit, or per table with --dry-run", stream=True)
    add_spark_options(parser)
    parser.set_defaults(master=None)  # the file may name one


@job
def run(options: argparse.Namespace) -> int:
    file = parse_job_file(read_text(options.file), str(options.file))
    adopt(options, file)
    for entry in file.tables:
        require(extras_of(options_of(entry, "", options)))
        check_entry(entry, options)
    properties = _bounded(client_properties(options))
    if options.once or options.dry_run:
        check_reachable(properties, options.timeout)
    entries = [_topic_entry(entry, options) for entry in file.tables]
    if options.dry_run:
        return _show(options, properties, entries)
    with ExitStack() as resources:
        return _run(options, file, properties, entries, resources)


def check_entry(entry: TableEntry, options: argparse.Namespace) -> None:
    """Failure, with the place in the file, if a rule or mask of a table is none."""
    from leadline.spark.table.quality import check_quality
    from leadline.spark.table.table import TableError

    table = options_of(entry, "", options)
    try:
        check_quality(quality_of(table), table.format, table.mode)
    except (TableError, Failure) as error:
        raise Failure(f"{entry.where}: {error}") from None


def adopt(options: argparse.Namespace, file: JobFile) -> None:
    """Options that the command line does not set come from the file."""
    cluster, spark = file.cluster, file.spark
    options.bootstrap_server = options.bootstrap_server or cluster.get("bootstrap-server")
    if options.command_config is None and "command-config" in cluster:
        options.command_config = Path(cluster["command-config"])
    options.property = [
        *(f"{name}={value}" for name, value in cluster.get("properties", {}).items()),
        *options.property,
    ]
    if options.master is None:
        options.master = spark.get("master", "local[*]")
    options.conf = [*SETTINGS.items(), *spark.get("conf", {}).items(), *options.conf]


def _topic_entry(entry: TableEntry, options: argparse.Namespace) -> "TopicEntry[TableJobSpec]":
    from leadline.spark.jobs.topic_discovery import TopicEntry

    return TopicEntry(entry.topics, entry.pattern, functools.cache(lambda topic: job_spec_of(entry, topic, options)))


def job_spec_of(entry: TableEntry, topic: str, options: argparse.Namespace) -> "TableJobSpec":
    from leadline.spark.jobs.job_schedule import UpkeepSpec
    from leadline.spark.jobs.table_job import TableJobSpec
    from leadline.spark.table.table import TARGET_BYTES

    table, values = options_of(entry, topic, options), entry.values
    defaults = UpkeepSpec(TARGET_BYTES)
    upkeep = UpkeepSpec(
        values.get("target-file-size", TARGET_BYTES),
        values.get("compact-every", defaults.compact_every_s),
        values.get("vacuum-every", defaults.vacuum_every_s),
        inf if options.metrics is None else COUNT_EVERY_S,
        values.get("keep", defaults.keep_hours),
    )
    spec = spec_of(table)
    spec = replace(spec, properties=_bounded(spec.properties))
    return TableJobSpec(place_of(table), spec, local_directory(table), table.interval / 1000, upkeep)


def _bounded(properties: Mapping[str, str]) -> dict[str, str]:
    """Clients and tasks give up sooner than alone: longer outages are waited for without a worker."""
    return {"default.api.timeout.ms": str(API_TIMEOUT_MS), **properties}


def _show(options: argparse.Namespace, properties: Mapping[str, str], entries: "list[TopicEntry[TableJobSpec]]") -> int:
    """Which topics would become which tables, and the errors that prevent it."""
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.jobs.topic_discovery import job_changes

    with ClusterClient(properties) as cluster:
        existing = [name for name, topic in cluster.topics().items() if not topic.is_internal]
        changes = job_changes(entries, existing, {}, lambda job: job.name)
        rows, is_good = [], not changes.conflicts
        for planned in changes.added:
            state, may_run = _state(cluster, planned)
            is_good &= may_run
            spec = planned.spec
            rows.append([spec.topic, planned.place.uri, planned.place.kind, spec.format, spec.mode, state])
    fields = ["topic", "table", "table_format", "format", "mode", "state"]

    def print_rows() -> None:
        print_table([field.replace("_", " ").upper() for field in fields], rows)

    print_results(options, [dict(zip(fields, row, strict=True)) for row in rows], print_rows)
    for text in changes.conflicts:
        print_error(text)
    return 0 if is_good else 1


def _state(cluster: "ClusterClient", planned: "TableJobSpec") -> tuple[str, bool]:
    """The state of a table as text, and whether a writer could start."""
    from leadline.spark.table.table_writer import check_table

    try:
        table = planned.place.open()
        check_table(cluster, table, planned.spec)
        state = table.state()
    except (JobFailed, OSError) as error:
        return reason(error), False
    return ("new" if state is None else f"at batch {state.progress.batch}"), True


def _run(
    options: argparse.Namespace,
    file: JobFile,
    properties: Mapping[str, str],
    entries: "list[TopicEntry[TableJobSpec]]",
    resources: ExitStack,
) -> int:
    from leadline.spark.jobs.job_metrics import RunState, served_metrics
    from leadline.spark.jobs.job_runner import JobRunner, RunSpec, SparkEnvironment

    state, manager = RunState(), NotifySender(os.environ)
    if options.metrics is not None:
        options.metrics = options.metrics._replace(
            port=resources.enter_context(served_metrics(state, *options.metrics))
        )
        print(f"metrics: {metrics_url(options.metrics)}", file=sys.stderr, flush=True)
    spark = start_spark(options, "run")
    resources.callback(stop_spark, spark)
    report = RunReport(Results(options))
    run_spec = RunSpec(file.run.get("parallel", PARALLEL), file.run.get("refresh", REFRESH_S), options.once)
    lineage = None if options.lineage is None else resources.enter_context(_sent_lineage(options.lineage))
    runner = JobRunner(SparkEnvironment(spark, properties), run_spec, entries, report, lineage)
    state.jobs = runner.statistics
    drain_s = options.drain / 1000 if options.drain is not None else file.run.get("drain", DRAIN_S)
    with ctrl_c() as stop:
        runner.start()
        manager.notify("READY=1")
        return _follow(runner, report, state, stop, drain_s, manager)


@contextmanager
def _sent_lineage(place: str) -> "Iterator[Callable[[CommitFacts], None]]":
    from leadline.spark.jobs.lineage import events_of
    from leadline.spark.jobs.lineage_sender import LineageSender, sender_to

    sender = LineageSender(sender_to(place), print_error)
    try:
        yield lambda commit: sender.add(events_of(commit))
    finally:
        if unsent := sender.stop():
            print_error(f"lineage: {unsent:,} events were not sent")


def _follow(
    runner: "JobRunner", report: RunReport, state: "RunState", stop: Event, drain_s: float, manager: NotifySender
) -> int:
    """Until a signal comes, or all is done; then the end of all jobs."""
    from leadline.spark.session import java_end

    started = time.monotonic()
    while not stop.wait(POLL_S) and not runner.is_done:
        if (ended := java_end(wait_s=0)) is not None:
            raise Failure(f"Spark's Java process {ended}: what was committed stays, and the same command continues")
        text = report.progress(runner.statistics(), time.monotonic() - started)
        manager.notify(f"STATUS={text}")
    state.is_stopping = True
    manager.notify("STOPPING=1")
    report.end()
    if stop.is_set():
        what = f"{_batches(runner.under_way)} under way"
        print(f"stopping: {what}, with {drain_s:.0f} s to finish", file=sys.stderr, flush=True)
    under_way, given_up = runner.stop(drain_s)
    jobs = runner.statistics()
    if runner.is_done and runner.list_error is not None:
        raise runner.list_error
    if given_up:
        print(f"given up: {_batches(given_up)}; the next run writes the same records", file=sys.stderr)
    if under_way > given_up:
        print(f"finished: {_batches(under_way - given_up)}", file=sys.stderr)
    seconds = time.monotonic() - started
    print(f"{progress_text(jobs, seconds)}, in {time_text(seconds)}", file=sys.stderr, flush=True)
    return 1 if runner.is_done and any(job.trouble for job in jobs) else 0


def _batches(count: int) -> str:
    return f"{count} {'batch' if count == 1 else 'batches'}"
