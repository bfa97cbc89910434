"""Converts slices of segments for old consumers, in a thread of its own.

A slice is read in windows, so that no more of it is in memory than is converted next, and the message set itself.
"""

from collections.abc import Iterator
from functools import partial

from leadline.log.segment import FileSlice
from leadline.model import Buffer, Offset
from leadline.records.batch import HEADER_BYTES, header_at, walk
from leadline.records.down_conversion import message_set
from leadline.runtime.worker_threads import WorkerThreads

WINDOW_BYTES = 128 * 1024


class DownConversions:
    def __init__(self) -> None:
        self._threads = WorkerThreads(1, "down-conversion")

    async def convert(self, part: FileSlice, magic: int, first_offset: Offset) -> bytearray:
        """The message set of a slice. UnsupportedCompressionType, CorruptMessage; OSError if the disk fails."""
        return await self._threads.run(partial(_converted, part, magic, first_offset))

    def close(self) -> None:
        self._threads.close()


def _converted(part: FileSlice, magic: int, first_offset: Offset) -> bytearray:
    return message_set(_batches(part), magic, first_offset, part.length)


def _batches(part: FileSlice) -> Iterator[Buffer]:
    """The whole batches of a slice."""
    position, end = part.position, part.position + part.length
    while position + HEADER_BYTES <= end:
        window = memoryview(part.file.pread(min(WINDOW_BYTES, end - position), position))
        taken = 0
        for at, header in walk(window):
            taken = at + header.size
            yield window[at:taken]
        if not taken:  # a batch larger than the window, or the rest of one
            size = header_at(window).size
            if position + size > end:
                return
            taken = size
            yield part.file.pread(size, position)
        position += taken
