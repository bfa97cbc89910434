"""Reads parts of files into the page cache, in threads, before they are sent.

If no thread can be started, the loop does it: all clients wait for the disk then, but nothing fails.
"""

import asyncio
from collections.abc import Callable

from leadline.broker import pending_slice
from leadline.broker.pending_slice import PendingSlice
from leadline.runtime.ports import shortage
from leadline.runtime.threads import new_threads


class Readahead:
    def __init__(self) -> None:
        self._threads = new_threads(4, "read-ahead")

    def load(self, part: PendingSlice) -> "asyncio.Future[None]":
        """Bring the next bytes of a slice into memory."""
        position, count = part.begin_load()
        return self._in_thread(pending_slice.read_through, part.file, position, count)

    def request(self, part: PendingSlice) -> None:
        """Have the disk read the bytes after a slice, if its reader is about to need them."""
        if (position := part.next_readahead()) is not None:
            self._in_thread(pending_slice.request_readahead, part.file, position)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _in_thread(self, job: Callable[..., None], *arguments: object) -> "asyncio.Future[None]":
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._threads, job, *arguments)
        except RuntimeError as error:
            if shortage(error) is None:
                raise
        done: asyncio.Future[None] = loop.create_future()
        job(*arguments)
        done.set_result(None)
        return done
