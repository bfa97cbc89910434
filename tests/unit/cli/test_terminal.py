"""Colours, and text that must not control the terminal."""

import io

import pytest

from leadline.cli.terminal import Paint


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_and_never_against_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Paint(Terminal()).bold("x") == "\033[1mx\033[0m"
    assert Paint(io.StringIO()).bold("x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Paint(Terminal()).bold("x") == "x"


def test_what_a_record_holds_does_not_command_the_terminal() -> None:
    assert Paint(Terminal()).escape("\x1b[2Ja\tb\n") == "\\x1b[2Ja\tb\n"
    assert Paint(io.StringIO()).escape("\x1b[2J") == "\x1b[2J"
