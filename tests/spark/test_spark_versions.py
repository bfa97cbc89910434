"""Older versions of Spark: what their interfaces lack, and jobs that run with them.

They are installed beside the environment of the tests, which takes a download of 400 MB each. So they run with --long.
"""

import os
import subprocess
import sys
import venv
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from leadline.spark.table.table_format import TABLE_FORMATS
from tests.conformance.kafka.jars import cache, once
from tests.support.broker import leadline
from tests.support.following import Feed
from tests.support.topics import create_topic

PATIENCE_S = 300
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
# Spark 4.0 has none of these. Modules that are loaded already keep what they imported.
WITHOUT = """
import sys
import pyspark.accumulators, pyspark.sql.datasource
del pyspark.accumulators.AccumulatorUnixServer, pyspark.sql.datasource.DataSourceStreamArrowWriter
sys.modules["pyspark.sql.streaming.datasource"] = None
"""
IMPORTS = """
import pyspark_leadline, pyspark_leadline_log
from leadline.spark import gateway, session
from leadline.spark.audit import audit_job
from leadline.spark.jobs import job_runner
from leadline.spark.mirror import mirror
from leadline.spark.report import report_job
from leadline.spark.table import replay, table_writer, verification
"""
FORMAT = """
import sys
from leadline.spark.session import session
servers, version, checkpoint = sys.argv[1:]
spark = session("versions", master="local[2]")
assert spark.version == version, spark.version

def options(**others):
    return {"kafka.bootstrap.servers": servers, **others}

def write(first, until):
    rows = spark.range(first, until).selectExpr("concat('v', id) as value")
    rows.write.format("leadline").options(**options(topic="written")).mode("append").save()

def copy(trigger):
    rows = spark.readStream.format("leadline").options(**options(subscribe="written", startingOffsets="earliest"))
    writer = rows.load().writeStream.format("leadline").options(**options(topic="copied"))
    return writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()

write(0, 3)
copy({"availableNow": True}).awaitTermination()
query = copy({"processingTime": "0 seconds"})
for n in range(3, 6):
    write(n, n + 1)
    query.processAllAvailable()
query.stop()
write(6, 7)
copy({"availableNow": True}).awaitTermination()
copied = options(subscribe="copied", **{"kafka.isolation.level": "read_committed"})
read = spark.read.format("leadline").options(**copied).load()
print(sorted(bytes(row.value).decode() for row in read.collect()))
spark.stop()
"""


def test_jobs_and_the_format_are_loaded_without_the_interfaces_of_newer_versions() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT + IMPORTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest, is_long: bool) -> str:
    if not is_long:
        pytest.skip("installs another Spark: runs with --long")
    return str(request.param)


@pytest.fixture
def environment(version: str) -> dict[str, str]:
    """An environment in which Python finds that version first."""
    folder = once(cache() / f"pyspark-{version}", lambda folder: _install(f"pyspark=={version}", folder))
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def _install(requirement: str, folder: Path) -> None:
    with TemporaryDirectory() as scratch:
        venv.create(scratch, with_pip=True)
        pip = [str(Path(scratch, "bin", "python")), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        done = subprocess.run([*pip, "--target", str(folder), requirement], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def _run(environment: dict[str, str], *arguments: str) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_a_job_runs(tmp_path: Path, environment: dict[str, str], kind: str) -> None:
    with leadline(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "orders", 2)
        Feed(broker, "orders").more(50)
        place = ("--bootstrap-server", broker.bootstrap, "--master", "local[2]", "--table-format", kind)
        job, table = ("-m", "leadline", "pipeline"), str(tmp_path / "table")
        assert "50 records" in _run(environment, *job, "table", "orders", table, "--format", "json", "--once", *place)
        assert "has each record of orders once" in _run(environment, *job, "verify", table, *place)


def test_the_format_reads_and_writes_with_streams_and_without(
    tmp_path: Path, version: str, environment: dict[str, str]
) -> None:
    with leadline(tmp_path / "data") as broker:
        for topic in ("written", "copied"):
            create_topic(broker.bootstrap, topic, 2)
        values = _run(environment, "-c", FORMAT, broker.bootstrap, version, str(tmp_path / "checkpoint"))
        assert values.strip().endswith(str([f"v{n}" for n in range(7)]))
