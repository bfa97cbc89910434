"""Log directories: locked, loaded in parallel, checkpointed, and taken offline one by one."""

import asyncio
import errno
import os
import re
from pathlib import Path
from unittest import mock

import pytest

from leadline.errors import UNUSABLE_DIR_REMEDY, UNUSABLE_REMEDY, CorruptFile, LogDirFailed, StorageError
from leadline.log.names import DirMark
from leadline.model import TopicPartition
from tests.support.dirs import OTHER, checkpoint, fill, log_dirs, opened, stopped
from tests.support.logs import TP, batch, listing, offsets_in, whole_log
from tests.support.waiting import eventually, until
from tests.support.watched_files import Failing, WatchedFiles

PATIENCE_S = 120
MARK = ".kafka_cleanshutdown"


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return tmp_path / "two"


# Starting and stopping


def test_a_clean_stop_leaves_checkpoints_and_the_mark_and_is_found_again(one: Path) -> None:
    async def scenario() -> tuple[bool, int | None, dict[TopicPartition, tuple[int, int, int]]]:
        await stopped(log_dirs(one))
        assert (one / MARK).exists()
        async with opened(log_dirs(one)) as dirs:
            (log_dir,) = dirs.dirs.values()
            offsets = {tp: (log.log_end, log.recovery_point, log.high_watermark) for tp, log in dirs.logs.items()}
            assert not (one / MARK).exists()
            return log_dir.was_clean, log_dir.broker_epoch, offsets

    assert asyncio.run(scenario()) == (True, 7, {TP: (3, 3, 3), OTHER: (2, 2, 2)})
    assert checkpoint(one, "recovery-point-offset-checkpoint") == {TP: 3, OTHER: 2}
    assert checkpoint(one, "replication-offset-checkpoint") == {TP: 3, OTHER: 2}


@pytest.mark.parametrize("has_lock", [False, True])
def test_a_lock_that_cannot_be_opened_is_the_fault_of_the_directory_if_it_is_new(one: Path, has_lock: bool) -> None:
    one.mkdir()
    if has_lock:
        (one / ".lock").touch()

    def watch(operation: str, path: str) -> None:
        if operation == "open":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    remedy = UNUSABLE_REMEDY if has_lock else UNUSABLE_DIR_REMEDY
    with pytest.raises(LogDirFailed, match=rf"\.lock'; {re.escape(remedy)}$"):
        asyncio.run(log_dirs(one, files=WatchedFiles(watch)).open())


def test_a_directory_that_cannot_be_used_does_not_stop_the_others(one: Path, two: Path) -> None:
    two.write_text("not a directory")

    async def scenario() -> None:
        await stopped(log_dirs(one))
        async with opened(log_dirs(two, one)) as dirs:
            assert list(dirs.dirs) == [str(one)]
            assert "failed while opening it" in dirs.offline[str(two)]
            assert dirs.offline[str(two)].endswith(UNUSABLE_DIR_REMEDY)
            assert set(dirs.logs) == {TP, OTHER}
            with pytest.raises(StorageError, match="it is offline"):
                await dirs.create(TopicPartition("x", 0), path=str(two))
            with pytest.raises(StorageError, match=r"is not one of log\.dirs"):
                await dirs.create(TopicPartition("x", 0), path="/elsewhere")

    asyncio.run(scenario())


def test_a_start_without_a_usable_directory_fails_with_the_reasons(one: Path, two: Path) -> None:
    one.write_text("")
    two.write_text("")
    with pytest.raises(LogDirFailed, match=r"opening all of them: .*one failed.*two failed"):
        asyncio.run(log_dirs(one, two).open())


def test_a_partition_that_is_offline_can_be_deleted_with_whatever_lies_in_it(one: Path) -> None:
    async def scenario() -> None:
        await stopped(log_dirs(one))
        index = one / "orders-0" / "00000000000000000000.index"
        index.unlink()
        (index / "deeper").mkdir(parents=True)
        (one / "orders-0" / "link").symlink_to(one)
        async with opened(log_dirs(one, topic={"file.delete.delay.ms": "0"})) as dirs:
            assert set(dirs.logs) == {OTHER}
            await dirs.deletion.delete_offline(TP)
            assert dirs.offline_log(TP) is None
            await eventually(lambda: not any(name.startswith("orders-0") for name in listing(one)))
            assert (await dirs.create(TP)).log_end == 0

    asyncio.run(scenario())


def test_a_directory_that_fails_while_the_others_are_already_closed_is_not_the_last_one(one: Path, two: Path) -> None:
    left: list[list[str]] = []

    async def scenario() -> None:
        dirs = log_dirs(one, two)
        await dirs.open()
        dirs.on_offline.append(lambda gone: left.append(list(dirs.dirs)))

        def lose_it_after_the_other_is_closed() -> None:
            until(lambda: dirs.dirs[str(one)].disk._stopped)
            assert (one / MARK).exists()
            two.rename(two.with_name("elsewhere"))

        dirs.dirs[str(two)].disk.run("waiting", lose_it_after_the_other_is_closed, lambda _: None)
        await dirs.close()
        assert list(dirs.not_closed) == [str(two)]
        assert not dirs.dirs

    asyncio.run(scenario())
    assert left == [[str(one)]]
    assert (one / MARK).exists()


@pytest.mark.parametrize("clean", [True, False])
def test_the_mark_is_not_set_where_a_log_that_crashed_was_not_recovered(one: Path, clean: bool) -> None:
    async def scenario() -> None:
        if clean:
            await stopped(log_dirs(one))
        else:
            async with opened(log_dirs(one)) as dirs:
                fill(await dirs.create(TP))
        (one / "orders-0" / "partition.metadata").write_text("version: 9\n")
        dirs = log_dirs(one)
        await dirs.open()
        await dirs.close()
        assert list(dirs.not_closed) == ([] if clean else [str(one)])
        assert clean or "were not recovered: orders-0" in dirs.not_closed[str(one)]

    asyncio.run(scenario())
    assert (one / MARK).exists() is clean


# The lock


# Creating, deleting, moving


@pytest.mark.parametrize(("mark", "kept"), [(DirMark.DELETE, False), (DirMark.STRAY, True)])
def test_a_deleted_log_is_renamed_then_removed_and_a_stray_one_stays(one: Path, mark: DirMark, kept: bool) -> None:
    async def scenario() -> None:
        dirs = log_dirs(one, topic={"file.delete.delay.ms": "777"})
        await dirs.open()
        fill(await dirs.create(TP))
        with mock.patch.object(dirs.dirs[str(one)].disk, "later") as later:
            await dirs.deletion.delete(TP, mark=mark)
        assert TP not in dirs.logs
        assert checkpoint(one, "recovery-point-offset-checkpoint") == {}
        (left,) = [name for name in listing(one) if name.startswith("orders")]
        assert left.endswith(f"-{mark}")
        for delay_ms, remove in (call.args for call in later.call_args_list):
            assert delay_ms == 777
            remove()
        await dirs.close()

    asyncio.run(scenario())
    assert any(name.startswith("orders") for name in listing(one)) is kept


def test_a_log_on_its_way_out_is_removed_after_a_restart(one: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one)) as dirs:
            fill(await dirs.create(TP))
            await dirs.deletion.delete(TP)
        async with opened(log_dirs(one, topic={"file.delete.delay.ms": "1"})) as dirs:
            assert not dirs.logs
            await eventually(lambda: not any(name.startswith("orders") for name in listing(one)))

    asyncio.run(scenario())


def test_a_replica_that_moved_takes_the_place_of_the_old_one(one: Path, two: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one, two)) as dirs:
            current = await dirs.create(TP, path=str(one))
            fill(current)
            moved = await dirs.create(TP, path=str(two), future=True)
            assert Path(moved.directory).name.endswith("-future")
            moved.append_as_follower(whole_log(current))
            await dirs.replace_with_future(TP)
            assert dirs.logs[TP] is moved
            assert not dirs.future
            assert (moved.directory, moved.high_watermark) == (str(two / "orders-0"), 3)
            assert moved.flushed_to == 3, "what was flushed in the old place is so in the new one"
            assert listing(two / "orders-0")
            moved.append_as_leader(batch(), 0)
        assert not (one / "orders-0").exists()
        assert checkpoint(two, "recovery-point-offset-checkpoint") == {TP: 3}

    asyncio.run(scenario())


def test_a_crash_in_the_middle_of_a_move_leaves_a_replica_in_its_place(one: Path, two: Path) -> None:
    renamed = list[str]()

    def watch(operation: str, path: str) -> None:
        if operation == "rename" and Path(path).name.startswith("orders"):
            renamed.append(path)
            if len(renamed) == 2:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def scenario() -> None:
        async with opened(log_dirs(one, two, files=WatchedFiles(watch))) as dirs:
            fill(await dirs.create(TP, path=str(one)))
            moved = await dirs.create(TP, path=str(two), future=True)
            moved.append_as_follower(whole_log(dirs.logs[TP]))
            with pytest.raises(LogDirFailed):
                await dirs.replace_with_future(TP)
        async with opened(log_dirs(one, two)) as dirs:
            assert offsets_in(whole_log(dirs.logs[TP])) == [0, 1, 2]

    asyncio.run(scenario())


# Truncation


# Failing


def test_a_failed_fsync_takes_the_directory_offline_for_good(one: Path, two: Path) -> None:
    watch = Failing(10**9, errno.EIO, only=["fsync"])

    async def scenario() -> None:
        offline = list[tuple[list[str], list[TopicPartition]]]()
        dirs = log_dirs(one, two, files=WatchedFiles(watch))
        await dirs.open()
        dirs.on_offline.append(lambda partitions: offline.append((list(dirs.offline), partitions)))
        log, other = await dirs.create(TP, path=str(one)), await dirs.create(OTHER, path=str(two))
        fill(log)
        fill(other)
        for log_dir in dirs.dirs.values():
            await log_dir.disk.drain()
        disk, watch.left = dirs.dirs[str(one)].disk, 1
        log.flush()
        await disk.drain()
        assert (log.flushed_to, log.offline, offline) == (0, True, [([str(one)], [TP])])
        with pytest.raises(StorageError, match="orders-0 is offline"):
            log.append_as_leader(batch(), 0)
        with pytest.raises(StorageError, match=r"is offline: log directory .*one failed"):
            dirs.dir_of(log)
        failed = len(watch.failed)
        log.flush()
        fill(other)
        await dirs.close()
        assert len(watch.failed) == failed == 1, "nothing is tried again"

    asyncio.run(scenario())
    assert not (one / MARK).exists()
    assert (two / MARK).exists()


@pytest.mark.parametrize("flushed", [True, False])
def test_a_damaged_log_goes_offline_alone_and_its_checkpoints_stay(one: Path, flushed: bool) -> None:
    async def scenario() -> None:
        offline = list[TopicPartition]()
        dirs = log_dirs(one)
        await dirs.open()
        dirs.on_offline.append(offline.extend)
        log, other = await dirs.create(TP), await dirs.create(OTHER)
        fill(log)
        fill(other, 2)
        if flushed:
            log.flush()
            await dirs.dirs[str(one)].disk.drain()
        error = CorruptFile(log.segments.active.path(".log"), 7, "nonsense", "a cure")
        for _ in range(2):  # the second time changes nothing
            dirs.take_log_offline(log, error)
        assert (offline, log.offline, list(dirs.logs), list(dirs.dirs)) == ([TP], True, [OTHER], [str(one)])
        with pytest.raises(StorageError, match=r"orders-0 is offline: .*at byte 7: nonsense.* a cure"):
            dirs.check_usable(TP)
        await dirs.close()

    asyncio.run(scenario())
    assert checkpoint(one, "recovery-point-offset-checkpoint") == {TP: 3 if flushed else 0, OTHER: 2}
    assert checkpoint(one, "replication-offset-checkpoint") == {TP: 3, OTHER: 2}
    assert (one / MARK).exists() is flushed, "what was not flushed must be recovered"


@pytest.mark.parametrize(
    ("code", "is_offline", "reason"),
    [
        (errno.EIO, True, "failed while reading orders-0"),
        (errno.EACCES, False, "make it a file that this user can read"),
    ],
)
def test_a_log_that_cannot_be_read_goes_offline_alone_unless_the_disk_failed(
    one: Path, two: Path, code: int, is_offline: bool, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one, two)) as dirs:
            log, other = await dirs.create(TP, path=str(one)), await dirs.create(OTHER, path=str(one))
            log.failed("reading", OSError(code, os.strerror(code), "a file"))
            assert (log.offline, other.offline, str(one) in dirs.offline) == (True, is_offline, is_offline)

    asyncio.run(scenario())
    assert reason in caplog.text


def test_a_stop_that_fails_leaves_no_mark(one: Path) -> None:
    async def scenario() -> None:
        dirs = log_dirs(one, files=WatchedFiles(watch))
        await dirs.open()
        fill(await dirs.create(TP))
        await dirs.dirs[str(one)].disk.drain()
        watch.left = 1
        await dirs.close()

    watch = Failing(10**9, errno.EIO, only=["fsync"])
    asyncio.run(scenario())
    assert watch.failed
    assert not (one / MARK).exists()


def test_settings_that_change_are_obeyed_from_then_on(one: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one)) as dirs:
            log = await dirs.create(TP)
            changed = log_dirs(one, topic={"segment.bytes": "100"}).topic_config
            dirs.topic_config = changed
            dirs.update_config("else")
            assert log.config.segment_bytes != 100
            dirs.update_config("orders")
            fill(log, 2)
            assert log.segments.bases == [0, 1]

    asyncio.run(scenario())


def test_meta_properties_are_kept_in_every_directory(one: Path, two: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one, two)) as dirs:
            await dirs.write_meta_properties({"broker.id": "3"})
            assert dirs.meta_properties() == {str(path): {"broker.id": "3"} for path in (one, two)}

    asyncio.run(scenario())
