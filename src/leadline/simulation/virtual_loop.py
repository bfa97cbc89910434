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
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
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
        self.slowness = 1.0  # of its threads: how many times longer a job takes
        self.held: list[AnyHandle] = []  # while it is paused
        self.tasks: list[asyncio.Task[Any]] = []
        self.after_step: Callable[[], None] | None = None  # the laws are checked
        self.context = copy_context()
        self.context.run(CURRENT.set, self)

    def __repr__(self) -> str:
        return self.name


CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)  # None: the simulation itself


class ProcessHandle(asyncio.Handle):
    """A callback of a process. A loop makes a hundred thousand of them for each minute: it makes them cheaply."""

    __slots__ = ("process",)

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...], loop: "VirtualLoop", context: Context):
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self.process = context.get(CURRENT)


class ProcessTimer(asyncio.TimerHandle):
    """A callback of a process at a time."""

    __slots__ = ("process",)

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: "VirtualLoop", context: Context
    ):
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, False
        self.process = context.get(CURRENT)


AnyHandle = ProcessHandle | ProcessTimer


class Ended(Exception):
    """`end` was called: the player stops the run."""


class Deadlock(Exception):
    """Deadlock: nothing is scheduled, and the awaited task is not done. Or livelock: steps never end."""


CHECKED_STEPS = 100_000  # steps between two checks of the loop's pace
CHECKED_S = 20.0  # virtual time that they take at least, unless a process repeats itself; a minute is usual
SAMPLED_STEPS = 1000  # of the busiest processes


class VirtualLoop(asyncio.BaseEventLoop):
    """`thread_delay_s`: how long a job in a thread takes."""

    def __init__(self, thread_delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self._now_s = 0.0
        self._due: deque[AnyHandle] = deque()
        self._later: list[tuple[float, int, ProcessTimer]] = []
        self._numbers = count()
        self.thread_delay_s = thread_delay_s
        self.failures: list[dict[str, Any]] = []  # exceptions from callbacks of live processes
        self.steps = 0
        self._checked_s = -CHECKED_S  # when the pace was checked
        self._check_at = CHECKED_STEPS  # the step at which it is next
        self._sample: Counter[str] = Counter()  # of callbacks, once there are too many
        self._is_over = self._is_ended = False
        self.trace: Callable[[str], None] | None = None  # gets a line for each callback
        super().__init__()
        self._due.clear()

    # Scheduling

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = ProcessHandle(callback, args, self, copy_context() if context is None else context)
        self._due.append(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = ProcessTimer(when, callback, args, self, copy_context() if context is None else context)
        heapq.heappush(self._later, (when, next(self._numbers), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""

    # Running

    def run_until_complete(self, future: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        """Raises Deadlock, Ended."""
        asyncio._set_running_loop(self)
        try:
            awaited = asyncio.ensure_future(future, loop=self)
            due = self._due
            while not awaited.done():
                if not due:
                    self._advance()
                handle = due.popleft()
                if handle._cancelled:
                    continue
                process = handle.process
                if process is not None and (process.is_dead or process.is_paused):
                    if not process.is_dead:
                        process.held.append(handle)
                    continue
                self._step(process, handle._context, handle._callback, handle._args)
                if self.steps >= self._check_at:
                    self._check_pace()
            return awaited.result()
        finally:
            asyncio._set_running_loop(None)

    def _step(
        self, process: Process | None, context: Context, callback: Callable[..., object], args: Sequence[Any]
    ) -> None:
        self.steps += 1
        if self.trace is not None:
            self.trace(f"{self._now_s:.9f} {process} {_name_of(callback)}")
        try:
            context.run(callback, *args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - as a loop of asyncio does
            message = f"Exception in callback {_name_of(callback)}"
            context.run(self.call_exception_handler, {"message": message, "exception": error})
        if process is not None and process.after_step is not None:
            process.after_step()

    def run_as(self, process: Process | None, callback: Callable[[], object]) -> None:
        """A step of a process at once, within one of the simulation itself; if it is paused, when it is resumed."""
        context = copy_context() if process is None else process.context.copy()
        if process is not None and (process.is_dead or process.is_paused):
            self.call_soon(callback, context=context)
        else:
            self._step(process, context, callback, ())

    def end(self) -> None:
        """The step under way is the last one: `run_until_complete` raises Ended."""
        self._is_ended, self._check_at = True, 0

    def _check_pace(self) -> None:
        if self._is_ended:
            raise Ended
        took_s = self._now_s - self._checked_s
        self._checked_s, self._check_at = self._now_s, self.steps + CHECKED_STEPS
        if self._sample:
            often = ", ".join(f"{name} ({times})" for name, times in self._sample.most_common(3))
            raise Deadlock(f"more than {CHECKED_STEPS} steps in {CHECKED_S:.0f} s; the next {SAMPLED_STEPS}: {often}")
        if took_s < CHECKED_S:
            self._check_at = self.steps + SAMPLED_STEPS
            self.trace = lambda line: self._sample.update([line.partition(" ")[2]])

    def _advance(self) -> None:
        """Jump to the next timer, and make ready all that are due then."""
        later, due = self._later, self._due
        while later:
            when, _, handle = heapq.heappop(later)
            if handle._cancelled or (handle.process is not None and handle.process.is_dead):
                continue
            if when > self._now_s:
                self._now_s = when
            due.append(handle)
            break
        else:
            raise Deadlock(f"nothing is left to do at {self._now_s:.6f} s")
        while later and later[0][0] <= self._now_s:
            due.append(heapq.heappop(later)[2])

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
        self._due.extend(held)

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
        """End all that is still under way. Its `finally` blocks run now; their exceptions are ignored."""
        self._is_over = True
        asyncio._set_running_loop(self)
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            ended: set[asyncio.Task[Any]] = set()
            while tasks := asyncio.all_tasks(self) - ended:  # `finally` blocks may begin more of them
                ended |= tasks
                for task in sorted(tasks, key=lambda task: task.get_name()):
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
        return asyncio.wrap_future(threads.submit(func, *args), loop=self)  # a ThreadJob, as it is


def _name_of(callback: Callable[..., object]) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"task {getattr(owner.get_coro(), '__qualname__', '')}"
    while isinstance(callback, partial):
        callback = callback.func
    return getattr(callback, "__qualname__", type(callback).__name__)


class ThreadJob(asyncio.Future[T]):
    """A job in a thread, and its result: as asyncio knows it already, so that it needs no lock and no second future.

    A job that waits for this one runs it at once: nothing else could run.
    """

    def __init__(self, work: Callable[[], T], loop: "VirtualLoop") -> None:
        super().__init__(loop=loop)
        self._work: Callable[[], T] | None = work

    def run(self) -> None:
        work, self._work = self._work, None
        if work is None or self.done():
            return
        token = _IN_JOB.set(True)
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - the waiting job gets it
            self.set_exception(error)
        else:
            self.set_result(result)
        finally:
            _IN_JOB.reset(token)

    def result(self, timeout: float | None = None) -> T:
        self.run()
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.run()
        return super().exception()


class VirtualThreads(Executor):
    """A single thread runs its jobs one after the other. The jobs of several end in any order."""

    def __init__(self, loop: VirtualLoop, threads: int) -> None:
        self._loop, self._threads = loop, threads
        self._free_at_s = 0.0
        self._is_shut_down = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "ThreadJob[T]":  # type: ignore[override]
        if self._is_shut_down:
            raise RuntimeError("cannot schedule new futures after shutdown")
        job = ThreadJob(partial(fn, *args, **kwargs), self._loop)
        if _IN_JOB.get():
            job.run()
            return job
        now_s = self._loop.time()
        process, delay_s = CURRENT.get(), self._loop.thread_delay_s()
        if process is not None:
            delay_s *= process.slowness
        due_s = (max(now_s, self._free_at_s) if self._threads == 1 else now_s) + delay_s
        self._free_at_s = due_s
        self._loop.call_at(due_s, job.run)
        return job

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Submitted jobs still run. A loop cannot wait for them, and callers drain threads before a shutdown."""
        self._is_shut_down = True


_IN_JOB: ContextVar[bool] = ContextVar("in_job", default=False)
