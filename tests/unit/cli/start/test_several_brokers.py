"""`leadline start --brokers N`: what it prints and refuses, and two brokers that come, die, come back and stop."""

import fcntl
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.cli import main
from leadline.cli.cluster.zookeeper_server import ZooKeeperServer
from leadline.cli.metrics_address import MetricsAddress
from leadline.cli.processes import holder_of, process_text
from leadline.cli.start.derived_settings import derived_brokers
from leadline.cli.start.several_brokers import HostSupervisor, brokers_in, first_lines, warn_of_others
from leadline.log.names import CLEAN_SHUTDOWN_FILE, LOCK_FILE, META_PROPERTIES_FILE
from leadline.runtime.notify_socket import NOTIFY_SOCKET, NotifyReceiver, NotifySender
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import _free_port
from tests.support.commands import COMMAND_S, LEADLINE
from tests.support.ports import free_ports
from tests.support.waiting import until

TOPIC, RECORDS = "orders", 100


def write_file(folder: Path, port: int, connect: str) -> Path:
    file = folder / "server.properties"
    settings = {
        "broker.id": 5,
        "listeners": f"PLAINTEXT://localhost:{port}",
        "log.dirs": folder / "data",
        "zookeeper.connect": connect,
        "default.replication.factor": 2,
        "auto.leader.rebalance.enable": "false",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return file


def test_the_first_lines_have_the_derived_settings_of_each_broker() -> None:
    file = {
        "broker.id": "9",
        "listeners": "PLAINTEXT://:9092",
        "advertised.listeners": "PLAINTEXT://me:9092",
        "log.dirs": "/a,/b",
        "zookeeper.connect": "zk:2181",
    }
    _, *lines = first_lines(derived_brokers(file, 2, "host"))
    assert lines == [
        "  cluster   zk:2181",
        "  rack      host",
        "  broker 9   PLAINTEXT://:9092  as PLAINTEXT://me:9092  /a/broker_9 /b/broker_9",
        "  broker 10  PLAINTEXT://:9093  as PLAINTEXT://me:9093  /a/broker_10 /b/broker_10",
    ]


def test_each_broker_has_a_port_for_metrics_which_the_first_lines_name() -> None:
    file = {"broker.id": "5", "log.dirs": "/data", "zookeeper.connect": "zk:2181", "listeners": "PLAINTEXT://:9092"}
    brokers = derived_brokers(file, 2, "host")
    addresses = [MetricsAddress("127.0.0.1", 9404).shifted(n) for n in range(2)]
    *_, first, second = first_lines(brokers, addresses)
    assert first.endswith("  http://127.0.0.1:9404/metrics")
    assert second.endswith("  http://127.0.0.1:9405/metrics")
    supervisor = HostSupervisor(brokers, [], NotifySender({}), addresses)
    assert [member.arguments[-2:] for member in supervisor.members.values()] == [
        ["--metrics", "127.0.0.1:9404"],
        ["--metrics", "127.0.0.1:9405"],
    ]


def test_all_ports_that_are_taken_are_named_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_ports(3)
    with socket.create_server(("localhost", port)), socket.create_server(("localhost", port + 2)):
        assert main(["start", str(write_file(tmp_path, port, "nowhere:1")), "--brokers", "3"]) == 1
    lines = capsys.readouterr().err.splitlines()
    by = f"Address already in use, by {process_text(os.getpid())}"
    assert lines == [
        f"leadline: broker {id} cannot listen on localhost:{taken} (PLAINTEXT): {by}"
        for id, taken in ((5, port), (7, port + 2))
    ]
    assert not (tmp_path / "data").exists()


def test_a_directory_with_the_logs_of_one_broker_is_not_shared_by_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / META_PROPERTIES_FILE).write_text("version=0\nbroker.id=5\n")
    assert main(["start", str(write_file(tmp_path, free_ports(2), "nowhere:1")), "--brokers", "2"]) == 1
    assert "holds the logs of one broker. Move its contents to the folder broker_5 in it" in capsys.readouterr().err


def test_one_broker_does_not_start_on_the_directory_of_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("broker_5", "broker_6", "broker_x", "other_7"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / META_PROPERTIES_FILE).touch()
    assert brokers_in(str(tmp_path / "data")) == [5, 6]
    assert main(["start", str(write_file(tmp_path, 1, "nowhere:1"))]) == 1
    assert "holds the logs of 2 brokers, in folders such as broker_5: start them with --brokers" in (
        capsys.readouterr().err
    )


def test_brokers_that_are_not_started_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for id in (5, 8, 9):
        (tmp_path / f"broker_{id}").mkdir()
        (tmp_path / f"broker_{id}" / META_PROPERTIES_FILE).touch()
    file = {"broker.id": "5", "zookeeper.connect": "zk", "log.dirs": str(tmp_path)}
    warn_of_others(derived_brokers(file, 2, "host"), [str(tmp_path)])
    assert "log.dirs also has the logs of brokers that are not started (8,9): partitions" in capsys.readouterr().err


def test_a_broker_that_starts_for_long_gets_more_time_from_the_service_manager() -> None:
    file = {"broker.id": "5", "zookeeper.connect": "zk"}
    with closing(NotifyReceiver()) as manager:
        supervisor = HostSupervisor(derived_brokers(file, 2, "host"), [], NotifySender({NOTIFY_SOCKET: manager.name}))
        notice = {"STATUS": "recovering 40% of 9 GB", "EXTEND_TIMEOUT_USEC": "60000000"}
        supervisor.broker_notified(supervisor.members[6], notice)
        supervisor.broker_notified(supervisor.members[5], {"STOPPING": "1"})
        (received,) = [lines for _, lines in manager.notices()]
    assert received == {"STATUS": "broker 6: recovering 40% of 9 GB", "EXTEND_TIMEOUT_USEC": "60000000"}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    server = ZooKeeperServer.start(tmp_path_factory.mktemp("zookeeper"), _free_port(), f"{jars.libs()}/*")
    yield server
    server.kill()


class Started:
    """`leadline start FILE --brokers 2`. Its output goes to a file beside the other one."""

    def __init__(self, file: Path, notify_socket: str) -> None:
        self._output, self._position = file.with_suffix(".out"), 0
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*LEADLINE, "start", str(file), "--brokers", "2"],
                stdout=output,
                stderr=output,
                env=os.environ | {NOTIFY_SOCKET: notify_socket},
                process_group=0,
            )

    def output(self) -> str:
        return self._output.read_text()

    def wait_for(self, pattern: str) -> str:
        """A line that has it, after those that were waited for before; its first group."""
        matches: list[re.Match[str]] = []

        def is_printed() -> bool:
            assert self.process.poll() is None, self.output()
            matches.extend(re.compile(pattern).finditer(self.output(), self._position))
            return bool(matches)

        until(is_printed, self.output)
        self._position = matches[0].end()
        return matches[0][1] if matches[0].groups() else ""


@contextmanager
def started(file: Path, notify_socket: str = "") -> Iterator[Started]:
    command = Started(file, notify_socket)
    try:
        yield command
    finally:
        if command.process.poll() is None:
            command.process.kill()  # its brokers notice, and stop
        command.process.wait(COMMAND_S)


def produce(servers: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0})
    errors: list[object] = []
    for n in range(RECORDS):
        producer.produce(TOPIC, str(n), partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(COMMAND_S) == 0
    assert errors == [None] * RECORDS


def test_two_brokers_serve_one_that_is_killed_comes_back_and_a_signal_stops_both_cleanly(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    port = free_ports(2)
    servers = f"localhost:{port},localhost:{port + 1}"
    file = write_file(tmp_path, port, f"{zookeeper.connect}/story")
    with closing(NotifyReceiver()) as manager, started(file, manager.name) as command:
        command.wait_for("all 2 brokers serve")
        pids = {int(id): int(pid) for id, pid in re.findall(r"broker (\d) serves \(pid (\d+)\)", command.output())}
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        until(lambda: len(admin.list_topics(timeout=COMMAND_S).brokers) == 2)
        admin.create_topics([NewTopic(TOPIC, 2, 2)])[TOPIC].result(COMMAND_S)
        for partition in (0, 1):
            produce(servers, partition)
        os.kill(pids[6], signal.SIGKILL)
        command.wait_for(rf"broker 6 \(pid {pids[6]}\) was killed by SIGKILL; 1 of 2 brokers serve\. It is started")
        command.wait_for("broker 6 serves again .* 2 of 2 brokers serve")
        for partition in (0, 1):
            produce(servers, partition)
        with closing(Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})) as consumer:
            ends = [consumer.get_watermark_offsets(TopicPartition(TOPIC, n), COMMAND_S)[1] for n in (0, 1)]
        assert ends == [2 * RECORDS, 2 * RECORDS]
        command.process.send_signal(signal.SIGTERM)
        assert command.process.wait(COMMAND_S) == 0, command.output()
        output = command.output()
        assert re.search(r"SIGTERM: the brokers stop one after another(?s:.*); everything is on disk\n$", output)
        assert all((tmp_path / "data" / f"broker_{id}" / CLEAN_SHUTDOWN_FILE).exists() for id in (5, 6))
        notices = [notice for pid, notice in manager.notices() if pid == command.process.pid]
        assert [notice["STATUS"] for notice in notices if "READY" in notice] == ["2 of 2 brokers serve"]
        assert [notice["STATUS"] for notice in notices if "STOPPING" in notice] == ["stopping; 2 of 2 brokers serve"]
        assert {"STATUS": "1 of 2 brokers serve"} in notices


def test_a_broker_that_cannot_start_is_reported_and_tried_again_and_brokers_of_a_killed_supervisor_stop_cleanly(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    file = write_file(tmp_path, free_ports(2), f"{zookeeper.connect}/locked")
    folders = [tmp_path / "data" / f"broker_{id}" for id in (5, 6)]
    folders[1].mkdir(parents=True)
    with (folders[1] / LOCK_FILE).open("wb") as lock, started(file) as command:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        reason = rf"broker 6 \(pid \d+\) ended with 1: .*in use by another broker.* pid {os.getpid()} .* It is started "
        for wait in ("500 ms", r"1\.0 s"):
            command.wait_for(f"{reason}again in {wait}")
        until(lambda: "broker 5 serves" in command.output(), command.output)
        (pid,) = re.findall(r"broker 5 serves \(pid (\d+)\)", command.output())
        command.process.kill()
        until((folders[0] / CLEAN_SHUTDOWN_FILE).exists, command.output)
        until(lambda: holder_of(folders[0]) is None, f"broker 5 (pid {pid}) still runs")
