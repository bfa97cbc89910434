"""Which partitions an election is for."""

from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.cli import main
from leadline.cli.leader_election import partitions_in
from leadline.model import TopicPartition


def test_a_file_names_partitions_as_kafkas_does(tmp_path: Path) -> None:
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions": [{"topic": "foo", "partition": 1}, {"topic": "bar", "partition": 2}]}')
    assert partitions_in(file) == [TopicPartition("foo", 1), TopicPartition("bar", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ('{"topics": []}', 'expected {"partitions": '),
        ('{"partitions": [{"topic": "foo"}]}', "expected a topic and a partition"),
        ('{"partitions": [{"topic": "a", "partition": 1}, {"topic": "a", "partition": 1}]}', "a-1: named twice"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "partitions.json"
    file.write_text(text)
    with pytest.raises(Failure) as error:
        partitions_in(file)
    assert str(error.value).startswith(f"{file}: ")
    assert message in str(error.value)


@pytest.mark.parametrize("which", ["", "orders --all", "--all --file x.json"])
def test_one_must_say_which_partitions_and_only_once(which: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leader-election", "preferred", *which.split()]) == 1
    assert "exactly one is needed: names of topics, --all or --file" in capsys.readouterr().err
