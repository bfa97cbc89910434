"""A power failure behind every operation of a compaction and of a roll: the records from before or from after."""

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from leadline.log.log_dirs import LogDirs
from leadline.log.recovery import resolve_leftovers
from leadline.model import Offset, TopicPartition
from leadline.records.record import Record
from leadline.runtime.ports import Files
from tests.fault.crash_run import (
    ORDERS,
    PROFILES,
    abandon,
    batches_in,
    compacting,
    last_of_keys,
    open_dirs,
    without_threads,
)
from tests.support.crash_disk import CrashDisk, Renamed, Synced, Unsynced
from tests.support.logs import batch, records_in


def records(dirs: LogDirs, tp: TopicPartition, files: Files) -> list[Record]:
    return [record for _, data in batches_in(dirs.logs[tp], files) for record in records_in(data)]


async def records_after_restart(path: Path, tp: TopicPartition) -> list[Record]:
    with without_threads():
        dirs = open_dirs(path, Unsynced())
        await dirs.open()
        stored = records(dirs, tp, Unsynced())
        abandon(dirs)
    return stored


async def filled(run: Path, tp: TopicPartition, keys: str) -> tuple[LogDirs, CrashDisk]:
    disk = CrashDisk(run)
    dirs = open_dirs(run, disk)
    await dirs.open()
    log = await dirs.create(tp)
    for key in keys:
        log.append_as_leader(batch(key=key, size=150), 0)
    log.advance_high_watermark(log.log_end)
    log.flush()
    await dirs.dir_of(log).disk.drain()
    return dirs, disk


class Compacted:
    """A log whose segments became fewer, and how it looked behind each group that was swapped in."""

    def __init__(self, run: Path) -> None:
        self.stages: list[list[Record]] = []
        asyncio.run(self._play(run))

    async def _play(self, run: Path) -> None:
        with without_threads():
            dirs, self.disk = await filled(run, PROFILES, "ab")
            log = dirs.logs[PROFILES]
            for key in "abcabcaabc":  # small segments, of which several become one
                log.roll()
                log.append_as_leader(batch(key=key, size=150), 0)
            log.advance_high_watermark(log.log_end)
            log.flush()
            await dirs.dir_of(log).disk.drain()
            self.started = len(self.disk.journal)
            self.stages.append(records(dirs, PROFILES, self.disk))
            async for _ in compacting(dirs, log, self.disk):
                self.stages.append(records(dirs, PROFILES, self.disk))
            abandon(dirs)


def test_a_crash_anywhere_in_a_compaction_leaves_the_old_records_or_the_new(scratch: Path) -> None:
    """Of a group, that is; and a segment of which nothing was kept may come back whole, as in Apache Kafka."""
    done = Compacted(scratch / "run")
    assert len(done.stages) > 2, "the log has to be swapped group by group"
    counts = set()
    for operations in range(done.started, len(done.disk.journal) + 1):
        left = scratch / str(operations)
        done.disk.after_power_failure(left, operations, Random(operations))
        recovered = asyncio.run(records_after_restart(left, PROFILES))
        assert [record for record in done.stages[0] if record in recovered] == recovered, "in order, each once"
        assert recovered == done.stages[0] or any(
            set(after) <= set(recovered) < set(before) for before, after in pairwise(done.stages)
        ), f"behind operation {operations}"
        counts.add(len(recovered))
    assert {len(stage) for stage in done.stages} <= counts


def test_a_compaction_on_a_disk_that_reorders_loses_no_last_record_of_a_key(scratch: Path) -> None:
    done = Compacted(scratch / "run")
    before = done.stages[0]
    for operations in range(done.started, len(done.disk.journal) + 1):
        left = scratch / str(operations)
        done.disk.after_power_failure(left, operations, Random(operations), strict=True)
        recovered = asyncio.run(records_after_restart(left, PROFILES))
        assert last_of_keys(recovered) == last_of_keys(before), f"behind operation {operations}"
        assert [record for record in before if record in recovered] == recovered, "in order, each once"


def test_a_second_crash_while_a_swap_is_resolved_loses_no_last_record_of_a_key(scratch: Path) -> None:
    done = Compacted(scratch / "run")
    renamed = [n for n, op in enumerate(done.disk.journal) if isinstance(op, Renamed) and op.target.endswith(".swap")]
    ready = 1 + next(n for n in range(renamed[0], len(done.disk.journal)) if isinstance(done.disk.journal[n], Synced))
    once = scratch / "once"
    done.disk.after_power_failure(once, ready, Random(0))
    again = CrashDisk(once)
    resolve_leftovers(again, str(once / "profiles-0"))
    before = done.stages[0]
    for operations in range(len(again.journal) + 1):
        for seed in range(8):
            twice = scratch / f"{operations}-{seed}"
            again.after_power_failure(twice, operations, Random(f"{seed} {operations}"), strict=True)
            recovered = asyncio.run(records_after_restart(twice, PROFILES))
            assert last_of_keys(recovered) == last_of_keys(before), f"behind operation {operations}, seed {seed}"
            assert [record for record in before if record in recovered] == recovered, (
                f"behind {operations}, seed {seed}"
            )


@pytest.mark.parametrize("strict", [False, True])
def test_a_crash_anywhere_in_a_roll_leaves_a_prefix_of_the_records(strict: bool, scratch: Path) -> None:
    async def scenario() -> tuple[CrashDisk, int, Offset, list[Record]]:
        with without_threads():
            dirs, disk = await filled(scratch / "run", ORDERS, "ab")
            log = dirs.logs[ORDERS]
            started, flushed_to = len(disk.journal), log.flushed_to
            for key in "cdefg":
                log.append_as_leader(batch(key=key, size=150), 0)
            await dirs.dir_of(log).disk.drain()
            everything = records(dirs, ORDERS, disk)
            abandon(dirs)
        return disk, started, flushed_to, everything

    disk, started, flushed_to, everything = asyncio.run(scenario())
    for operations in range(started, len(disk.journal) + 1):
        for seed in range(5):
            left = scratch / f"{operations}-{seed}"
            disk.after_power_failure(left, operations, Random(f"{seed} {operations}"), strict=strict)
            recovered = asyncio.run(records_after_restart(left, ORDERS))
            assert recovered == everything[: len(recovered)]
            assert len(recovered) >= flushed_to
