"""How near the kernel is to making writers wait, and what is done before it does.

The kernel keeps what was written in memory and brings it to the disk when it likes. When too much waits for that, it
holds up whoever writes next, in the middle of the write: that would be the loop, and everybody with it.

    from half of where the kernel begins by itself   it is asked to begin now, in a thread
    near where it makes writers wait                 who writes much gets the answer later, until there is room again

Linux tells how much waits and both limits in /proc/vmstat. Elsewhere nothing is known, and nothing is done.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import cache, partial
from typing import NamedTuple

from leadline.log.files import OpenFile
from leadline.log.log import Log

log = logging.getLogger(__name__)

VMSTAT = "/proc/vmstat"
LOOK_BYTES = 64 * 1024 * 1024  # written between two looks
LOOK_SECONDS = 0.02  # and the time between them while writers are held up
BEGIN = 0.5  # of where the kernel begins by itself
HOLD, RELEASE = 0.75, 0.65  # of where the kernel makes writers wait
SYNC_FILE_RANGE_WRITE = 2


class Dirty(NamedTuple):
    """In pages, of the whole machine."""

    waiting: int  # to be written, or being written
    background: int  # from here on the kernel writes by itself
    limit: int  # it comes to a halt before there are so many

    @property
    def throttled_from(self) -> float:
        return (self.background + self.limit) / 2


class Level(IntEnum):
    CALM = 0
    BUSY = 1  # begin to write
    HIGH = 2  # and hold up who writes much


def level_of(dirty: Dirty, before: Level = Level.CALM) -> Level:
    """Once it is high it stays so until there is some room."""
    share = RELEASE if before is Level.HIGH else HOLD
    if dirty.waiting > share * dirty.throttled_from:
        return Level.HIGH
    return Level.BUSY if dirty.waiting > BEGIN * dirty.background else Level.CALM


class Pressure:
    def __init__(self, look: Callable[[Iterable[OpenFile]], Dirty | None] | None = None) -> None:
        self.level = Level.CALM
        self._look_at = look or write_back
        self._bytes = 0
        self._logs: set[Log] = set()  # written to since the last look
        self._looking: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def appended(self, to: Log, size: int) -> None:
        self._bytes += size
        self._logs.add(to)
        if self._bytes >= LOOK_BYTES and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="pressure")

    async def room(self) -> None:
        """Wait until the disk has caught up."""
        await self._room.wait()

    async def _look(self) -> None:
        try:
            while True:
                self._bytes, logs, self._logs = 0, self._logs, set()
                files = [found.segments.active.file for found in logs]
                self._judge(await asyncio.to_thread(self._look_at, files))
                if self.level is not Level.HIGH:
                    return
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._looking = None
            self._room.set()

    def _judge(self, dirty: Dirty | None) -> None:
        level = Level.CALM if dirty is None else level_of(dirty, self.level)
        if level is Level.HIGH and self.level is not Level.HIGH:
            log.info("the disk does not keep up with what is written: producers of large batches have to wait for it")
            self._room.clear()
        elif level is not Level.HIGH:
            self._room.set()
        self.level = level

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


def write_back(files: Iterable[OpenFile]) -> Dirty | None:
    """Have the kernel begin to write these files, if it is time to. May block."""
    dirty = read_dirty()
    if dirty is not None and level_of(dirty) is not Level.CALM:
        for file in files:
            _sync_file_range(file.fd)
    return dirty


def read_dirty(path: str = VMSTAT) -> Dirty | None:
    try:
        with open(path) as file:
            found = {name: int(value) for name, value in map(str.split, file)}
        waiting = found["nr_dirty"] + found["nr_writeback"]
        return Dirty(waiting, found["nr_dirty_background_threshold"], found["nr_dirty_threshold"])
    except (OSError, KeyError, ValueError):
        return None


def _sync_file_range(fd: int) -> None:
    """What it cannot do is left to the kernel, as everything else is."""
    if (call := _system_call()) is not None:
        call(fd, 0, 0, SYNC_FILE_RANGE_WRITE)


@cache
def _system_call() -> Callable[[int, int, int, int], int] | None:
    import ctypes  # here: most brokers never come to need it

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint)
    return partial(call)
