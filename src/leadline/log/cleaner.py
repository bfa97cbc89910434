"""Which log is compacted next, and the process that does it.

Decisions are pure functions over what a log tells of itself; the work is `leadline.log.compaction` in a process of its
own, which hands back finished segments one by one. Killing that process is how a pass is aborted: what it has not
handed back never happened.
"""

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from leadline.config.storage import StorageConfig
from leadline.errors import LogDirFailed, StorageError
from leadline.log import names, segment_removal
from leadline.log.compaction import EXIT_SHORTAGE, KEY_BYTES, CompactionRequest, LastRecord
from leadline.log.disk_thread import DiskThread
from leadline.log.files import remove_files
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.segment import Segment
from leadline.model import Offset, TopicPartition
from leadline.runtime.ports import Files, shortage

LINE_BYTES = 16 * 1024 * 1024  # the longest answer of the process

log = logging.getLogger(__name__)


class LogToClean(NamedTuple):
    """What there is to clean in a log."""

    log: Log
    first_dirty: Offset
    first_uncleanable: Offset
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # a record waits longer than max.compaction.lag.ms

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes)

    @property
    def due(self) -> bool:
        wanted = self.ratio > self.log.config.min_cleanable_dirty_ratio
        return wanted or (self.overdue and self.dirty_bytes > 0)


def cleanable(found: Log, cleaned_to: Offset | None, now_ms: int) -> LogToClean | None:
    """None if the log is empty."""
    first_dirty = found.log_start if cleaned_to is None else cleaned_to
    if not found.log_start <= first_dirty <= found.log_end:
        first_dirty = found.log_start  # records were deleted or truncated since
    active = found.segments.active.base_offset
    first_uncleanable = min(found.last_stable_offset, active)
    dirty = found.segments.between(first_dirty, active)
    if found.config.min_compaction_lag_ms > 0:
        young = now_ms - found.config.min_compaction_lag_ms
        too_young = next((segment.base_offset for segment in dirty if segment.largest_timestamp > young), active)
        first_uncleanable = min(first_uncleanable, too_young)
    held = found.segments.between(first_uncleanable, active)
    first_uncleanable = held[0].base_offset if held else active
    first_uncleanable_or_dirty = min(first_dirty, first_uncleanable)
    clean_bytes = _bytes(found.segments.between(-1, first_dirty))
    dirty_bytes = _bytes(found.segments.between(first_uncleanable_or_dirty, first_uncleanable))
    if clean_bytes + dirty_bytes == 0:
        return None
    overdue = _overdue(dirty, now_ms - found.config.max_compaction_lag_ms)
    return LogToClean(found, first_dirty, first_uncleanable, clean_bytes, dirty_bytes, overdue)


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.size for segment in segments)


def _overdue(dirty: Iterable[Segment], since_ms: int) -> bool:
    firsts = [first for segment in dirty if (first := segment.first_timestamp) is not None and first > 0]
    return bool(firsts) and min(firsts) < since_ms


def filthiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    return max((found for found in candidates if found.due), key=lambda found: found.ratio, default=None)


def request_for(target: LogToClean, config: StorageConfig, now_ms: int) -> CompactionRequest:
    found = target.log
    threads = max(config.log_cleaner_threads, 1)
    return CompactionRequest(
        directory=found.directory,
        bases=[segment.base_offset for segment in found.segments.between(-1, target.first_uncleanable)],
        config=found.config,
        first_dirty=target.first_dirty,
        first_uncleanable=target.first_uncleanable,
        now_ms=now_ms,
        dedupe_bytes=max(config.log_cleaner_dedupe_buffer_size // threads, 2 * KEY_BYTES),
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=max(config.log_cleaner_io_buffer_size // threads // 2, 1024),
        max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second / threads,
        producers={
            producer_id: LastRecord(entry.last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in found.producer_state.by_id.items()
        },
        aborted_later=list(found.aborted_between(target.first_uncleanable, target.first_uncleanable)),
    )


@dataclass(slots=True)
class CleaningPass:
    """A log that is being compacted."""

    process: asyncio.subprocess.Process
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()


class Cleaner:
    def __init__(self, dirs: LogDirs) -> None:
        self.dirs = dirs
        dirs.cleaning_paused = self.paused
        self.passes: dict[TopicPartition, CleaningPass] = {}
        self.uncleanable: dict[TopicPartition, str] = {}  # with the reason
        self._paused: Counter[TopicPartition] = Counter()
        self._changed = asyncio.Event()  # settings

    def reconfigured(self) -> None:
        """Settings changed: who rests looks what they are now."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self, number: int = 0) -> None:
        """One of log.cleaner.threads: clean the filthiest log, again and again, while there are so many."""
        while number < self.dirs.config.log_cleaner_threads:
            try:
                cleaned = await self.clean_filthiest()
            except (StorageError, LogDirFailed) as error:  # that directory is gone; the others go on
                log.warning("%s", error)
                cleaned = False
            if not cleaned:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.dirs.config.log_cleaner_backoff_ms / 1000):
                        await self._changed.wait()

    async def clean_filthiest(self) -> bool:
        """False if no log needs it, or it was not possible.

        Compacted logs also lose here what lies below their start or past retention.
        """
        cleaned_to = await self.dirs.checkpoints.cleaned_offsets()
        target = filthiest(self._candidates(cleaned_to))
        cleaned = target is not None and await self.clean(target)
        for found in list(self.dirs.logs.values()):
            if found.config.compact and not self._busy(found.tp):
                found.delete_old_segments()
        return cleaned

    def _candidates(self, cleaned_to: Mapping[TopicPartition, Offset]) -> list[LogToClean]:
        now_ms = self.dirs.clock.now_ms()
        logs = [
            found
            for tp, found in self.dirs.logs.items()
            if found.config.compact and not self._busy(tp) and tp not in self.uncleanable
        ]
        looked_at = (self._look_at(found, cleaned_to.get(found.tp), now_ms) for found in logs)
        return [found for found in looked_at if found is not None]

    def _look_at(self, found: Log, cleaned_to: Offset | None, now_ms: int) -> LogToClean | None:
        try:
            return cleanable(found, cleaned_to, now_ms)
        except OSError as error:
            doing = f"looking for what to compact in {found.tp}"
            if (lacking := shortage(error)) is not None:
                log.warning("%s failed: %s", doing, lacking)
            else:
                self.dirs.take_offline(LogDirFailed(found.parent, doing, error))
            return None

    def _busy(self, tp: TopicPartition) -> bool:
        return tp in self.passes or self._paused[tp] > 0

    async def clean(self, target: LogToClean) -> bool:
        """One pass over a log. What goes wrong stays with this log: it is not tried again, and says why.

        False if a resource was short: it is tried again later.
        """
        found, tp = target.log, target.log.tp
        request = request_for(target, self.dirs.config, self.dirs.clock.now_ms())
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "leadline.log.compaction"),
                stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LINE_BYTES,
            )  # fmt: skip
        except OSError as error:  # of this machine, not of the log
            log.warning("compaction of %s cannot begin: %s", tp, shortage(error) or error)
            return False
        current = self.passes[tp] = CleaningPass(process)
        try:
            wrong = await self._take_over(process, request, found)
            if process.returncode == EXIT_SHORTAGE:
                log.warning("compaction of %s ended and is tried again: %s", tp, wrong)
                return False
            if wrong and not self._paused[tp]:
                self.uncleanable[tp] = wrong
                log.error("%s cannot be compacted and is left as it is: %s", tp, wrong)
        except (StorageError, LogDirFailed) as error:
            log.warning("compaction of %s ended: %s", tp, error)
            return False
        finally:
            current.kill()
            await process.wait()
            del self.passes[tp]
            current.over.set()
        return True

    async def _take_over(
        self, process: asyncio.subprocess.Process, request: CompactionRequest, found: Log
    ) -> str | None:
        """Swap in what the process hands back, group by group. What went wrong in it, if anything."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        disk = self.dirs.dir_of(found).disk
        complaint = asyncio.create_task(process.stderr.read())
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(request.to_json().encode())
            process.stdin.close()
        end_offset = request.first_dirty
        async for line in process.stdout:
            group = json.loads(line)
            await self.swap_in(found, disk, group["bases"])
            end_offset = group["end_offset"]
            _tell(found, group["stats"])
        said = (await complaint).decode(errors="replace").strip()
        if await process.wait() == 0:
            await self.dirs.checkpoints.write_cleaned_offsets(self.dirs.dir_of(found), {found.tp: end_offset})
            return None
        await disk.call(f"undoing the compaction of {found.tp}", partial(_remove_cleaned, self.dirs.files, found))
        return said.splitlines()[-1] if said else f"its process ended with {process.returncode}"

    async def swap_in(self, found: Log, disk: DiskThread, bases: list[Offset]) -> None:
        old = [segment for segment in found.segments if segment.base_offset in bases]
        new = segment_removal.cleaned_segment(found, bases[0])
        sync = partial(self.dirs.files.sync_dir, found.directory)
        found.flush()  # records go because of later ones: those must not be less durable
        await disk.drain()
        segment_removal.ready_to_swap(found, new)
        await disk.call(f"compacting {found.tp}", sync)
        segment_removal.swap_in(found, new, old)
        await disk.call(f"compacting {found.tp}", sync)
        segment_removal.swapped_in(found, new)
        await disk.call(f"compacting {found.tp}", sync)

    @asynccontextmanager
    async def paused(self, tp: TopicPartition) -> AsyncIterator[None]:
        """For a truncation, a move or a deletion: a pass under way is aborted, and none begins meanwhile."""
        self._paused[tp] += 1
        try:
            if (current := self.passes.get(tp)) is not None:
                current.kill()
                await current.over.wait()
            yield
        finally:
            self._paused[tp] -= 1

    async def stop(self) -> None:
        for current in list(self.passes.values()):
            current.kill()
            await current.over.wait()


def _tell(found: Log, stats: Mapping[str, float]) -> None:
    log.info(
        "compacted %s: %.1f MB, %d records became %.1f MB, %d records in %.1f s",
        *(found.tp, stats["bytes_read"] / 1e6, stats["records_read"]),
        *(stats["bytes_written"] / 1e6, stats["records_written"], stats["seconds"]),
    )


def _remove_cleaned(files: Files, found: Log) -> None:
    gone = [name for name in files.listdir(found.directory) if name.endswith(names.CLEANED)]
    remove_files(files, [os.path.join(found.directory, name) for name in gone])
