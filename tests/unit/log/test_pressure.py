"""The disk does not keep up: it is asked to begin, and who writes much waits until there is room."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import cast

import pytest

from leadline.log.files import OpenFile
from leadline.log.log import Log
from leadline.log.pressure import (
    LOOK_BYTES,
    Dirty,
    Level,
    Pressure,
    _system_call,
    level_of,
    read_dirty,
    write_back,
)
from tests.support.logs import LogBench

CALM, BUSY, HIGH = Dirty(100, 1000, 2000), Dirty(700, 1000, 2000), Dirty(1200, 1000, 2000)


@pytest.mark.parametrize(("dirty", "level"), [(CALM, Level.CALM), (BUSY, Level.BUSY), (HIGH, Level.HIGH)])
def test_the_level_follows_what_waits(dirty: Dirty, level: Level) -> None:
    assert level_of(dirty) is level


def test_once_it_is_high_it_stays_so_until_there_is_some_room() -> None:
    between = Dirty(1050, 1000, 2000)
    assert (level_of(between), level_of(between, Level.HIGH)) == (Level.BUSY, Level.HIGH)


class Disk:
    """What the kernel tells, look by look; the last one again and again."""

    def __init__(self, *told: Dirty | None) -> None:
        self.told, self.files = list(told), list[list[OpenFile]]()

    def __call__(self, files: Iterable[OpenFile]) -> Dirty | None:
        self.files.append(list(files))
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


def test_it_looks_only_after_so_many_bytes_and_names_the_files_written_to(tmp_path: Path) -> None:
    one, disk = LogBench(tmp_path).open(), Disk(BUSY)

    async def scene() -> Level:
        pressure = Pressure(disk)
        pressure.appended(one, LOOK_BYTES - 1)
        assert pressure._looking is None
        pressure.appended(one, 1)
        assert pressure._looking is not None
        await pressure._looking
        return pressure.level

    assert asyncio.run(scene()) is Level.BUSY
    assert disk.files == [[one.segments.active.file]]


def test_it_looks_again_and_again_while_it_is_high() -> None:
    disk = Disk(HIGH, HIGH, BUSY)

    async def scene() -> Level:
        pressure = Pressure(disk)
        pressure.appended(cast(Log, _Nothing()), LOOK_BYTES)
        assert pressure._looking is not None
        await pressure._looking
        await asyncio.wait_for(pressure.room(), 10)
        return pressure.level

    assert asyncio.run(scene()) is Level.BUSY
    assert len(disk.files) == 3


def test_who_writes_much_waits_while_it_is_high_and_goes_on_when_it_is_not() -> None:
    async def scene() -> tuple[bool, bool]:
        pressure = Pressure(Disk(HIGH))
        pressure._judge(HIGH)
        waiting = asyncio.create_task(pressure.room())
        await asyncio.sleep(0)
        held = not waiting.done()
        pressure._judge(BUSY)
        await asyncio.wait_for(waiting, 10)
        return held, waiting.done()

    assert asyncio.run(scene()) == (True, True)


def test_nobody_waits_where_nothing_is_known_or_after_the_end() -> None:
    async def scene(told: Dirty | None) -> None:
        pressure = Pressure(Disk(told))
        pressure.appended(cast(Log, _Nothing()), LOOK_BYTES)
        await asyncio.sleep(0.01)
        await pressure.stop()
        await asyncio.wait_for(pressure.room(), 10)

    asyncio.run(scene(None))
    asyncio.run(scene(HIGH))


class _Nothing:
    """A log whose file does not matter."""

    class segments:
        class active:
            file = None


def test_linux_tells_both_limits(tmp_path: Path) -> None:
    path = tmp_path / "vmstat"
    path.write_text("nr_dirty 5\nnr_writeback 2\nnr_dirty_threshold 90\nnr_dirty_background_threshold 40\nother 1\n")
    assert read_dirty(str(path)) == Dirty(7, 40, 90)
    path.write_text("nr_dirty 5\n")
    assert read_dirty(str(path)) is None
    assert read_dirty(str(tmp_path / "none")) is None


def test_files_are_written_back_when_it_is_time_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("leadline.log.pressure._sync_file_range", asked.append)
    one = LogBench(tmp_path).open().segments.active.file
    for dirty, times in ((CALM, 0), (BUSY, 1), (HIGH, 2), (None, 2)):
        monkeypatch.setattr("leadline.log.pressure.read_dirty", lambda found=dirty: found)
        write_back([one])
        assert asked == [one.fd] * times


def test_the_real_call_takes_a_real_file(tmp_path: Path) -> None:
    call = _system_call()
    if call is None:
        pytest.skip("needs a system that has sync_file_range")
    assert call(LogBench(tmp_path).open().segments.active.file.fd, 0, 0, 2) == 0
