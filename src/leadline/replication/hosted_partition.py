"""A partition on this broker: its log, the broker's role, and the requests that wait for it.

A shell: it changes the log, reports that to the pure state, and carries out the effects.

    a partition is led, or followed, or neither while it has no leader; `epoch` is the latest that the controller named
    nothing in here calls a request handler: waiting requests are completed through `DeferredCompletions` alone
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from leadline.errors import (
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    RequestTimedOut,
    WireError,
)
from leadline.log.log import AppendResult, Log
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.model import ACKS_ALL, NO_EPOCH, NO_LEADER, BrokerId, Buffer, LeaderEpoch, Offset
from leadline.records.python_walker import Summary
from leadline.replication.acknowledgements import FOREVER_S, Acknowledgements
from leadline.replication.alterations import Alterations, Decision, Proposed
from leadline.replication.context import ReplicationContext
from leadline.replication.follower import FollowerState
from leadline.replication.history import History
from leadline.replication.partition import (
    NOTHING,
    IsrLimits,
    LastContact,
    LeaderAndIsr,
    LeaderEffects,
    LeaderState,
    LogOffsets,
)
from leadline.replication.throttle import is_named
from leadline.replication.watchers import Watcher
from leadline.runtime.deferred_completions import OnAcknowledged
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.ports import monotonic_ms
from leadline.wire.fetch_position import FetchPosition

log = logging.getLogger(__name__)

SMALL_BYTES = 4096  # batches up to this size do not fill a disk's queue


_NOBODY: frozenset[Watcher] = frozenset()


class HostedPartition:
    """`on_flushed`: the fetcher of a followed log waits for its flushes."""

    def __init__(self, log: Log, context: ReplicationContext, alterations: Alterations) -> None:
        self.epoch: LeaderEpoch = NO_EPOCH
        self.leader_id: BrokerId = NO_LEADER
        self.leader_state: LeaderState | None = None
        self.follower_state: FollowerState | None = None
        self.consumer_watchers: OrderedSet[Watcher] | frozenset[Watcher] = _NOBODY  # of the high watermark
        self.follower_watchers: OrderedSet[Watcher] | frozenset[Watcher] = _NOBODY  # of the log's end
        self.acknowledgements = Acknowledgements()  # of produces that wait for the high watermark
        self.flushes = Acknowledgements()  # of produces that wait for the durable end
        self.is_switching = False  # its log is about to be replaced: an append now would be in neither
        self.is_fenced = False  # led here as far as this broker knows, but another may lead it: see `fence`
        self.on_flushed: Callable[[], None] = no_fetcher
        self.history = History()
        self.topic_metrics = context.topic_metrics.of(log.tp.topic)
        self._context, self._alterations = context, alterations
        self._clock, self.completions, self._pressure = context.clock, context.completions, context.pressure
        self._expiry: asyncio.TimerHandle | None = None  # of the first acknowledgement that times out
        self._deletions: tuple[asyncio.Event, ...] = ()  # of tasks that wait for the low watermark
        self.log = log
        log.on_durable = self.flushed

    def watchers(self, *, of_log_end: bool) -> OrderedSet[Watcher]:
        """The set that a new watcher joins. A partition that no client reads has no sets of its own."""
        if of_log_end:
            if isinstance(self.follower_watchers, frozenset):
                self.follower_watchers = OrderedSet()
            return self.follower_watchers
        if isinstance(self.consumer_watchers, frozenset):
            self.consumer_watchers = OrderedSet()
        return self.consumer_watchers

    @property
    def leader(self) -> LeaderState:
        if self.leader_state is None:
            raise NotLeaderOrFollower(f"{self.log.tp} is led by broker {self.leader_id}, not here")
        return self.leader_state

    # As the leader

    def append_as_leader(
        self,
        batch: Buffer,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verified: Verification | None = TRUSTED,
        acks: int = 1,
        content: Summary | None = None,
    ) -> AppendResult:
        """NotEnoughReplicas if too few are in sync for acks=all, which a coordinator always needs.

        `content`: of records that were checked already; see `Log.append_as_leader`.
        """
        hosted_log, leader = self.log, self.leader if self.leader_state is None else self.leader_state
        if self.is_switching or self.is_fenced:
            self._refuse_append()
        if leader.followers and (acks == ACKS_ALL or origin is AppendOrigin.COORDINATOR):
            if self._context.is_stopping:  # no fetch would report that the others have it
                raise NotLeaderOrFollower(f"{hosted_log.tp} is no longer led here: this broker stops")
            leader.min_isr = hosted_log.config.min_insync_replicas
            leader.check_in_sync()
        watchers = self.follower_watchers
        recent = self.completions.recent if watchers and self._is_awaited() else None
        appended = hosted_log.append_as_leader(batch, leader.epoch, origin, verified, recent, content)
        metrics = self.topic_metrics
        metrics.produce_requests += 1
        metrics.bytes_in += len(batch)
        metrics.messages_in += appended.last_offset - appended.first_offset + 1
        if leader.followers:
            effects = leader.appended(hosted_log.log_end, hosted_log.last_append_ms, hosted_log.durable_end)
            if effects is not NOTHING:
                self._carry_out(effects)
        elif leader.appended_alone(hosted_log.log_end, hosted_log.durable_end):
            self._advance(hosted_log.durable_end)
        if watchers:
            self._wake(watchers)
        if len(batch) > SMALL_BYTES:
            self._pressure.appended(hosted_log, len(batch))
        return appended

    def _refuse_append(self) -> None:
        if self.is_switching:
            raise NotLeaderOrFollower(f"{self.log.tp} is being moved to another log directory: try again")
        raise NotLeaderOrFollower(f"{self.log.tp} may be led by another broker: this one is cut off")

    def _is_awaited(self) -> bool:
        """Whether a follower waits for more."""
        for watcher in self.follower_watchers:  # noqa: SIM110  `any` would make a generator for each batch
            if watcher.fetch.waiting is not None:
                return True
        return False

    def follower_fetched(
        self,
        replica: BrokerId,
        position: FetchPosition,
        broker_epoch: int,
        last_contact: LastContact | None,
        now_ms: int,
    ) -> None:
        """A follower fetches from a position: it holds everything below. Not to be called if the logs diverge."""
        leader = self.leader
        leader.min_isr = self.log.config.min_insync_replicas
        effects = leader.follower_fetched(
            replica, position.fetch_offset, position.log_start_offset, now_ms, broker_epoch, last_contact
        )
        if effects is not NOTHING:
            self._carry_out(effects)

    def elected(self, decision: LeaderAndIsr, replicas: tuple[BrokerId, ...]) -> bool:
        """This broker leads. Returns whether its leadership begins, or begins again in a later epoch."""
        hosted_log, now_ms, leader = self.log, self._clock.now_ms(), self.leader_state
        begins = leader is None or decision.leader_epoch > leader.epoch
        if begins:
            hosted_log.begin_epoch(decision.leader_epoch)
            self.history.elected(decision, hosted_log.log_end, now_ms)
            if decision.recovering:
                log.warning(
                    "%s: unclean election: records from %d on that only other replicas hold are lost",
                    hosted_log.tp,
                    hosted_log.log_end,
                )
        self.epoch, self.leader_id, self.is_fenced = decision.leader_epoch, decision.leader, False
        if leader is None:
            leader = self.leader_state = LeaderState(
                decision,
                replicas,
                LogOffsets(hosted_log.high_watermark, hosted_log.log_end, hosted_log.durable_end),
                now_ms,
                self._context.brokers,
                IsrLimits(hosted_log.config.min_insync_replicas, self._context.settings.broker.replica_lag_time_max_ms),
            )
            effects = leader.appended(hosted_log.log_end, now_ms, hosted_log.durable_end)
        else:
            self.history.decided(leader.isr, decision, replicas, now_ms)
            effects = leader.decided(decision, replicas, now_ms)
        self._carry_out(effects)
        return begins

    def resign(self) -> bool:
        """This broker leads no longer. Returns whether it did."""
        self.is_fenced = False
        was_led, self.leader_state = self.leader_state is not None, None
        self.dismiss(NotLeaderOrFollower(f"{self.log.tp} is no longer led here"))
        return was_led

    def fence(self) -> None:
        """Another broker may lead it: clients are refused until `unfence`, followers are not.

        A partition whose ISR is this broker alone is led by this broker or has no leader.
        """
        if self.leader_state is not None and len(self.leader_state.maximal_isr) > 1 and not self.is_fenced:
            self.is_fenced = True
            self.dismiss(NotLeaderOrFollower(f"{self.log.tp} may be led by another broker: this one is cut off"))

    def unfence(self) -> None:
        self.is_fenced = False

    def shrink_isr(self, silent: Collection[BrokerId]) -> None:
        """Late followers leave the ISR. Silent ones need not be late for replica.lag.time.max.ms."""
        if (leader := self.leader_state) is not None and leader.followers:
            leader.min_isr = self.log.config.min_insync_replicas
            self._carry_out(leader.shrink(self._clock.now_ms(), silent))

    def brokers_left(self, brokers: Collection[BrokerId]) -> None:
        if self.leader_state is not None:
            self._carry_out(self.leader_state.brokers_left(brokers, self._clock.now_ms()))

    def isr_answered(self, proposed: Proposed, decision: Decision) -> None:
        """The controller's answer to a proposal."""
        leader = proposed.leader
        if self.leader_state is not leader:
            return
        now_ms = self._clock.now_ms()
        if isinstance(decision, LeaderAndIsr):
            before = leader.isr
            effects = leader.isr_altered(proposed.proposal, decision, now_ms)
            if leader.isr is decision.isr:
                self.history.altered(proposed.proposal, before, decision, now_ms)
                self._context.isr_expands += len(decision.isr) > len(before)
                self._context.isr_shrinks += len(decision.isr) < len(before)
            log.debug("%s: the ISR is now %s", self.log.tp, list(leader.isr))
        else:
            self._context.failed_isr_updates += 1
            effects = leader.alter_refused(proposed.proposal, decision, now_ms)
        _mark(self.follower_watchers)  # a follower outside the ISR may be where it could join
        self._carry_out(effects)

    def is_throttled(self) -> bool:
        """Whether the leader's throttle counts the bytes that followers fetch from it."""
        replicas = self.log.config.leader_replication_throttled_replicas
        return is_named(replicas, self.log.tp.partition, self._context.me)

    def is_held_back(self, replica: BrokerId) -> bool:
        """Whether a follower gets no records for now. One that is in sync always does."""
        if not self.is_throttled() or replica in self.leader.isr:
            return False
        return self._context.throttles.leader.is_exceeded(monotonic_ms(self._clock))

    # Effects

    def _carry_out(self, effects: LeaderEffects) -> None:
        if effects.alter_isr is not None:
            assert self.leader_state is not None
            if effects.why is not None:
                isr = list(effects.alter_isr.proposed.isr)
                log.info("%s: proposing ISR %s: %s", self.log.tp, isr, effects.why)
            self.history.proposed(effects.alter_isr, effects.why)
            proposed = Proposed(self.leader_state, self.log.topic_id, effects.alter_isr)
            self._alterations.propose(self.log.tp, proposed)
        if effects.advance_to is not None:
            self._advance(effects.advance_to)
        elif effects.wake_deletes and self._deletions:
            self._wake_deletions()

    def _advance(self, high_watermark: Offset) -> None:
        self.log.advance_high_watermark(high_watermark)
        if self.acknowledgements:
            self.completions.acknowledge(self.acknowledgements.passed(high_watermark), self.leader.too_few_in_sync())
        if self.follower_watchers:
            _mark(self.follower_watchers)
        if self.consumer_watchers:
            self._wake(self.consumer_watchers)
        if self._deletions:
            self._wake_deletions()

    def _wake(self, watchers: Iterable[Watcher]) -> None:
        evaluations = []
        for watcher in watchers:
            fetch = watcher.fetch
            fetch.fresh[watcher.key] = None
            if fetch.waiting is not None:
                evaluations.append(fetch.waiting)
            else:
                watcher.note_change()
        if evaluations:
            self.completions.evaluate(evaluations)

    def _wake_deletions(self) -> None:
        for changed in self._deletions:
            changed.set()

    def wake(self) -> None:
        """There may be more to read, or something to report."""
        self._wake(self.consumer_watchers)
        self._wake(self.follower_watchers)
        self._wake_deletions()

    # Waiting

    def once_safe(
        self, offset: Offset, acks: int, timeout_ms: int, on_safe: OnAcknowledged, on_unflushed: OnAcknowledged
    ) -> None:
        """Call one of the two when the records below an offset may be acknowledged, or when they will not be.

        `on_safe`: see `once_committed`. `on_unflushed`: our own flush failed; see `once_flushed`. The time-out starts
        after our own flush, as in Kafka.
        """
        timeout_s = max(timeout_ms, 0) / 1000
        if self.log.durable_end >= offset:
            self.once_committed(offset, timeout_s, on_safe)
            return

        def flushed(error: WireError | None) -> ImmediateFuture[Any] | None:
            if error is not None:
                return on_unflushed(error)
            if acks != ACKS_ALL:
                return on_safe(None)
            self.once_committed(offset, timeout_s, on_safe)
            return None

        self.once_flushed(offset, flushed)

    def once_committed(self, offset: Offset, timeout_s: float, on_committed: OnAcknowledged) -> None:
        """Call back when everything below an offset is on every in-sync replica, or with the reason why not.

        NotLeaderOrFollower once another leads, StorageError if the disk fails, RequestTimedOut if it takes too long.
        NotEnoughReplicasAfterAppend: the in-sync replicas have it, and they are too few by now.
        """
        leader = self.leader_state
        if leader is None or self._context.is_stopping:
            error = NotLeaderOrFollower(f"{self.log.tp} is no longer led here")
            self.completions.acknowledge((on_committed,), error)
            return
        if self.log.high_watermark >= offset:
            self.completions.acknowledge((on_committed,), leader.too_few_in_sync())
            return
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        self.acknowledgements.add(offset, deadline_s, on_committed)
        if self._expiry is None or deadline_s < self._expiry.when():
            self._expire_at(deadline_s)

    def once_flushed(self, offset: Offset, on_flushed: OnAcknowledged) -> None:
        """Call back when everything below an offset is durable here, without a time limit, as in Kafka.

        NotLeaderOrFollower once another leads, StorageError if the disk fails.
        """
        if self._context.is_stopping:
            error = NotLeaderOrFollower(f"{self.log.tp} is no longer led here")
            self.completions.acknowledge((on_flushed,), error)
        else:
            self.flushes.add(offset, FOREVER_S, on_flushed)

    def flushed(self) -> None:
        """The durable end of the log has moved."""
        leader, durable_end = self.leader_state, self.log.durable_end
        self.completions.is_held = True
        try:
            if leader is not None:
                self._carry_out(leader.flushed(durable_end, self._clock.now_ms()))
            else:
                self.on_flushed()
            if self.flushes:
                self.completions.acknowledge(self.flushes.passed(durable_end), None)
        finally:
            self.completions.release()

    def _expire_at(self, deadline_s: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if deadline_s < FOREVER_S:
            self._expiry = asyncio.get_running_loop().call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        error = RequestTimedOut(f"the in-sync replicas of {self.log.tp} did not fetch it in time")
        self.completions.acknowledge(self.acknowledgements.expired(asyncio.get_running_loop().time()), error)
        self._expire_at(self.acknowledgements.next_deadline_s)

    def dismiss(self, error: WireError) -> None:
        """Fail all waits: their condition can no longer be met here."""
        dismissed = [*self.flushes.dismissed(), *self.acknowledgements.dismissed()]
        if dismissed:
            self.completions.acknowledge(dismissed, error)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self.wake()

    async def committed(self, offset: Offset) -> None:
        """Wait until everything below an offset is on every in-sync replica. NotLeaderOrFollower once another leads."""
        if self.leader.is_safe(offset):
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_committed(error: WireError | None) -> None:
            if done.done():
                return
            if error is None or isinstance(error, NotEnoughReplicasAfterAppend):
                done.set_result(None)
            else:
                done.set_exception(error)

        self.once_committed(offset, FOREVER_S, on_committed)
        await done

    async def deleted(self, offset: Offset) -> None:
        """Wait until no living replica holds records below an offset. NotLeaderOrFollower once another leads."""
        leader, changed = self.leader, asyncio.Event()
        _mark(self.follower_watchers)
        self._deletions = (*self._deletions, changed)
        try:
            while leader.low_watermark(self.log.log_start) < offset:
                if self._context.is_stopping or self.leader_state is not leader:
                    raise NotLeaderOrFollower(f"{self.log.tp} is no longer led here")
                if self.log.offline:
                    self.log.refuse()
                await changed.wait()
                changed.clear()
        finally:
            self._deletions = tuple(other for other in self._deletions if other is not changed)


def _mark(watchers: Iterable[Watcher]) -> None:
    """Mark a change that the next response carries. It completes no fetch by itself."""
    for watcher in watchers:
        watcher.fetch.fresh[watcher.key] = None


def no_fetcher() -> None:
    """No fetcher waits for a flush of the log."""
