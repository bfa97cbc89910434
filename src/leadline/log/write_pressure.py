"""How near the kernel is to making writers wait, and what is done before it does.

The kernel keeps what was written in memory and brings it to the disk when it likes. When too much waits for that, it
holds up whoever writes next, in the middle of the write: that would be the loop, and everybody with it.

    from half of where the kernel begins by itself   it is asked to begin now, in a thread
    near where it makes writers wait                 who writes much gets the answer later, until there is room again

It is asked for a piece at a time, and the next one when that is on the disk: while it hands over all of a file at once,
it keeps whoever writes to that file waiting.

Linux tells how much waits and both limits in /proc/vmstat. Elsewhere nothing is known, and nothing is done.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache, partial
from typing import NamedTuple
from weakref import ref

from leadline.log.files import OpenFile
from leadline.log.log import Log
from leadline.runtime.ports import shortage

log = logging.getLogger(__name__)

VMSTAT = "/proc/vmstat"
LOOK_BYTES = 64 * 1024 * 1024  # written between two looks
LOOK_SECONDS = 0.02  # and the time between them while writers are held up
BEGIN = 0.5  # of where the kernel begins by itself
HOLD, RELEASE = 0.75, 0.65  # of where the kernel makes writers wait
PIECE_BYTES = 16 * 1024 * 1024  # brought to the disk at a time
WRITE_SECONDS = 0.1  # between two looks while there is more to be brought there
SYNC_FILE_RANGE_WRITE_AND_WAIT = 7  # for what is under way, for what is begun now


class DirtyPages(NamedTuple):
    """In pages, of the whole machine."""

    waiting: int  # to be written, or being written
    background: int  # from here on the kernel writes by itself
    limit: int  # it comes to a halt before there are so many

    @property
    def throttled_from(self) -> float:
        return (self.background + self.limit) / 2


class PressureLevel(IntEnum):
    CALM = 0
    BUSY = 1  # begin to write
    HIGH = 2  # and hold up who writes much


def level_of(dirty: DirtyPages, before: PressureLevel = PressureLevel.CALM) -> PressureLevel:
    """Once it is high it stays so until there is some room."""
    share = RELEASE if before is PressureLevel.HIGH else HOLD
    if dirty.waiting > share * dirty.throttled_from:
        return PressureLevel.HIGH
    return PressureLevel.BUSY if dirty.waiting > BEGIN * dirty.background else PressureLevel.CALM


class WritebackResult(NamedTuple):
    dirty: DirtyPages | None  # None: nothing is known
    left: Sequence[OpenFile] = ()  # files that are not written back yet, those that wait longest first


class WritePressure:
    def __init__(self, look: Callable[[Sequence[OpenFile]], WritebackResult] | None = None) -> None:
        self.level = PressureLevel.CALM
        self._look_at = look or write_back
        self._bytes = 0
        self._logs = set[ref[Log]]()  # written to since the last look; one that is deleted must not linger here
        self._looking: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def appended(self, to: Log, size: int) -> None:
        self._bytes += size
        self._logs.add(ref(to))
        if self._bytes >= LOOK_BYTES and self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="pressure")

    async def room(self) -> None:
        """Wait until the disk has caught up."""
        await self._room.wait()

    async def _look(self) -> None:
        left: Sequence[OpenFile] = ()
        try:
            while True:
                self._bytes, logs, self._logs = 0, self._logs, set()
                written = (found for known in logs if (found := known()) is not None)
                active = (_active_file(found) for found in written)
                files = dict.fromkeys([*left, *(file for file in active if file is not None)])
                try:
                    dirty, left = await asyncio.to_thread(self._look_at, list(files))
                except RuntimeError as error:
                    if shortage(error) is None:
                        raise
                    return  # no thread can be started: the kernel writes by itself
                self._judge(dirty)
                if self.level is PressureLevel.CALM or (self.level is PressureLevel.BUSY and not left):
                    return
                if not left:
                    await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._looking = None
            self._room.set()

    def _judge(self, dirty: DirtyPages | None) -> None:
        level = PressureLevel.CALM if dirty is None else level_of(dirty, self.level)
        if level is PressureLevel.HIGH and self.level is not PressureLevel.HIGH:
            log.info("the disk does not keep up with what is written: producers of large batches have to wait for it")
            self._room.clear()
        elif level is not PressureLevel.HIGH:
            self._room.set()
        self.level = level

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)


def _active_file(found: Log) -> OpenFile | None:
    """None: it is closed, and no descriptor is left to open it."""
    try:
        return found.segments.active.file
    except OSError:
        return None


def write_back(files: Sequence[OpenFile]) -> WritebackResult:
    """Have the kernel write these files, if it is time to, as far as it comes for now. Blocks."""
    dirty, call = read_dirty(), _system_call()
    if dirty is None or call is None or level_of(dirty) is PressureLevel.CALM:
        return WritebackResult(dirty)
    until = time.monotonic() + WRITE_SECONDS
    for n, file in enumerate(files):
        for position in range(0, os.fstat(file.fd).st_size, PIECE_BYTES):  # what is written already takes no time
            if time.monotonic() >= until:
                return WritebackResult(dirty, files[n:])
            call(file.fd, position, PIECE_BYTES, SYNC_FILE_RANGE_WRITE_AND_WAIT)
    return WritebackResult(dirty)


def read_dirty(path: str = VMSTAT) -> DirtyPages | None:
    try:
        with open(path) as file:
            found = {name: int(value) for name, value in map(str.split, file)}
        waiting = found["nr_dirty"] + found["nr_writeback"]
        return DirtyPages(waiting, found["nr_dirty_background_threshold"], found["nr_dirty_threshold"])
    except (OSError, KeyError, ValueError):
        return None


@cache
def _system_call() -> Callable[[int, int, int, int], int] | None:
    """What it cannot do is left to the kernel, as everything else is."""
    import ctypes  # here: most brokers never come to need it

    try:
        call = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_longlong, ctypes.c_longlong, ctypes.c_uint)
    return partial(call)
