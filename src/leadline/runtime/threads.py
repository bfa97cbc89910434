"""Threads for work that would block the loop. The loop provides them, so that a simulated loop runs the work itself."""

import asyncio
from concurrent.futures import Executor, ThreadPoolExecutor


def new_threads(count: int, name: str) -> Executor:
    """At most `count` threads of the running loop. Without a loop, they are real threads."""
    try:
        make = getattr(asyncio.get_running_loop(), "new_threads", ThreadPoolExecutor)
    except RuntimeError:
        make = ThreadPoolExecutor
    threads: Executor = make(count, name)
    return threads
