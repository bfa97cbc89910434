"""Which log is compacted next, and the process that does it.

The choice is made by pure functions over the state of the logs. `leadline.log.compaction` does the work in its own
process, which returns finished segments one by one. To abort a pass is to kill that process: a segment that it has not
returned never happened.
"""

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from leadline.config.storage import StorageConfig
from leadline.errors import LogDirFailed, StorageError
from leadline.log import names, segment_removal
from leadline.log.cleaning_passes import CleaningPass
from leadline.log.compaction_request import EXIT_SHORTAGE, CompactionRequest, LastRecord
from leadline.log.disk_thread import DiskThread
from leadline.log.files import remove_files, unless_unusable
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.segment import Segment
from leadline.log.skimpy_offset_map import KEY_BYTES
from leadline.model import Offset, TopicPartition
from leadline.runtime.ports import Files, shortage

LINE_BYTES = 16 * 1024 * 1024  # the longest answer of the process

log = logging.getLogger(__name__)


class LogToClean(NamedTuple):
    """A log, and which part of it is dirty."""

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
        is_dirty = self.ratio > self.log.config.min_cleanable_dirty_ratio
        return is_dirty or (self.overdue and self.dirty_bytes > 0)


def cleanable(log: Log, cleaned_to: Offset | None, now_ms: int) -> LogToClean | None:
    """None if the log is empty."""
    first_dirty = log.log_start if cleaned_to is None else cleaned_to
    if not log.log_start <= first_dirty <= log.log_end:
        first_dirty = log.log_start  # records were deleted or truncated since
    active = log.segments.active.base_offset
    first_uncleanable = min(log.last_stable_offset, active)
    dirty = log.segments.between(first_dirty, active)
    if log.config.min_compaction_lag_ms > 0:
        young = now_ms - log.config.min_compaction_lag_ms
        too_young = next((segment.base_offset for segment in dirty if segment.largest_timestamp > young), active)
        first_uncleanable = min(first_uncleanable, too_young)
    uncleanable = log.segments.between(first_uncleanable, active)
    first_uncleanable = uncleanable[0].base_offset if uncleanable else active
    first_uncleanable_or_dirty = min(first_dirty, first_uncleanable)
    clean_bytes = _bytes(log.segments.between(-1, first_dirty))
    dirty_bytes = _bytes(log.segments.between(first_uncleanable_or_dirty, first_uncleanable))
    if clean_bytes + dirty_bytes == 0:
        return None
    overdue = _overdue(dirty, now_ms - log.config.max_compaction_lag_ms)
    return LogToClean(log, first_dirty, first_uncleanable, clean_bytes, dirty_bytes, overdue)


def _bytes(segments: Iterable[Segment]) -> int:
    return sum(segment.size for segment in segments)


def _overdue(dirty: Iterable[Segment], since_ms: int) -> bool:
    firsts = [first for segment in dirty if (first := segment.first_timestamp) is not None and first > 0]
    return bool(firsts) and min(firsts) < since_ms


def filthiest(candidates: Iterable[LogToClean]) -> LogToClean | None:
    due = (candidate for candidate in candidates if candidate.due)
    return max(due, key=lambda candidate: candidate.ratio, default=None)


def request_for(target: LogToClean, config: StorageConfig, now_ms: int) -> CompactionRequest:
    log = target.log
    threads = max(config.log_cleaner_threads, 1)
    return CompactionRequest(
        directory=log.directory,
        bases=[segment.base_offset for segment in log.segments.between(-1, target.first_uncleanable)],
        config=log.config,
        first_dirty=target.first_dirty,
        first_uncleanable=target.first_uncleanable,
        now_ms=now_ms,
        dedupe_bytes=max(config.log_cleaner_dedupe_buffer_size // threads, 2 * KEY_BYTES),
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=max(config.log_cleaner_io_buffer_size // threads // 2, 1024),
        max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second / threads,
        producers={
            producer_id: LastRecord(entry.last_offset if entry.batches else None, entry.epoch)
            for producer_id, entry in log.producer_state.by_id.items()
        },
        aborted_later=list(log.aborted_between(target.first_uncleanable, target.first_uncleanable)),
    )


@dataclass(slots=True)
class CleanerMetrics:
    last_run_ms: int | None = None  # when logs were last checked
    max_dirty_ratio: float = 0.0  # of the logs at that time
    last_pass: Mapping[str, float] | None = None  # bytes_read, bytes_written, seconds and more


class Cleaner:
    def __init__(self, dirs: LogDirs) -> None:
        self.dirs, self._passes = dirs, dirs.cleaning
        self.uncleanable: dict[TopicPartition, str] = {}  # with the reason
        self.statistics = CleanerMetrics()
        self._changed = asyncio.Event()  # settings

    def reconfigured(self) -> None:
        """Settings changed: cleaners that rest read them again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def run(self, number: int = 0) -> None:
        """One of log.cleaner.threads: clean the filthiest log again and again, while there are that many threads."""
        while number < self.dirs.config.log_cleaner_threads:
            try:
                cleaned = await self.clean_filthiest()
            except (StorageError, LogDirFailed) as error:  # the other directories continue
                log.warning("%s", error)
                cleaned = False
            if not cleaned:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.dirs.config.log_cleaner_backoff_ms / 1000):
                        await self._changed.wait()

    async def clean_filthiest(self) -> bool:
        """False if no log needs cleaning, or it was not possible.

        Also deletes the old segments of compacted logs.
        """
        cleaned_to = await self.dirs.checkpoints.cleaned_offsets()
        candidates = self._candidates(cleaned_to)
        statistics = self.statistics
        statistics.last_run_ms = self.dirs.clock.now_ms()
        statistics.max_dirty_ratio = max((candidate.ratio for candidate in candidates), default=0.0)
        target = filthiest(candidates)
        cleaned = target is not None and await self.clean(target)
        for compacted in list(self.dirs.logs.values()):
            if compacted.config.compact and not self._passes.is_busy(compacted.tp):
                try:
                    compacted.delete_old_segments()
                except StorageError as error:  # the other logs go on
                    compacted.warn_of(error)
        return cleaned

    def _candidates(self, cleaned_to: Mapping[TopicPartition, Offset]) -> list[LogToClean]:
        now_ms = self.dirs.clock.now_ms()
        logs = [
            candidate
            for tp, candidate in self.dirs.logs.items()
            if candidate.config.compact and not self._passes.is_busy(tp) and tp not in self.uncleanable
        ]
        states = (self._to_clean(candidate, cleaned_to.get(candidate.tp), now_ms) for candidate in logs)
        return [candidate for candidate in states if candidate is not None]

    def _to_clean(self, candidate: Log, cleaned_to: Offset | None, now_ms: int) -> LogToClean | None:
        try:
            with candidate.guard("looking for what to compact in"):
                return cleanable(candidate, cleaned_to, now_ms)
        except StorageError as error:
            candidate.warn_of(error)
            return None

    async def clean(self, target: LogToClean) -> bool:
        """One pass over a log. If it fails, this log is not cleaned again, and `uncleanable` has the reason.

        False if a resource was short: the pass is tried again later.
        """
        cleaned, tp = target.log, target.log.tp
        with cleaned.guard("compacting"):
            request = request_for(target, self.dirs.config, self.dirs.clock.now_ms())
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "leadline.log.compaction"),
                stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LINE_BYTES,
            )  # fmt: skip
        except OSError as error:  # a problem of this machine, not of the log
            log.warning("compaction of %s cannot begin: %s", tp, shortage(error) or error)
            return False
        current = self._passes.by_partition[tp] = CleaningPass(process)
        try:
            problem = await self._swap_in_groups(process, request, cleaned)
            if process.returncode == EXIT_SHORTAGE:
                log.warning("compaction of %s failed; it will be retried: %s", tp, problem)
                return False
            if problem and not self._passes.is_paused(tp):
                self.uncleanable[tp] = problem
                log.error("%s cannot be compacted and is left unchanged: %s", tp, problem)
        except (StorageError, LogDirFailed) as error:
            log.warning("compaction of %s failed: %s", tp, error)
            return False
        finally:
            current.kill()
            try:
                await _ended(process)
            finally:
                del self._passes.by_partition[tp]
                current.over.set()
        return True

    async def _swap_in_groups(
        self, process: asyncio.subprocess.Process, request: CompactionRequest, cleaned: Log
    ) -> str | None:
        """Swap in the segments that the process returns, group by group. Returns its error, if it failed."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        disk = self.dirs.dir_of(cleaned).disk
        error_output = asyncio.create_task(process.stderr.read())
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(request.to_json().encode())
            process.stdin.close()
        end_offset = request.first_dirty
        async for line in process.stdout:
            group = json.loads(line)
            await self.swap_in(cleaned, disk, group["bases"])
            end_offset = group["end_offset"]
            self.statistics.last_pass = group["stats"]
            _log_stats(cleaned.tp, group["stats"])
        errors = (await error_output).decode(errors="replace").strip()
        if await process.wait() == 0:
            await self.dirs.checkpoints.write_cleaned_offsets(self.dirs.dir_of(cleaned), {cleaned.tp: end_offset})
            return None
        await _call(cleaned, disk, "undoing the compaction of", partial(_remove_cleaned, self.dirs.files, cleaned))
        return errors.splitlines()[-1] if errors else f"its process ended with {process.returncode}"

    async def swap_in(self, cleaned: Log, disk: DiskThread, bases: list[Offset]) -> None:
        old = [segment for segment in cleaned.segments if segment.base_offset in bases]
        new = segment_removal.cleaned_segment(cleaned, bases[0])
        sync = partial(self.dirs.files.sync_dir, cleaned.directory)
        cleaned.flush()  # later records replace earlier ones, so they must be durable first
        await disk.drain()
        segment_removal.ready_to_swap(cleaned, new)
        await _call(cleaned, disk, "compacting", sync)
        segment_removal.swap_in(cleaned, new, old)
        await _call(cleaned, disk, "compacting", sync)
        segment_removal.swapped_in(cleaned, new)
        await _call(cleaned, disk, "compacting", sync)

    async def stop(self) -> None:
        await self._passes.abort_all()


async def _call(cleaned: Log, disk: DiskThread, doing: str, job: Callable[[], None]) -> None:
    """A job on the files of one log."""
    with cleaned.guard(doing):
        outcome = await disk.call(f"{doing} {cleaned.tp}", partial(unless_unusable, job))
        if outcome is not None:
            raise outcome


async def _ended(process: asyncio.subprocess.Process) -> None:
    """A killed process ends soon. A cancellation does not end the wait for it."""
    end, is_cancelled = asyncio.ensure_future(process.wait()), False
    while not end.done():
        try:
            await asyncio.shield(end)
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError


def _log_stats(tp: TopicPartition, stats: Mapping[str, float]) -> None:
    log.info(
        "compacted %s: %.1f MB, %d records became %.1f MB, %d records in %.1f s",
        tp,
        stats["bytes_read"] / 1e6,
        stats["records_read"],
        stats["bytes_written"] / 1e6,
        stats["records_written"],
        stats["seconds"],
    )


def _remove_cleaned(files: Files, cleaned: Log) -> None:
    leftovers = [name for name in files.listdir(cleaned.directory) if name.endswith(names.CLEANED)]
    remove_files(files, [os.path.join(cleaned.directory, name) for name in leftovers])
