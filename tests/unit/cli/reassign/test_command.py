"""What a plan comes to, told before it moves anything."""

import argparse
from pathlib import Path

import pytest

from leadline.cli import main
from leadline.cli.reassign.command import broker_list, summary
from leadline.cli.reassign.plan import ReplicaMove
from leadline.model import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)


def test_what_is_copied_is_told_for_each_broker() -> None:
    changes = [ReplicaMove(ONE, [1], [1, 2, 3], 4_000_000), ReplicaMove(TWO, [1], [2], 500_000)]
    assert summary(changes) == ["2 partitions change; to be copied: 4.5 MB (2.5 MB to broker 2, 2.0 MB to broker 3)"]
    assert summary([ReplicaMove(ONE, [1, 2], [2, 1], 0)]) == ["1 partition changes; to be copied: 0 B"]


def test_brokers_are_ids_with_commas_between_them() -> None:
    assert broker_list("1,12") == [1, 12]
    for text in ("1,,2", "one", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            broker_list(text)


@pytest.mark.parametrize("which", ["", "orders --all"])
def test_one_must_say_which_topics_and_only_once(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reassign", "plan", *which.split()]) == 1
    assert "exactly one is needed: names of topics, or --all" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["execute", "verify", "cancel"])
def test_a_file_that_is_no_plan_is_said_before_a_cluster_is_asked(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    assert main(["reassign", command, str(file)]) == 1
    file.write_text("{}")
    assert main(["reassign", command, str(file)]) == 1
    missing, empty = capsys.readouterr().err.splitlines()
    assert missing == f"leadline: {file}: No such file or directory"
    assert empty.startswith(f'leadline: {file}: expected {{"partitions": ')
