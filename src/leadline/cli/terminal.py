"""Output for a person: colours, tables, a status line, questions. Colours and status lines on terminals only."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TextIO

from leadline.admin.formatting import table


def print_or_drop(text: str, stream: TextIO | None = None) -> None:
    """Print. The terminal may be closed: that is not an error."""
    stream = sys.stdout if stream is None else stream
    with suppress(OSError):
        print(text, file=stream, flush=True)
    flush_or_drop(stream)


def flush_or_drop(*streams: TextIO) -> None:
    """Flush the streams. If that fails, drop their contents: the interpreter would exit with an error."""
    for stream in streams:
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class StatusLine:
    """One line that is overwritten. Without a terminal nothing is printed."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> "StatusLine":
        return self

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._shown = True
            self._write(f"\r\033[K{text}")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be closed
            print(text, end="", file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            self._write("\r\033[K")


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class TextStyles:
    """Colours on a terminal, unless NO_COLOR is set."""

    def __init__(self, stream: TextIO) -> None:
        plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        self._is_terminal = stream.isatty()
        self.on = self._is_terminal and not plain

    def _with(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.on and text else text

    def escape(self, text: str) -> str:
        """Text from a cluster or a file. On a terminal, control characters are escaped."""
        return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text) if self._is_terminal else text

    def bold(self, text: str) -> str:
        return self._with("1", text)

    def dim(self, text: str) -> str:
        return self._with("2", text)

    def red(self, text: str) -> str:
        return self._with("31", text)

    def cyan(self, text: str) -> str:
        return self._with("36", text)


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table to stdout."""
    paint = TextStyles(sys.stdout)
    print(*table(heads, [[paint.escape(cell) for cell in row] for row in rows], paint.bold), sep="\n")


def confirmed(question: str) -> bool:
    """Whether a person confirms on the terminal. Without a terminal there is no question, and the answer is yes."""
    if not sys.stdin.isatty():
        return True
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
