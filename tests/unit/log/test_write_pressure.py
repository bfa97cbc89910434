"""The disk does not keep up: it is asked to begin, and who writes much waits until there is room."""

import asyncio
import gc
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from weakref import ref

import pytest

from leadline.log.log import Log
from leadline.log.open_files import OpenFile
from leadline.log.write_pressure import (
    CHECK_BYTES,
    PIECE_BYTES,
    PressureLevel,
    UnwrittenRange,
    WritebackResult,
    WritePressure,
    level_of,
    start_writeback,
)
from leadline.model import TopicPartition
from leadline.runtime.page_cache import DirtyPages
from leadline.runtime.ports import OsFiles
from tests.support.logs import LogBench, ManualClock
from tests.support.waiting import PATIENCE_S, eventually

CALM, BUSY, HIGH = DirtyPages(100, 1000, 2000), DirtyPages(700, 1000, 2000), DirtyPages(1200, 1000, 2000)
ALL = 1 << 40  # bytes or pages: everything that is dirty is the broker's


@pytest.mark.parametrize(
    ("dirty", "level"), [(CALM, PressureLevel.CALM), (BUSY, PressureLevel.BUSY), (HIGH, PressureLevel.HIGH)]
)
def test_the_level_follows_what_the_broker_left_unwritten(dirty: DirtyPages, level: PressureLevel) -> None:
    assert level_of(dirty, ALL) is level


def test_once_it_is_high_it_stays_so_until_there_is_some_room() -> None:
    between = DirtyPages(1050, 1000, 2000)
    assert level_of(between, ALL) is PressureLevel.BUSY
    assert level_of(between, ALL, PressureLevel.HIGH) is PressureLevel.HIGH


@pytest.mark.parametrize("before", [PressureLevel.BUSY, PressureLevel.HIGH])
@pytest.mark.parametrize("waiting", [1200, 1400, 1900, 100_000])
def test_what_others_left_unwritten_holds_nobody_up(waiting: int, before: PressureLevel) -> None:
    assert level_of(DirtyPages(waiting, 1000, 2000), 0, before) is PressureLevel.BUSY
    assert level_of(DirtyPages(waiting, 1000, 2000), 120, before) is PressureLevel.BUSY  # of 1500 / 8


@pytest.mark.parametrize(("others", "own", "level"), [(900, 440, "BUSY"), (900, 460, "HIGH"), (1900, 150, "HIGH")])
def test_others_take_room_from_the_broker(others: int, own: int, level: str) -> None:
    assert level_of(DirtyPages(others + own, 1000, 2000), own) is PressureLevel[level]


class Disk:
    """A writeback that finds these dirty pages, one after the other, and the last ones again and again.

    It writes the first of the ranges back.
    """

    def __init__(self, *dirty: DirtyPages | None) -> None:
        self.dirty, self.ranges = list(dirty), list[list[UnwrittenRange]]()

    def __call__(self, ranges: Sequence[UnwrittenRange]) -> WritebackResult:
        self.ranges.append(list(ranges))
        dirty = self.dirty.pop(0) if len(self.dirty) > 1 else self.dirty[0]
        return WritebackResult(dirty, [of.position if n else of.end for n, of in enumerate(ranges)])


def grown(path: Path, size: int, n: int = 0) -> Log:
    """A log whose active segment is said to have this size."""
    log = LogBench(path, tp=TopicPartition("t", n)).open()
    log.segments.active.size = size
    return log


def checked(pressure: WritePressure, *appends: tuple[Log, int]) -> "asyncio.Task[None]":
    for log, size in appends:
        pressure.appended(log, size)
    assert pressure._checking is not None
    return pressure._checking


def test_it_looks_only_after_so_many_bytes_and_writes_back_what_was_appended(tmp_path: Path) -> None:
    one, disk = grown(tmp_path, 3 * CHECK_BYTES), Disk(BUSY)

    async def scenario() -> None:
        pressure = WritePressure(disk)
        pressure.appended(one, CHECK_BYTES - 1)
        assert pressure._checking is None
        await checked(pressure, (one, 1))
        assert pressure.level is PressureLevel.BUSY
        assert pressure._unwritten_bytes == 0

    asyncio.run(scenario())
    assert disk.ranges == [[], [(one.segments.active.file, 2 * CHECK_BYTES, 3 * CHECK_BYTES)]]


def test_a_calm_machine_is_left_alone(tmp_path: Path) -> None:
    disk = Disk(CALM)

    async def scenario() -> None:
        pressure = WritePressure(disk)
        await checked(pressure, (grown(tmp_path, CHECK_BYTES), CHECK_BYTES))

    asyncio.run(scenario())
    assert disk.ranges == [[]]


def test_it_is_high_until_its_own_is_written_back(tmp_path: Path) -> None:
    """The pages of others stay dirty all the time."""
    logs = [grown(tmp_path, CHECK_BYTES, n) for n in range(3)]
    disk = Disk(DirtyPages(2_000_000, 1000, 2000))
    levels: list[PressureLevel] = []

    async def scenario() -> None:
        def write_back(ranges: Sequence[UnwrittenRange]) -> WritebackResult:
            levels.append(pressure.level)
            return disk(ranges)

        pressure = WritePressure(write_back)
        checking = checked(pressure, *((log, CHECK_BYTES) for log in logs))
        await eventually(lambda: pressure.level is PressureLevel.HIGH or checking.done())
        await asyncio.wait_for(pressure.room(), PATIENCE_S)
        await checking
        assert pressure.level is PressureLevel.BUSY

    asyncio.run(scenario())
    assert levels == [PressureLevel.CALM, *[PressureLevel.HIGH] * 3]
    assert [len(ranges) for ranges in disk.ranges] == [0, 3, 2, 1]


def test_what_was_appended_meanwhile_is_still_unwritten(tmp_path: Path) -> None:
    one = grown(tmp_path, CHECK_BYTES)

    async def scenario() -> None:
        disk, gate = Disk(BUSY), threading.Event()

        def write_back(ranges: Sequence[UnwrittenRange]) -> WritebackResult:
            assert not ranges or gate.wait(PATIENCE_S)
            return disk(ranges)

        pressure = WritePressure(write_back)
        checking = checked(pressure, (one, CHECK_BYTES))
        await eventually(lambda: pressure.level is PressureLevel.BUSY)
        one.segments.active.size += 1000
        pressure.appended(one, 1000)
        gate.set()
        await checking
        assert pressure._unwritten_bytes == 1000
        assert list(pressure._unwritten.values()) == [1000]

    asyncio.run(scenario())


def test_a_segment_that_ended_and_a_log_that_is_gone_do_not_count(tmp_path: Path) -> None:
    disk = Disk(BUSY)

    async def scenario() -> None:
        pressure, deleted = WritePressure(disk), grown(tmp_path, CHECK_BYTES, 0)
        rolled = grown(tmp_path, 100, 1)
        pressure.appended(deleted, CHECK_BYTES // 2)
        del deleted
        gc.collect()
        await checked(pressure, (rolled, CHECK_BYTES))
        assert pressure._unwritten_bytes == 0
        assert [[(of.position, of.end) for of in ranges] for ranges in disk.ranges] == [[], [(0, 100)]]

    asyncio.run(scenario())


def test_large_appends_wait_while_the_pressure_is_high_and_go_on_when_it_is_not(tmp_path: Path) -> None:
    async def scenario() -> tuple[bool, bool]:
        pressure, one = WritePressure(Disk(HIGH)), grown(tmp_path, CHECK_BYTES)
        pressure.appended(one, CHECK_BYTES - 1)
        pressure._set_level(HIGH)
        waiting = asyncio.create_task(pressure.room())
        await asyncio.sleep(0)
        held = not waiting.done()
        pressure._set_level(BUSY)
        await asyncio.wait_for(waiting, PATIENCE_S)
        return held, waiting.done()

    assert asyncio.run(scenario()) == (True, True)


@pytest.mark.parametrize("dirty", [None, HIGH])
def test_without_figures_or_after_the_end_no_append_waits(tmp_path: Path, dirty: DirtyPages | None) -> None:
    async def scenario() -> None:
        disk = Disk(dirty)
        pressure = WritePressure(disk)
        checked(pressure, (grown(tmp_path, CHECK_BYTES), CHECK_BYTES))
        await eventually(lambda: disk.ranges)
        await pressure.stop()
        await asyncio.wait_for(pressure.room(), PATIENCE_S)

    asyncio.run(scenario())


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


def whole(file: OpenFile) -> UnwrittenRange:
    return UnwrittenRange(file, 0, file.size)


def test_ranges_are_written_back_in_pieces_as_far_as_time_allows(tmp_path: Path) -> None:
    files = BusyFiles(BUSY, piece_ms=40)
    logs = [LogBench(tmp_path, files=files, tp=TopicPartition("t", n)).open() for n in range(3)]
    one, two, three = (log.segments.active.file for log in logs)
    for file in (one, two, three):
        os.ftruncate(file.fd, 2 * PIECE_BYTES)
    ranges = [UnwrittenRange(one, 100, 2 * PIECE_BYTES), whole(two), whole(three)]
    assert start_writeback(files, files.clock, ranges) == (BUSY, [2 * PIECE_BYTES, PIECE_BYTES, 0])
    assert files.written_back == [(one.fd, 100), (one.fd, 100 + PIECE_BYTES), (two.fd, 0)]


def test_the_kernel_writes_back_by_itself_where_the_system_does_not_have_the_call(tmp_path: Path) -> None:
    class NoCall(BusyFiles):
        def write_back(self, fd: int, position: int, length: int, /) -> bool:
            return False

    files = NoCall(BUSY)
    file = LogBench(tmp_path, files=files).open().segments.active.file
    os.ftruncate(file.fd, 2 * PIECE_BYTES)
    assert start_writeback(files, files.clock, [whole(file)]) == (BUSY, [2 * PIECE_BYTES])
