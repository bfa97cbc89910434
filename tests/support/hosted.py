"""A partition on a broker of its own, without sockets and without a controller."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from leadline.log.log_dirs import LogDirs
from leadline.log.write_pressure import WritePressure, start_writeback
from leadline.model import TopicPartition
from leadline.replication.alterations import Alterations, no_controller
from leadline.replication.context import ReplicationContext
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.wire.fetch_position import NO_TOPIC_ID, FetchPosition
from tests.support.dirs import log_dirs, opened
from tests.support.settings import live_settings

TP, ME, FOLLOWER = TopicPartition("orders", 0), 1, 2


class Partition:
    """`serves_one`: what is deferred runs when the requests are served, not in the next iteration of the loop."""

    def __init__(self, dirs: LogDirs, hosted: HostedPartition, context: ReplicationContext) -> None:
        self.dirs, self.hosted, self.context = dirs, hosted, context

    def lead(self, *replicas: int, epoch: int = 0) -> None:
        self.hosted.elected(LeaderAndIsr(ME, epoch, replicas), replicas)

    def fetched(self, offset: int, *, log_start: int = 0, replica: int = FOLLOWER) -> None:
        position = FetchPosition(NO_TOPIC_ID, TP.partition, self.hosted.epoch, offset, -1, log_start, 1)
        self.hosted.follower_fetched(replica, position, ANY_EPOCH, None, self.context.clock.now_ms())

    def serve(self, requests: Callable[[], object]) -> None:
        """As a connection does."""
        self.context.completions.is_held = True
        try:
            requests()
        finally:
            self.context.completions.release()


@asynccontextmanager
async def partition(path: Path, **topic: str) -> AsyncIterator[Partition]:
    async with opened(log_dirs(path, topic=topic)) as dirs, asyncio.timeout(120):
        completions = DeferredCompletions(serves_one=lambda: True)
        pressure = WritePressure(partial(start_writeback, dirs.files, dirs.clock))
        context = ReplicationContext(ME, dirs.clock, live_settings(), completions, pressure)
        context.brokers.update({ME: ANY_EPOCH, FOLLOWER: ANY_EPOCH})
        alterations = Alterations(ME, no_controller, lambda *answer: None)
        try:
            yield Partition(dirs, HostedPartition(await dirs.create(TP, None), context, alterations), context)
        finally:
            await alterations.stop()
            await context.pressure.stop()
