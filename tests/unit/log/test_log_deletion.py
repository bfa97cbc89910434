"""The deletion of whole logs: renamed at once, removed later, and gone from the checkpoints.

Many logs that are deleted together share flushes and checkpoints.
"""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leadline.log.log_deletion import PORTION
from leadline.log.log_dirs import LogDirs
from leadline.log.names import DirMark
from leadline.model import TopicPartition
from tests.support.dirs import OTHER, checkpoint, fill, log_dirs, opened, stopped
from tests.support.logs import TP, listing
from tests.support.waiting import eventually
from tests.support.watched_files import WatchedFiles

LATER = {"file.delete.delay.ms": "3600000"}
SOON = {"file.delete.delay.ms": "0"}
KEPT = TopicPartition("kept", 0)
MANY = [TopicPartition("many", n) for n in range(2 * PORTION + 1)]
RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def run(path: Path, test: Callable[[LogDirs], Awaitable[None]], topic: dict[str, str]) -> None:
    async def main() -> None:
        async with opened(log_dirs(path, topic=topic)) as dirs:
            for tp in (TP, OTHER):
                fill(await dirs.create(tp))
            await test(dirs)

    asyncio.run(main())


def folders(path: Path) -> list[str]:
    """The folders of logs, without the ids in their names."""
    names = {name.split("/")[0] for name in listing(path)}
    return sorted(
        f"{name.split('.')[0]}-{name.rpartition('-')[2]}" if "." in name else name
        for name in names
        if name.startswith("orders")
    )


def test_a_deleted_log_is_renamed_at_once_and_stays_readable_until_the_delay_is_over(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        log = dirs.logs[TP]
        await dirs.deletion.delete(TP)
        assert set(dirs.logs) == {OTHER}
        assert folders(tmp_path) == ["orders-0-delete", "orders-1"]
        assert Path(log.directory).name.endswith("-delete")
        assert (Path(log.directory) / "00000000000000000000.log").stat().st_size > 0

    run(tmp_path, test, LATER)


def test_its_folder_is_removed_once_the_delay_is_over(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        await dirs.deletion.delete(TP)
        await eventually(lambda: folders(tmp_path) == ["orders-1"])

    run(tmp_path, test, SOON)


def test_a_stray_log_is_renamed_and_never_removed(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        await dirs.deletion.delete(TP, mark=DirMark.STRAY)
        await dirs.deletion.delete(OTHER)
        await eventually(lambda: folders(tmp_path) == ["orders-0-stray"])

    run(tmp_path, test, SOON)


def test_a_deleted_log_leaves_the_checkpoints(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        (log_dir,) = dirs.dirs.values()
        await dirs.checkpoints.write_recovery_points(log_dir)
        assert TP in checkpoint(tmp_path, "recovery-point-offset-checkpoint")
        await dirs.deletion.delete(TP)
        assert list(checkpoint(tmp_path, "recovery-point-offset-checkpoint")) == [OTHER]

    run(tmp_path, test, LATER)


def test_the_partition_can_be_created_again_before_the_old_files_are_gone(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        await dirs.deletion.delete(TP)
        assert (await dirs.create(TP)).log_end == 0
        assert folders(tmp_path) == ["orders-0", "orders-0-delete", "orders-1"]

    run(tmp_path, test, LATER)


def test_a_partition_that_is_not_offline_is_left_alone(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        await dirs.deletion.delete_offline(TP)
        assert set(dirs.logs) == {TP, OTHER}

    run(tmp_path, test, SOON)


def test_an_offline_partition_is_renamed_and_removed(tmp_path: Path) -> None:
    async def main() -> None:
        await stopped(log_dirs(tmp_path))
        index = tmp_path / "orders-0" / "00000000000000000000.index"
        index.unlink()
        index.mkdir()
        async with opened(log_dirs(tmp_path, topic=LATER)) as dirs:
            (log_dir,) = dirs.dirs.values()
            assert list(log_dir.offline_logs) == [TP]
            await dirs.deletion.delete_offline(TP)
            assert log_dir.offline_logs == {}
            assert folders(tmp_path) == ["orders-0-delete", "orders-1"]

    asyncio.run(main())


def test_a_log_that_is_not_there_is_a_fault_of_the_caller(tmp_path: Path) -> None:
    async def test(dirs: LogDirs) -> None:
        with pytest.raises(KeyError):
            await dirs.deletion.delete(TP, future=True)

    run(tmp_path, test, LATER)


# Many at once


def test_the_logs_of_a_topic_are_deleted_with_one_checkpoint(tmp_path: Path) -> None:
    """Beside many others, a checkpoint after each of them would take the square of their number."""
    replaced: Counter[str] = Counter()

    def watch(operation: str, path: str) -> None:
        if operation == "rename":
            replaced[Path(path).name.removesuffix(".tmp")] += 1

    async def scenario() -> None:
        dirs = log_dirs(tmp_path, topic={"file.delete.delay.ms": "1"}, files=WatchedFiles(watch))
        async with opened(dirs):
            await dirs.create_all(dict.fromkeys([*MANY, KEPT]))
            fill(dirs.logs[KEPT])
            replaced.clear()
            assert await dirs.deletion.delete_all(MANY) == set()
            assert replaced[RECOVERY_POINTS] == 1
            assert list(dirs.logs) == [KEPT]
            assert set(checkpoint(tmp_path, RECOVERY_POINTS)) == {KEPT}
            await eventually(lambda: not any(name.startswith("many") for name in listing(tmp_path)))

    asyncio.run(scenario())


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_the_logs_of_a_directory_that_fails_are_named(tmp_path: Path, error: int) -> None:
    """Those of another directory are deleted. A shortage takes no directory offline."""
    one, two = tmp_path / "one", tmp_path / "two"
    is_broken = False

    def watch(operation: str, path: str) -> None:
        if is_broken and path.startswith(str(one)):
            raise OSError(error, os.strerror(error), path)

    async def scenario() -> None:
        nonlocal is_broken
        async with opened(log_dirs(one, two, files=WatchedFiles(watch))) as dirs:
            await dirs.create(TP, path=str(one))
            await dirs.create(KEPT, path=str(two))
            is_broken = True
            assert await dirs.deletion.delete_all([TP, KEPT]) == {TP}
            assert list(dirs.offline) == ([str(one)] if error == errno.EIO else [])
            assert not any(name == "kept-0" for name in listing(two))

    asyncio.run(scenario())
