"""An event loop without waiting: when nothing is left to do now, its clock jumps to the next timer.

Several processes share it: each is one life of a broker or of a client. What a process schedules, and what reaches it
from elsewhere, belongs to it, by the context that asyncio copies with each callback.

    a process that is killed runs nothing more, not even its `finally` blocks
    a process that is paused runs nothing until it is resumed, and then in the same order
    the order of all callbacks follows from the calls alone: no thread, no descriptor, no real clock
"""

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from functools import partial
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")


class Process:
    """One life of a broker or a client. `tasks` keeps what it was doing when it was killed from being finalised."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dead = self.is_paused = False
        self.held: list[asyncio.Handle] = []  # while it is paused
        self.tasks: list[asyncio.Task[Any]] = []
        self.context = copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return self.name


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)  # None: the simulation itself

_Scheduled = tuple[float, int, Process | None, asyncio.TimerHandle]


class Stuck(Exception):
    """Nobody has anything left to do, and whoever is waited for is not done."""


class VirtualLoop(asyncio.BaseEventLoop):
    """`thread_delay_s`: how long a job in a thread takes."""

    def __init__(self, thread_delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self._now_s = 0.0
        self._due: deque[tuple[Process | None, asyncio.Handle]] = deque()
        self._later: list[_Scheduled] = []
        self._numbers = count()
        self.thread_delay_s = thread_delay_s
        self.failures: list[dict[str, Any]] = []  # what callbacks of living processes raised
        self.steps = 0
        self._is_over = False
        self.trace: Callable[[str], None] | None = None  # gets a line for each callback
        super().__init__()
        self._due.clear()

    # Scheduling

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        handle = asyncio.Handle(callback, args, self, context)
        self._due.append((context.get(CURRENT), handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._later, (when, next(self._numbers), context.get(CURRENT), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    # Running

    def run_until_complete(self, future: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """Raises Stuck."""
        asyncio._set_running_loop(self)
        try:
            awaited = asyncio.ensure_future(future, loop=self)
            while not awaited.done():
                if not self._due:
                    self._advance()
                process, handle = self._due.popleft()
                if handle._cancelled:
                    continue
                if process is not None and (process.is_dead or process.is_paused):
                    if not process.is_dead:
                        process.held.append(handle)
                    continue
                self.steps += 1
                if self.trace is not None:
                    self.trace(f"{self._now_s:.9f} {process} {_name_of(handle)}")
                handle._run()
            return awaited.result()
        finally:
            asyncio._set_running_loop(None)

    def _advance(self) -> None:
        """Jump to the next timer, and make ready all that are due then."""
        later, due = self._later, self._due
        while later:
            when, _, process, handle = heapq.heappop(later)
            if handle._cancelled or (process is not None and process.is_dead):
                continue
            self._now_s = max(self._now_s, when)
            due.append((process, handle))
            break
        else:
            raise Stuck(f"nothing is left to do at {self._now_s:.6f} s")
        while later and later[0][0] <= self._now_s:
            _, _, process, handle = heapq.heappop(later)
            due.append((process, handle))

    # Processes

    def spawn(self, process: Process, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        return process.context.copy().run(self.create_task, work)

    def kill(self, process: Process) -> None:
        process.is_dead = True
        process.held.clear()
        process.tasks += asyncio.all_tasks(self)  # with those of others: they do no harm

    def pause(self, process: Process) -> None:
        process.is_paused = True

    def resume(self, process: Process) -> None:
        process.is_paused = False
        held, process.held = process.held, []
        self._due.extend((process, handle) for handle in held)

    # What asyncio asks of a loop

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self._is_over

    def __del__(self) -> None:
        """There is nothing of the system to close."""

    def close(self) -> None:
        """End all that is still under way. Its `finally` blocks run now, and whatever they raise does not matter."""
        self._is_over = True
        asyncio._set_running_loop(self)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for task in sorted(asyncio.all_tasks(self), key=lambda task: task.get_name()):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
            self._due.clear()
            self._later.clear()
        finally:
            asyncio._set_running_loop(None)
            sys.unraisablehook = hook

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:  # type: ignore[override]
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = CURRENT.get()
        if process is None or not process.is_dead:
            self.failures.append(context)

    # Threads: a job runs on the loop, after a while, all at once

    def new_threads(self, threads: int, name: str) -> Executor:
        return VirtualThreads(self, threads)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        threads = executor or VirtualThreads(self, 1)
        return asyncio.wrap_future(threads.submit(func, *args), loop=self)


def _name_of(handle: asyncio.Handle) -> str:
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '')}"
    while isinstance(callback, partial):
        callback = callback.func
    return getattr(callback, "__qualname__", type(callback).__name__)


class _Job(Future[T]):
    """Whoever waits for it in another job runs it at once: nothing else could run meanwhile."""

    def __init__(self, work: Callable[[], T]) -> None:
        super().__init__()
        self._work: Callable[[], T] | None = work

    def run(self) -> None:
        work, self._work = self._work, None
        if work is None or not self.set_running_or_notify_cancel():
            return
        token = _IN_JOB.set(True)
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            self.set_exception(error)
        else:
            self.set_result(result)
        finally:
            _IN_JOB.reset(token)

    def result(self, timeout: float | None = None) -> T:
        self.run()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.run()
        return super().exception(timeout)


class VirtualThreads(Executor):
    """A single thread runs its jobs one after the other. The jobs of several end in any order."""

    def __init__(self, loop: VirtualLoop, threads: int) -> None:
        self._loop, self._threads = loop, threads
        self._free_at_s = 0.0
        self._is_shut_down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job = _Job(partial(fn, *args, **kwargs))
        if _IN_JOB.get():
            job.run()
            return job
        now_s = self._loop.time()
        due_s = (max(now_s, self._free_at_s) if self._threads == 1 else now_s) + self._loop.thread_delay_s()
        self._free_at_s = due_s
        self._loop.call_at(due_s, job.run)
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What was submitted still runs. A loop cannot wait for it, and whoever shuts threads down has drained them."""
        self._is_shut_down = True


_IN_JOB: ContextVar[bool] = ContextVar("in_job", default=False)
