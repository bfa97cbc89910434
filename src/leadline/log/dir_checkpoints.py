"""Writing the offset checkpoints of the log directories: recovery points, log starts, high watermarks, cleaned offsets.

the thread of a directory writes them in the order in which they were requested
entries of partitions whose files cannot be used are kept unchanged
"""

import logging
from collections.abc import Callable, Mapping
from functools import partial

from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.checkpoints import read_offsets, write_offsets
from leadline.log.files import unless_unusable, unusable_file
from leadline.log.log import Log
from leadline.log.log_dir import LogDir
from leadline.log.log_dir_set import LogDirSet
from leadline.model import Offset, TopicPartition
from leadline.runtime.ports import Files

log = logging.getLogger(__name__)


def read_checkpoint(files: Files, log_dir: LogDir, name: str) -> dict[TopicPartition, Offset] | None:
    """None if it is damaged. That costs time, not data: recovery reads more than it has to."""
    try:
        return read_offsets(files, log_dir.file(name))
    except CorruptFile as error:
        log.warning("%s; continuing without it", error)
        return None


class DirCheckpoints:
    def __init__(self, dirs: LogDirSet) -> None:
        self._dirs = dirs

    async def write_recovery_points(self, log_dir: LogDir) -> None:
        await self._write(log_dir, names.RECOVERY_POINTS_FILE, self._recovery_points(log_dir))

    def _recovery_points(self, log_dir: LogDir) -> dict[TopicPartition, Offset]:
        return {log.tp: log.flushed_to for log in self._dirs.logs_in(log_dir)}

    def segment_flushed(self, log_dir: LogDir) -> None:
        """Checkpoint the recovery points in the background: after a crash, no older segment is read again.

        Segments that are flushed while a checkpoint is written share the next one.
        """
        if log_dir.checkpointing or not log_dir.loaded:
            log_dir.flushed_since = True
            return
        log_dir.checkpointing, log_dir.flushed_since = True, False
        job = partial(unless_unusable, self._job(log_dir, names.RECOVERY_POINTS_FILE, self._recovery_points(log_dir)))
        log_dir.disk.run(f"writing {names.RECOVERY_POINTS_FILE}", job, partial(self._written, log_dir))

    def _written(self, log_dir: LogDir, outcome: OSError | CorruptFile | None) -> None:
        log_dir.checkpointing = False
        if outcome is not None:  # the periodic checkpoint tries it again; without it, the next start reads more
            log.warning("%s", unusable_file(outcome, log_dir.path))
        elif log_dir.flushed_since:
            self.segment_flushed(log_dir)

    async def write_log_starts(self, log_dir: LogDir) -> None:
        """Only those that the names of the segments do not show."""
        logs = self._dirs.logs_in(log_dir)
        offsets = {log.tp: log.log_start for log in logs if log.log_start > log.segments.first.base_offset}
        await self._write(log_dir, names.LOG_STARTS_FILE, offsets)

    async def write_high_watermarks(self, log_dir: LogDir) -> None:
        logs = [log for log in self._dirs.logs.values() if log.parent == log_dir.path]
        await self._write(log_dir, names.HIGH_WATERMARKS_FILE, {log.tp: log.high_watermark for log in logs})

    async def cleaned_offsets(self) -> dict[TopicPartition, Offset]:
        """How far compaction has come, over all directories."""
        offsets: dict[TopicPartition, Offset] = {}
        for log_dir in list(self._dirs.dirs.values()):
            offsets.update(await self._cleaned_in(log_dir))
        return offsets

    async def _cleaned_in(self, log_dir: LogDir) -> dict[TopicPartition, Offset]:
        read = partial(read_checkpoint, self._dirs.files, log_dir, names.CLEANED_OFFSETS_FILE)
        return await log_dir.disk.call(f"reading {names.CLEANED_OFFSETS_FILE}", read) or {}

    async def write_cleaned_offsets(self, log_dir: LogDir, changed: Mapping[TopicPartition, Offset]) -> None:
        stored = await self._cleaned_in(log_dir)
        kept = {tp: at for tp, at in stored.items() if tp in self._dirs.logs or tp in log_dir.offline_logs}
        await self._write(log_dir, names.CLEANED_OFFSETS_FILE, kept | dict(changed))

    async def lower_cleaned_offset(self, log: Log) -> None:
        """Records that are written after a truncation are dirty."""
        active = log.segments.active.base_offset
        if log.config.compact and (await self.cleaned_offsets()).get(log.tp, 0) > active:
            await self.write_cleaned_offsets(self._dirs.dir_of(log), {log.tp: active})

    async def _write(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        await log_dir.disk.call(f"writing {name}", self._job(log_dir, name, offsets))

    def _job(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """A job for the directory's thread, with the offsets as they are now."""
        offline = {tp: log.checkpoints[name] for tp, log in log_dir.offline_logs.items() if name in log.checkpoints}
        return partial(write_offsets, self._dirs.files, log_dir.file(name), offline | dict(offsets))
