"""The lines that `leadline cluster up` prints about its brokers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.cli.cluster.broker_plan import plans
from leadline.cli.cluster.supervisor import ClusterSupervisor, short_path
from leadline.cli.supervisor.supervision import ProcessState
from leadline.cli.terminal import StatusLine


def supervisor(folder: Path, count: int, port: int = 9092) -> ClusterSupervisor:
    """Brokers with the pids 101, 102, ...; ZooKeeper runs elsewhere."""
    members = plans(folder, count, port, "zk:2181/a", {})
    cluster = ClusterSupervisor(members, None, "zk:2181/a", StatusLine(), 0.0)
    for member in cluster.members.values():
        member.process = cast(Any, SimpleNamespace(pid=100 + member.id, returncode=None))
        cluster.supervision.serves(member.id, 0.0)
    return cluster


def test_the_first_lines_name_all_processes_and_commands_to_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, *lines = supervisor(tmp_path / "c", 2).ready_lines(2.66)
    assert lines == [
        "  zookeeper  zk:2181/a",
        "  broker 1   localhost:9092  pid 101  c/broker-1/broker.log",
        "  broker 2   localhost:9093  pid 102  c/broker-2/broker.log",
        "  try        leadline topics create orders --partitions 6",
        "             kill -9 102",
        "             leadline topics describe orders",
        "             leadline explain orders:0",
        "Ctrl-C stops them all.",
    ]


def test_commands_name_another_port_and_a_single_broker_is_not_killed(tmp_path: Path) -> None:
    lines = supervisor(tmp_path, 1, port=19092).ready_lines(2.66)
    assert "  try        leadline topics create orders --partitions 6 --bootstrap-server localhost:19092" in lines
    assert not any("kill" in line for line in lines)


def test_a_broker_that_was_started_again_by_hand_counts_as_running(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = supervisor(tmp_path, 3)
    first = cluster.members[1]
    cast(Any, first.process).returncode = -9
    cluster.supervision.ended(1, 1.0, is_clean=False)
    cluster._print_ended(first, first.ended_text())
    first.restarted_pid = 200
    cluster.supervision.came_back(1, 2.0)
    is_away = cluster.supervision.brokers[1].state is ProcessState.AWAY
    assert (first.pid, is_away, cluster._running_text()) == (200, False, "3 of 3 run")
    settings = short_path(tmp_path / "broker-1" / "server.properties")
    assert capsys.readouterr().out.endswith(
        f" broker 1 (pid 101) was killed by SIGKILL; 2 of 3 run. To start it again: leadline start {settings}\n"
    )


@pytest.mark.parametrize(
    ("code", "restarted_pid", "is_clean"),
    [(0, None, True), (-15, None, True), (143, None, True), (1, None, False), (1, 9, True)],
)
def test_a_broker_that_ends_after_sigterm_ended_cleanly(
    code: int, restarted_pid: int | None, is_clean: bool, tmp_path: Path
) -> None:
    (broker,) = supervisor(tmp_path, 1).members.values()
    cast(Any, broker.process).returncode, broker.restarted_pid = code, restarted_pid
    assert broker.ended_cleanly == is_clean
