"""Truncation of logs as followers need it: durable at each step, and together with a replica that is being moved.

before records go, the recovery point is lowered durably: after a crash, nothing trusts what was written since
after that, the truncation is synced before anything is appended: a crash never mixes old and new records
"""

from leadline.log.dir_checkpoints import DirCheckpoints
from leadline.log.log import Log
from leadline.log.log_dir_set import LogDirSet
from leadline.model import Offset, TopicPartition


class LogTruncation:
    def __init__(self, dirs: LogDirSet, checkpoints: DirCheckpoints) -> None:
        self._dirs, self._checkpoints = dirs, checkpoints

    async def truncate_to(self, tp: TopicPartition, offset: Offset) -> bool:
        """Drop the records from an offset on. True if there were any."""
        async with self._dirs.cleaning.paused(tp):
            log = self._dirs.log_of(tp)
            changed = await self._truncate(log, offset)
            await self._checkpoints.lower_cleaned_offset(log)
        await self.truncate_future_to(tp, offset)
        return changed

    async def truncate_future_to(self, tp: TopicPartition, offset: Offset) -> None:
        """A replica that moves may not hold what the one that it is copied from does not."""
        if tp in self._dirs.future and self._dirs.future[tp].log_end > offset:
            await self._truncate(self._dirs.future[tp], offset)

    async def _truncate(self, log: Log, offset: Offset) -> bool:
        log_start = log.log_start
        if log.lower_recovery_point(offset):
            await self._checkpoints.write_recovery_points(self._dirs.dir_of(log))
        changed = log.truncate_to(offset)
        if changed:
            await self._sync(log, log_start)
        return changed

    async def truncate_fully_and_start_at(self, tp: TopicPartition, offset: Offset) -> None:
        async with self._dirs.cleaning.paused(tp):
            current = self._dirs.log_of(tp)
            for log in (current, *([self._dirs.future[tp]] if tp in self._dirs.future else ())):
                log_start = log.log_start
                if log.lower_recovery_point(min(offset, log_start)):
                    await self._checkpoints.write_recovery_points(self._dirs.dir_of(log))
                log.truncate_fully_and_start_at(offset)
                await self._sync(log, log_start)
            await self._checkpoints.lower_cleaned_offset(current)

    async def _sync(self, log: Log, log_start: Offset) -> None:
        log_dir = self._dirs.dir_of(log)
        log.flush(active=True)
        await log_dir.disk.drain()
        if log.log_start < log_start:  # the checkpoint would have everything below its offset deleted
            await self._checkpoints.write_log_starts(log_dir)
