"""What `leadline pipeline run` tells: trouble once and when it is over, an outage as one line, progress."""

import json
from argparse import Namespace
from math import inf

import pytest

from leadline.cli.output import OutputFormat, Results
from leadline.cli.pipeline.run_report import RunReport, progress_text, reason
from leadline.spark.client.connection import Unreachable
from leadline.spark.jobs.job_schedule import StepFailure, Upkeep, UpkeepSpec
from leadline.spark.jobs.job_statistics import JobStatistics
from leadline.spark.jobs.table_job import TableJobSpec
from leadline.spark.table.table import TableError
from leadline.spark.table.table_format import TablePlace
from leadline.spark.table.table_writer import BatchSummary, TableSpec


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def report(clock: Clock) -> RunReport:
    return RunReport(Results(Namespace(output=OutputFormat.TEXT)), clock)


def job(topic: str) -> TableJobSpec:
    return TableJobSpec(TablePlace("delta", f"/lake/{topic}"), TableSpec(topic, {}), None, 1, UpkeepSpec(1))


def test_an_outage_of_the_cluster_is_one_line_and_its_end_another(
    report: RunReport, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    away = Unreachable("cannot reach localhost:9092: Connection refused")
    for _ in range(3):
        for topic in ("orders", "users"):
            report.failed(job(topic), away, StepFailure.OUTAGE, 1)
        report.failed(None, away, StepFailure.OUTAGE, 1)
    clock.now_s = 62
    report.listed()
    report.wrote(job("orders"), None)
    report.wrote(job("users"), None)
    assert capsys.readouterr().err.splitlines() == [
        "leadline: cannot reach localhost:9092: Connection refused. Trying again until it is over",
        "the cluster answers again, after 1 min 2 s",
    ]


def test_trouble_of_a_table_is_told_once_for_each_reason_and_when_it_is_over(
    report: RunReport, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("No space left", "No space left", "Permission denied"):
        report.failed(job("orders"), TableError(text), StepFailure.TABLE, 5)
    clock.now_s = 200
    report.wrote(job("orders"), None)
    report.wrote(job("orders"), None)
    assert capsys.readouterr().err.splitlines() == [
        "leadline: orders: No space left. Next try in 5 s",
        "leadline: orders: Permission denied. Next try in 5 s",
        "orders: works again, after 3 min 20 s",
    ]


def test_trouble_without_a_further_try_promises_none(report: RunReport, capsys: pytest.CaptureFixture[str]) -> None:
    report.failed(job("orders"), TableError("No space left"), StepFailure.TABLE, inf)
    report.failed(job("users"), Unreachable("away"), StepFailure.OUTAGE, inf)
    assert capsys.readouterr().err.splitlines() == ["leadline: orders: No space left", "leadline: away"]


def test_topics_dead_letters_and_upkeep_are_told(report: RunReport, capsys: pytest.CaptureFixture[str]) -> None:
    report.added(job("orders"))
    report.wrote(job("orders"), BatchSummary(0, 5, 50, 2, 1, 0, 0, -1, 0.1))
    report.upkept(job("orders"), Upkeep.COMPACT, {"removed": 12, "added": 1})
    report.upkept(job("orders"), Upkeep.COMPACT, {"removed": 0, "added": 0})
    report.upkept(job("orders"), Upkeep.VACUUM, {"deleted": 1})
    report.upkept(job("orders"), Upkeep.COUNT, {})
    report.removed(job("orders"))
    assert capsys.readouterr().err.splitlines() == [
        "orders: becomes the delta table /lake/orders",
        "orders: 2 dead letters more in /lake/orders_dead_letters",
        "orders: 12 small files became 1",
        "orders: 1 unused file deleted",
        "orders: the topic is gone; its table /lake/orders stays",
    ]


def test_progress_adds_all_tables_up() -> None:
    orders, users = JobStatistics("orders", "/o", 0), JobStatistics("users", "/u", 0)
    orders.committed(100, 2_000, 1, lag_records=0, newest_ms=1, now_ms=1)
    users.committed(50, 1_000, 0, lag_records=7, newest_ms=1, now_ms=1)
    assert progress_text([orders, users], 10) == (
        "1 of 2 tables up to date, 150 records (3.0 KB) in 2 commits, 15/s, 1 dead letter, lag 7 records"
    )
    users.checked(0, 2)
    assert progress_text([users], 10).endswith("5/s, no lag")
    users.failed("away")
    assert progress_text([users], 10) == "0 of 1 table up to date, 50 records (1.0 KB) in 1 commit, 5/s, 1 failing"


def test_lines_of_progress_are_rare_and_only_after_commits(
    report: RunReport, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = JobStatistics("orders", "/o", 0)
    for second in range(600):
        clock.now_s = second
        if second == 100:
            orders.committed(1, 1, 0, lag_records=0, newest_ms=1, now_ms=1)
        report.progress([orders], 1)
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_reason_is_one_line_without_passwords_and_names_faults_of_ours() -> None:
    assert reason(TableError("s3://me:secret@lake/x:\n  denied")) == "s3://lake/x: denied"
    assert reason(ZeroDivisionError("division by zero")) == "ZeroDivisionError: division by zero"


def test_each_commit_is_an_object_on_stdout_if_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    report = RunReport(Results(Namespace(output=OutputFormat.JSONL)))
    report.wrote(job("orders"), None)
    report.wrote(job("orders"), BatchSummary(3, 100, 2_000, 0, 1, 7, 140, 1, 0.5))
    printed = capsys.readouterr()
    assert [json.loads(line) for line in printed.out.splitlines()] == [
        {
            "topic": "orders",
            "table": "/lake/orders",
            "batch": 3,
            "records": 100,
            "bytes": 2000,
            "files": 1,
            "dead_letters": 0,
            "late_changes": 0,
            "repeated_changes": 0,
            "lag_records": 7,
            "seconds": 0.5,
        }
    ]
    assert printed.err == ""
