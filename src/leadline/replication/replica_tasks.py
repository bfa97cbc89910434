"""The periodic tasks of replication: ISR expiration, and checkpoints of the high watermarks.

They run only where there are several replicas: a single one is in sync with itself.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping

from leadline.config.replication import ReplicationConfig
from leadline.errors import LogDirFailed, StorageError
from leadline.log.log_dirs import LogDirs
from leadline.model import BrokerId, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.runtime.periodic import every

log = logging.getLogger(__name__)


class ReplicaTasks:
    def __init__(
        self, hosted: Mapping[TopicPartition, HostedPartition], dirs: LogDirs, config: ReplicationConfig
    ) -> None:
        self._hosted, self._dirs, self._config = hosted, dirs, config
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start the tasks, unless they run already."""
        if self._tasks:
            return
        expiration = every(self._config.replica_lag_time_max_ms / 2, self.expire_isrs)
        interval_ms = self._config.replica_high_watermark_checkpoint_interval_ms
        checkpoint = every(interval_ms, self.checkpoint_high_watermarks, first_ms=0)  # as soon as there is a partition
        self._tasks = [
            asyncio.create_task(expiration, name="isr-expiration"),
            asyncio.create_task(checkpoint, name="highwatermark-checkpoint"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
