"""Which log is compacted next, and the process that does it: its end, its failure, its pauses."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from leadline.errors import LogDirFailed
from leadline.log.checkpoints import read_offsets
from leadline.log.cleaner import Cleaner, LogToClean, cleanable, filthiest
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicPartition
from leadline.runtime.ports import OsFiles
from tests.support.dirs import fill, log_dirs, opened
from tests.support.logs import START_MS, TP, LogBench, batch, listing, offsets_in, whole_log
from tests.support.waiting import eventually

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1000"}
OTHER = TopicPartition("other", 0)
PATIENCE_S = 120


def segments(log: Log, *batches: int) -> None:
    """Closed ones with so many batches each, and an active one."""
    for count in batches:
        fill(log, count)
        log.roll()


# Decisions


def test_cleaning_starts_at_the_checkpoint_and_leaves_the_active_segment(tmp_path: Path) -> None:
    log = LogBench(tmp_path, COMPACT).open()
    segments(log, 2, 2)
    fill(log, 5)
    size = log.segments.first.size
    assert cleanable(log, None, START_MS) == LogToClean(log, 0, 4, 0, 2 * size, False)
    assert cleanable(log, 2, START_MS) == LogToClean(log, 2, 4, size, size, False)
    assert cleanable(log, 99, START_MS) == LogToClean(log, 0, 4, 0, 2 * size, False), (
        "the checkpoint is from before a truncation"
    )


def test_an_empty_log_needs_no_cleaning(tmp_path: Path) -> None:
    assert cleanable(LogBench(tmp_path, COMPACT).open(), None, START_MS) is None


def test_nothing_beyond_the_last_stable_offset_is_cleaned(tmp_path: Path) -> None:
    log = LogBench(tmp_path, COMPACT).open()
    segments(log, 2)
    log.append_as_leader(batch(producer_id=1, transactional=True), 0)
    log.advance_high_watermark(log.log_end)
    segments(log, 2)
    target = cleanable(log, None, START_MS)
    assert target is not None
    assert target.first_uncleanable == 2


@pytest.mark.parametrize(("age_ms", "first_uncleanable"), [(0, 0), (1000, 2), (9999, 4)])
def test_young_records_are_left_alone(tmp_path: Path, age_ms: int, first_uncleanable: int) -> None:
    log = LogBench(tmp_path, {**COMPACT, "min.compaction.lag.ms": "1000"}).open()
    for timestamp in (START_MS, START_MS + 500):
        for _ in range(2):
            log.append_as_leader(batch(timestamp=timestamp), 0)
        log.roll()
    log.advance_high_watermark(log.log_end)
    target = cleanable(log, None, START_MS + age_ms)
    assert (target.first_uncleanable if target else 0) == first_uncleanable


@pytest.mark.parametrize(("age_ms", "due"), [(1000, False), (1001, True)])
def test_a_record_that_waits_too_long_makes_a_log_due(tmp_path: Path, age_ms: int, due: bool) -> None:
    settings = {**COMPACT, "max.compaction.lag.ms": "1000", "min.cleanable.dirty.ratio": "1.0"}
    log = LogBench(tmp_path, settings).open()
    segments(log, 2)
    target = cleanable(log, None, START_MS + age_ms)
    assert target is not None
    assert (target.overdue, target.due) == (due, due)


def test_the_filthiest_of_those_that_are_due_comes_first(tmp_path: Path) -> None:
    log = LogBench(tmp_path, COMPACT).open()
    tidy, dirty, filthy = (LogToClean(log, 0, 9, 100 - share, share, False) for share in (50, 60, 70))
    assert filthiest([dirty, filthy, tidy]) is filthy
    assert filthiest([tidy]) is None
    assert filthiest([]) is None


# Passes


def test_a_pass_in_a_process_of_its_own_leaves_the_last_of_each_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            log = await dirs.create(TP)
            segments(log, 3, 3)
            fill(log, 1)
            cleaner = Cleaner(dirs)
            assert await cleaner.clean_filthiest()
            assert offsets_in(whole_log(log)) == [5, 6]
            assert not cleaner.uncleanable
            assert not cleaner.dirs.cleaning.by_partition
            assert not await cleaner.clean_filthiest(), "it is clean now"
            assert log.read(0, 999).slice is not None
        assert read_offsets(OsFiles(), str(tmp_path / "cleaner-offset-checkpoint")) == {TP: 6}
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            assert offsets_in(whole_log(dirs.logs[TP])) == [5, 6]

    asyncio.run(scenario())


def test_logs_that_are_not_compacted_or_offline_are_no_candidates(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic={"segment.bytes": "1000"})) as dirs:
            segments(await dirs.create(TP), 3)
            assert not await Cleaner(dirs).clean_filthiest()

    asyncio.run(scenario())


@contextlib.contextmanager
def stuck_process() -> Iterator[None]:
    """In the place of the real one: writes half a segment, then sleeps."""
    program = (
        "import json, sys, time\n"
        "request = json.load(sys.stdin)\n"
        "open(request['directory'] + '/00000000000000000000.log.cleaned', 'w').write('half')\n"
        "time.sleep(600)\n"
    )
    real = asyncio.create_subprocess_exec

    def start(executable: str, *_: str, **options: int) -> object:
        return real(executable, "-c", program, **options)  # type: ignore[arg-type]

    with mock.patch("asyncio.create_subprocess_exec", start):
        yield


async def stuck(dirs: LogDirs, cleaner: Cleaner) -> "asyncio.Task[bool]":
    task = asyncio.create_task(cleaner.clean_filthiest())
    cleaned = Path(dirs.logs[TP].directory) / "00000000000000000000.log.cleaned"
    await eventually(cleaned.exists)
    return task


def test_a_truncation_ends_a_pass_and_leaves_no_trace_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            log = await dirs.create(TP)
            segments(log, 3, 3)
            cleaner = Cleaner(dirs)
            with stuck_process():
                task = await stuck(dirs, cleaner)
                assert TP in cleaner.dirs.cleaning.by_partition
                await dirs.truncation.truncate_to(TP, 4)
                await task
            assert not cleaner.dirs.cleaning.by_partition
            assert not cleaner.uncleanable, "it was ended on purpose"
            assert not any(name.endswith(".cleaned") for name in listing(Path(log.directory)))
            assert offsets_in(whole_log(log)) == [0, 1, 2, 3]
            assert await cleaner.clean_filthiest(), "and can be cleaned again"

    asyncio.run(scenario())


def test_while_it_is_paused_a_log_is_not_cleaned(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            segments(await dirs.create(TP), 3)
            cleaner = Cleaner(dirs)
            async with cleaner.dirs.cleaning.paused(TP), cleaner.dirs.cleaning.paused(TP):
                assert not await cleaner.clean_filthiest()
            assert await cleaner.clean_filthiest()

    asyncio.run(scenario())


def test_stopping_ends_a_pass(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            segments(await dirs.create(TP), 3)
            cleaner = Cleaner(dirs)
            with stuck_process():
                task = await stuck(dirs, cleaner)
                await asyncio.wait_for(cleaner.stop(), 10)
                await task
            assert not cleaner.dirs.cleaning.by_partition

    asyncio.run(scenario())


def test_a_pass_that_is_cancelled_twice_is_over(tmp_path: Path) -> None:
    """The second time while it waits for the end of its process."""

    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            segments(await dirs.create(TP), 3)
            cleaner = Cleaner(dirs)
            with stuck_process():
                task = await stuck(dirs, cleaner)
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await asyncio.wait_for(cleaner.stop(), 10)
            assert not cleaner.dirs.cleaning.by_partition

    asyncio.run(scenario())


def with_another_end(path: Path) -> bytes:
    data = path.read_bytes()[:-1] + b"?"
    path.write_bytes(data)
    return data


def test_a_log_that_cannot_be_cleaned_is_named_and_left_and_others_go_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(tmp_path, topic=COMPACT)) as dirs:
            damaged, sound = await dirs.create(TP), await dirs.create(OTHER)
            segments(damaged, 4)
            segments(sound, 2)
            path = Path(damaged.segments.first.file.path)
            before = with_another_end(path)
            cleaner = Cleaner(dirs)
            assert await cleaner.clean_filthiest()
            assert await cleaner.clean_filthiest()
            assert not await cleaner.clean_filthiest()
            assert "CRC" in cleaner.uncleanable[TP]
            assert str(path) in cleaner.uncleanable[TP]
            assert whole_log(damaged)[: len(before)] == before
            assert offsets_in(whole_log(sound)) == [1]
            assert not any(name.endswith(".cleaned") for name in listing(path.parent))

    asyncio.run(scenario())


def test_the_failure_of_a_directory_does_not_end_the_cleaner(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"

    async def scenario() -> None:
        dirs = log_dirs(one, two, topic=COMPACT, storage={"log.cleaner.backoff.ms": "1"})
        async with opened(dirs):
            await dirs.create(TP, path=str(one))
            log = await dirs.create(OTHER, path=str(two))
            cleaner = Cleaner(dirs)
            looked = asyncio.Semaphore(0)

            async def failing_once() -> dict[TopicPartition, int]:
                looked.release()
                if task.get_name() == "first":
                    task.set_name("later")
                    raise LogDirFailed(str(one), "reading", OSError())
                return {}

            with mock.patch.object(dirs.checkpoints, "cleaned_offsets", failing_once):
                task = asyncio.create_task(cleaner.run(0), name="first")
                for _ in range(3):
                    await asyncio.wait_for(looked.acquire(), 10)
                assert not task.done()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert not log.offline

    asyncio.run(scenario())


def test_old_segments_of_compacted_logs_go_here(tmp_path: Path) -> None:
    async def scenario() -> None:
        topic = {"cleanup.policy": "compact,delete", "segment.bytes": "1000", "retention.bytes": "0"}
        async with opened(log_dirs(tmp_path, topic=topic)) as dirs:
            log = await dirs.create(TP)
            segments(log, 2, 2)
            await Cleaner(dirs).clean_filthiest()
            assert log.log_start == 4

    asyncio.run(scenario())
