"""`leadline topics` against a broker: what it asks a person, and what it says of a mistyped setting."""

import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker import RunningBroker
from tests.support.broker import leadline as started
from tests.support.commands import COMMAND_S, LEADLINE, leadline, lines


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with started(folder / "data") as running:
        yield running


def on_a_terminal(broker: RunningBroker, answer: str, *arguments: str) -> tuple[int, str]:
    """The exit code and stderr of a command on a terminal where a person types an answer."""
    ours, theirs = pty.openpty()
    try:
        command = [*LEADLINE, *arguments, "--bootstrap-server", broker.bootstrap]
        process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.write(ours, f"{answer}\n".encode())
        _, err = process.communicate(timeout=COMMAND_S)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, err.decode()


def test_a_topic_is_deleted_on_a_terminal_once_a_person_agrees(broker: RunningBroker) -> None:
    leadline(broker, "topics", "create", "dear", "--partitions", "2")
    code, output = on_a_terminal(broker, "n", "topics", "delete", "dear")
    assert code == 1
    assert "Delete topic dear with all records of its 2 partitions? [y/N] " in output
    assert output.endswith("leadline: topic dear was not deleted\n")
    assert lines(broker, "topics", "list") == ["dear"]
    assert on_a_terminal(broker, "y", "topics", "delete", "dear")[0] == 0
    assert lines(broker, "topics", "list") == []


def test_a_topic_is_deleted_without_a_question_in_a_pipe_and_with_yes(broker: RunningBroker) -> None:
    for name in ("one", "two"):
        leadline(broker, "topics", "create", name)
    assert leadline(broker, "topics", "delete", "one") == ("Deleted topic one.\n", "")
    assert on_a_terminal(broker, "", "topics", "delete", "two", "--yes") == (0, "")


def test_of_several_topics_none_is_deleted_if_one_is_mistyped(broker: RunningBroker) -> None:
    leadline(broker, "topics", "create", "kept")
    _, err = leadline(broker, "topics", "delete", "kept", "ketp", code=1)
    assert err == "leadline: there is no topic ketp\n"
    assert "kept" in lines(broker, "topics", "list")


@pytest.mark.parametrize("call", ["create other --config retenton.ms=1", "alter tuned --config retenton.ms=1"])
def test_a_mistyped_setting_is_reported_with_the_nearest(broker: RunningBroker, call: str) -> None:
    leadline(broker, "topics", "create", "tuned", "--if-not-exists")
    _, err = leadline(broker, "topics", *call.split(), code=1)
    assert err == "leadline: Unknown topic config name: retenton.ms (did you mean retention.ms?) (INVALID_CONFIG)\n"
