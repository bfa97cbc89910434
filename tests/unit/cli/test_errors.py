"""Errors of commands."""

import io

import pytest

from leadline.admin.connection import ClusterConnection
from leadline.cli.errors import print_error, report_silent, with_time_limit
from leadline.cli.options import connection_options


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_complaint_takes_the_place_of_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    print_error("no")
    assert terminal.getvalue() == "\r\033[K\033[31mleadline:\033[0m no\n"


def test_output_without_some_brokers_is_incomplete(capsys: pytest.CaptureFixture[str]) -> None:
    connection = ClusterConnection(connection_options().parse_args([]))
    connection._silent = {}
    assert report_silent(connection, "its groups are missing") == 0
    connection._silent = {2: "broker 2 does not answer"}
    assert report_silent(connection, "its groups are missing") == 1
    assert capsys.readouterr().err == "leadline: broker 2 does not answer: its groups are missing\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Local: Timed out (_TIMED_OUT)", "Local: Timed out (_TIMED_OUT); gave up after 3 s (--timeout)"),
        ("broker 2 does not answer", "broker 2 does not answer; gave up after 3 s (--timeout)"),
        ("no answer within 3 s (--timeout)", "no answer within 3 s (--timeout)"),
        ("there is no topic x", "there is no topic x"),
    ],
)
def test_an_answer_that_did_not_come_in_time_is_reported_with_the_time_limit(text: str, shown: str) -> None:
    assert with_time_limit(text, 3.0) == shown
