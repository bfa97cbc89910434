"""A partition on its way to another log directory, while it is in use.

It is copied as it is, in the background, until little is left; for the rest nothing is let in. What was acknowledged is
in the log that stays, whenever the broker should be killed.
"""

import asyncio
import os
from typing import NamedTuple, Protocol

from leadline.log.log import Isolation, Log
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicPartition

COPY_BYTES = 1024 * 1024  # at a time


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


async def copy_and_switch(dirs: LogDirs, tp: TopicPartition, moving: Moving, path: str) -> None:
    """Copy until little is left, then let nothing in while the rest is copied and the one takes the other's place."""
    source = moving.log
    target = await dirs.create(tp, source.topic_id, path=path, future=True)
    if target.log_end < source.log_start:
        target.truncate_fully_and_start_at(source.log_start)
    target.truncate_to(source.log_end)
    await _catch_up(source, target)
    target.flush(active=True)
    await dirs.dir_of(target).disk.drain()
    await _catch_up(source, target)
    moving.switching = True
    while _copy(source, target):
        pass

    def switched() -> None:
        target.set_high_watermark(source.high_watermark)
        moving.log, moving.switching = target, False

    await dirs.replace_with_future(tp, switched)


async def _catch_up(source: Log, target: Log) -> None:
    """Until one has, for a moment, all that the other has: with a producer that does not pause there is always more."""
    more = True
    while more:
        more = _copy(source, target) and target.log_end < source.log_end
        await asyncio.sleep(0)  # the others' turn


def _copy(source: Log, target: Log) -> bool:
    """The next records of one log into another. False if there are none."""
    found = (
        source.read(target.log_end, COPY_BYTES, Isolation.LOG_END).slice if target.log_end < source.log_end else None
    )
    if found is None:
        return False
    return target.append_as_follower(os.pread(found.file.fd, found.length, found.position)) is not None
