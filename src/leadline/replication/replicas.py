"""The partitions that this broker holds: their logs, and what it is to each of them.

A shell: it does what it is asked to the log, tells the pure state what happened, and carries out the effects.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.errors import (
    FencedLeaderEpoch,
    LogDirFailed,
    NotLeaderOrFollower,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.log.log import Appended, Isolation, Log, Read
from leadline.log.log_dirs import LogDirs
from leadline.log.pressure import Pressure
from leadline.log.producers import TRUSTED, Origin, Verification
from leadline.model import NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from leadline.ports import Buffer
from leadline.replication.partition import NOTHING, Effects, Leader

log = logging.getLogger(__name__)

SMALL_BYTES = 4096  # batches up to here do not fill a disk's queue
COPY_BYTES = 1024 * 1024  # at a time, when a replica moves


class Waiter:
    """Somebody who waits until one of several partitions has more to show."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


@dataclass(slots=True, eq=False)
class Hosted:
    """A partition on this broker."""

    log: Log
    leader: Leader
    waiters: set[Waiter] = field(default_factory=set)
    switching: bool = False  # its log is about to be another: what came now would be in neither


class Move(NamedTuple):
    """A partition on its way to another log directory."""

    path: str
    task: "asyncio.Task[None]"


class Replicas:
    def __init__(self, dirs: LogDirs, me: BrokerId) -> None:
        self.dirs, self.me = dirs, me
        self.hosted: dict[TopicPartition, Hosted] = {}
        self.on_lead: list[Callable[[TopicPartition, Hosted], None]] = []  # leadership of a partition begins
        self.on_drop: list[Callable[[TopicPartition], None]] = []  # and ends
        self.pressure = Pressure()
        self.stopping = False  # nobody waits for more any longer
        self._moves: dict[TopicPartition, Move] = {}

    async def lead(
        self, tp: TopicPartition, topic_id: TopicId, epoch: LeaderEpoch, replicas: Iterable[BrokerId]
    ) -> Hosted:
        """Become the leader of a partition, with a new log if there is none."""
        found = await self.dirs.create(tp, topic_id)
        found.begin_epoch(epoch)
        leader = Leader(self.me, epoch, tuple(replicas), frozenset({self.me}), found.high_watermark)
        hosted = self.hosted[tp] = Hosted(found, leader)
        self._carry_out(hosted, leader.appended(found.log_end))
        if tp in self.dirs.future:  # it was about to move when the broker stopped
            self.move(tp, self.dirs.future[tp].parent)
        for told in self.on_lead:
            told(tp, hosted)
        return hosted

    async def drop(self, tp: TopicPartition) -> None:
        """Give a partition up and delete its log. LogDirFailed if the disk does not let us."""
        hosted = self.hosted.pop(tp, None)
        if hosted is None:
            return
        for told in self.on_drop:
            told(tp)
        for waiter in hosted.waiters:
            waiter.wake()
        if (move := self._moves.pop(tp, None)) is not None:
            await self._call_back(tp, hosted, move)
        if tp in self.dirs.logs:  # not if its directory failed
            await self.dirs.delete(tp)

    async def stop(self) -> None:
        """Nobody waits any longer, nothing moves any longer: what moved goes on after the next start."""
        self.stopping = True
        for hosted in self.hosted.values():
            for waiter in hosted.waiters:
                waiter.wake()
        await asyncio.gather(*(_end(self.hosted[tp], move) for tp, move in self._moves.items()))
        await self.pressure.stop()

    def leading(self, tp: TopicPartition, epoch: LeaderEpoch = NO_EPOCH) -> Hosted:
        """A partition that this broker leads; `epoch`: what the client believes."""
        hosted = self.hosted.get(tp)
        if hosted is None:
            raise UnknownTopicOrPartition(f"this broker has no partition {tp}")
        if epoch != NO_EPOCH and epoch != hosted.leader.epoch:
            if epoch < hosted.leader.epoch:
                raise FencedLeaderEpoch(f"leader epoch {epoch} of {tp} is over; it is {hosted.leader.epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {epoch} of {tp} is not known here; it is {hosted.leader.epoch}")
        if hosted.log.offline:
            raise NotLeaderOrFollower(f"{tp} is offline here: its log directory failed")
        return hosted

    def append(
        self,
        tp: TopicPartition,
        batch: Buffer,
        origin: Origin = Origin.CLIENT,
        verified: Verification | None = TRUSTED,
    ) -> Appended:
        hosted = self.leading(tp)
        if hosted.switching:
            raise NotLeaderOrFollower(f"{tp} is being handed over to another log directory: try again")
        appended = hosted.log.append_as_leader(batch, hosted.leader.epoch, origin, verified)
        effects = hosted.leader.appended(hosted.log.log_end)
        if effects is not NOTHING:
            self._carry_out(hosted, effects)
        if len(batch) > SMALL_BYTES:
            self.pressure.appended(hosted.log, len(batch))
        return appended

    async def committed(self, tp: TopicPartition, offset: Offset) -> None:
        """Wait until all below an offset is on every in-sync replica. NotLeaderOrFollower once another leads."""
        hosted = self.leading(tp)
        if hosted.leader.is_safe(offset):
            return
        waiter = Waiter()
        hosted.waiters.add(waiter)
        try:
            while not hosted.leader.is_safe(offset):
                if self.stopping or self.hosted.get(tp) is not hosted:
                    raise NotLeaderOrFollower(f"{tp} is no longer led here")
                await waiter.woken.wait()
                waiter.woken.clear()
        finally:
            hosted.waiters.discard(waiter)

    def read(self, hosted: Hosted, offset: Offset, max_bytes: int, isolation: Isolation, *, min_one: bool) -> Read:
        return hosted.log.read(offset, max_bytes, isolation, min_one=min_one)

    def move(self, tp: TopicPartition, path: str) -> None:
        """Bring a partition to another log directory, in the background and while it is in use.

        One that is on its way to yet another is called back; to its own, that is all.
        """
        before = self._moves.get(tp)
        if before.path != path if before is not None else self.hosted[tp].log.parent != path:
            task = asyncio.create_task(self._move(tp, path, before), name=f"moving {tp} to {path}")
            self._moves[tp] = Move(path, task)

    async def _move(self, tp: TopicPartition, path: str, before: Move | None) -> None:
        hosted = self.hosted[tp]
        try:
            if before is not None:
                await self._call_back(tp, hosted, before)
            if hosted.log.parent != path:
                await self._copy_and_switch(tp, hosted, path)
                log.info("%s lies in %s now", tp, path)
        except (LogDirFailed, WireError, OSError) as error:
            log.error("%s could not be moved to %s: %s", tp, path, error)
        finally:
            hosted.switching = False
            if (current := self._moves.get(tp)) is not None and current.task is asyncio.current_task():
                del self._moves[tp]

    async def _copy_and_switch(self, tp: TopicPartition, hosted: Hosted, path: str) -> None:
        """Copy until little is left, then let nothing in while the rest is copied and the one takes the other's place.

        What was acknowledged is in the log that stays, whenever the broker should be killed.
        """
        source = hosted.log
        target = await self.dirs.create(tp, source.topic_id, path=path, future=True)
        if target.log_end < source.log_start:
            target.truncate_fully_and_start_at(source.log_start)
        target.truncate_to(source.log_end)
        await _catch_up(source, target)
        target.flush(active=True)
        await self.dirs.dir_of(target).disk.drain()
        await _catch_up(source, target)
        hosted.switching = True
        while _copy(source, target):
            pass

        def switched() -> None:
            target.set_high_watermark(source.high_watermark)
            hosted.log, hosted.switching = target, False

        await self.dirs.replace_with_future(tp, switched)

    async def _call_back(self, tp: TopicPartition, hosted: Hosted, move: Move) -> None:
        """End a move, and remove what there is of its copy."""
        await _end(hosted, move)
        if tp in self.dirs.future:
            await self.dirs.delete(tp, future=True)

    def _carry_out(self, hosted: Hosted, effects: Effects) -> None:
        if effects.advance_to is not None:
            hosted.log.advance_high_watermark(effects.advance_to)
            for waiter in hosted.waiters:
                waiter.wake()


async def _end(hosted: Hosted, move: Move) -> None:
    """Cancel a move, unless it is about to be over: half-way there are two names to change."""
    if not hosted.switching:
        move.task.cancel()
    await asyncio.gather(move.task, return_exceptions=True)


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
