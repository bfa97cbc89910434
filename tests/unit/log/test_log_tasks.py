"""What is done to logs now and then: each task does its work, again and again, and survives a failed directory."""

import asyncio
import errno
from pathlib import Path

from leadline.log.checkpoints import read_offsets
from leadline.log.log_tasks import LogTasks
from leadline.model import TopicPartition
from leadline.runtime.ports import OsFiles
from tests.support.dirs import fill, log_dirs, opened
from tests.support.logs import TP, ManualClock, batch
from tests.support.waiting import eventually
from tests.support.watched_files import Failing, WatchedFiles

OFTEN = {
    "log.initial.task.delay.ms": "1",
    "log.retention.check.interval.ms": "1",
    "log.flush.scheduler.interval.ms": "1",
    "log.flush.offset.checkpoint.interval.ms": "1",
    "log.flush.start.offset.checkpoint.interval.ms": "1",
    "producer.id.expiration.check.interval.ms": "1",
    "log.cleaner.backoff.ms": "1",
}


def offsets(path: Path, name: str) -> dict[TopicPartition, int]:
    return read_offsets(OsFiles(), str(path / name))


def test_every_task_does_its_work(tmp_path: Path) -> None:
    topic = {"segment.bytes": "100", "retention.ms": "1000", "flush.ms": "0"}
    clock = ManualClock()

    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=topic, storage=OFTEN, clock=clock)) as dirs:
            log = await dirs.create(TP)
            fill(log, 4)
            log.append_as_leader(batch(producer_id=5), 0)
            tasks = LogTasks(dirs)
            tasks.start()
            await eventually(lambda: log.flushed_to == 5)
            await eventually(lambda: offsets(tmp_path, "recovery-point-offset-checkpoint") == {TP: 5})
            log.delete_records(1)
            clock.ms += 1001
            await eventually(lambda: log.log_start == 4)
            clock.ms += 90_000_000
            await eventually(lambda: not log.producer_state.by_id)
            await tasks.stop()

    asyncio.run(scenario())


def test_the_flusher_flushes_what_was_not_flushed_for_flush_ms(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic={"flush.ms": "1000"}, clock=clock)) as dirs:
            log, tasks = await dirs.create(TP), LogTasks(dirs)
            fill(log, 4)
            for passed_ms, flushed_to in ((999, 0), (1, 4)):
                clock.ms += passed_ms
                await tasks.flush_dirty()
                await dirs.dir_of(log).disk.drain()
                assert log.recovery_point == flushed_to
            assert log.durable_end == 4

    asyncio.run(scenario())


def test_log_starts_are_checkpointed_where_the_files_do_not_tell(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, storage=OFTEN)) as dirs:
            log = await dirs.create(TP)
            fill(log, 4)
            log.delete_records(3)
            tasks = LogTasks(dirs)
            tasks.start()
            await eventually(lambda: offsets(tmp_path, "log-start-offset-checkpoint") == {TP: 3})
            await tasks.stop()

    asyncio.run(scenario())


def test_a_compacted_log_is_cleaned(tmp_path: Path) -> None:
    async def scenario() -> None:
        topic = {"cleanup.policy": "compact"}
        async with opened(log_dirs(tmp_path, topic=topic, storage=OFTEN)) as dirs:
            log = await dirs.create(TP)
            fill(log, 4)
            log.roll()
            size = log.size
            tasks = LogTasks(dirs)
            tasks.start()
            await eventually(lambda: log.size < size)
            await eventually(lambda: offsets(tmp_path, "cleaner-offset-checkpoint") == {TP: 4})
            await tasks.stop()

    asyncio.run(scenario())


def test_the_failure_of_a_directory_ends_none_of_it(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    watch = Failing(10**9, errno.EIO, only=["fsync"])

    async def scenario() -> None:
        topic = {"retention.ms": "1000", "segment.bytes": "100", "flush.ms": "0", "cleanup.policy": "compact,delete"}
        dirs = log_dirs(one, two, topic=topic, storage=OFTEN, files=WatchedFiles(watch))
        async with opened(dirs):
            bad, good = await dirs.create(TP, path=str(one)), await dirs.create(TopicPartition("b", 0), path=str(two))
            tasks = LogTasks(dirs)
            tasks.start()
            bad.offline = True
            fill(good, 2)
            await eventually(lambda: good.flushed_to == 2)
            watch.left = 1
            fill(good, 1)
            await eventually(lambda: len(dirs.dirs) == 1)
            checkpoint = Path(*dirs.dirs) / "recovery-point-offset-checkpoint"
            await eventually(checkpoint.exists)
            written = {checkpoint.stat().st_mtime_ns}
            await eventually(
                lambda: len(written | {checkpoint.stat().st_mtime_ns}) > 1
            )  # it is replaced: the tasks go on
            running = [task.get_name() for task in asyncio.all_tasks()]
            for name in ("kafka-log-retention", "kafka-log-flusher", "producer-id-expiration", "kafka-log-cleaner-0"):
                assert name in running
            await tasks.stop()

    asyncio.run(scenario())


def test_index_entries_are_in_their_file_before_long(tmp_path: Path) -> None:
    """For readers such as dump-log: Kafka has them there at once."""

    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic={"index.interval.bytes": "0"}, storage=OFTEN)) as dirs:
            log = await dirs.create(TP)
            fill(log, 4)
            index = Path(log.segments.active.offset_index.path)
            assert log.segments.active.offset_index.count == 3
            tasks = LogTasks(dirs)
            tasks.start()
            await eventually(lambda: index.stat().st_size == 3 * 8)
            assert not dirs.unindexed
            await tasks.stop()

    asyncio.run(scenario())


def test_index_entries_of_a_deleted_log_are_not_written(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic={"index.interval.bytes": "0"})) as dirs:
            log = await dirs.create(TP)
            fill(log, 4)
            dirs.logs.pop(TP)
            tasks = LogTasks(dirs)
            await tasks.write_index_entries()
            assert log.segments.active.has_unwritten_entries
            assert not dirs.unindexed
            dirs.logs[TP] = log

    asyncio.run(scenario())
