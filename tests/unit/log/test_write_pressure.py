"""The disk does not keep up: it is asked to begin, and who writes much waits until there is room."""

import asyncio
import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import cast
from weakref import ref

import pytest

from leadline.log.files import OpenFile
from leadline.log.log import Log
from leadline.log.write_pressure import (
    CHECK_BYTES,
    PIECE_BYTES,
    PressureLevel,
    WritebackResult,
    WritePressure,
    level_of,
    start_writeback,
)
from leadline.model import TopicPartition
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import OsFiles
from tests.support.logs import LogBench, ManualClock

CALM, BUSY, HIGH = DirtyPages(100, 1000, 2000), DirtyPages(700, 1000, 2000), DirtyPages(1200, 1000, 2000)


@pytest.mark.parametrize(
    ("dirty", "level"), [(CALM, PressureLevel.CALM), (BUSY, PressureLevel.BUSY), (HIGH, PressureLevel.HIGH)]
)
def test_the_level_follows_what_waits(dirty: DirtyPages, level: PressureLevel) -> None:
    assert level_of(dirty) is level


def test_once_it_is_high_it_stays_so_until_there_is_some_room() -> None:
    between = DirtyPages(1050, 1000, 2000)
    assert (level_of(between), level_of(between, PressureLevel.HIGH)) == (PressureLevel.BUSY, PressureLevel.HIGH)


class Disk:
    """A writeback that finds these dirty pages, one after the other, and the last ones again and again."""

    def __init__(self, *dirty: DirtyPages | None) -> None:
        self.dirty, self.files = list(dirty), list[list[OpenFile]]()

    def __call__(self, files: Sequence[OpenFile]) -> WritebackResult:
        self.files.append(list(files))
        return WritebackResult(self.dirty.pop(0) if len(self.dirty) > 1 else self.dirty[0], files[1:])


def test_it_looks_only_after_so_many_bytes_and_names_the_files_written_to(tmp_path: Path) -> None:
    one, disk = LogBench(tmp_path).open(), Disk(BUSY)

    async def scenario() -> PressureLevel:
        pressure = WritePressure(disk)
        pressure.appended(one, CHECK_BYTES - 1)
        assert pressure._checking is None
        pressure.appended(one, 1)
        assert pressure._checking is not None
        await pressure._checking
        return pressure.level

    assert asyncio.run(scenario()) is PressureLevel.BUSY
    assert disk.files == [[one.segments.active.file]]


def test_it_looks_again_and_again_while_it_is_high() -> None:
    disk = Disk(HIGH, HIGH, BUSY)

    async def scenario() -> PressureLevel:
        pressure = WritePressure(disk)
        pressure.appended(cast(Log, _Nothing()), CHECK_BYTES)
        assert pressure._checking is not None
        await pressure._checking
        await asyncio.wait_for(pressure.room(), 10)
        return pressure.level

    assert asyncio.run(scenario()) is PressureLevel.BUSY
    assert len(disk.files) == 3


def test_large_appends_wait_while_the_pressure_is_high_and_go_on_when_it_is_not() -> None:
    async def scenario() -> tuple[bool, bool]:
        pressure = WritePressure(Disk(HIGH))
        pressure._set_level(HIGH)
        waiting = asyncio.create_task(pressure.room())
        await asyncio.sleep(0)
        held = not waiting.done()
        pressure._set_level(BUSY)
        await asyncio.wait_for(waiting, 10)
        return held, waiting.done()

    assert asyncio.run(scenario()) == (True, True)


def test_without_figures_or_after_the_end_no_append_waits() -> None:
    async def scenario(dirty: DirtyPages | None) -> None:
        disk = Disk(dirty)
        pressure = WritePressure(disk)
        pressure.appended(cast(Log, _Nothing()), CHECK_BYTES)
        async with asyncio.timeout(120):
            while not disk.files:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        await pressure.stop()
        await asyncio.wait_for(pressure.room(), 10)

    asyncio.run(scenario(None))
    asyncio.run(scenario(HIGH))


class _Nothing:
    """A log whose file does not matter."""

    class segments:
        class active:
            file = None


def test_what_is_left_is_written_back_before_what_is_new(tmp_path: Path) -> None:
    logs = [LogBench(tmp_path, tp=TopicPartition("t", n)).open() for n in range(3)]
    disk = Disk(BUSY)

    async def scenario() -> None:
        pressure = WritePressure(disk)
        for log in logs:
            pressure.appended(log, CHECK_BYTES // 3 + 1)
        looking = pressure._checking
        assert looking is not None
        await looking

    asyncio.run(scenario())
    first = disk.files[0]
    assert {file.path for file in first} == {log.segments.active.file.path for log in logs}
    assert disk.files == [first, first[1:], first[2:]]


def test_a_deleted_log_is_let_go_of_at_once(tmp_path: Path) -> None:
    """The last close of a file frees its blocks, and that close has to wait."""

    async def scenario() -> None:
        pressure, log = WritePressure(Disk(BUSY)), LogBench(tmp_path).open()
        log_ref = ref(log)
        pressure.appended(log, CHECK_BYTES - 1)
        del log
        gc.collect()
        assert log_ref() is None

    asyncio.run(scenario())


class BusyFiles(OsFiles):
    """Writeback, by file and position: each piece takes so long on its clock."""

    def __init__(self, dirty: DirtyPages | None, piece_ms: int = 0) -> None:
        super().__init__()
        self.dirty, self.clock, self._piece_ms = dirty, ManualClock(), piece_ms
        self.written_back: list[tuple[int, int]] = []

    def dirty_pages(self) -> DirtyPages | None:  # type: ignore[override]
        return self.dirty

    def write_back(self, fd: int, position: int, length: int, /) -> bool:
        assert length == PIECE_BYTES
        self.written_back.append((fd, position))
        self.clock.ms += self._piece_ms
        return True


@pytest.mark.parametrize(("dirty", "pieces"), [(CALM, 0), (BUSY, 1), (HIGH, 1), (None, 0)])
def test_files_are_written_back_when_it_is_time_to(tmp_path: Path, dirty: DirtyPages | None, pieces: int) -> None:
    files = BusyFiles(dirty)
    file = LogBench(tmp_path, files=files).open().segments.active.file
    os.ftruncate(file.fd, 1)
    assert start_writeback(files, files.clock, [file]) == WritebackResult(dirty)
    assert files.written_back == [(file.fd, 0)] * pieces


def test_files_are_written_back_in_pieces_as_far_as_time_allows(tmp_path: Path) -> None:
    files = BusyFiles(BUSY, piece_ms=40)
    logs = [LogBench(tmp_path, files=files, tp=TopicPartition("t", n)).open() for n in range(2)]
    one, two = (log.segments.active.file for log in logs)
    for file in (one, two):
        os.ftruncate(file.fd, 2 * PIECE_BYTES)
    assert start_writeback(files, files.clock, [one, two]) == WritebackResult(BUSY, [two])
    assert files.written_back == [(one.fd, 0), (one.fd, PIECE_BYTES), (two.fd, 0)]


def test_the_kernel_writes_back_by_itself_where_the_system_does_not_have_the_call(tmp_path: Path) -> None:
    class NoCall(BusyFiles):
        def write_back(self, fd: int, position: int, length: int, /) -> bool:
            return False

    files = NoCall(BUSY)
    file = LogBench(tmp_path, files=files).open().segments.active.file
    os.ftruncate(file.fd, 2 * PIECE_BYTES)
    assert start_writeback(files, files.clock, [file]) == WritebackResult(BUSY)
