"""A Spark cluster whose workers have interpreters of their own, from an archive that Spark unpacks for each of them."""

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from leadline.spark import java
from tests.support.broker import leadline
from tests.support.following import Feed
from tests.support.topics import create_topic
from tests.support.waiting import until

PATIENCE_S = 180
WORKERS = 2
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
# Notes where it was started: an executor has a folder of its own, below that of its worker.
INTERPRETER = """#!/bin/sh
echo "$PWD" >>{notes}
exec {python} "$@"
"""


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The folders in which the interpreter of the archive was started, one a line."""
    return tmp_path / "notes"


@pytest.fixture
def archive(tmp_path: Path, notes: Path) -> Path:
    interpreter = tmp_path / "python"
    interpreter.write_text(INTERPRETER.format(notes=notes, python=sys.executable))
    interpreter.chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as tar:
        tar.add(interpreter, "bin/python")
    return tmp_path / "environment.tar.gz"


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone master with WORKERS workers, each with a folder of its own."""
    home = java.spark_home()
    environment = os.environ | {"JAVA_HOME": str(java.find(java.cache_dir()).home), "SPARK_HOME": home}

    def start(stack: ExitStack, name: str, *arguments: str) -> Path:
        log = tmp_path / f"{name}.log"
        with log.open("wb") as output:
            command = [f"{home}/bin/spark-class", *arguments]
            process = subprocess.Popen(command, stdout=output, stderr=output, env=environment, cwd=tmp_path)
        stack.callback(process.wait)
        stack.callback(process.kill)
        return log

    with ExitStack() as stack:
        log = start(stack, "master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        until(lambda: "Starting Spark master at" in log.read_text(), "the master runs", PATIENCE_S)
        (address,) = re.findall(r"Starting Spark master at (spark://\S+)", log.read_text())
        for number in range(WORKERS):
            limits = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--host", "127.0.0.1")
            folder = str(tmp_path / f"worker-{number}")
            start(stack, f"worker-{number}", WORKER, *limits, "--work-dir", folder, address)
        until(lambda: log.read_text().count("Registering worker") == WORKERS, "the workers are there", PATIENCE_S)
        yield address


def test_a_table_is_written_by_workers_with_the_interpreter_of_an_archive(
    tmp_path: Path, master: str, archive: Path, notes: Path
) -> None:
    with leadline(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "orders", 4)
        Feed(broker, "orders").more(200)
        settings = {
            "spark.archives": f"{archive}#environment",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.cores.max": str(WORKERS),
        }
        table = tmp_path / "table"
        place = ("--bootstrap-server", broker.bootstrap, "--master", master)
        options = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        command = ("table", "orders", str(table), "--once", "--batch-bytes", "4000", *place, *options)
        written = subprocess.run(
            [sys.executable, "-m", "leadline", "pipeline", *command],
            env=os.environ | {"PYSPARK_PYTHON": "./environment/bin/python"},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert written.returncode == 0, written.stderr
    assert "200 records" in written.stderr
    workers = {Path(folder).relative_to(tmp_path).parts[0] for folder in notes.read_text().splitlines()}
    assert workers == {f"worker-{number}" for number in range(WORKERS)}
