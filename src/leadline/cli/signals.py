"""Signals that end a command: Ctrl-C, SIGTERM, SIGHUP."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a request to end, a closed terminal


def ending_signals() -> list[signal.Signals]:
    """The signals that end a broker cleanly. SIGHUP stays ignored after `nohup`."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in ENDING_SIGNALS if number != signal.SIGHUP or not is_ignored]


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, which end a command as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


def signal_of(interrupt: KeyboardInterrupt) -> signal.Signals:
    return interrupt.signal if isinstance(interrupt, Terminated) else signal.SIGINT


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block like Ctrl-C, so that it releases its resources and ends its processes.

    They raise Terminated. Where Ctrl-C has another handler, they call that handler. An ignored signal (nohup) stays
    ignored.
    """

    def terminate(number: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler) or handler is signal.default_int_handler:
            raise Terminated(number)
        handler(number, frame)

    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    handlers = {number: signal.getsignal(number) for number in ENDING_SIGNALS if is_main and number != signal.SIGINT}
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
    """An event that the first Ctrl-C sets, without an exception. The second Ctrl-C interrupts as before.

    In the background of a script SIGINT is ignored, and stays so.
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
