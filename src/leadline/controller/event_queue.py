"""The controller's events: one task runs them, one after the other.

an event is decided, written and sent to the brokers before the next one begins
many events, like a long one, share the loop's turns with the requests of clients
a named event that already waits is not queued again: it will read the latest state
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from leadline.errors import NotController
from leadline.runtime.garbage import without_collections
from leadline.runtime.turns import Turns

Run = Callable[[], Awaitable[None]]


def _nothing() -> None: ...


class _ControllerEvent(NamedTuple):
    run: Run
    abandon: Callable[[], None]  # called if the event does not run to its end
    name: str


class EventQueue:
    """`run()` never ends. `failed` is awaited with an exception that an event raises, unless it is NotController."""

    def __init__(self, failed: Callable[[Exception], Awaitable[None]], turns: Turns) -> None:
        self._failed, self._turns = failed, turns
        self._events: asyncio.Queue[_ControllerEvent] = asyncio.Queue()
        self._waiting: set[str] = set()  # the names of events that need not be queued again

    def __len__(self) -> int:
        return self._events.qsize()

    def put(self, run: Run, abandon: Callable[[], None] = _nothing, name: str = "") -> None:
        self._events.put_nowait(_ControllerEvent(run, abandon, name))

    def put_once(self, name: str, run: Run) -> None:
        if name not in self._waiting:
            self._waiting.add(name)

            async def once() -> None:
                self._waiting.discard(name)
                await run()

            self.put(once, name=name)

    def abandon_all_but(self, name: str) -> None:
        events = [self._events.get_nowait() for _ in range(self._events.qsize())]
        self._waiting &= {name}
        for event in events:
            if event.name == name:
                self._events.put_nowait(event)
            else:
                event.abandon()

    async def _next(self) -> _ControllerEvent:
        if self._events.empty():
            event = await self._events.get()
            self._turns.begin()  # it has waited, so this is another turn
            return event
        await self._turns.pause()
        return await self._events.get()

    async def run(self) -> None:
        while True:
            event = await self._next()
            try:
                with without_collections():
                    await event.run()
            except NotController:
                event.abandon()
            except Exception as error:  # noqa: BLE001  `failed` reports it
                event.abandon()
                await self._failed(error)
