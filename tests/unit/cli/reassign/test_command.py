"""Calls of `leadline reassign` that are refused, most of them before a cluster is asked."""

import argparse
from pathlib import Path
from typing import cast

import pytest

from leadline.admin.errors import Failure
from leadline.admin.session import ClusterSession
from leadline.cli import main
from leadline.cli.reassign import command as reassign
from leadline.cli.reassign.command import broker_list


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
def test_a_file_that_is_no_plan_is_refused_before_any_request(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    assert main(["reassign", command, str(file)]) == 1
    file.write_text("{}")
    assert main(["reassign", command, str(file)]) == 1
    missing, empty = capsys.readouterr().err.splitlines()
    assert missing == f"leadline: {file}: No such file or directory"
    assert empty.startswith(f'leadline: {file}: expected {{"partitions": ')


def test_a_controller_that_does_not_answer_in_time_may_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def time_out(*_: object) -> list[str]:
        raise Failure("reassignments: REQUEST_TIMED_OUT")

    class Session:
        client = None

    monkeypatch.setattr(reassign, "alter_reassignments", time_out)
    with pytest.raises(Failure, match=r"TIMED_OUT\. It may have started all the same: .* verify plan\.json"):
        reassign._start_moves(cast(ClusterSession, Session()), [], Path("plan.json"))
