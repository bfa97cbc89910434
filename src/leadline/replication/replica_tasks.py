"""The periodic tasks of replication: ISR expiration, and checkpoints of the high watermarks.

ISRs expire only where there are several replicas: a single one is in sync with itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

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
        self._tasks: dict[str, asyncio.Task[None]] = {}  # by name

    def start_checkpoints(self) -> None:
        """As soon as there is a partition, as in Kafka. The first one is written at once."""
        interval_ms = self._settings.broker.replica_high_watermark_checkpoint_interval_ms
        self._start("highwatermark-checkpoint", interval_ms, self.checkpoint_high_watermarks, first_ms=0)

    def start_isr_expiration(self) -> None:
        """As soon as a partition has several replicas."""
        self._start("isr-expiration", self._settings.broker.replica_lag_time_max_ms / 2, self.expire_isrs)

    def _start(
        self, name: str, interval_ms: float, work: Callable[[], Awaitable[None]], *, first_ms: float | None = None
    ) -> None:
        """Start a task, unless it runs already."""
        if name not in self._tasks:
            self._tasks[name] = asyncio.create_task(every(interval_ms, work, first_ms=first_ms), name=name)

    async def stop(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await all_ended(*self._tasks.values())

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
