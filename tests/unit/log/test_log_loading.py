"""Loading the logs of a directory: progress, partitions that cannot be read, a disk that fails."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest

from tests.support.dirs import OTHER, fill, log_dirs, opened, stopped
from tests.support.logs import TP, offsets_in, whole_log
from tests.support.waiting import until
from tests.support.watched_files import WatchedFiles

PATIENCE_S = 120


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return tmp_path / "two"


def test_after_a_crash_logs_are_recovered_and_progress_is_logged(one: Path) -> None:
    async def scenario() -> tuple[int, int, int, int]:
        async with opened(log_dirs(one)) as dirs:
            fill(await dirs.create(TP), 5)
            size = dirs.logs[TP].size
        async with opened(log_dirs(one)) as dirs:
            assert offsets_in(whole_log(dirs.logs[TP])) == [0, 1, 2, 3, 4]
            recovery = dirs.recovery
            assert recovery.bytes_total == size
            return recovery.logs, recovery.logs_done, recovery.bytes_read, size

    logs, done, read, size = asyncio.run(scenario())
    assert (logs, done, read) == (1, 1, size)


def test_a_partition_that_cannot_be_read_is_left_out_with_its_reason(one: Path) -> None:
    async def scenario() -> None:
        await stopped(log_dirs(one))
        (one / "orders-0" / "partition.metadata").write_text("version: 9\n")
        (one / "not ours").mkdir()
        async with opened(log_dirs(one)) as dirs:
            assert set(dirs.logs) == {OTHER}
            assert "version '9', expected 0" in str(dirs.offline_log(TP))

    asyncio.run(scenario())


def test_a_disk_that_fails_while_loading_does_not_stop_the_others(one: Path, two: Path) -> None:
    def watch(operation: str, path: str) -> None:
        if path.startswith(str(two)) and operation == "size":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def scenario() -> None:
        await stopped(log_dirs(one, two))
        async with opened(log_dirs(one, two, files=WatchedFiles(watch))) as dirs:
            assert list(dirs.dirs) == [str(one)]
            assert "failed while loading its logs" in dirs.offline[str(two)]
            assert len(dirs.logs) == 1

    asyncio.run(scenario())


def test_a_recovery_that_is_cancelled_ends_with_its_threads_and_the_next_one_is_whole(one: Path) -> None:
    reading, begun = threading.Event(), list[str]()
    dirs = log_dirs(one)

    def watch(operation: str, path: str) -> None:
        if operation == "populate":
            begun.append(path)
            reading.set()
            until(lambda: dirs.recovery.is_cancelled)

    async def scenario() -> None:
        async with opened(log_dirs(one)) as killed:
            for tp in (TP, OTHER):
                fill(await killed.create(tp), 5)
        dirs.files = WatchedFiles(watch)
        opening = asyncio.create_task(dirs.open())
        assert await asyncio.to_thread(reading.wait, PATIENCE_S)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert len(begun) == 1  # the other log is not begun, and no thread is left
        assert "log-recovery" not in " ".join(thread.name for thread in threading.enumerate())
        await dirs.close()
        assert list(dirs.not_closed.values()) == [f"log directory {one} was not loaded"]
        async with opened(log_dirs(one)) as again:
            assert [offsets_in(whole_log(again.logs[tp])) for tp in (TP, OTHER)] == [[0, 1, 2, 3, 4]] * 2

    asyncio.run(scenario())


@pytest.mark.parametrize("cleaner", ["true", "false"])
def test_the_checkpoint_files_are_there_from_the_start(one: Path, cleaner: str) -> None:
    """As in Kafka. They are empty until the first checkpoint; without a cleaner there is none of its."""

    async def scenario() -> dict[str, int]:
        async with opened(log_dirs(one, storage={"log.cleaner.enable": cleaner})):
            return sizes(one)

    expected = {"recovery-point-offset", "log-start-offset", "replication-offset"}
    expected |= {"cleaner-offset"} if cleaner == "true" else set()
    assert asyncio.run(scenario()) == {f"{name}-checkpoint": 0 for name in expected}


def sizes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in directory.glob("*-checkpoint")}
