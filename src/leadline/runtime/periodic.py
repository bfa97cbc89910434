"""Tasks that run beside the requests: periodic work, and work that outlives whoever started it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from leadline.runtime.ordered_set import OrderedSet

T = TypeVar("T")


async def every(interval_ms: float, work: Callable[[], Awaitable[None]], *, first_ms: float | None = None) -> None:
    """Run `work` again and again, one interval after its last run has ended.

    `first_ms`: the delay before the first run; by default one interval.
    """
    await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
    while True:
        await work()
        await asyncio.sleep(interval_ms / 1000)


def spawn(
    work: Coroutine[Any, Any, T],
    tasks: "set[asyncio.Task[Any]] | OrderedSet[Any]",
    name: str | None = None,
    *,
    quiet: bool = False,
) -> "asyncio.Task[T]":
    """Start a task that runs to its end even if nobody waits for it. `tasks` holds it until then.

    `quiet`: its exception is for whoever awaits the task. If nobody does, asyncio must not report it as lost.
    """
    task = asyncio.create_task(work, name=name)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    if quiet:
        task.add_done_callback(_retrieve_exception)
    return task


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    if not task.cancelled():
        task.exception()
