"""Tasks that run beside the requests: periodic work, work that outlives its caller, and time limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from leadline.runtime.ordered_set import OrderedSet

log = logging.getLogger(__name__)

T = TypeVar("T")
RESTART_S = 1.0
FAILED = "a bug in the task %r: it runs again in %g s"


async def every(interval_ms: float, work: Callable[[], Awaitable[None]], *, first_ms: float | None = None) -> None:
    """Run `work` again and again, one interval after its last run has ended. A run that raises is reported.

    `first_ms`: the delay before the first run; by default one interval.
    """
    await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
    while True:
        try:
            await work()
        except Exception:
            log.exception(FAILED, _task_name(), interval_ms / 1000)
        await asyncio.sleep(interval_ms / 1000)


async def kept_running(work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it returns. If it raises, that is reported, and it runs again after RESTART_S."""
    while True:
        try:
            return await work()
        except Exception:
            log.exception(FAILED, _task_name(), RESTART_S)
        await asyncio.sleep(RESTART_S)


def _task_name() -> str:
    task = asyncio.current_task()
    assert task is not None
    return task.get_name()


def spawn(
    work: Coroutine[Any, Any, T],
    tasks: "set[asyncio.Task[Any]] | OrderedSet[Any]",
    name: str | None = None,
    *,
    quiet: bool = False,
) -> "asyncio.Task[T]":
    """Start a task that runs to its end even if no caller waits for it. `tasks` holds it until then.

    `quiet`: its exception is for a caller that awaits the task. Without one, asyncio must not report it as lost.
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


def end_now(deadline: asyncio.Timeout) -> None:
    """Ends the work that `deadline` limits with a TimeoutError now, unless it is ending already."""
    if not deadline.expired():
        deadline.reschedule(0)
