"""Truncation of logs: durable at each step."""

import asyncio
from pathlib import Path

import pytest

from leadline.model import TopicPartition
from tests.support.dirs import checkpoint, fill, log_dirs, opened
from tests.support.logs import TP, offsets_in, whole_log
from tests.support.watched_files import WatchedFiles


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


def test_a_truncation_lowers_the_recovery_checkpoint_durably_first(one: Path) -> None:
    at_the_cut = list[dict[TopicPartition, int]]()

    def watch(operation: str, path: str) -> None:
        if operation == "ftruncate" and path.endswith(".log"):
            at_the_cut.append(checkpoint(one, "recovery-point-offset-checkpoint"))

    async def scenario() -> None:
        async with opened(log_dirs(one, files=WatchedFiles(watch))) as dirs:
            log = await dirs.create(TP)
            fill(log, 5)
            log.flush()
            (log_dir,) = dirs.dirs.values()
            await log_dir.disk.drain()
            await dirs.checkpoints.write_recovery_points(log_dir)
            assert checkpoint(one, "recovery-point-offset-checkpoint") == {TP: 5}
            assert await dirs.truncation.truncate_to(TP, 2)
            assert (log.log_end, log.flushed_to) == (2, 2), "and it is on disk before anything is written anew"

    asyncio.run(scenario())
    assert at_the_cut[0] == {TP: 2}


def test_a_truncation_below_the_logs_start_is_not_undone_by_an_old_checkpoint(one: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one)) as dirs:
            log = await dirs.create(TP)
            fill(log, 9)
            log.delete_records(8)
            (log_dir,) = dirs.dirs.values()
            await dirs.checkpoints.write_log_starts(log_dir)
            await dirs.truncation.truncate_to(TP, 4)
            fill(log, 2)
            log.flush()
            await log_dir.disk.drain()
            assert log.flushed_to == 6
        async with opened(log_dirs(one)) as dirs:
            assert offsets_in(whole_log(dirs.logs[TP])) == [0, 1, 2, 3, 4, 5]

    asyncio.run(scenario())
