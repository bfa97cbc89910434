"""How close the kernel is to throttling writers, and what the broker does before that.

The kernel keeps written data in memory and writes it back later. When too many pages are dirty, it blocks the next
write() until some are written back. That would block the loop, and every client with it.

    from half of the background threshold on   writeback is started, in a thread
    near the throttling threshold              producers of large batches get their answer later, until there is room

Writeback goes in pieces: while the kernel hands over a whole file at once, it blocks writers to that file.

Linux has the number of dirty pages and both thresholds in /proc/vmstat. Elsewhere nothing is known or done.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple
from weakref import ref

from leadline.log.files import OpenFile
from leadline.log.log import Log
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import Files, Time, shortage

log = logging.getLogger(__name__)

CHECK_BYTES = 64 * 1024 * 1024  # written between two checks
CHECK_SECONDS = 0.02  # between two checks while writers are held up
BEGIN = 0.5  # of the kernel's background threshold
HOLD, RELEASE = 0.75, 0.65  # of where the kernel throttles writers
PIECE_BYTES = 16 * 1024 * 1024  # written back at a time
WRITE_SECONDS = 0.1  # between two checks while there is more to write back


class PressureLevel(IntEnum):
    CALM = 0
    BUSY = 1  # start writeback
    HIGH = 2  # also delay the answers to large writes


def level_of(dirty: DirtyPages, before: PressureLevel = PressureLevel.CALM) -> PressureLevel:
    """Once it is high, it stays high until there is some room."""
    share = RELEASE if before is PressureLevel.HIGH else HOLD
    if dirty.waiting > share * dirty.throttled_from:
        return PressureLevel.HIGH
    return PressureLevel.BUSY if dirty.waiting > BEGIN * dirty.background else PressureLevel.CALM


class WritebackResult(NamedTuple):
    dirty: DirtyPages | None  # None: unknown
    left: Sequence[OpenFile] = ()  # files that are not written back yet, the longest waiting first


WriteBack = Callable[[Sequence[OpenFile]], WritebackResult]


class WritePressure:
    def __init__(self, write_back: WriteBack) -> None:
        self.level = PressureLevel.CALM
        self._write_back = write_back
        self._bytes = 0
        self._logs = set[ref[Log]]()  # written to since the last check; weak, since a log may be deleted
        self._checking: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def appended(self, to: Log, size: int) -> None:
        self._bytes += size
        self._logs.add(ref(to))
        if self._bytes >= CHECK_BYTES and self._checking is None:
            self._checking = asyncio.create_task(self._check(), name="pressure")

    async def room(self) -> None:
        """Wait until the disk has caught up."""
        await self._room.wait()

    async def _check(self) -> None:
        left: Sequence[OpenFile] = ()
        try:
            while True:
                self._bytes, logs, self._logs = 0, self._logs, set()
                written = [target for target in (reference() for reference in logs) if target is not None]
                active = (_active_file(target) for target in written)
                files = dict.fromkeys([*left, *(file for file in active if file is not None)])
                try:
                    dirty, left = await asyncio.to_thread(self._write_back, list(files))
                except RuntimeError as error:
                    if shortage(error) is None:
                        raise
                    return  # no thread can be started: the kernel writes back by itself
                self._set_level(dirty)
                if self.level is PressureLevel.CALM or (self.level is PressureLevel.BUSY and not left):
                    return
                if not left:
                    await asyncio.sleep(CHECK_SECONDS)
        finally:
            self._checking = None
            self._room.set()

    def _set_level(self, dirty: DirtyPages | None) -> None:
        level = PressureLevel.CALM if dirty is None else level_of(dirty, self.level)
        if level is PressureLevel.HIGH and self.level is not PressureLevel.HIGH:
            log.info("the disk does not keep up with what is written: producers of large batches have to wait for it")
            self._room.clear()
        elif level is not PressureLevel.HIGH:
            self._room.set()
        self.level = level

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.gather(self._checking, return_exceptions=True)


def _active_file(log: Log) -> OpenFile | None:
    """None if it is closed, and there is no descriptor to open it."""
    try:
        return log.segments.active.file
    except OSError:
        return None


def start_writeback(files: Files, clock: Time, written: Sequence[OpenFile]) -> WritebackResult:
    """Start writeback of these files, if it is time to, for a while. Blocking."""
    dirty = files.dirty_pages()
    if dirty is None or level_of(dirty) is PressureLevel.CALM:
        return WritebackResult(dirty)
    until = clock.monotonic_s() + WRITE_SECONDS
    for n, file in enumerate(written):
        for position in range(0, file.size, PIECE_BYTES):  # clean pages take no time
            if clock.monotonic_s() >= until:
                return WritebackResult(dirty, written[n:])
            if not file.write_back(position, PIECE_BYTES):
                return WritebackResult(dirty)  # the kernel writes back by itself
    return WritebackResult(dirty)
