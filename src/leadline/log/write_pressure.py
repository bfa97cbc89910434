"""How close the kernel is to throttling the broker's writes, and what the broker does before that.

The kernel keeps written data in memory and writes it back later. When too many pages are dirty, it blocks the next
write() until some are written back. That would block the loop, and every client with it.

    from half of the background threshold on   writeback of the broker's own files is started, in a thread
    near the throttling threshold              producers of large batches get their answer later, until there is room

Producers are held up by what the broker itself left unwritten, since that is all that waiting for its own writeback can
reduce. What other processes left takes room from it, but an eighth of the threshold is always there: a neighbour that
wrote much does not stop the broker.

Appends go to the end of a file. So of an active segment, as many of the last bytes may be unwritten as were appended
since it was last written back. Some of them may be on disk already: the kernel does not report it.

Writeback goes in pieces: while the kernel writes back a whole file, it blocks writers to that file.

Linux has the number of dirty pages and both thresholds in /proc/vmstat. Elsewhere nothing is known or done.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import islice
from typing import NamedTuple
from weakref import ref

from leadline.log.log import Log
from leadline.log.open_files import OpenFile
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.page_cache import PAGE_BYTES, DirtyPages
from leadline.runtime.ports import Files, Time, shortage

log = logging.getLogger(__name__)

CHECK_BYTES = 64 * 1024 * 1024  # written between two checks
CHECK_SECONDS = 0.02  # between two checks while writers are held up
BEGIN = 0.5  # of the kernel's background threshold
HOLD, RELEASE = 0.75, 0.65  # of the room that others leave below where the kernel throttles writers
MIN_ROOM = 1 / 8  # of where the kernel throttles writers
PIECE_BYTES = 16 * 1024 * 1024  # written back at a time
WRITE_SECONDS = 0.1  # between two checks while there is more to write back
MAX_RANGES = 64  # files in one call: to open them takes time on the loop


class PressureLevel(IntEnum):
    CALM = 0
    BUSY = 1  # start writeback
    HIGH = 2  # also delay the answers to large writes


def level_of(dirty: DirtyPages, own_pages: int, before: PressureLevel = PressureLevel.CALM) -> PressureLevel:
    """`own_pages`: upper bound of this broker's dirty pages. A high level stays high until there is some room."""
    own_pages = min(own_pages, dirty.waiting)
    room = max(dirty.throttled_from - (dirty.waiting - own_pages), dirty.throttled_from * MIN_ROOM)
    if own_pages > room * (RELEASE if before is PressureLevel.HIGH else HOLD):
        return PressureLevel.HIGH
    return PressureLevel.BUSY if dirty.waiting > BEGIN * dirty.background else PressureLevel.CALM


class UnwrittenRange(NamedTuple):
    """The end of an active segment."""

    file: OpenFile
    position: int
    end: int


class WritebackResult(NamedTuple):
    dirty: DirtyPages | None  # None: unknown
    reached: Sequence[int] = ()  # for each range, the position up to which it is written back


WriteBack = Callable[[Sequence[UnwrittenRange]], WritebackResult]
LogRef = ref[Log]  # weak, since a log may be deleted


class WritePressure:
    def __init__(self, write_back: WriteBack) -> None:
        self.level = PressureLevel.CALM
        self._write_back = write_back
        self._bytes = 0  # appended since the last check
        self._unwritten: dict[LogRef, int] = {}  # bytes appended to a log since it was written back
        self._unwritten_bytes = 0  # of all logs
        self._checking: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._room.set()

    def appended(self, to: Log, size: int) -> None:
        key = ref(to)
        self._unwritten[key] = self._unwritten.get(key, 0) + size
        self._unwritten_bytes += size
        self._bytes += size
        if self._bytes >= CHECK_BYTES and self._checking is None:
            self._checking = asyncio.create_task(self._check(), name="pressure")

    async def room(self) -> None:
        """Wait until the disk has caught up."""
        await self._room.wait()

    async def _check(self) -> None:
        ranges: dict[LogRef, UnwrittenRange] = {}
        try:
            while True:
                self._bytes, unwritten = 0, {key: self._unwritten[key] for key in ranges}
                try:
                    dirty, reached = await asyncio.to_thread(self._write_back, list(ranges.values()))
                except RuntimeError as error:
                    if shortage(error) is None:
                        raise
                    return  # no thread can be started: the kernel writes back by itself
                for (key, of), position in zip(ranges.items(), reached, strict=True):
                    self._forget(key, unwritten[key] - (of.end - position))
                self._set_level(dirty)
                if self.level is not PressureLevel.HIGH and (
                    self.level is PressureLevel.CALM or self._unwritten_bytes < CHECK_BYTES
                ):
                    return
                ranges = self._next_ranges()
                if not ranges:
                    await asyncio.sleep(CHECK_SECONDS)
        finally:
            self._checking = None
            self._room.set()

    def _next_ranges(self) -> dict[LogRef, UnwrittenRange]:
        """The ranges of the logs that have waited longest. Older segments do not count: full ones are flushed."""
        ranges = {}
        for key, unwritten in list(islice(self._unwritten.items(), MAX_RANGES)):
            target = key()
            file = None if target is None else _active_file(target)
            if target is None or file is None:
                self._forget(key, unwritten)
            else:
                end = target.segments.active.size
                position = max(end - unwritten, 0)
                self._forget(key, unwritten - (end - position))
                if key in self._unwritten:
                    ranges[key] = UnwrittenRange(file, position, end)
        return ranges

    def _forget(self, key: LogRef, written: int) -> None:
        """The given number of bytes of a log were written back. The rest waits until the other logs are written."""
        left = self._unwritten.pop(key) - written
        self._unwritten_bytes -= written
        if left > 0:
            self._unwritten[key] = left

    def _set_level(self, dirty: DirtyPages | None) -> None:
        own_pages = self._unwritten_bytes // PAGE_BYTES
        level = PressureLevel.CALM if dirty is None else level_of(dirty, own_pages, self.level)
        if level is PressureLevel.HIGH and self.level is not PressureLevel.HIGH:
            log.info("the disk does not keep up with writes: producers of large batches have to wait for it")
            self._room.clear()
        elif level is not PressureLevel.HIGH:
            self._room.set()
        self.level = level

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await all_ended(self._checking)


def _active_file(log: Log) -> OpenFile | None:
    """None if it is closed, and there is no descriptor to open it."""
    try:
        return log.segments.active.file
    except OSError:
        return None


def start_writeback(files: Files, clock: Time, ranges: Sequence[UnwrittenRange]) -> WritebackResult:
    """Write these ranges back, for a while. Blocking."""
    until = clock.monotonic_s() + WRITE_SECONDS
    reached = []
    for file, start, end in ranges:
        position = start
        while position < end and clock.monotonic_s() < until:
            if not file.write_back(position, PIECE_BYTES):
                return WritebackResult(files.dirty_pages(), [of.end for of in ranges])  # the kernel does it by itself
            position = min(position + PIECE_BYTES, end)
        reached.append(position)
    return WritebackResult(files.dirty_pages(), reached)
