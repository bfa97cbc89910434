"""Waits until a condition holds, within a generous bound: `until` in a thread, `eventually` in an event loop.

`unloaded_clock` is for promises in seconds, which a busy machine would break.
"""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 180.0
HEARTBEAT_S = 0.01
THREAD_POLL_S, LOOP_POLL_S = 0.02, 0.005


def until(
    condition: Callable[[], object], what: object = "", seconds: float = PATIENCE_S, poll_s: float = THREAD_POLL_S
) -> None:
    """`what` is awaited, for the message: a text, or a function that says more once it is too late."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s: {_text(what)}"
        time.sleep(poll_s)


async def eventually(condition: Callable[[], object], what: object = "") -> None:
    """`condition` may be a coroutine function. `what` is as for `until`."""
    deadline = time.monotonic() + PATIENCE_S
    while not (await result if inspect.isawaitable(result := condition()) else result):
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S} s: {_text(what)}"
        await asyncio.sleep(LOOP_POLL_S)


@contextmanager
def unloaded_clock() -> Iterator[Callable[[], float]]:
    """A clock in seconds, that stands still while the machine does not run a thread whose sleep is over."""
    late_s, ended = 0.0, threading.Event()

    def beat() -> None:
        nonlocal late_s
        while not ended.is_set():
            began_s = time.monotonic()
            time.sleep(HEARTBEAT_S)
            late_s += time.monotonic() - began_s - HEARTBEAT_S

    thread = threading.Thread(target=beat, name="heartbeat")
    thread.start()
    try:
        yield lambda: time.monotonic() - late_s
    finally:
        ended.set()
        thread.join()


def _text(what: object) -> object:
    return what() if callable(what) else what
