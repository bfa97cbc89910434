"""A partition on its way to another log directory, while it is in use.

It is copied as it is, in the background, until little is left; for the rest nothing is let in. What was acknowledged is
in the log that stays, whenever the broker should be killed. It does not matter who leads meanwhile: what is truncated
here is truncated in the copy, too (`LogDirs.truncate_to`).
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from leadline.log.log import Isolation, Log
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicPartition
from leadline.replication.throttle import Throttle

COPY_BYTES = 1024 * 1024  # at a time
HELD_BACK_S = 0.1  # between two looks at the throttle


class Moving(Protocol):
    """A partition on this broker, as far as a move needs it."""

    log: Log
    switching: bool


class Move(NamedTuple):
    path: str
    task: "asyncio.Task[None]"


async def end(moving: Moving, move: Move) -> None:
    """Cancel a move, unless it is about to be over: half-way there are two names to change."""
    if not moving.switching:
        move.task.cancel()
    await asyncio.gather(move.task, return_exceptions=True)


async def copy_and_switch(
    dirs: LogDirs,
    tp: TopicPartition,
    moving: Moving,
    path: str,
    throttle: Throttle,
    standstill: Callable[[], AbstractAsyncContextManager[None]],
) -> None:
    """Copy until little is left, then, at a standstill, the rest; and the one takes the other's place.

    `standstill`: nobody writes to the log, truncates it, or decides who leads.
    """
    source = moving.log
    target = await dirs.create(tp, source.topic_id, path=path, future=True)
    await _catch_up(source, target, dirs, throttle)
    target.flush(active=True)
    await dirs.dir_of(target).disk.drain()
    await _catch_up(source, target, dirs, throttle)

    def switched() -> None:
        moving.log, moving.switching = target, False
        target.on_durable = source.on_durable
        target.on_durable()  # it was flushed before: who waits for a flush of the other one need not any longer

    async with standstill():
        while _copy(source, target):
            pass
        target.set_high_watermark(source.high_watermark)
        if target.log_start < source.log_start:  # what was deleted meanwhile does not come back
            target.delete_records(source.log_start)
        await dirs.replace_with_future(tp, switched)


async def _catch_up(source: Log, target: Log, dirs: LogDirs, throttle: Throttle) -> None:
    """Until one has, for a moment, all that the other has: with a producer that does not pause there is always more."""
    more = True
    while more:
        while throttle.is_exceeded(dirs.clock.now_ms()):  # noqa: ASYNC110  time alone brings it down
            await asyncio.sleep(HELD_BACK_S)
        copied = _copy(source, target)
        throttle.record(copied, dirs.clock.now_ms())
        more = copied > 0 and target.log_end < source.log_end
        await asyncio.sleep(0)  # the others' turn


def _copy(source: Log, target: Log) -> int:
    """The next records of one log into another: so many bytes, 0 if there are none."""
    if target.log_end < source.log_start:
        target.truncate_fully_and_start_at(source.log_start)
    found = (
        source.read(target.log_end, COPY_BYTES, Isolation.LOG_END).slice if target.log_end < source.log_end else None
    )
    if found is None:
        return 0
    records = found.file.pread(found.length, found.position)
    return len(records) if target.append_as_follower(records) is not None else 0
