"""Waits until a condition holds, within a generous bound: `until` in a thread, `eventually` in an event loop."""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 180.0
THREAD_POLL_S, LOOP_POLL_S = 0.02, 0.005


def until(condition: Callable[[], object], what: object = "", seconds: float = PATIENCE_S) -> None:
    """`what` is awaited, for the message: a text, or a function that says more once it is too late."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not so after {seconds} s: {what() if callable(what) else what}"
        time.sleep(THREAD_POLL_S)


async def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not so after {PATIENCE_S} s"
        await asyncio.sleep(LOOP_POLL_S)
