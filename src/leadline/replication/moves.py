"""Moves of partitions between the log directories of this broker, while they are in use.

The log is copied in the background until little is left. Appends are refused while the rest is copied. Acknowledged
records are in the log that stays, whenever the broker is killed. It does not matter who leads meanwhile: a truncation
of the log truncates the copy, too (`LogDirs.truncate_to`).
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from leadline.errors import LogDirFailed, WireError
from leadline.log.log import Isolation, Log
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicPartition
from leadline.replication.context import ReplicationContext
from leadline.replication.hosted_partition import HostedPartition
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.ports import monotonic_ms

log = logging.getLogger(__name__)

COPY_BYTES = 1024 * 1024  # in one step
HELD_BACK_S = 0.1  # between two checks of the throttle


class Standstill(Protocol):
    """Stops everything that writes to the log of a partition, truncates it, or changes its leader."""

    def __call__(self, hosted: HostedPartition, /) -> AbstractAsyncContextManager[None]: ...


class Move(NamedTuple):
    path: str
    task: "asyncio.Task[None]"


class LogDirMoves:
    """The partitions of a broker that are on their way to another log directory."""

    def __init__(
        self,
        dirs: LogDirs,
        hosted: Mapping[TopicPartition, HostedPartition],
        context: ReplicationContext,
        standstill: Standstill,
    ) -> None:
        self._dirs, self._hosted, self._standstill = dirs, hosted, standstill
        self._clock, self._throttle = context.clock, context.throttles.moves
        self._moves: dict[TopicPartition, Move] = {}

    def move(self, tp: TopicPartition, path: str) -> None:
        """Bring a partition to another log directory, in the background and while it is in use.

        A move to yet another directory is cancelled first. A move to the current directory only cancels.
        """
        before = self._moves.get(tp)
        if before.path != path if before is not None else self._hosted[tp].log.parent != path:
            task = asyncio.create_task(self._move(tp, path, before), name=f"moving {tp} to {path}")
            self._moves[tp] = Move(path, task)

    async def _move(self, tp: TopicPartition, path: str, before: Move | None) -> None:
        hosted = self._hosted[tp]
        try:
            if before is not None:
                await self._cancel(tp, hosted, before)
            if hosted.log.parent != path:
                await self._copy_and_switch(hosted, path)
                log.info("moved %s to %s", tp, path)
        except (LogDirFailed, WireError, OSError) as error:
            log.error("%s could not be moved to %s: %s", tp, path, error)
        finally:
            hosted.is_switching = False
            if (current := self._moves.get(tp)) is not None and current.task is asyncio.current_task():
                del self._moves[tp]

    async def _copy_and_switch(self, hosted: HostedPartition, path: str) -> None:
        """Copy until little is left; then, at a standstill, copy the rest and put the copy in the log's place."""
        dirs, source = self._dirs, hosted.log
        target = await dirs.create(source.tp, source.topic_id, path=path, future=True)
        await self._catch_up(source, target)
        target.flush(active=True)
        await dirs.dir_of(target).disk.drain()
        await self._catch_up(source, target)

        def switched() -> None:
            hosted.log, hosted.is_switching = target, False
            target.on_durable = source.on_durable
            target.on_durable()  # the copy was flushed: waits for a flush of the old log end

        async with self._standstill(hosted):
            while _copy(source, target):
                pass
            target.set_high_watermark(source.high_watermark)
            if target.log_start < source.log_start:  # records deleted in the meantime must not come back
                target.delete_records(source.log_start)
            await dirs.replace_with_future(source.tp, switched)

    async def _catch_up(self, source: Log, target: Log) -> None:
        """Copy until the target has, for a moment, everything: a producer that does not pause always adds more."""
        throttle, more = self._throttle, True
        while more:
            while throttle.is_exceeded(monotonic_ms(self._clock)):  # noqa: ASYNC110  time alone brings it down
                await asyncio.sleep(HELD_BACK_S)
            copied = _copy(source, target)
            throttle.record(copied, monotonic_ms(self._clock))
            more = copied > 0 and target.log_end < source.log_end
            await asyncio.sleep(0)  # let other tasks run

    def resume(self, tp: TopicPartition) -> None:
        """Continue a move that was under way when the broker last stopped."""
        if tp in self._dirs.future:
            self.move(tp, self._dirs.future[tp].parent)

    async def cancel(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        if (move := self._moves.pop(tp, None)) is not None:
            await self._cancel(tp, hosted, move)

    async def _cancel(self, tp: TopicPartition, hosted: HostedPartition, move: Move) -> None:
        """End a move, and remove its incomplete copy."""
        await _end(hosted, move)
        if tp in self._dirs.future:
            await self._dirs.deletion.delete(tp, future=True)

    async def stop(self) -> None:
        """End all moves. Their copies stay: `resume` continues them after the next start."""
        await asyncio.gather(*(_end(self._hosted[tp], move) for tp, move in self._moves.items()))


async def _end(hosted: HostedPartition, move: Move) -> None:
    """Cancel a move, unless it is about to end: half-way through, only one of two names is changed."""
    if not hosted.is_switching:
        move.task.cancel()
    await all_ended(move.task)


def _copy(source: Log, target: Log) -> int:
    """Copy the next records. Returns how many bytes were copied."""
    if target.log_end < source.log_start:
        target.truncate_fully_and_start_at(source.log_start)
    if target.log_end >= source.log_end:
        return 0
    records = source.read(target.log_end, COPY_BYTES, Isolation.LOG_END).slice
    if records is None:
        return 0
    data = records.file.pread(records.length, records.position)
    return len(data) if target.append_as_follower(data) is not None else 0
