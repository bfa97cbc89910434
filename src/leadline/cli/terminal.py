"""How commands speak to a person: sizes and times in few characters, tables, a status line on terminals only."""

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from threading import Event
from types import FrameType, TracebackType
from typing import TextIO

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, an order to end, a terminal that is closed


def size_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def host_text(host: str) -> str:
    if host in ("", "::", "0.0.0.0"):
        return "*"
    return f"[{host}]" if ":" in host else host


def ids_text(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def brokers_text(ids: Iterable[int]) -> str:
    """Which brokers there are: the only broker is 1001; the brokers are 1, 2 and 3."""
    *others, last = map(str, sorted(ids))
    return f"the brokers are {', '.join(others)} and {last}" if others else f"the only broker is {last}"


def time_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def say(text: str, stream: TextIO | None = None) -> None:
    """A last line. The terminal may be gone: then there is nobody to read it, and nothing else is wrong."""
    stream = sys.stdout if stream is None else stream
    with suppress(OSError):
        print(text, file=stream, flush=True)
    flush_or_drop(stream)


def flush_or_drop(*streams: TextIO) -> None:
    """Write out what is left in them. If that fails, drop it: the interpreter would fail on it with an exit code."""
    for stream in streams:
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def ends_it() -> list[signal.Signals]:
    """The signals that end a broker cleanly. `nohup` has the last one ignored, and so it stays."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in ENDS if number != signal.SIGHUP or not is_ignored]


class StatusLine:
    """One line that is written over; nothing where nobody looks."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> "StatusLine":
        return self

    def show(self, text: str) -> None:
        if sys.stderr.isatty():
            self._shown = True
            self._write(f"\r\033[K{text}")

    def _write(self, text: str) -> None:
        with suppress(OSError):  # the terminal may be gone
            print(text, end="", file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._shown:
            self._write("\r\033[K")


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which end a command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def signal_of(interrupt: KeyboardInterrupt) -> signal.Signals:
    return interrupt.signal if isinstance(interrupt, Terminated) else signal.SIGINT


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C would, so that it lets go of what it holds and ends what it started.

    They raise Terminated, unless Ctrl-C is to interrupt nothing: then they do not either. A signal that is ignored
    (nohup) stays ignored.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler) or handler is signal.default_int_handler:
            raise Terminated(number)
        handler(number, frame)

    is_main = threading.current_thread() is threading.main_thread()  # no other may set them
    handlers = {number: signal.getsignal(number) for number in ENDS if is_main and number != signal.SIGINT}
    for number, handler in handlers.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, terminate)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def ctrl_c() -> Iterator[Event]:
    """Whether a person has pressed it. The first time it interrupts nothing: what is under way ends as a whole.

    In the background of a script nobody can press it: who started it there has it ignored, and so it stays.
    """
    pressed, before = Event(), signal.getsignal(signal.SIGINT)

    def press(*_: object) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def age_text(ms: int) -> str:
    """A length of time with its two largest units: 45 s, 3 min 20 s, 2 h 5 min, 9 d 4 h."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    parts: list[tuple[int, str]] = []
    left = ms // 1000
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def moment_text(at_ms: int) -> str:
    """A time as the clock on the wall shows it, which is also how one types it."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%dT%H:%M:%S")


_NUMBER = re.compile(r"-?[\d,]*")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], head: Callable[[str], str] = str) -> list[str]:
    """Lines with columns, numbers to the right; `head` paints the first one."""
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(map(_NUMBER.fullmatch, column[1:])) for column in columns]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return [head(line(heads)), *map(line, rows)]
