"""The partitions that this broker holds: their logs, and what it is to each of them.

A shell: it does what it is asked to the log, tells the pure state what happened, and carries out the effects. What it
leads is in `partition`, what it copies from other brokers in `follower`, one `Fetcher` for each of them.

    a partition is led, or followed, or neither while nobody leads it; `epoch` is the latest that the controller told
    what the controller decides is done one by one, in its order
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from leadline.cluster.broker_client import LeaderClient, PeerLost
from leadline.config.replication import ReplicationConfig
from leadline.errors import (
    FencedLeaderEpoch,
    LogDirFailed,
    NotLeaderOrFollower,
    RequestTimedOut,
    StaleControllerEpoch,
    StorageError,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.log.log import AppendResult, Log
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.log.write_pressure import WritePressure
from leadline.model import NO_EPOCH, BrokerId, Buffer, LeaderEpoch, Offset, TopicId, TopicPartition
from leadline.replication.acknowledgements import FOREVER_S, Acknowledgements, Told
from leadline.replication.alterations import Alterations, Ask, Decision, Proposed, no_controller
from leadline.replication.fetch_requests import Me
from leadline.replication.fetcher import Fetcher, Followed
from leadline.replication.follower import Following, follow
from leadline.replication.history import History
from leadline.replication.moves import Move, copy_and_switch, end
from leadline.replication.partition import NOTHING, Effects, Heard, Leader, LeaderAndIsr
from leadline.replication.throttle import Throttles, is_named
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.periodic import every
from leadline.wire.fetch_position import NO_TOPIC_ID

log = logging.getLogger(__name__)

SMALL_BYTES = 4096  # batches up to here do not fill a disk's queue
LAST_FLUSH_S, LOOK_S = 30.0, 0.005  # at a stop, for those whose records are being flushed; between two looks at them
NO_LEADER: BrokerId = -1
ALL = -1  # acks: of all in-sync replicas


class Woken(Protocol):
    """Somebody who waits until one of several partitions has more to show."""

    @property
    def waits(self) -> bool:
        """At this very moment, or only now and then."""

    def wake(self) -> None: ...

    def mark(self) -> None:
        """Something else changed: not worth an answer, but to be told with the next."""


class Waiter:
    """One that waits in a task of its own."""

    waits = True

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()

    mark = wake


@dataclass(slots=True, eq=False)
class HostedPartition:
    """A partition on this broker."""

    log: Log
    epoch: LeaderEpoch = NO_EPOCH
    leader_id: BrokerId = NO_LEADER
    leads: Leader | None = None
    following: Following | None = None
    consumer_watchers: set[Woken] = field(default_factory=set)  # for the high watermark
    follower_watchers: set[Woken] = field(default_factory=set)  # followers, for the log's end
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)  # due to producers
    flushes: Acknowledgements = field(default_factory=Acknowledgements)  # those who wait for the log's durable end
    expiry: asyncio.TimerHandle | None = None  # of the first of them
    switching: bool = False  # its log is about to be another: what came now would be in neither
    is_fenced: bool = False  # led here, as far as is known, but others may lead it: see `fence`
    history: History = field(default_factory=History)

    @property
    def leader(self) -> Leader:
        if self.leads is None:
            raise NotLeaderOrFollower(f"{self.log.tp} is led by broker {self.leader_id}, not here")
        return self.leads

    def wake(self) -> None:
        self.wake_waiters()
        self.wake_copiers()

    def wake_waiters(self) -> None:
        for waiter in self.consumer_watchers:
            waiter.wake()

    @property
    def is_awaited(self) -> bool:
        """Whether a follower waits for more."""
        for copier in self.follower_watchers:  # noqa: SIM110  `any` would make a generator for each batch
            if copier.waits:
                return True
        return False

    def wake_copiers(self) -> None:
        for waiter in self.follower_watchers:
            waiter.wake()

    def mark_copiers(self) -> None:
        for copier in self.follower_watchers:
            copier.mark()


class Replicas:
    """`connect`: a peer at another broker. `alter`: AlterPartition, asked of the controller."""

    def __init__(
        self,
        dirs: LogDirs,
        me: BrokerId,
        config: ReplicationConfig | None = None,
        connect: Callable[[BrokerId], LeaderClient] | None = None,
        alter: Ask = no_controller,
    ) -> None:
        self.dirs, self.me, self.config = dirs, me, config or ReplicationConfig()
        self.hosted: dict[TopicPartition, HostedPartition] = {}
        self.brokers: dict[BrokerId, int] = {}  # those alive: see `alive`
        self.exists: Callable[[TopicPartition], bool] = lambda _: False  # somewhere, for all this broker has heard
        self.on_lead: list[Callable[[TopicPartition, HostedPartition], None]] = []  # leadership of a partition begins
        self.on_drop: list[Callable[[TopicPartition], None]] = []  # and ends
        self.pressure = WritePressure()
        self.completions = DeferredCompletions()
        self.throttles = Throttles()
        self.leaving = (
            False  # the controller is asked to let others lead: what this broker is not to join is not copied
        )
        self.stopping = False  # nobody waits for more any longer
        self.alterations = Alterations(me, alter, self._altered)
        self._connect = connect or _nowhere
        self._fetchers: dict[BrokerId, Fetcher] = {}
        self._deciding = asyncio.Lock()
        self._timers: list[asyncio.Task[None]] = []
        self._moves: dict[TopicPartition, Move] = {}
        dirs.on_offline.append(self._dir_failed)

    # What the controller says

    def alive(self, brokers: Mapping[BrokerId, int], broker_epoch: int) -> None:
        """Who is there, with its epoch or ANY_EPOCH; and the epoch of this broker itself."""
        self.alterations.broker_epoch = broker_epoch
        gone = {broker for broker, epoch in self.brokers.items() if brokers.get(broker) != epoch}
        self.brokers.clear()
        self.brokers.update(brokers)
        if gone:
            now_ms = self.dirs.clock.now_ms()
            for tp, hosted in self.hosted.items():
                if hosted.leads is not None:
                    self._carry_out(tp, hosted, hosted.leads.brokers_left(gone, now_ms))

    async def lead(
        self,
        tp: TopicPartition,
        topic_id: TopicId | None,
        epoch: LeaderEpoch,
        replicas: Iterable[BrokerId],
        *,
        isr: Iterable[BrokerId] | None = None,
        partition_epoch: int = 0,
        recovering: bool = False,
    ) -> HostedPartition:
        """Lead a partition, with a new log if there is none. `isr`: this broker alone, unless told otherwise."""
        in_sync = (self.me,) if isr is None else tuple(isr)
        decision = LeaderAndIsr(self.me, epoch, in_sync, partition_epoch, recovering)
        async with self._deciding:
            hosted = await self._hold(tp, topic_id, epoch)
            await self._unfollow(tp, hosted)
            begins = hosted.leads is None or epoch > hosted.leads.epoch
            self._elected(tp, hosted, decision, tuple(replicas))
            self._move_on(tp)
        for told in self.on_lead if begins else ():
            told(tp, hosted)
        return hosted

    def _elected(
        self, tp: TopicPartition, hosted: HostedPartition, decision: LeaderAndIsr, replicas: tuple[BrokerId, ...]
    ) -> None:
        found, now_ms = hosted.log, self.dirs.clock.now_ms()
        if hosted.leads is None or decision.leader_epoch > hosted.leads.epoch:
            found.begin_epoch(decision.leader_epoch)
            hosted.history.elected(decision, found.log_end, now_ms)
            if decision.recovering:
                log.warning("%s: an unclean election: what this broker lacks, from %d on, is lost", tp, found.log_end)
        hosted.epoch, hosted.leader_id, hosted.is_fenced = decision.leader_epoch, self.me, False
        if hosted.leads is None:
            hosted.leads = Leader(
                self.me,
                decision,
                replicas,
                high_watermark=found.high_watermark,
                log_end=found.log_end,
                durable_end=found.durable_end,
                now_ms=now_ms,
                brokers=self.brokers,
                min_isr=found.config.min_insync_replicas,
                lag_ms=self.config.replica_lag_time_max_ms,
            )
            effects = hosted.leads.appended(found.log_end, now_ms, found.durable_end)
        else:
            hosted.history.decided(hosted.leads.isr, decision, replicas, now_ms)
            effects = hosted.leads.decided(decision, replicas, now_ms)
        if hosted.leads.followers:
            self._start_timers()
        self._carry_out(tp, hosted, effects)

    async def follow(
        self, tp: TopicPartition, topic_id: TopicId | None, decision: LeaderAndIsr, replicas: Iterable[BrokerId] = ()
    ) -> HostedPartition:
        """Copy a partition from its leader, into a new log if there is none. NO_LEADER: wait for one.

        A broker that leaves begins no copy outside of the ISR: the leader would wait for it to join.
        """
        leader, epoch = decision.leader, decision.leader_epoch
        async with self._deciding:
            hosted = await self._hold(tp, topic_id, epoch)
            before = hosted.following
            if before is not None and hosted.leader_id == leader and before.continues(epoch):
                return hosted
            await self._unfollow(tp, hosted)
            self._resign(tp, hosted)
            hosted.epoch, hosted.leader_id = epoch, leader
            hosted.history.elected(decision, hosted.log.log_end, self.dirs.clock.now_ms())
            if leader != NO_LEADER and (not self.leaving or self.me in decision.isr):
                hosted.following, effects = follow(
                    hosted.log,
                    epoch,
                    topic_id=NO_TOPIC_ID if topic_id is None else topic_id.bytes,
                    partition=tp.partition,
                    backoff_ms=self.config.replica_fetch_backoff_ms,
                )
                self._start_timers()
                await self._fetcher(leader).follow(tp, Followed(hosted.following, hosted), effects)
            self._move_on(tp)
        return hosted

    async def _hold(self, tp: TopicPartition, topic_id: TopicId | None, epoch: LeaderEpoch) -> HostedPartition:
        if self.stopping:
            raise NotLeaderOrFollower(f"{tp} is neither led nor followed here any longer: this broker stops")
        hosted = self.hosted.get(tp)
        if hosted is not None:
            if epoch < hosted.epoch:
                raise StaleControllerEpoch(f"leader epoch {epoch} of {tp} is over; it is {hosted.epoch}")
            if hosted.log.offline:
                raise StorageError(f"{tp} is offline here: its log directory failed")
        found = await self.dirs.create(tp, topic_id)
        if hosted is None:
            await self.dirs.truncate_future_to(tp, found.log_end)  # a crash may have cost what was copied already
            hosted = self.hosted[tp] = HostedPartition(found)
            found.on_durable = partial(self._flushed, hosted)
        return hosted

    def _fetcher(self, leader: BrokerId) -> Fetcher:
        if leader not in self._fetchers:
            self._fetchers[leader] = Fetcher(
                leader, self._who, self._connect, self.dirs, self.pressure, self.config, self.throttles.follower
            )
        return self._fetchers[leader]

    def _who(self) -> Me:
        return Me(self.me, self.alterations.broker_epoch)

    async def _unfollow(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        """Copy it no longer; what is being done to its log is done first."""
        hosted.following = None
        fetcher = self._fetchers.get(hosted.leader_id)
        if fetcher is not None:
            await fetcher.forget(tp)
            if not fetcher.followed:
                del self._fetchers[hosted.leader_id]
                await fetcher.stop()

    def _resign(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        hosted.is_fenced = False
        if hosted.leads is not None:
            hosted.leads = None
            for told in self.on_drop:
                told(tp)
        _dismiss(hosted, NotLeaderOrFollower(f"{tp} is no longer led here"))
        hosted.wake()

    async def drop(self, tp: TopicPartition) -> None:
        """Give a partition up and delete its log. LogDirFailed if the disk does not let us."""
        async with self._deciding:
            await self._release(tp)
            if tp in self.dirs.logs:  # not if its directory failed
                await self.dirs.delete(tp)
            else:
                self.dirs.uncreated.pop(tp, None)
                await self.dirs.delete_offline(tp)

    async def release(self, tp: TopicPartition) -> None:
        """Give a partition up, but not its log."""
        async with self._deciding:
            await self._release(tp)

    async def _release(self, tp: TopicPartition) -> None:
        hosted = self.hosted.pop(tp, None)
        if hosted is None:
            return
        self._resign(tp, hosted)
        await self._unfollow(tp, hosted)
        if (move := self._moves.pop(tp, None)) is not None:
            await self._call_back(tp, hosted, move)

    async def stop(self) -> None:
        """Nobody waits any longer, nothing is copied or moves any longer: what moved goes on after the next start.

        Only those whose records are being flushed do: that is nearly done.
        """
        self.stopping = True
        await self._flushes_ended()
        for tp, hosted in self.hosted.items():
            _dismiss(hosted, NotLeaderOrFollower(f"{tp} is no longer led here"))
            hosted.wake()
        for timer in self._timers:
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)
        async with self._deciding:  # what is being decided would begin to follow behind our back
            await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
        await self.alterations.stop()
        await asyncio.gather(*(end(self.hosted[tp], move) for tp, move in self._moves.items()))
        await self.pressure.stop()

    async def _flushes_ended(self) -> None:
        """All that were due when it was asked for, unless their disks fail, or a shortage has them tried again."""
        due = [(hosted.log, hosted.log.log_end) for hosted in self.hosted.values() if hosted.log.awaits_flush]
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_FLUSH_S if due else None):
                while any(log.durable_end < end and log.awaits_flush for log, end in due):  # noqa: ASYNC110  at the end
                    await asyncio.sleep(LOOK_S)

    # What is so although the controller cannot tell

    def superseded(self, tp: TopicPartition, leader: BrokerId, epoch: LeaderEpoch) -> None:
        """Another broker leads a partition, in a later epoch. The controller tells more once it reaches this broker."""
        hosted = self.hosted.get(tp)
        if hosted is not None and hosted.leads is not None and epoch > hosted.leads.epoch:
            log.warning("%s is led by broker %d in epoch %d: this broker leads it no longer", tp, leader, epoch)
            self._resign(tp, hosted)
            hosted.leader_id = leader

    def fence(self) -> None:
        """Others may lead what others are in sync with: clients are sent away until `unfence`, followers are not.

        A partition that is in sync here alone is led by this broker or by nobody.
        """
        for tp, hosted in self.hosted.items():
            if hosted.leads is not None and len(hosted.leads.maximal_isr) > 1 and not hosted.is_fenced:
                hosted.is_fenced = True
                _dismiss(hosted, NotLeaderOrFollower(f"{tp} may be led by another broker: this one is cut off"))
                hosted.wake()

    def unfence(self) -> None:
        for hosted in self.hosted.values():
            hosted.is_fenced = False

    def break_off(self, broker: BrokerId) -> None:
        """A broker has fallen silent: what is copied from it is asked for again, over a new connection."""
        if (fetcher := self._fetchers.get(broker)) is not None:
            fetcher.break_off()

    # What must be done now and then

    def _start_timers(self) -> None:
        """Only where there are copies: a single replica knows by itself what is safe."""
        if self._timers or self.stopping:
            return
        for interval_ms, work, name in (
            (self.config.replica_lag_time_max_ms / 2, self.shrink, "isr-expiration"),
            (
                self.config.replica_high_watermark_checkpoint_interval_ms,
                self.checkpoint_high_watermarks,
                "highwatermark-checkpoint",
            ),
        ):
            self._timers.append(asyncio.create_task(every(interval_ms, work), name=name))

    async def shrink(self) -> None:
        self.shrink_by(())

    def shrink_by(self, silent: Collection[BrokerId]) -> None:
        """Followers that are late leave the ISR; silent ones need not be so for replica.lag.time.max.ms."""
        now_ms = self.dirs.clock.now_ms()
        for tp, hosted in self.hosted.items():
            if hosted.leads is not None and hosted.leads.followers:
                hosted.leads.min_isr = hosted.log.config.min_insync_replicas
                self._carry_out(tp, hosted, hosted.leads.shrink(now_ms, silent))

    async def checkpoint_high_watermarks(self) -> None:
        for log_dir in list(self.dirs.dirs.values()):
            try:
                await self.dirs.checkpoint_high_watermarks(log_dir)
            except (LogDirFailed, StorageError) as error:
                log.warning("%s", error)

    # What clients and followers ask for

    def holding(self, tp: TopicPartition, epoch: LeaderEpoch = NO_EPOCH) -> HostedPartition:
        """A partition that is here, led or followed; `epoch`: what the client believes."""
        hosted = self.hosted.get(tp)
        if hosted is None:
            self.dirs.check_usable(tp)
            if self.exists(tp):
                raise NotLeaderOrFollower(f"this broker has no replica of {tp}")
            raise UnknownTopicOrPartition(f"this broker has no partition {tp}")
        if epoch != NO_EPOCH and epoch != hosted.epoch:
            if epoch < hosted.epoch:
                raise FencedLeaderEpoch(f"leader epoch {epoch} of {tp} is over; it is {hosted.epoch}")
            raise UnknownLeaderEpoch(f"leader epoch {epoch} of {tp} is not known here; it is {hosted.epoch}")
        if hosted.log.offline:
            raise StorageError(f"{tp} is offline here: its log directory failed")
        return hosted

    def leading(self, tp: TopicPartition, epoch: LeaderEpoch = NO_EPOCH) -> HostedPartition:
        """A partition that this broker leads."""
        hosted = self.holding(tp, epoch)
        if hosted.leads is None:
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
        return self.append_to(self.holding(tp), batch, origin, verified, acks)

    def append_to(
        self,
        hosted: HostedPartition,
        batch: Buffer,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = TRUSTED,
        acks: int = 1,
    ) -> AppendResult:
        """NotEnoughReplicas if all are to have it, which a coordinator always wants, and too few are in sync."""
        found, leader = hosted.log, hosted.leader if hosted.leads is None else hosted.leads
        if hosted.switching:
            raise NotLeaderOrFollower(f"{found.tp} is being handed over to another log directory: try again")
        if hosted.is_fenced:
            raise NotLeaderOrFollower(f"{found.tp} may be led by another broker: this one is cut off")
        if leader.followers and (acks == ALL or origin is AppendOrigin.COORDINATOR):
            if self.stopping:  # nobody would hear that the others have it
                raise NotLeaderOrFollower(f"{found.tp} is no longer led here: this broker stops")
            leader.min_isr = found.config.min_insync_replicas
            leader.check_in_sync()
        recent = self.completions.recent_appends() if hosted.follower_watchers and hosted.is_awaited else None
        appended = found.append_as_leader(batch, leader.epoch, origin, verified, recent)
        if leader.followers:
            effects = leader.appended(found.log_end, self.dirs.clock.now_ms(), found.durable_end)
            if effects is not NOTHING:
                self._carry_out(found.tp, hosted, effects)
        elif leader.appended_alone(found.log_end, found.durable_end):
            self._advance(hosted, found.durable_end)
        if hosted.follower_watchers:
            hosted.wake_copiers()
        if len(batch) > SMALL_BYTES:
            self.pressure.appended(found, len(batch))
        return appended

    def once_committed(self, hosted: HostedPartition, offset: Offset, timeout_s: float, told: Told) -> None:
        """Tell when all below an offset is on every in-sync replica, or why it will not be.

        NotLeaderOrFollower once another leads, StorageError if the disk fails, RequestTimedOut if it takes too long.
        """
        if self.stopping:
            told(NotLeaderOrFollower(f"{hosted.log.tp} is no longer led here"))
            return
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        hosted.acknowledgements.add(offset, deadline_s, told)
        if hosted.expiry is None or deadline_s < hosted.expiry.when():
            self._expire_at(hosted, deadline_s)

    def once_flushed(self, hosted: HostedPartition, offset: Offset, told: Told) -> None:
        """Tell when all below an offset is durable here, or why it will not be; however long it takes, as in Kafka.

        NotLeaderOrFollower once another leads, StorageError if the disk fails.
        """
        if self.stopping:
            told(NotLeaderOrFollower(f"{hosted.log.tp} is no longer led here"))
        else:
            hosted.flushes.add(offset, FOREVER_S, told)

    def _flushed(self, hosted: HostedPartition) -> None:
        """The durable end of its log has moved."""
        found, leader = hosted.log, hosted.leads
        self.completions.hold()
        try:
            if leader is not None:
                self._carry_out(found.tp, hosted, leader.flushed(found.durable_end, self.dirs.clock.now_ms()))
            elif (fetcher := self._fetchers.get(hosted.leader_id)) is not None:
                fetcher.flush_ended()
            for told in hosted.flushes.passed(found.durable_end):
                told(None)
        finally:
            self.completions.release()

    def _expire_at(self, hosted: HostedPartition, deadline_s: float) -> None:
        if hosted.expiry is not None:
            hosted.expiry.cancel()
            hosted.expiry = None
        if deadline_s < FOREVER_S:
            hosted.expiry = asyncio.get_running_loop().call_at(deadline_s, self._expire, hosted)

    def _expire(self, hosted: HostedPartition) -> None:
        late = RequestTimedOut(f"the in-sync replicas of {hosted.log.tp} did not copy it in time")
        for told in hosted.acknowledgements.expired(asyncio.get_running_loop().time()):
            told(late)
        self._expire_at(hosted, hosted.acknowledgements.next_deadline_s)

    async def committed(self, tp: TopicPartition, offset: Offset) -> None:
        """Wait until all below an offset is on every in-sync replica. NotLeaderOrFollower once another leads."""
        hosted = self.leading(tp)
        if hosted.leader.is_safe(offset):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(error: WireError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self.once_committed(hosted, offset, FOREVER_S, told)
        await done

    async def deleted(self, tp: TopicPartition, offset: Offset) -> None:
        """Wait until no living replica holds records below an offset. NotLeaderOrFollower once another leads."""
        hosted = self.leading(tp)
        leader, waiter = hosted.leader, Waiter()
        hosted.mark_copiers()
        hosted.consumer_watchers.add(waiter)
        try:
            while leader.low_watermark(hosted.log.log_start) < offset:
                if self.stopping or hosted.leads is not leader:
                    raise NotLeaderOrFollower(f"{hosted.log.tp} is no longer led here")
                if hosted.log.offline:
                    raise StorageError(f"{hosted.log.tp} is offline here: its log directory failed")
                await waiter.woken.wait()
                waiter.woken.clear()
        finally:
            hosted.consumer_watchers.discard(waiter)

    def follower_fetched(
        self,
        tp: TopicPartition,
        replica: BrokerId,
        offset: Offset,
        log_start: Offset,
        broker_epoch: int,
        heard: Heard | None = None,
    ) -> None:
        """A follower asks from an offset on: it holds what lies below. Not to be told if the logs have parted."""
        now_ms = self.dirs.clock.now_ms()
        self.copied(self.leading(tp), replica, offset, log_start, broker_epoch, heard, now_ms)

    def copied(
        self,
        hosted: HostedPartition,
        replica: BrokerId,
        offset: Offset,
        log_start: Offset,
        broker_epoch: int,
        heard: Heard | None,
        now_ms: int,
    ) -> None:
        """As `follower_fetched`, of a partition that is known to be led here."""
        leader = hosted.leader
        leader.min_isr = hosted.log.config.min_insync_replicas
        effects = leader.follower_fetched(replica, offset, log_start, now_ms, broker_epoch, heard)
        if effects is not NOTHING:
            self._carry_out(hosted.log.tp, hosted, effects)

    def is_throttled(self, hosted: HostedPartition) -> bool:
        """Whether what followers fetch of it counts."""
        tp = hosted.log.tp
        return is_named(hosted.log.config.leader_replication_throttled_replicas, tp.partition, self.me)

    def is_held_back(self, hosted: HostedPartition, replica: BrokerId) -> bool:
        """Whether a follower gets no records for now; one that is in sync always does."""
        if not self.is_throttled(hosted) or replica in hosted.leader.isr:
            return False
        return self.throttles.leader.is_exceeded(self.dirs.clock.now_ms())

    def _altered(self, tp: TopicPartition, proposed: Proposed, decision: Decision) -> None:
        """The controller's answer to a proposal."""
        hosted, leader = self.hosted.get(tp), proposed.leader
        if hosted is None or hosted.leads is not leader:
            return
        now_ms = self.dirs.clock.now_ms()
        if isinstance(decision, LeaderAndIsr):
            before = leader.isr
            effects = leader.isr_altered(proposed.proposal, decision, now_ms)
            if leader.isr is decision.isr:
                hosted.history.altered(proposed.proposal, before, decision, now_ms)
            log.debug("%s: in sync are %s", tp, list(leader.isr))
        else:
            effects = leader.alter_refused(proposed.proposal, decision, now_ms)
        hosted.mark_copiers()  # who is not in sync now may be where it could join
        self._carry_out(tp, hosted, effects)

    def _carry_out(self, tp: TopicPartition, hosted: HostedPartition, effects: Effects) -> None:
        if effects.alter_isr is not None:
            assert hosted.leads is not None
            if effects.why is not None:
                log.info("%s: %s should be in sync: %s", tp, list(effects.alter_isr.wanted.isr), effects.why)
            hosted.history.asked(effects.alter_isr, effects.why)
            self.alterations.propose(tp, Proposed(hosted.leads, hosted.log.topic_id, effects.alter_isr))
        if effects.advance_to is not None:
            self._advance(hosted, effects.advance_to)
        elif effects.wake_deletes:
            hosted.wake_waiters()

    def _advance(self, hosted: HostedPartition, high_watermark: Offset) -> None:
        hosted.log.advance_high_watermark(high_watermark)
        if hosted.acknowledgements:
            for told in hosted.acknowledgements.passed(high_watermark):
                told(None)
        if hosted.follower_watchers:
            hosted.mark_copiers()
        if hosted.consumer_watchers:
            hosted.wake_waiters()

    def _dir_failed(self, failure: LogDirFailed, gone: list[TopicPartition]) -> None:
        for tp in gone:
            if (hosted := self.hosted.get(tp)) is not None:
                _dismiss(hosted, StorageError(f"{tp} is offline here: its log directory failed"))
                hosted.wake()
                if (fetcher := self._fetchers.get(hosted.leader_id)) is not None:
                    fetcher.flush_ended()

    # Moving between log directories

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
                standstill = partial(self._standstill, hosted)
                await copy_and_switch(self.dirs, tp, hosted, path, self.throttles.moves, standstill)
                log.info("%s lies in %s now", tp, path)
        except (LogDirFailed, WireError, OSError) as error:
            log.error("%s could not be moved to %s: %s", tp, path, error)
        finally:
            hosted.switching = False
            if (current := self._moves.get(tp)) is not None and current.task is asyncio.current_task():
                del self._moves[tp]

    def _move_on(self, tp: TopicPartition) -> None:
        """It was about to move when the broker stopped."""
        if tp in self.dirs.future:
            self.move(tp, self.dirs.future[tp].parent)

    @asynccontextmanager
    async def _standstill(self, hosted: HostedPartition) -> AsyncIterator[None]:
        async with self._deciding, AsyncExitStack() as held:
            if hosted.following is not None:
                await held.enter_async_context(self._fetcher(hosted.leader_id).changing)
            hosted.switching = True
            try:
                yield
            finally:
                hosted.switching = False

    async def _call_back(self, tp: TopicPartition, hosted: HostedPartition, move: Move) -> None:
        """End a move, and remove what there is of its copy."""
        await end(hosted, move)
        if tp in self.dirs.future:
            await self.dirs.delete(tp, future=True)


def _dismiss(hosted: HostedPartition, why: WireError) -> None:
    for told in (*hosted.flushes.dismissed(), *hosted.acknowledgements.dismissed()):
        told(why)
    if hosted.expiry is not None:
        hosted.expiry.cancel()
        hosted.expiry = None


def _nowhere(broker: BrokerId) -> LeaderClient:
    raise PeerLost(f"there is no way to broker {broker}")
