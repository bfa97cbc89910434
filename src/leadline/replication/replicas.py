"""The partitions that this broker holds, and what the controller decides about them.

One `HostedPartition` each, and one `Fetcher` for each leader that is followed.

    the controller's commands are carried out one by one, in its order
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import NamedTuple

from leadline.cluster.broker_client import LeaderClient, PeerLost
from leadline.config.live_settings import LiveSettings
from leadline.errors import (
    FencedLeaderEpoch,
    LogDirFailed,
    NotLeaderOrFollower,
    StaleControllerEpoch,
    StorageError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from leadline.log.log import AppendResult
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.log.write_pressure import WritePressure, start_writeback
from leadline.model import NO_EPOCH, NO_LEADER, BrokerId, Buffer, LeaderEpoch, Offset, TopicId, TopicPartition
from leadline.replication.alterations import Alterations, Decision, Proposed, SendAlterPartition, no_controller
from leadline.replication.context import ReplicationContext
from leadline.replication.effects_on_logs import FollowedPartition
from leadline.replication.fetch_requests import FetchingBroker
from leadline.replication.fetcher import Fetcher
from leadline.replication.follower import follow
from leadline.replication.hosted_partition import HostedPartition, no_fetcher
from leadline.replication.moves import LogDirMoves
from leadline.replication.partition import LeaderAndIsr
from leadline.replication.replica_tasks import ReplicaTasks
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.garbage import LongLivedObjects
from leadline.runtime.turns import over_turns
from leadline.wire.fetch_position import NO_TOPIC_ID

log = logging.getLogger(__name__)

LAST_FLUSH_S, FLUSH_CHECK_S = 30.0, 0.005  # at a stop: how long flushes may take, and how often they are checked


def _nowhere(broker: BrokerId) -> LeaderClient:
    raise PeerLost(f"there is no way to broker {broker}")


class OtherBrokers(NamedTuple):
    """How replicas reach the other brokers. By default there are none."""

    connect: Callable[[BrokerId], LeaderClient] = _nowhere
    alter: SendAlterPartition = no_controller  # sends AlterPartition to the controller
    exists: Callable[[TopicPartition], bool] = lambda _: False  # a partition, on any broker that this one knows of


class Replicas:
    def __init__(
        self,
        dirs: LogDirs,
        me: BrokerId,
        settings: LiveSettings,
        brokers: OtherBrokers = OtherBrokers(),  # noqa: B008  it is immutable
        completions: DeferredCompletions | None = None,
    ) -> None:
        pressure = WritePressure(partial(start_writeback, dirs.files, dirs.clock))
        self.context = ReplicationContext(me, dirs.clock, settings, completions or DeferredCompletions(), pressure)
        self.me, self.dirs, self._exists = me, dirs, brokers.exists
        self.completions, self.pressure = self.context.completions, self.context.pressure
        self.throttles = self.context.throttles
        self.hosted: dict[TopicPartition, HostedPartition] = {}
        self.on_lead: list[Callable[[TopicPartition, HostedPartition], None]] = []  # leadership of a partition begins
        self.on_drop: list[Callable[[TopicPartition], None]] = []  # and ends
        self.is_leaving = False  # a controlled shutdown: this broker follows nothing that it would have to join
        self.alterations = Alterations(me, brokers.alter, self._isr_answered)
        self.moves = LogDirMoves(dirs, self.hosted, self.context, self._standstill)
        self.tasks = ReplicaTasks(self.hosted, dirs, settings)
        self._connect = brokers.connect
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._deciding = asyncio.Lock()
        self._long_lived = LongLivedObjects()
        dirs.on_offline.append(self._logs_offline)

    @property
    def is_stopping(self) -> bool:
        return self.context.is_stopping

    # The controller's commands

    def alive(self, brokers: Mapping[BrokerId, int], broker_epoch: int) -> None:
        """The live brokers, with their epochs or ANY_EPOCH; and the epoch of this broker itself."""
        self.alterations.broker_epoch = broker_epoch
        before = self.context.brokers
        gone = {broker for broker, epoch in before.items() if brokers.get(broker) != epoch}
        before.clear()
        before.update(brokers)
        if gone:
            for hosted in self.hosted.values():
                hosted.brokers_left(gone)

    async def lead(
        self, tp: TopicPartition, topic_id: TopicId | None, decision: LeaderAndIsr, replicas: Iterable[BrokerId]
    ) -> HostedPartition:
        """Lead a partition, with a new log if there is none."""
        async with self._deciding:
            hosted = await self._hold(tp, topic_id, decision.leader_epoch)
            await self._unfollow(tp, hosted)
            begins = hosted.elected(decision, tuple(replicas))
            if hosted.leader.followers:
                self._start_isr_expiration()
            self.moves.resume(tp)
        for on_lead in self.on_lead if begins else ():
            on_lead(tp, hosted)
        return hosted

    async def follow(self, tp: TopicPartition, topic_id: TopicId | None, decision: LeaderAndIsr) -> HostedPartition:
        """Follow the leader of a partition, with a new log if there is none. NO_LEADER: wait for one.

        A broker that is leaving does not begin to follow outside of the ISR: the leader would wait for it to join.
        """
        leader, epoch = decision.leader, decision.leader_epoch
        async with self._deciding:
            hosted = await self._hold(tp, topic_id, epoch)
            state = hosted.follower_state
            if state is not None and hosted.leader_id == leader and state.continues(epoch):
                return hosted
            await self._unfollow(tp, hosted)
            self._resign(tp, hosted)
            hosted.epoch, hosted.leader_id = epoch, leader
            hosted.history.elected(decision, hosted.log.log_end, self.context.clock.now_ms())
            if leader != NO_LEADER and (not self.is_leaving or self.me in decision.isr):
                await self._begin_following(tp, topic_id, hosted)
            self.moves.resume(tp)
        return hosted

    async def _begin_following(self, tp: TopicPartition, topic_id: TopicId | None, hosted: HostedPartition) -> None:
        hosted.follower_state, effects = follow(
            hosted.log,
            hosted.epoch,
            topic_id=NO_TOPIC_ID if topic_id is None else topic_id.bytes,
            partition=tp.partition,
            backoff_ms=self.context.settings.broker.replica_fetch_backoff_ms,
        )
        self._start_isr_expiration()
        fetcher = self._fetcher(hosted.leader_id)
        hosted.on_flushed = fetcher.flush_ended
        await fetcher.follow(tp, FollowedPartition(hosted.follower_state, hosted), effects)

    def _start_isr_expiration(self) -> None:
        if not self.is_stopping:
            self.tasks.start_isr_expiration()

    async def _hold(self, tp: TopicPartition, topic_id: TopicId | None, epoch: LeaderEpoch) -> HostedPartition:
        if self.is_stopping:
            raise NotLeaderOrFollower(f"{tp} is no longer led or followed here: this broker is stopping")
        hosted = self.hosted.get(tp)
        if hosted is not None:
            if epoch < hosted.epoch:
                raise StaleControllerEpoch(f"leader epoch {epoch} of {tp} is old; the current one is {hosted.epoch}")
            if hosted.log.offline:
                hosted.log.refuse()
        hosted_log = await self.dirs.create(tp, topic_id)
        if hosted is None:
            # A crash may have lost records that the replica that moves has copied already.
            await self.dirs.truncation.truncate_future_to(tp, hosted_log.log_end)
            hosted = self.hosted[tp] = HostedPartition(hosted_log, self.context, self.alterations)
            self._long_lived.created()
            if not self.is_stopping:
                self.tasks.start_checkpoints()
        return hosted

    def _fetcher(self, leader: BrokerId) -> Fetcher:
        if leader not in self._fetchers:
            self._fetchers[leader] = Fetcher(leader, self.context, self._replica, self._connect, self.dirs)
        return self._fetchers[leader]

    def _replica(self) -> FetchingBroker:
        return FetchingBroker(self.me, self.alterations.broker_epoch)

    async def _unfollow(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        """Stop fetching, once the change to its log that is under way has ended."""
        hosted.follower_state, hosted.on_flushed = None, no_fetcher
        fetcher = self._fetchers.get(hosted.leader_id)
        if fetcher is not None:
            await fetcher.forget(tp)
            if not fetcher.followed:
                del self._fetchers[hosted.leader_id]
                await fetcher.stop()

    def _resign(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        if hosted.resign():
            for on_drop in self.on_drop:
                on_drop(tp)

    async def drop(self, *tps: TopicPartition) -> set[TopicPartition]:
        """Give partitions up and delete their logs. Returns those for which the disk failed or a resource was short."""
        async with self._deciding:
            failed = await self._release_all(tps)
            remaining = [tp for tp in tps if tp not in failed]
            logs = [tp for tp in remaining if tp in self.dirs.logs]  # not if its directory failed
            for tp in (tp for tp in remaining if tp not in self.dirs.logs):
                self.dirs.uncreated.pop(tp, None)
                try:
                    await self.dirs.deletion.delete_offline(tp)
                except (LogDirFailed, StorageError):
                    failed.add(tp)
            return failed | await self.dirs.deletion.delete_all(logs)

    async def release(self, *tps: TopicPartition) -> set[TopicPartition]:
        """Give partitions up, but keep their logs. Returns those for which the disk failed or a resource was short."""
        async with self._deciding:
            return await self._release_all(tps)

    async def _release_all(self, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
        failed: set[TopicPartition] = set()
        async for tp in over_turns(tps):
            try:
                await self._release(tp)
            except (LogDirFailed, StorageError):
                failed.add(tp)
        return failed

    async def _release(self, tp: TopicPartition) -> None:
        hosted = self.hosted.pop(tp, None)
        if hosted is None:
            return
        self._resign(tp, hosted)
        await self._unfollow(tp, hosted)
        await self.moves.cancel(tp, hosted)

    async def stop(self) -> None:
        """End all waits, fetches and moves. Moves continue after the next start.

        Produces that wait for a flush are answered first: flushes end soon.
        """
        self.context.is_stopping = True
        await self._flushes_ended()
        self.completions.is_held = True
        for tp, hosted in self.hosted.items():
            hosted.dismiss(NotLeaderOrFollower(f"{tp} is no longer led here"))
        self.completions.release()
        await self.tasks.stop()
        async with self._deciding:  # a command under way could begin to follow after this
            await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
        await self.alterations.stop()
        await self.moves.stop()
        await self.pressure.stop()

    async def _flushes_ended(self) -> None:
        """Wait for the flushes that are due now, unless their disks fail, or a shortage makes them try again."""
        due = [(hosted.log, hosted.log.log_end) for hosted in self.hosted.values() if hosted.log.awaits_flush]
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_S if due else None):
                while any(log.durable_end < end and log.awaits_flush for log, end in due):  # noqa: ASYNC110  at the end
                    await asyncio.sleep(FLUSH_CHECK_S)

    # News that does not come from the controller

    def superseded(self, tp: TopicPartition, leader: BrokerId, epoch: LeaderEpoch) -> None:
        """Another broker leads a partition, in a later epoch. Details follow from the controller."""
        hosted = self.hosted.get(tp)
        if hosted is not None and hosted.leader_state is not None and epoch > hosted.leader_state.epoch:
            log.warning("%s is led by broker %d in epoch %d: this broker leads it no longer", tp, leader, epoch)
            self._resign(tp, hosted)
            hosted.leader_id = leader

    def fence(self) -> None:
        """Another broker may lead this broker's partitions, if their ISR has other brokers."""
        for hosted in self.hosted.values():
            hosted.fence()

    def unfence(self) -> None:
        for hosted in self.hosted.values():
            hosted.unfence()

    def shrink_isrs(self, silent: Collection[BrokerId]) -> None:
        """Late followers leave the ISRs. Silent ones need not be late for replica.lag.time.max.ms."""
        self.tasks.shrink_isrs(silent)

    def break_off(self, broker: BrokerId) -> None:
        """A broker is silent: fetch from it over a new connection."""
        if (fetcher := self._fetchers.get(broker)) is not None:
            fetcher.break_off()

    def _isr_answered(self, tp: TopicPartition, proposed: Proposed, decision: Decision) -> None:
        if (hosted := self.hosted.get(tp)) is not None:
            hosted.isr_answered(proposed, decision)

    def _logs_offline(self, tps: list[TopicPartition]) -> None:
        for tp in tps:
            if (hosted := self.hosted.get(tp)) is not None:
                hosted.dismiss(StorageError(hosted.log.why_offline))
                self._resign(tp, hosted)
                hosted.on_flushed()

    # Requests of clients and followers

    def holding(self, tp: TopicPartition, epoch: LeaderEpoch = NO_EPOCH) -> HostedPartition:
        """A partition that is here, led or followed. `epoch`: the leader epoch that the client knows."""
        hosted = self.hosted.get(tp)
        if hosted is None:
            self.dirs.check_usable(tp)
            if self._exists(tp):
                raise NotLeaderOrFollower(f"this broker has no replica of {tp}")
            raise UnknownTopicOrPartition(f"this broker has no partition {tp}")
        if epoch != NO_EPOCH and epoch != hosted.epoch:
            if epoch < hosted.epoch:
                raise FencedLeaderEpoch(f"leader epoch {epoch} of {tp} is old; the current one is {hosted.epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {epoch} of {tp} is not known here; it is {hosted.epoch}")
        if hosted.log.offline:
            hosted.log.refuse()
        return hosted

    def leading(self, tp: TopicPartition, epoch: LeaderEpoch = NO_EPOCH) -> HostedPartition:
        """A partition that this broker leads."""
        hosted = self.holding(tp, epoch)
        if hosted.leader_state is None:
            raise NotLeaderOrFollower(f"{tp} is led by broker {hosted.leader_id}, not here")
        return hosted

    def append(
        self,
        tp: TopicPartition,
        batch: Buffer,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = TRUSTED,
        acks: int = 1,
    ) -> AppendResult:
        return self.holding(tp).append_as_leader(batch, origin, verified, acks)

    async def committed(self, tp: TopicPartition, offset: Offset) -> None:
        """Wait until everything below an offset is on every in-sync replica. NotLeaderOrFollower once another leads."""
        await self.leading(tp).committed(offset)

    def move(self, tp: TopicPartition, path: str) -> None:
        """Moves a replica to another log directory in the background. Raises if this broker does not hold it."""
        self.holding(tp)
        self.moves.move(tp, path)

    @asynccontextmanager
    async def _standstill(self, hosted: HostedPartition) -> AsyncIterator[None]:
        async with self._deciding, AsyncExitStack() as held:
            if hosted.follower_state is not None:
                await held.enter_async_context(self._fetcher(hosted.leader_id).changing)
            hosted.is_switching = True
            try:
                yield
            finally:
                hosted.is_switching = False
