"""The audit as a person runs it: findings, a summary, and an exit status for cron."""

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leadline.cli import main
from leadline.cli.pipeline import audit as command
from leadline.spark.audit.audit_job import audit_all, logs_of, units
from tests.support.logs import batch
from tests.support.replica_files import Replicas


@pytest.fixture
def replicas(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Replicas:
    """Of a topic, in the directories of two brokers; the session of the tests is not stopped by the command."""
    monkeypatch.setattr(command, "start_spark", lambda options, app: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    filled = Replicas(tmp_path, 2)
    for _ in range(50):
        filled.append(batch(5))
    filled.stop()
    return filled


def audit(*arguments: str) -> int:
    return main(["pipeline", "audit", *arguments])


def test_healthy_replicas_end_with_0(replicas: Replicas, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(*replicas.paths) == 0
    assert capsys.readouterr().out.startswith("healthy: 1 partition, 2 replicas, ")


def test_findings_end_with_1_and_name_file_and_position(replicas: Replicas, capsys: pytest.CaptureFixture[str]) -> None:
    path = max(replicas.folders[1].glob("*.log"))
    size = path.stat().st_size
    os.truncate(path, size - 10)
    assert audit(*replicas.paths) == 1
    torn = size - len(batch(5))
    out = capsys.readouterr().out
    assert f"{path}: at byte {torn}: torn tail: the last batch is incomplete" in out
    assert audit(*replicas.paths, "--json", "--topic", "orders") == 1
    findings = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"file": str(path), "position": torn, "kind": "torn tail"}.items() <= findings[0].items()


def test_without_checksums_only_headers_count(replicas: Replicas) -> None:
    path = max(replicas.folders[0].glob("*.log"))
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert audit(*replicas.paths, "--headers-only") == 0
    assert audit(*replicas.paths) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "/nowhere: no such directory"),
        (["{here}", "--topic", "payments"], "no log of payments in"),
    ],
)
def test_what_cannot_run_ends_with_2(
    replicas: Replicas, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert audit(*(argument.format(here=replicas.dirs[0]) for argument in arguments)) == 2
    assert message in capsys.readouterr().err


def test_ranges_are_spread_over_tasks(replicas: Replicas, spark: SparkSession) -> None:
    logs, _ = logs_of(replicas.paths)
    work = list(units(logs, checksums=True, unit_bytes=1))
    assert len(work) > 1
    results = list(audit_all(spark, work))
    assert [result.findings for result in results] == [[]] * len(work)
    assert sum(result.bytes for result in results) == sum(log.size for log in logs)
