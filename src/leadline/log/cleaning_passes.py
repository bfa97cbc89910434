"""The logs that are being compacted, and those whose compaction is paused because their files are about to change.

No pass works on a log whose compaction is paused.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from leadline.model import TopicPartition


@dataclass(slots=True)
class CleaningPass:
    """A log that is being compacted."""

    process: asyncio.subprocess.Process
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def abort(self) -> None:
        self.kill()
        await self.over.wait()

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()


class CleaningPasses:
    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, CleaningPass] = {}
        self._paused: Counter[TopicPartition] = Counter()

    def is_busy(self, tp: TopicPartition) -> bool:
        """Whether no pass may begin."""
        return tp in self.by_partition or self.is_paused(tp)

    def is_paused(self, tp: TopicPartition) -> bool:
        return self._paused[tp] > 0

    @asynccontextmanager
    async def paused(self, tp: TopicPartition) -> AsyncIterator[None]:
        """For a truncation, a move or a deletion: the current pass is aborted, and none begins until the block ends."""
        self._paused[tp] += 1
        try:
            if (current := self.by_partition.get(tp)) is not None:
                await current.abort()
            yield
        finally:
            self._paused[tp] -= 1

    async def abort_all(self) -> None:
        for current in list(self.by_partition.values()):
            await current.abort()
