"""A seeded run of two logs on a crash disk, what is durable at each moment, and whether a restart keeps it.

`orders` deletes old segments, `profiles` is compacted. The run appends, flushes, rolls, truncates, deletes, compacts,
checkpoints, stops and starts, as the seed wants. Durable is what counts as flushed after some operation of the
journal: records below the recovery point that the log itself reports.
"""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest import mock

from leadline.config.topic import LogConfig
from leadline.errors import LogDirFailed
from leadline.log.cleaner import Cleaner, cleanable, request_for
from leadline.log.compaction import CleanerThrottle, Compaction
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import AppendOrigin
from leadline.model import Offset, TopicPartition
from leadline.records.batch import walk
from leadline.records.record import Record
from leadline.runtime.ports import Files
from tests.support.chance import SeededChance
from tests.support.crash_disk import CrashDisk
from tests.support.lazy_disk import LazyDisk
from tests.support.logs import ManualClock, at_offset, batch, marker, records_in
from tests.support.settings import live_settings

ORDERS, PROFILES = TopicPartition("orders", 0), TopicPartition("profiles", 0)
_SMALL = {"segment.bytes": "700", "index.interval.bytes": "100"}
CONFIGS: Mapping[str, LogConfig] = {
    "orders": LogConfig.parse({**_SMALL, "retention.bytes": "2500"}),
    "profiles": LogConfig.parse({**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
}


@dataclass(frozen=True)
class Durable:
    """What a restart has to find in one log, from some operation of the journal on."""

    operations: int
    flushed_to: Offset
    log_start: Offset
    batches: Mapping[Offset, bytes]  # all that were written and not truncated since


@dataclass
class Ledger:
    """What was written to one log."""

    batches: dict[Offset, bytes] = field(default_factory=dict)
    ever: dict[Offset, set[bytes]] = field(default_factory=dict)  # also what was truncated
    records: dict[Offset, set[Record]] = field(default_factory=dict)
    durable: list[Durable] = field(default_factory=list)
    epoch: int = 0

    def note(self, base: Offset, data: bytes) -> None:
        self.batches[base] = data
        self.ever.setdefault(base, set()).add(data)
        for record in records_in(data):
            self.records.setdefault(record.offset, set()).add(record)

    def cut(self, offset: Offset) -> None:
        self.batches = {base: data for base, data in self.batches.items() if base < offset}

    def durable_at(self, operations: int) -> Durable:
        return [durable for durable in self.durable if durable.operations <= operations][-1]


def open_dirs(path: Path, files: Files) -> LogDirs:
    settings = live_settings({"log.dirs": str(path)})
    return LogDirs(settings, ManualClock(), SeededChance(), files, CONFIGS.__getitem__)


def abandon(dirs: LogDirs) -> None:
    """As if the process were gone."""
    for path in list(dirs.dirs):
        dirs.take_offline(LogDirFailed(path, "running", OSError("the power is gone")))


def without_threads() -> "mock._patch[type[LazyDisk]]":
    return mock.patch("leadline.log.log_dirs.DiskThread", LazyDisk)


class CrashRun:
    def __init__(self, root: Path, seed: int, *, retains: bool = True) -> None:
        self.root, self.random, self.retains = root, Random(seed), retains
        self.disk = CrashDisk(root)
        self.ledgers = {tp: Ledger() for tp in (ORDERS, PROFILES)}
        self.dirs = open_dirs(root, self.disk)
        self.performed: list[str] = []

    async def take_steps(self, steps: int) -> None:
        with without_threads():
            self._note_durable()
            await self.dirs.open()
            for tp in self.ledgers:
                await self.dirs.create(tp)
            self._note_durable()
            operations = [
                self.append,
                self.append,
                self.append,
                self.follow,
                self.work,
                self.work,
                self.flush,
                self.sweep,
            ]
            operations += [
                self.truncate,
                self.truncate_fully,
                self.delete_records,
                self.compact,
                self.compact,
                self.fill,
            ]
            operations += [self.checkpoint, self.checkpoint, self.restart] + [self.retain] * self.retains
            for _ in range(steps):
                operation, tp = self.random.choice(operations), self.random.choice(list(self.ledgers))
                self.performed.append(f"{len(self.disk.journal)}: {operation.__name__} {tp}")
                await operation(tp)
                self._note_durable()
            abandon(self.dirs)

    def _note_durable(self) -> None:
        for tp, ledger in self.ledgers.items():
            log = self.dirs.logs.get(tp)
            flushed_to, log_start = (log.recovery_point, log.log_start) if log else (0, 0)
            ledger.durable.append(Durable(len(self.disk.journal), flushed_to, log_start, dict(ledger.batches)))

    def _reduce_durable(self, tp: TopicPartition, below: Offset, log_start: Offset) -> None:
        """What is about to change counts no more, from before the first operation on."""
        ledger = self.ledgers[tp]
        last = ledger.durable[-1]
        flushed_to = min(last.flushed_to, below)
        ledger.durable.append(Durable(len(self.disk.journal), flushed_to, max(last.log_start, log_start), last.batches))

    def _lazy(self) -> LazyDisk:
        disk = self.dirs.dirs[str(self.root)].disk
        assert isinstance(disk, LazyDisk)
        return disk

    # Operations

    def _any_batch(self, log: Log) -> tuple[bytearray, AppendOrigin]:
        random = self.random
        producer_id = random.choice((-1, -1, 1, 2, 3))
        key = random.choice("abcdef")
        size = random.choice((5, 30, 120))
        if producer_id < 0:
            return batch(random.randint(1, 3), key=key, size=size), AppendOrigin.CLIENT
        producer = log.producer_state.by_id.get(producer_id)
        if producer is not None and producer.txn_first_offset is not None and random.random() < 0.4:
            return marker(producer_id, commit=random.random() < 0.5), AppendOrigin.COORDINATOR
        sequence = producer.last_sequence + 1 if producer else 0
        transactional = producer_id > 1
        made = batch(1, key=key, size=size, producer_id=producer_id, sequence=sequence, transactional=transactional)
        return made, AppendOrigin.CLIENT

    async def append(self, tp: TopicPartition) -> None:
        log, ledger = self.dirs.logs[tp], self.ledgers[tp]
        ledger.epoch += self.random.random() < 0.1
        data, origin = self._any_batch(log)
        appended = log.append_as_leader(data, ledger.epoch, origin)
        ledger.note(appended.first_offset, bytes(data))
        if self.random.random() < 0.8:
            log.advance_high_watermark(log.log_end)

    async def fill(self, tp: TopicPartition) -> None:
        for _ in range(12):
            await self.append(tp)

    async def follow(self, tp: TopicPartition) -> None:
        log, ledger = self.dirs.logs[tp], self.ledgers[tp]
        chunk, offset = bytearray(), log.log_end
        for _ in range(self.random.randint(1, 3)):
            ledger.epoch += self.random.random() < 0.3
            count = self.random.randint(1, 2)
            data = at_offset(batch(count, key=self.random.choice("abcdef"), size=20), offset, ledger.epoch)
            ledger.note(offset, bytes(data))
            chunk += data
            offset += count
        assert log.append_as_follower(chunk) is not None
        log.set_high_watermark(log.log_end)

    async def work(self, _: TopicPartition) -> None:
        count = self.random.randint(1, 4)
        while count and self._lazy().step():
            count -= 1

    async def flush(self, tp: TopicPartition) -> None:
        self.dirs.logs[tp].flush()
        if self.random.random() < 0.7:
            await self._lazy().drain()

    async def sweep(self, _: TopicPartition) -> None:
        self._lazy().run_due()

    async def truncate(self, tp: TopicPartition) -> None:
        log, ledger = self.dirs.logs[tp], self.ledgers[tp]
        choices = [base for base in ledger.batches if base >= log.log_start] if tp == ORDERS else []
        if not choices or self.random.random() < 0.5:
            return
        offset = self.random.choice(choices)
        self._reduce_durable(tp, offset, 0)
        ledger.cut(offset)
        await self.dirs.truncation.truncate_to(tp, offset)

    async def truncate_fully(self, tp: TopicPartition) -> None:
        if self.random.random() < 0.8:
            return
        log = self.dirs.logs[tp]
        offset = self.random.choice((log.log_end + 10, log.log_start + 1, log.log_end))
        self._reduce_durable(tp, 0, 0)
        self.ledgers[tp].cut(0)
        await self.dirs.truncation.truncate_fully_and_start_at(tp, offset)

    async def delete_records(self, tp: TopicPartition) -> None:
        log = self.dirs.logs[tp]
        before = self.random.randint(log.log_start, log.high_watermark)
        if tp != ORDERS:
            return
        self._reduce_durable(tp, log.log_end, before)
        if log.delete_records(before) and self.random.random() < 0.5:
            await self.dirs.checkpoints.write_log_starts(self.dirs.dir_of(log))

    async def retain(self, tp: TopicPartition) -> None:
        log = self.dirs.logs[tp]
        self._reduce_durable(tp, log.log_end, log.high_watermark)
        log.delete_old_segments()

    async def compact(self, tp: TopicPartition) -> None:
        log = self.dirs.logs[tp]
        target = cleanable(log, (await self.dirs.checkpoints.cleaned_offsets()).get(tp), self.dirs.clock.now_ms())
        if not log.config.compact or target is None or not target.dirty_bytes:
            return
        await compact(self.dirs, log, self.disk)

    async def checkpoint(self, _: TopicPartition) -> None:
        log_dir = self.dirs.dirs[str(self.root)]
        await self.dirs.checkpoints.write_recovery_points(log_dir)
        await self.dirs.checkpoints.write_log_starts(log_dir)

    async def restart(self, _: TopicPartition) -> None:
        if self.random.random() < 0.5:
            return
        await self.dirs.close()
        self.dirs = open_dirs(self.root, self.disk)
        await self.dirs.open()


async def compacting(dirs: LogDirs, log: Log, files: Files) -> AsyncIterator[None]:
    """A pass as the cleaner makes it, group by group, but in this process and through these files."""
    cleaned_to = (await dirs.checkpoints.cleaned_offsets()).get(log.tp)
    target = cleanable(log, cleaned_to, dirs.clock.now_ms())
    assert target is not None
    request = request_for(target, dirs.config, dirs.clock.now_ms())
    cleaner, log_dir, end_offset = Cleaner(dirs), dirs.dir_of(log), request.first_dirty
    throttle = CleanerThrottle(1e12, lambda: 0.0, lambda _: None)
    for group in Compaction(request, files, dirs.clock, throttle, bytes(range(16))).run():
        await cleaner.swap_in(log, log_dir.disk, group.bases)
        end_offset = group.end_offset
        yield
    await dirs.checkpoints.write_cleaned_offsets(log_dir, {log.tp: end_offset})


async def compact(dirs: LogDirs, log: Log, files: Files) -> None:
    async for _ in compacting(dirs, log, files):
        pass


def batches_in(log: Log, files: Files) -> Iterator[tuple[Offset, bytes]]:
    for segment in log.segments:
        assert files.size(segment.file.fd) == segment.size, f"{segment} ends elsewhere than it says"
        data = files.pread(segment.file.fd, segment.size, 0)
        end = 0
        for position, header in walk(data):
            end = position + header.size
            yield header.base_offset, data[position:end]
        assert end == segment.size, f"{segment} does not end with a whole batch"


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def last_of_keys(records: Sequence[Record]) -> dict[bytes | None, Record]:
    return {record.key: record for record in records}


def has_marker(path: Path) -> bool:
    return os.path.exists(path / ".kafka_cleanshutdown")
