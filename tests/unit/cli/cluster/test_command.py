"""A cluster on this machine: what is to run, what cannot, and that it comes, goes on without one, and goes."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from leadline.cli import main
from leadline.cli.processes import process_text
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import _free_port
from tests.support.broker import leadline
from tests.support.commands import COMMAND_S, LEADLINE
from tests.support.ports import free_ports
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--set broker.id=7", "--set broker.id: this setting differs between brokers"),
        ("--set log.segment.bytes=x", "Invalid value x for configuration log.segment.bytes"),
        ("--zookeeper x:1 --zookeeper-port 2", "--zookeeper-port: with --zookeeper no ZooKeeper is started"),
        ("--zookeeper-port 65536", "--zookeeper-port 65536: a port is a number from 1 to 65535"),
        ("--brokers 4 --port 65533", "--port 65533: 4 brokers need the ports up to 65536"),
    ],
)
def test_invalid_arguments_are_reported_before_anything_starts(
    arguments: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster", "up", "--dir", str(tmp_path / "c"), *arguments.split()]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"leadline: {message}")
    assert not (tmp_path / "c").exists()


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["cluster", "up", "--dir", str(tmp_path / "c"), "--brokers", "1", "--port", str(port)]) == 1
    message = f"leadline: localhost:{port} is taken by {process_text(os.getpid())}: choose another with --port\n"
    assert capsys.readouterr().err == message


class RunningCluster:
    """`leadline cluster up`, in a process group of its own as a shell would start it."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        command = [*LEADLINE, "cluster", "up", "--dir", str(folder), "--brokers", "3", "--port", str(port), *options]
        env = os.environ | {"CLASSPATH": f"{jars.libs()}/*"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, process_group=0
        )

    def read_until(self, pattern: str) -> str:
        assert self.process.stdout is not None
        output: list[str] = []
        for line in self.process.stdout:
            output.append(line)
            if re.search(pattern, line):
                return "".join(output)
        raise AssertionError(f"no {pattern!r} in:\n{''.join(output)}")

    def press_ctrl_c(self) -> str:
        os.killpg(self.process.pid, signal.SIGINT)
        output, _ = self.process.communicate(timeout=2 * COMMAND_S)
        return output


@contextmanager
def up(folder: Path, port: int, *options: str) -> Iterator[RunningCluster]:
    cluster = RunningCluster(folder, port, *options)
    try:
        yield cluster
    finally:
        if cluster.process.poll() is None:
            cluster.press_ctrl_c()


def test_a_cluster_comes_goes_on_without_one_and_comes_again_with_its_data(tmp_path: Path) -> None:
    port = free_ports(3)
    servers = ("--bootstrap-server", f"localhost:{port}")
    with up(tmp_path / "c", port) as cluster:
        greeting = cluster.read_until("Ctrl-C stops them all")
        assert f"broker 3   localhost:{port + 2}" in greeting
        done = subprocess.run([*LEADLINE, "topics", "create", "kept", *servers], capture_output=True, text=True)
        assert done.stdout == "Created topic kept.\n", done.stderr
        (victim,) = re.findall(r"kill -9 (\d+)", greeting)
        os.kill(int(victim), signal.SIGKILL)
        lost = cluster.read_until("of 3 run")
        assert f"broker 3 (pid {victim}) was killed by SIGKILL; 2 of 3 run. To start it again: " in lost
        output = cluster.press_ctrl_c()
        assert cluster.process.returncode == 0
        assert output.startswith("stopped after ")
    with up(tmp_path / "c", port) as cluster:
        cluster.read_until("Ctrl-C stops them all")
        done = subprocess.run([*LEADLINE, "topics", "list", *servers], capture_output=True, text=True)
        assert done.stdout == "kept\n", done.stderr
        assert "everything is on disk" in cluster.press_ctrl_c()
        assert cluster.process.returncode == 0


def test_a_broker_that_is_brought_back_by_hand_is_one_of_the_cluster_and_ends_with_it(tmp_path: Path) -> None:
    port, zookeeper = free_ports(3), _free_port()
    with up(tmp_path / "c", port, "--zookeeper-port", str(zookeeper)) as cluster:
        greeting = cluster.read_until("Ctrl-C stops them all")
        assert f"zookeeper  127.0.0.1:{zookeeper}" in greeting
        pids = re.findall(r"^  (?:zookeeper|broker \d)  .* pid (\d+) ", greeting, re.MULTILINE)
        assert len({*pids}) == 4
        os.kill(int(pids[2]), signal.SIGKILL)
        lost = cluster.read_until("To start it again")
        (again,) = re.findall(r"To start it again: leadline (.*)", lost)
        with subprocess.Popen(
            [*LEADLINE, *again.split()], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as back:
            assert f"broker 2 is back (pid {back.pid}); 3 of 3 run." in cluster.read_until("is back")
            os.kill(int(pids[1]), signal.SIGKILL)
            assert "; 2 of 3 run." in cluster.read_until("To start it again")
            output = cluster.press_ctrl_c()
            assert back.wait(COMMAND_S) == 0, "it stopped cleanly, with ZooKeeper still there"
        assert output.startswith("stopped after ")
        assert cluster.process.returncode == 0
    assert not [pid for pid in map(int, pids) if psutil.pid_exists(pid)]


def test_a_broker_of_the_folder_that_still_runs_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c" / "broker-2").mkdir(parents=True)
    with leadline(tmp_path / "c" / "broker-2" / "data") as broker:
        assert main(["cluster", "up", "--dir", str(tmp_path / "c"), "--port", str(free_ports(3))]) == 1
        message = f"leadline: broker 2 of {tmp_path / 'c'} is already running: {process_text(broker.pid)}\n"
    assert capsys.readouterr().err == message


def test_ctrl_c_while_it_starts_leaves_nothing_behind(tmp_path: Path) -> None:
    port = free_ports(3)
    with up(tmp_path / "c", port) as cluster:
        log = tmp_path / "c" / "broker-1" / "broker.log"
        until(lambda: log.exists() or cluster.process.poll() is not None)
        assert cluster.process.poll() is None
        cluster.press_ctrl_c()
    running = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert not [command for command in running if str(tmp_path) in " ".join(command)]
