"""The periodic tasks of replication: ISR expiration, and checkpoints of the high watermarks.

They run only where there are several replicas: a single one is in sync with itself.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping

from leadline.config.live_settings import LiveSettings
from leadline.errors import LogDirFailed, StorageError
from leadline.log.log_dirs import LogDirs
from leadline.model import BrokerId, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import every

log = logging.getLogger(__name__)


class ReplicaTasks:
    def __init__(self, hosted: Mapping[TopicPartition, HostedPartition], dirs: LogDirs, settings: LiveSettings) -> None:
        self._hosted, self._dirs, self._settings = hosted, dirs, settings
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks, unless they run already."""
        if self._tasks:
            return
        config = self._settings.broker
        expiration = every(config.replica_lag_time_max_ms / 2, self.expire_isrs)
        interval_ms = config.replica_high_watermark_checkpoint_interval_ms
        checkpoint = every(interval_ms, self.checkpoint_high_watermarks, first_ms=0)  # as soon as there is a partition
        self._tasks = [
            asyncio.create_task(expiration, name="isr-expiration"),
            asyncio.create_task(checkpoint, name="highwatermark-checkpoint"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await all_ended(*self._tasks)

    async def expire_isrs(self) -> None:
        self.shrink_isrs(())

    def shrink_isrs(self, silent: Collection[BrokerId]) -> None:
        """Late followers leave the ISRs. Silent ones need not be late for replica.lag.time.max.ms."""
        for hosted in self._hosted.values():
            hosted.shrink_isr(silent)

    async def checkpoint_high_watermarks(self) -> None:
        for log_dir in list(self._dirs.dirs.values()):
            try:
                await self._dirs.checkpoints.write_high_watermarks(log_dir)
            except (LogDirFailed, StorageError) as error:
                log.warning("%s", error)
