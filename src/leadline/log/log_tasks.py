"""The periodic tasks of the logs, under the names that Kafka's LogManager gives them.

kafka-log-retention                every log.retention.check.interval.ms
kafka-log-flusher                  every log.flush.scheduler.interval.ms
kafka-recovery-point-checkpoint    every log.flush.offset.checkpoint.interval.ms
kafka-log-start-offset-checkpoint  every log.flush.start.offset.checkpoint.interval.ms
kafka-delete-logs                  file.delete.delay.ms after a partition was deleted (see LogDeletion)
producer-id-expiration             every producer.id.expiration.check.interval.ms
index-entries                      every second, of logs that were appended to
kafka-log-cleaner                  log.cleaner.threads processes; a rest of log.cleaner.backoff.ms when nothing is dirty
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from leadline.errors import LogDirFailed, StorageError
from leadline.log.cleaner import Cleaner
from leadline.log.log import Log
from leadline.log.log_dir import LogDir
from leadline.log.log_dirs import LogDirs
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import every

log = logging.getLogger(__name__)

INDEX_INTERVAL_MS = 1000


class LogTasks:
    """The tasks run until they are stopped. Neither a failed directory nor a shortage ends one of them."""

    def __init__(self, dirs: LogDirs) -> None:
        self.dirs, self.cleaner = dirs, Cleaner(dirs)
        self._tasks: list[asyncio.Task[None]] = []
        self._cleaners: dict[int, asyncio.Task[None]] = {}  # by number

    def start(self) -> None:
        config = self.dirs.config
        first_ms = config.log_initial_task_delay_ms
        for name, interval_ms, work in (
            ("kafka-log-retention", config.log_retention_check_interval_ms, self.delete_old_segments),
            ("kafka-log-flusher", config.log_flush_scheduler_interval_ms, self.flush_dirty),
            (
                "kafka-recovery-point-checkpoint",
                config.log_flush_offset_checkpoint_interval_ms,
                self.checkpoint_recovery,
            ),
            (
                "kafka-log-start-offset-checkpoint",
                config.log_flush_start_offset_checkpoint_interval_ms,
                self.checkpoint_starts,
            ),
            ("producer-id-expiration", config.producer_id_expiration_check_interval_ms, self.expire_producers),
        ):
            self._tasks.append(asyncio.create_task(every(interval_ms, work, first_ms=first_ms), name=name))
        self._tasks.append(
            asyncio.create_task(every(INDEX_INTERVAL_MS, self.write_index_entries), name="index-entries")
        )
        self._start_cleaners()

    def _start_cleaners(self) -> None:
        """As many as log.cleaner.threads. A cleaner too many completes its current pass first."""
        config = self.dirs.config
        for n in range(config.log_cleaner_threads if config.log_cleaner_enable else 0):
            if n not in self._cleaners or self._cleaners[n].done():
                self._cleaners[n] = asyncio.create_task(self.cleaner.run(n), name=f"kafka-log-cleaner-{n}")

    def reconfigure(self) -> None:
        """The settings of `dirs` changed. Each interval is read when it begins, except the pause of a cleaner."""
        if self._tasks:
            self._start_cleaners()
            self.cleaner.reconfigured()

    async def stop(self) -> None:
        tasks = [*self._tasks, *self._cleaners.values()]
        for task in tasks:
            task.cancel()
        await all_ended(*tasks)
        await self.cleaner.stop()
        self._tasks.clear()
        self._cleaners.clear()

    async def delete_old_segments(self) -> None:
        """The cleaner does it for compacted logs."""

        def delete(log: Log) -> None:
            if not log.config.compact:
                log.delete_old_segments()

        await self._for_each_log(delete)

    async def flush_dirty(self) -> None:
        now_ms = self.dirs.clock.now_ms()

        def flush(log: Log) -> None:
            if now_ms - log.last_flush_ms >= log.config.flush_ms:
                log.flush()

        await self._for_each_log(flush)

    async def write_index_entries(self) -> None:
        """Kafka's index entries are in the file at once: a reader such as `dump-log` finds them."""
        dirs = self.dirs
        while dirs.unindexed:
            target = dirs.unindexed.pop()
            if target in (dirs.logs.get(target.tp), dirs.future.get(target.tp)):
                try:
                    target.write_index_entries()
                except StorageError as error:  # the other logs go on
                    target.warn_of(error)
            await asyncio.sleep(0)

    async def _for_each_log(self, work: Callable[[Log], None]) -> None:
        for target in self.dirs.all_logs():
            try:
                work(target)
            except StorageError as error:  # the other logs go on
                target.warn_of(error)
            await asyncio.sleep(0)

    async def checkpoint_recovery(self) -> None:
        await self._for_each_dir(self.dirs.checkpoints.write_recovery_points)

    async def checkpoint_starts(self) -> None:
        await self._for_each_dir(self.dirs.checkpoints.write_log_starts)

    async def _for_each_dir(self, work: Callable[[LogDir], Awaitable[None]]) -> None:
        for log_dir in list(self.dirs.dirs.values()):
            try:
                await work(log_dir)
            except (LogDirFailed, StorageError) as error:
                log.warning("%s", error)

    async def expire_producers(self) -> None:
        for target in self.dirs.all_logs():
            target.expire_producers()
            await asyncio.sleep(0)
