"""The loop of one broker of a test, in a thread of its own: it can be paused and killed, and its clock can be moved.

    paused    the thread waits in the middle of a turn, as a stopped process does: sockets fill up, timers are late
    killed    scheduled callbacks never run, not even `finally` blocks; its threads end with their current job

When the clock jumps, timers that are due in the distant part of the jump are held until those of the near part have had
their effect. A follower that waits for records gets an empty response first, and fetches again, before its leader looks
for followers that have not fetched for long.
"""

import asyncio
import heapq
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from typing import Any
from weakref import WeakSet

from leadline.runtime.event_loop import EventLoop
from leadline.runtime.ports import Time

NEAR_S = 1.0  # timers that are due so soon after the beginning of a jump are not held


class BrokerLoop(EventLoop):
    shares_process = True  # with the test: see `runtime.garbage`

    def __init__(self, time: Time, name: str) -> None:
        super().__init__(time=time)
        self.name = name
        self._executors: list[Executor] = []
        self._held: list[asyncio.TimerHandle] = []
        self._go_on = threading.Event()
        self.is_paused = False
        self._is_killed = False
        self._own_transports: WeakSet[Any] = WeakSet()
        self._processes: list[Any] = []  # of the log cleaner
        self._orphans: list[asyncio.Task[Any]] = []  # of a killed broker: they must not be finalised while others run
        self.set_default_executor(ThreadPoolExecutor(2, f"{name}-worker"))

    def new_threads(self, count: int, name: str) -> Executor:
        """The threads that `runtime.threads` asks for."""
        threads = ThreadPoolExecutor(count, f"{self.name}-{name}")
        self._executors.append(threads)
        return threads

    # Pause and resume

    def pause(self) -> None:
        """Pauses the loop from another thread. Returns when it stands still."""
        if self.is_paused:
            return
        stands = threading.Event()
        self._go_on.clear()
        self.is_paused = True
        self.call_soon_threadsafe(self._stand, stands)
        stands.wait()

    def _stand(self, stands: threading.Event) -> None:
        stands.set()
        self._go_on.wait()

    def resume(self) -> None:
        self.is_paused = False
        self._go_on.set()

    # Jumps of the clock

    def hold_timers(self, jump_s: float) -> None:
        """Before a jump: hold the timers of its distant part."""
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        first_s, last_s = self.time() + NEAR_S, self.time() + jump_s
        self._held += [timer for timer in scheduled if first_s < timer.when() <= last_s]
        scheduled[:] = [timer for timer in scheduled if not first_s < timer.when() <= last_s]
        heapq.heapify(scheduled)

    def release_timers(self) -> None:
        held, self._held = self._held, []
        for timer in held:
            heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]

    # Kill

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Results from threads of a killed broker are dropped, except the end of a process."""
        owner = getattr(callback, "__self__", None)
        if self._is_killed and owner is not self and owner not in self._processes:
            return asyncio.Handle(callback, args, self, context)
        return super().call_soon_threadsafe(callback, *args, context=context)

    def kill(self, close_sockets: Callable[[], None]) -> None:
        """Kills the broker from another thread. When this returns, nothing of it runs."""
        ended = threading.Event()

        def end() -> None:
            self._is_killed = True
            self.set_exception_handler(lambda loop, context: None)  # no receiver is left
            self._orphans += asyncio.all_tasks(self)
            for handle in (*self._ready, *self._scheduled):  # type: ignore[attr-defined]
                handle.cancel()
            self._held.clear()
            close_sockets()
            for process in self._processes:
                process.close()
            self._stop_without_processes()
            ended.set()

        self._ready.appendleft(asyncio.Handle(end, (), self))  # type: ignore[attr-defined]
        self.call_soon_threadsafe(lambda: None)
        self.resume()
        ended.wait()

    def _stop_without_processes(self) -> None:
        if any(process.get_returncode() is None for process in self._processes):
            self.call_later(0.005, self._stop_without_processes)
        else:
            self.call_soon(self.stop)

    async def _make_subprocess_transport(self, *args: Any, **options: Any) -> Any:
        transport = await super()._make_subprocess_transport(*args, **options)  # type: ignore[misc]
        self._processes.append(transport)
        return transport

    def _make_socket_transport(self, *args: Any, **options: Any) -> Any:
        transport = super()._make_socket_transport(*args, **options)  # type: ignore[misc]
        self._own_transports.add(transport)
        return transport

    def close_transports(self) -> None:
        """After the loop has stopped: close the open connections, without calling their protocols."""
        for transport in list(self._own_transports):
            if transport._sock is not None:
                transport.set_protocol(asyncio.Protocol())
                if transport.is_closing():  # what would have ended it may have been cancelled
                    self.call_soon(_end, transport)
                else:
                    transport.abort()
        self.call_soon(self.stop)
        self.run_forever()

    def end_threads(self) -> None:
        default = self._default_executor  # type: ignore[attr-defined]
        for threads in (*self._executors, *([default] if default is not None else [])):
            threads.shutdown(wait=True, cancel_futures=True)

    def close_orphans(self) -> None:
        """End the tasks of a killed broker. Exceptions from their `finally` blocks are ignored."""
        orphans, self._orphans = self._orphans, []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of coroutines that were not begun
            while orphans:
                task = orphans.pop()
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()


def _end(transport: Any) -> None:
    if transport._sock is not None:
        transport._call_connection_lost(None)
