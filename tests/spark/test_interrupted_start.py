"""A signal while Spark starts: the command ends with one line, and no process of it is left."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from tests.support.commands import LEADLINE
from tests.support.logs import batch
from tests.support.replica_files import Replicas
from tests.support.waiting import until

PATIENCE_S = 120
POLL_S = 0.01


def runs_the_launcher(command: psutil.Process) -> bool:
    """A shell, and a Java that works out how Spark's Java is started."""
    return any("org.apache.spark.launcher.Main" in child.cmdline() for child in command.children(recursive=True))


def runs_java(command: psutil.Process) -> bool:
    return any("org.apache.spark.deploy.SparkSubmit" in child.cmdline() for child in command.children())


def is_connected_to_java(command: psutil.Process) -> bool:
    """Java listens, and a context is made in it."""
    return any(connection.status == psutil.CONN_ESTABLISHED for connection in command.net_connections())


@contextmanager
def audit(paths: list[str], mark: str) -> Iterator["subprocess.Popen[str]"]:
    """The command, with an environment that marks all its processes."""
    process = subprocess.Popen(
        [*LEADLINE, "pipeline", "audit", *paths],
        env={**os.environ, "LEADLINE_TEST_MARK": mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for left in marked(mark):
            left.kill()
        process.communicate()


def marked(mark: str) -> list[psutil.Process]:
    running = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("LEADLINE_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE:
                running.append(process)
    return running


def wait_until(is_so: Callable[[psutil.Process], bool], process: "subprocess.Popen[str]") -> None:
    watched = psutil.Process(process.pid)

    def is_so_now() -> bool:
        assert process.poll() is None, process.communicate()
        with suppress(psutil.Error):  # a child that ended between two questions
            return is_so(watched)
        return False

    until(is_so_now, seconds=PATIENCE_S, poll_s=POLL_S)


@pytest.mark.parametrize(
    ("phase", "number"),
    [
        (runs_the_launcher, signal.SIGINT),
        (runs_java, signal.SIGINT),
        (is_connected_to_java, signal.SIGINT),
        (runs_java, signal.SIGTERM),
        (is_connected_to_java, signal.SIGHUP),
    ],
)
def test_a_signal_while_spark_starts_leaves_no_process_and_prints_one_line(
    tmp_path: Path, phase: Callable[[psutil.Process], bool], number: signal.Signals
) -> None:
    replicas = Replicas(tmp_path, count=1)
    replicas.append(batch(3))
    with audit(replicas.paths, mark=str(tmp_path)) as command:
        wait_until(phase, command)
        command.send_signal(number)
        out, err = command.communicate(timeout=PATIENCE_S)
        until(lambda: not marked(str(tmp_path)), lambda: marked(str(tmp_path)), PATIENCE_S)
    assert (command.returncode, out, err) == (128 + number, "", f"leadline: stopped by {number.name}\n")
