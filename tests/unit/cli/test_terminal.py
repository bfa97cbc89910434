"""Colours, and text that must not control the terminal."""

import io

import pytest

from leadline.cli.terminal import TextStyles


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_are_for_terminals_and_never_against_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert TextStyles(Terminal()).bold("x") == "\033[1mx\033[0m"
    assert TextStyles(io.StringIO()).bold("x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert TextStyles(Terminal()).bold("x") == "x"


def test_what_a_record_holds_does_not_command_the_terminal() -> None:
    assert TextStyles(Terminal()).escape("\x1b[2Ja\tb\n") == "\\x1b[2Ja\tb\n"
    assert TextStyles(io.StringIO()).escape("\x1b[2J") == "\x1b[2J"
