"""The brokers of a cluster, as processes."""

from pathlib import Path

import pytest

from leadline.cli.cluster.broker_plan import brokers_in, plans
from leadline.cli.cluster.supervisor import short_path
from leadline.cli.metrics_address import MetricsAddress
from leadline.cli.supervisor.broker_process import exit_text


def test_brokers_differ_in_id_port_and_folder_alone(tmp_path: Path) -> None:
    first, second, _ = plans(tmp_path, 3, 9092, "zk:2181/a", {"log.segment.bytes": "9"})
    assert (second.id, second.port, second.folder) == (2, 9093, tmp_path / "broker-2")
    own = {name for name, value in first.settings.items() if second.settings[name] != value}
    assert own == {"broker.id", "listeners", "log.dirs"}
    assert first.settings["zookeeper.connect"] == "zk:2181/a"
    assert first.settings["log.segment.bytes"] == "9"


@pytest.mark.parametrize(("count", "copies", "needed"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_there_are_up_to_three_copies_and_one_broker_may_be_away(count: int, copies: str, needed: str) -> None:
    settings = plans(Path("x"), count, 9092, "zk", {})[0].settings
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert settings[f"{name}.replication.factor"] == copies
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == needed


def test_a_setting_that_is_given_counts() -> None:
    assert plans(Path("x"), 3, 1, "zk", {"min.insync.replicas": "3"})[2].settings["min.insync.replicas"] == "3"


def test_the_number_of_brokers_is_read_from_the_folder(tmp_path: Path) -> None:
    assert brokers_in(tmp_path / "none") == 0
    for name in ("broker-1", "broker-10", "broker-2", "other-11", "broker-x"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.properties").touch()
    assert brokers_in(tmp_path) == 10


def test_how_a_process_ended_and_where_a_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (exit_text(-9), exit_text(1)) == ("was killed by SIGKILL", "ended with 1")
    monkeypatch.chdir(tmp_path)
    assert (short_path(tmp_path / "a" / "b"), short_path(Path("/elsewhere"))) == ("a/b", "/elsewhere")


def test_each_broker_has_a_port_for_metrics_if_they_are_asked_for() -> None:
    brokers = plans(Path("x"), 3, 9092, "zk", {}, MetricsAddress("127.0.0.1", 9404))
    assert [broker.arguments[1:] for broker in brokers] == [
        ["--metrics", "127.0.0.1:9404"],
        ["--metrics", "127.0.0.1:9405"],
        ["--metrics", "127.0.0.1:9406"],
    ]
    assert plans(Path("x"), 1, 9092, "zk", {})[0].arguments[1:] == []
