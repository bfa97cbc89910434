"""Disks that fail or fill up, at any operation: nothing flushed is lost.

A disk that fails takes its directory offline, which says why. A full one does not, unlike Apache Kafka's: what needs
room is refused, everything else goes on, and so does what is refused once there is room.
"""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from leadline.errors import LogDirFailed, ResourceExhausted, StorageError
from leadline.log.log import Isolation, Log
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import AppendOrigin
from leadline.model import Offset
from leadline.runtime.ports import Files
from tests.fault.crash_run import (
    ORDERS,
    PROFILES,
    Durable,
    Ledger,
    abandon,
    compact,
    has_marker,
    open_dirs,
    without_threads,
)
from tests.fault.log_invariants import no_last_record_of_a_key_is_lost, restart_keeps, what_was_flushed_is_there
from tests.support.crash_disk import Unsynced
from tests.support.logs import START_MS, at_offset, batch, marker
from tests.support.watched_files import Failing, SmallDisk, WatchedFiles


class Scenario:
    """A little of everything that a broker does to its logs, and how far each was flushed when the disk failed."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path, self.ledgers = path, {ORDERS: Ledger(), PROFILES: Ledger()}
        self.offline: dict[str, str] = {}
        self.finished, self.refused = False, ""
        for ledger in self.ledgers.values():
            ledger.durable.append(Durable(0, 0, 0, {}))

    async def run(self, files: Files) -> None:
        """Ends early once the directory is offline or full, by an error that a caller is meant to handle."""
        with without_threads():
            dirs = open_dirs(self.path, files)
            try:
                await dirs.open()
                await self._work(dirs)
                await dirs.close()
                self.finished = not dirs.offline and has_marker(self.path)
            except ResourceExhausted as error:
                self.refused = str(error)
            except (StorageError, LogDirFailed):
                assert dirs.offline, "a disk failed, but its directory is not offline"
            self.offline = dict(dirs.offline)
            abandon(dirs)

    async def _work(self, dirs: LogDirs) -> None:
        logs = [await dirs.create(tp) for tp in self.ledgers]
        for n in range(4):
            for log in logs:
                self._append(log, n)
                await dirs.dir_of(log).disk.drain()
                self._note_durable(log, log.flushed_to)
        for log in logs:
            log.read(0, 100, Isolation.COMMITTED)
            log.offset_for_time(START_MS)
        target = logs[0].log_end - 1
        self._note_durable(logs[0], target)
        self.ledgers[ORDERS].cut(target)
        await dirs.truncation.truncate_to(ORDERS, target)
        self._note_durable(logs[0], target, log_start=target)
        logs[0].delete_old_segments()
        await compact(dirs, logs[1], Unsynced())  # in production a process of its own, and that may fail

    def _append(self, log: Log, n: int) -> None:
        batches = [batch(key="k", size=20), batch(key=f"{n}", size=200), batch(producer_id=1, sequence=n, size=9)]
        batches.append(batch(producer_id=2, sequence=n, transactional=True))
        for data in [*batches, marker(2, commit=n % 2 == 0)]:
            expected = bytes(at_offset(data, log.log_end, n))  # an append that fails may have come as far as the log
            self.ledgers[log.tp].note(log.log_end, expected)
            log.append_as_leader(data, n, AppendOrigin.CLIENT if data in batches else AppendOrigin.COORDINATOR)
        log.advance_high_watermark(log.log_end)
        log.flush()

    def _note_durable(self, log: Log, flushed_to: Offset, log_start: Offset = 0) -> None:
        ledger = self.ledgers[log.tp]
        ledger.durable.append(Durable(0, flushed_to, log_start, dict(ledger.batches)))


def survives(scenario: Scenario) -> None:
    asyncio.run(restart_keeps(scenario.path, scenario.ledgers, 0))


def count_operations(path: Path) -> int:
    watch = Failing(0, errno.EIO)
    scenario = Scenario(path)
    asyncio.run(scenario.run(WatchedFiles(watch, Unsynced())))
    assert scenario.finished
    return -watch.left


@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
def test_an_error_at_any_operation_takes_the_directory_offline_and_loses_nothing(for_good: bool, scratch: Path) -> None:
    operations = count_operations(scratch / "whole")
    for nth in range(1 + for_good, operations + 1, 3):
        watch = Failing(nth, errno.EIO, for_good=for_good)
        scenario = Scenario(scratch / str(nth))
        asyncio.run(scenario.run(WatchedFiles(watch, Unsynced())))
        assert watch.failed, nth
        assert not scenario.finished, f"{watch.failed[0]} failed unnoticed"
        reason = scenario.offline[str(scenario.path)]
        assert str(scenario.path) in reason, watch.failed
        assert os.strerror(errno.EIO) in reason or "cannot read" in reason, watch.failed
        survives(scenario)


def test_a_disk_that_fills_up_refuses_what_needs_room_and_loses_nothing(scratch: Path) -> None:
    for room in range(10, 6000, 197):
        scenario = Scenario(scratch / str(room))
        asyncio.run(scenario.run(SmallDisk(room)))
        assert not scenario.finished
        assert not scenario.offline
        assert "the disk is full" in scenario.refused
        survives(scenario)


def test_a_write_that_the_kernel_takes_in_pieces_is_completed(scratch: Path) -> None:
    class HesitantFiles(WatchedFiles):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int, /) -> int:
            return self.inner.pwrite(fd, data[: max(1, len(data) // 2)], position)

    scenario = Scenario(scratch / "run")
    asyncio.run(scenario.run(HesitantFiles(lambda *_: None, Unsynced())))
    assert scenario.finished
    survives(scenario)


def test_the_laws_of_this_file_can_be_broken() -> None:
    durable = Durable(0, 1, 0, {0: bytes(batch())})
    with pytest.raises(AssertionError, match="was flushed"):
        what_was_flushed_is_there(durable, {})
    with pytest.raises(AssertionError, match="is gone"):
        no_last_record_of_a_key_is_lost(durable, {})
