"""The checkpoints of the log directories: when they are written, what they keep, and damaged ones."""

import asyncio
from pathlib import Path

import pytest

from leadline.errors import StorageError
from tests.support.dirs import OTHER, checkpoint, fill, log_dirs, opened, stopped
from tests.support.logs import TP, listing
from tests.support.watched_files import WatchedFiles

PATIENCE_S = 120
MARK = ".kafka_cleanshutdown"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


@pytest.mark.parametrize("clean", [True, False])
def test_what_checkpoints_say_of_a_partition_that_is_offline_stays_until_it_is_mended(one: Path, clean: bool) -> None:
    async def scenario() -> None:
        dirs = log_dirs(one)
        await dirs.open()
        fill(await dirs.create(TP), 5)
        fill(await dirs.create(OTHER), 2)
        dirs.logs[TP].delete_records(3)
        await dirs.close()
        metadata = one / "orders-0" / "partition.metadata"
        metadata.write_text("version: 9\n")
        if not clean:
            (one / MARK).unlink()
        for _ in range(2):
            dirs = log_dirs(one)
            await dirs.open()
            with pytest.raises(StorageError, match=r"orders-0 is offline: .*partition\.metadata.* remove this file"):
                await dirs.create(TP)
            await dirs.create_all({TP: None, OTHER: None})
            assert set(dirs.logs) == {OTHER}
            await dirs.close()
        metadata.unlink()
        async with opened(log_dirs(one)) as again:
            assert (again.logs[TP].log_start, again.logs[TP].log_end, again.logs[TP].high_watermark) == (3, 5, 5)

    asyncio.run(scenario())


def test_recovery_points_are_checkpointed_when_a_segment_that_was_rolled_is_flushed(one: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one, topic={"segment.bytes": "300"})) as dirs:
            fill(await dirs.create(TP), 20)
            (disk,) = [log_dir.disk for log_dir in dirs.dirs.values()]
            base = dirs.logs[TP].segments.active.base_offset
            async with asyncio.timeout(120):
                while checkpoint(one, "recovery-point-offset-checkpoint").get(TP) != base:
                    await disk.drain()
            assert base > 10
        async with opened(log_dirs(one, topic={"segment.bytes": "300"})) as dirs:
            assert dirs.recovery.bytes_read == dirs.logs[TP].segments.active.size, "older segments are not read"

    asyncio.run(scenario())


def test_one_checkpoint_holds_what_was_flushed_while_the_one_before_was_written(one: Path) -> None:
    written = list[str]()

    def watch(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("recovery-point-offset-checkpoint.tmp"):
            written.append(path)

    async def scenario() -> None:
        async with opened(log_dirs(one, topic={"segment.bytes": "100"}, files=WatchedFiles(watch))) as dirs:
            log = await dirs.create(TP)
            fill(log, 50)
            await dirs.dirs[str(one)].disk.drain()
            for _ in range(3):
                await dirs.dirs[str(one)].disk.drain()
            assert checkpoint(one, "recovery-point-offset-checkpoint") == {TP: 49}

    asyncio.run(scenario())
    assert 1 <= len(written) <= 3


def test_damaged_checkpoints_cost_time_and_no_records(one: Path) -> None:
    async def scenario() -> None:
        await stopped(log_dirs(one))
        for name in listing(one):
            if name.endswith("checkpoint"):
                (one / name).write_text("garbage")
        async with opened(log_dirs(one)) as dirs:
            assert (dirs.logs[TP].log_end, dirs.logs[TP].high_watermark) == (3, 0)

    asyncio.run(scenario())
