"""Errors of commands."""

import io

import pytest

from leadline.cli.errors import print_error


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_complaint_takes_the_place_of_a_line_of_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    print_error("no")
    assert terminal.getvalue() == "\r\033[K\033[31mleadline:\033[0m no\n"
