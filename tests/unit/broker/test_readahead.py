"""Reading slices of files into the page cache: in a thread, and in the loop where there is none."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from leadline.broker.pending_slice import LOAD_BYTES, READAHEAD_BYTES, PendingSlice
from leadline.broker.readahead import Readahead
from leadline.log.open_files import OpenFile
from tests.support.waiting import eventually


class NotedFile:
    """A file that notes what is read of it, and whether the loop's thread reads it."""

    def __init__(self, ahead_to: int = 0) -> None:
        self.ahead_to = ahead_to
        self.calls: list[tuple[str, int, int]] = []
        self.in_loop: list[bool] = []

    def request_readahead(self, position: int, length: int) -> None:
        self._note("ahead", position, length)

    def load(self, position: int, length: int) -> None:
        self._note("load", position, length)

    def _note(self, call: str, position: int, length: int) -> None:
        self.calls.append((call, position, length))
        self.in_loop.append(threading.current_thread() is threading.main_thread())


def slice_of(file: NotedFile, position: int, length: int) -> PendingSlice:
    return PendingSlice(cast(OpenFile, file), position, length)


def run(test: Callable[[Readahead], Awaitable[None]]) -> None:
    async def main() -> None:
        readahead = Readahead()
        try:
            await test(readahead)
        finally:
            readahead.close()

    asyncio.run(main())


def test_a_thread_loads_the_next_bytes_of_a_slice_and_has_the_disk_read_on() -> None:
    file = NotedFile()

    async def test(readahead: Readahead) -> None:
        await readahead.load(slice_of(file, 500, 3 * LOAD_BYTES))

    run(test)
    assert file.calls == [("ahead", 500, LOAD_BYTES + READAHEAD_BYTES), ("load", 500, LOAD_BYTES)]
    assert file.in_loop == [False, False]


def test_the_disk_reads_on_before_a_reader_needs_it_and_not_otherwise() -> None:
    file = NotedFile(ahead_to=1000)

    async def test(readahead: Readahead) -> None:
        readahead.request(slice_of(file, 0, 100))
        await eventually(lambda: file.calls)
        readahead.request(slice_of(file, 100, 100))
        readahead.close()

    run(test)
    assert file.calls == [("ahead", 1000, READAHEAD_BYTES)]


def test_without_a_thread_the_loop_reads_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    file = NotedFile()

    def no_thread(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    async def test(readahead: Readahead) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", no_thread)
        assert readahead.load(slice_of(file, 0, 10)).done()

    run(test)
    assert [call for call, *_ in file.calls] == ["ahead", "load"]
    assert file.in_loop == [True, True]


def test_a_fault_that_is_no_shortage_is_raised() -> None:
    async def test(readahead: Readahead) -> None:
        readahead.close()
        with pytest.raises(RuntimeError, match="shutdown"):
            readahead.load(slice_of(NotedFile(), 0, 10))

    run(test)
