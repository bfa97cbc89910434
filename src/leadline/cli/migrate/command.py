"""leadline migrate check: what prevents replacing Apache Kafka's brokers with Leadline's.

The command asks and reads; `settings_findings`, `mechanism_findings` and `cluster_findings` judge.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.admin.formatting import count_text, table
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.errors import reports_errors
from leadline.cli.migrate.finding import (
    FINDING_HEADS,
    MigrationFinding,
    Severity,
    exit_code,
    finding_json,
    finding_row,
    merged,
    order_text,
    summary,
)
from leadline.cli.options import Commands, add_command, add_subcommands
from leadline.cli.output import add_output_option, print_result
from leadline.cli.terminal import TextStyles
from leadline.config.properties import decode_properties
from leadline.model import BrokerId

if TYPE_CHECKING:
    from leadline.cli.migrate.cluster_report import ClusterReport

NOT_CHECKED = 2  # the exit code of wrong usage as well
DESCRIPTION = """\
List what prevents replacing the brokers of an Apache Kafka cluster with Leadline's. Nothing is changed.

It checks any of these:
  --bootstrap-server     a running cluster: its mode (ZooKeeper or KRaft), the versions of its brokers, the settings
                         of brokers and topics, the state of its partitions
  server.properties      the file of one or several brokers, as `leadline start` would read it: settings, listeners,
                         plugins, key stores, JAAS lines. Run it on the broker's machine, with its KAFKA_OPTS: then the
                         files that it names are checked as well
  --log-dirs             log directories: segments from before Kafka 0.11. Run it on the broker's machine

A finding blocks, warns or is a note. Each has a cure. docs/MIGRATION.md leads through the whole migration.

exit code: 0 ready, 1 a finding blocks, 2 wrong usage or it could not be checked"""
EXAMPLES = """
  leadline migrate check --bootstrap-server kafka1:9092
  leadline migrate check --bootstrap-server kafka1:9093 --command-config admin.properties
  leadline migrate check /etc/kafka/server.properties --log-dirs /var/lib/kafka
  leadline migrate check kafka1.properties kafka2.properties kafka3.properties
  leadline migrate check --bootstrap-server kafka1:9092 --output json | jq '.findings[] | select(.severity == "blocks")'
"""


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "migrate", COMMANDS["migrate"].help)
    check = add_command(
        subcommands,
        "check",
        _check,
        help="list what prevents a migration",
        usage="migrate check [server.properties ...] [--bootstrap-server HOST:PORT] [options]",
        description=DESCRIPTION,
        examples=EXAMPLES,
    )
    check.add_argument("files", nargs="*", type=Path, metavar="server.properties", help="settings of a broker")
    check.add_argument(
        "--log-dirs",
        action="append",
        default=[],
        metavar="DIR,DIR,...",
        help="log directories of a broker, as in its log.dirs; repeatable",
    )
    add_output_option(check)
    # A cluster that could not be checked is not ready, though no finding blocks it.
    check.set_defaults(run=reports_errors(_check, NOT_CHECKED), error=check.error)


def _check(options: argparse.Namespace) -> int:
    directories = [Path(part.strip()) for text in options.log_dirs for part in text.split(",") if part.strip()]
    has_cluster = options.bootstrap_server is not None or options.command_config is not None
    if not (options.files or directories or has_cluster):
        options.error("nothing to check: give --bootstrap-server, files of settings or --log-dirs")
    findings, checked, order = list[MigrationFinding](), list[str](), list[BrokerId]()
    if has_cluster:
        report = _cluster_report(options)
        findings += _cluster_findings(report)
        checked.append(f"{count_text(len(report.brokers), 'broker')} and {count_text(len(report.topics), 'topic')}")
        order = report.order
    for file in options.files:
        findings += _file_findings(file)
        checked.append(str(file))
    for directory in directories:
        from leadline.cli.migrate.log_dir_findings import judge_log_dir

        findings += judge_log_dir(directory)
        checked.append(str(directory))
    findings = merged(findings)
    _print(findings, checked, order, options)
    return exit_code(findings)


def _cluster_report(options: argparse.Namespace) -> "ClusterReport":
    from leadline.cli.migrate.cluster_survey import survey
    from leadline.cli.security_admin import security_admin

    with security_admin(options) as admin:
        return survey(admin)


def _cluster_findings(report: "ClusterReport") -> Iterator[MigrationFinding]:
    from leadline.api import TABLE
    from leadline.broker.peer_versions import SENT_VERSIONS
    from leadline.cli.migrate.cluster_findings import judge_cluster

    return judge_cluster(report, SENT_VERSIONS, {key: entry.versions for key, entry in TABLE.items()})


def _file_findings(file: Path) -> Iterator[MigrationFinding]:
    from leadline.cli.migrate.listener_findings import judge_protection
    from leadline.cli.migrate.mechanism_findings import judge_mechanisms
    from leadline.cli.migrate.settings_findings import judge_settings

    properties = decode_properties(file.read_bytes())
    verdict = judge_settings(properties, str(file))
    yield from verdict.findings
    if verdict.settings is None:
        return
    mechanisms = list(judge_mechanisms(verdict.settings, str(file)))
    yield from mechanisms
    is_blocked = any(finding.severity is Severity.BLOCKS for finding in mechanisms)
    if not is_blocked:  # otherwise the same finding would appear twice
        yield from judge_protection(verdict.settings, os.environ, lambda path: Path(path).read_bytes(), str(file))


def _print(
    findings: Sequence[MigrationFinding],
    checked: Sequence[str],
    order: Sequence[BrokerId],
    options: argparse.Namespace,
) -> None:
    verdict: dict[str, Json] = {"ready": not exit_code(findings), "checked": checked, "order": order}
    value = {**verdict, "findings": [*map(finding_json, findings)]}
    print_result(options, value, lambda: _print_text(findings, checked, order))


def _print_text(findings: Sequence[MigrationFinding], checked: Sequence[str], order: Sequence[BrokerId]) -> None:
    paint = TextStyles(sys.stdout)
    if findings:
        rows = [[paint.escape(cell) for cell in finding_row(finding)] for finding in findings]
        head, *lines = table(FINDING_HEADS, rows, paint.bold)
        print(head)
        for finding, line in zip(findings, lines, strict=True):
            print(paint.red(line) if finding.severity is Severity.BLOCKS else line)
            print(paint.dim(f"{'':10}cure: {finding.cure}"))
        print()
    print(summary(findings, checked))
    if order and not exit_code(findings):
        print(order_text(order))
