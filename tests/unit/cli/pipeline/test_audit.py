"""Findings and summary of `leadline pipeline audit`, and its exit codes without Spark."""

import argparse
import json
from pathlib import Path

import pytest

from leadline.cli import main
from leadline.cli.output import OutputFormat, Results
from leadline.cli.pipeline.audit import _add_finding, _print_finding, _print_summary
from leadline.model import TopicPartition
from leadline.spark.audit.audit_job import AuditResult
from leadline.spark.audit.checks import Finding, FindingKind

FINDING = Finding(FindingKind.CRC, TopicPartition("orders", 0), "/data/orders-0/x.log", 61, "the CRC is wrong", 7)


def test_a_finding_names_file_and_byte(capsys: pytest.CaptureFixture[str]) -> None:
    _print_finding(FINDING)
    assert capsys.readouterr().out == f"/data/orders-0/x.log: at byte 61: {FINDING.kind}: the CRC is wrong\n"
    with Results(argparse.Namespace(output=OutputFormat.JSON)) as results:
        _add_finding(results, FINDING)
    (printed,) = json.loads(capsys.readouterr().out)
    assert (printed["topic"], printed["partition"], printed["offset"], printed["position"]) == ("orders", 0, 7, 61)


def test_the_summary_counts_findings_that_were_not_kept_and_leaves_stdout_to_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = AuditResult([FINDING], unreported=4)
    _print_summary(argparse.Namespace(output=OutputFormat.JSONL), [], result, 1.0)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("1 finding and 4 more: 0 partitions")
    _print_summary(argparse.Namespace(output=OutputFormat.TEXT), [], AuditResult([]), 1.0)
    assert capsys.readouterr().out.startswith("healthy: ")


def test_a_topic_without_a_log_ends_with_2_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "users-0").mkdir()
    (tmp_path / "users-0" / f"{0:020}.log").touch()
    assert main(["pipeline", "audit", str(tmp_path), "--topic", "orders"]) == 2
    assert capsys.readouterr().err == f"leadline: no log of orders in {tmp_path}\n"
