"""A partition on its leader: which replica has which records, which are in sync, and the high watermark.

The controller decides about the in-sync replicas (ISR): a leader proposes, and uses the committed ISR until then. If a
proposal is under way the leader does not know the controller's ISR. The high watermark then goes by the maximal ISR:
all replicas that are committed or proposed. A broader set is always safe, a narrower one is not.

    the high watermark is the smallest log end among the maximal ISR and those about to join it; of the leader itself
    its durable end counts: its log end, without records that flush.messages requires on disk first
    it never goes back within an epoch, and stands still below min.insync.replicas
    a replica is about to join if it fetches and keeps up, in this epoch, on a broker that may join
    a departure, a refusal or a timeout ends that wait, and the high watermark moves at once
    one proposal at a time; an answer counts only while its proposal stands

Pure: decides over offsets and times, and returns what must be done.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from leadline.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeaderOrFollower,
    OperationNotAttempted,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from leadline.model import NO_EPOCH, BrokerId, LeaderEpoch, Offset

UNKNOWN: Offset = -1  # of a follower that has not fetched from this leader yet
ANY_EPOCH = -1  # of a broker, if it is not given
LAG_MS = 30_000  # the default of replica.lag.time.max.ms


class LeaderAndIsr(NamedTuple):
    """What the controller decided about a partition."""

    leader: BrokerId  # -1: none
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    partition_epoch: int = 0  # counts the decisions: the version of the node that holds them
    recovering: bool = False  # its leader was not in sync when it was elected


class Proposal(NamedTuple):
    """What a leader asks for with AlterPartition."""

    proposed: LeaderAndIsr
    broker_epochs: tuple[int, ...]  # of the wanted ISR, one by one: which process it was that caught up, or ANY_EPOCH


class LeaderEffects(NamedTuple):
    """What must happen, top to bottom."""

    alter_isr: Proposal | None = None  # ask the controller with AlterPartition: see isr_altered and alter_refused
    why: str | None = None  # the reason, for a person to read; None: a repeated proposal
    advance_to: Offset | None = None  # the new high watermark: acknowledge produces, wake consumers
    wake_deletes: bool = False  # a follower deleted records: deletions that wait check the low watermark


NOTHING = LeaderEffects()


class Refusal(Enum):
    """What a leader does when the controller did not alter the ISR."""

    FORGET = "it was not applied, now or ever: propose something else when there is reason to"
    AWAIT = "our state is old: keep to the maximal ISR until the controller decides"
    RETRY = "it is unknown whether it was applied: ask again"


AFTER_REFUSAL: dict[int, Refusal] = {
    IneligibleReplica.code: Refusal.FORGET,
    OperationNotAttempted.code: Refusal.FORGET,
    UnknownTopicOrPartition.code: Refusal.AWAIT,
    UnknownTopicId.code: Refusal.AWAIT,
    FencedLeaderEpoch.code: Refusal.AWAIT,
    InvalidUpdateVersion.code: Refusal.AWAIT,
    InvalidRequest.code: Refusal.AWAIT,
    NewLeaderElected.code: Refusal.AWAIT,
}  # any other code: RETRY


@dataclass(slots=True)
class LastContact:
    """Time of the follower's latest fetch.

    In an incremental session a follower names only partitions whose position changed, so the session's last fetch
    stands for the others.
    """

    last_ms: int = 0


@dataclass(slots=True)
class FollowerProgress:
    """A follower, as its leader knows it from its fetches."""

    log_end: Offset = UNKNOWN
    log_start: Offset = UNKNOWN
    leader_end: Offset = UNKNOWN  # the leader's log end when it last fetched
    fetched_ms: int = 0
    caught_up_ms: int = 0  # latest time at which it held everything that the leader then had
    broker_epoch: int | None = None  # of the process that fetched; None: none has yet
    last_contact: LastContact | None = None  # while it stays where it was: see `left_behind`
    is_refused: bool = False  # the controller refused this process, and has made no decision since

    def fetched(self, offset: Offset, log_start: Offset, leader_end: Offset, now_ms: int, broker_epoch: int) -> None:
        """Caught up now if it asks from the leader's end on; as of its last fetch if from where that end then was."""
        if broker_epoch != self.broker_epoch:
            self.is_refused = False
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif offset >= self.leader_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.log_end, self.log_start = offset, log_start
        self.leader_end = max(self.leader_end, leader_end)
        self.fetched_ms, self.broker_epoch = now_ms, broker_epoch

    def is_caught_up(self, leader_end: Offset, now_ms: int, lag_ms: int) -> bool:
        return self.log_end == leader_end or now_ms - self.caught_up_ms <= lag_ms

    def left_behind(self) -> None:
        """The leader appends to a log that it held whole: it was caught up at its last fetch."""
        if self.last_contact is not None:
            self.caught_up_ms = max(self.caught_up_ms, self.last_contact.last_ms)

    def epoch_began(self, leader_end: Offset, now_ms: int, *, in_sync: bool) -> None:
        """The same leader was elected again. Replicas outside the ISR neither delay it nor join before fetching."""
        self.forget()
        self.leader_end = leader_end
        self.fetched_ms = self.caught_up_ms = now_ms if in_sync else 0

    def forget(self) -> None:
        """Keep its log end only. It must fetch again before it may join the ISR."""
        self.last_contact, self.is_refused = None, False
        self.fetched_ms = self.caught_up_ms = 0


class LogOffsets(NamedTuple):
    """The leader's own log, when it is elected."""

    high_watermark: Offset
    log_end: Offset
    durable_end: Offset


class IsrLimits(NamedTuple):
    """The settings that decide about the ISR."""

    min_isr: int  # min.insync.replicas
    lag_ms: int = LAG_MS  # replica.lag.time.max.ms


class LeaderState:
    """A partition on its leader, from its election to that of another."""

    def __init__(
        self,
        decision: LeaderAndIsr,
        replicas: tuple[BrokerId, ...],
        offsets: LogOffsets,
        now_ms: int,
        brokers: Mapping[BrokerId, int],
        limits: IsrLimits,
    ) -> None:
        me, log_end = decision.leader, offsets.log_end
        self.me, self.replicas = me, replicas
        self.epoch, self.partition_epoch = decision.leader_epoch, decision.partition_epoch
        self.isr = decision.isr  # as committed by the controller
        self.pending: Proposal | None = None  # proposed, and not known to be decided
        self._in_flight = False  # an answer to it is still to come
        self.high_watermark, self.log_end, self.durable_end = offsets
        self.epoch_start = log_end  # a follower behind it may lack what an earlier leader committed
        self.min_isr, self.lag_ms = limits  # they may change at any time
        self.brokers = brokers  # epochs of the live brokers, or ANY_EPOCH; shared with the broker
        self.followers = {
            replica: FollowerProgress(caught_up_ms=now_ms if replica in self.isr else 0)
            for replica in replicas
            if replica != me
        }

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """All replicas that may be in sync. A proposal to shrink removes none before it is committed."""
        if self.pending is None:
            return self.isr
        return self.isr + tuple(replica for replica in self.pending.proposed.isr if replica not in self.isr)

    @property
    def needed_in_sync(self) -> int:
        """min.insync.replicas, at most the number of replicas."""
        return min(self.min_isr, len(self.followers) + 1)

    # Appends, fetches and deletions

    def appended(self, log_end: Offset, now_ms: int, durable_end: Offset | None = None) -> LeaderEffects:
        """The leader's own log ends here now. `durable_end`: see `flushed`; None: nothing waits for a flush."""
        durable_end = log_end if durable_end is None else durable_end
        for follower in self.followers.values():
            if follower.log_end == self.log_end < log_end:
                follower.left_behind()
        if not self.followers:
            return LeaderEffects(advance_to=durable_end) if self.appended_alone(log_end, durable_end) else NOTHING
        self.log_end, self.durable_end = log_end, durable_end
        return self._advanced(now_ms)

    def appended_alone(self, log_end: Offset, durable_end: Offset) -> bool:
        """As `appended`, without followers. Returns whether the durable end is the new high watermark."""
        advances = durable_end > self.high_watermark
        self.log_end, self.durable_end = log_end, durable_end
        if advances:
            self.high_watermark = durable_end
        return advances

    def flushed(self, durable_end: Offset, now_ms: int) -> LeaderEffects:
        """All below the durable end is on the leader's disk, as far as flush.messages wants it there."""
        self.durable_end = durable_end
        return self._advanced(now_ms)

    def follower(self, replica: BrokerId, epoch: LeaderEpoch = NO_EPOCH) -> FollowerProgress:
        """A replica that may fetch as a follower. `epoch`: the one that it names, already checked against ours."""
        follower = self.followers.get(replica)
        if follower is not None:
            return follower
        message = f"replica {replica} is not one of {list(self.replicas)} in leader epoch {self.epoch}"
        raise NotLeaderOrFollower(message) if epoch == NO_EPOCH else UnknownLeaderEpoch(message)

    def follower_fetched(
        self,
        replica: BrokerId,
        offset: Offset,
        log_start: Offset,
        now_ms: int,
        broker_epoch: int = ANY_EPOCH,
        last_contact: LastContact | None = None,
    ) -> LeaderEffects:
        """A follower holds everything below an offset. Not for a fetch that was answered with a diverging epoch."""
        follower = self.follower(replica)
        if broker_epoch != ANY_EPOCH and broker_epoch < self.brokers.get(replica, ANY_EPOCH):
            raise NotLeaderOrFollower(
                f"replica {replica} fetched with broker epoch {broker_epoch}; it is {self.brokers[replica]}"
            )
        end_before, start_before = follower.log_end, follower.log_start
        follower.fetched(offset, log_start, self.log_end, now_ms, broker_epoch)
        follower.last_contact = last_contact
        expansion = self._expansion(replica, follower)
        has_news = offset != end_before or self.high_watermark < self.log_end
        advance_to = self._advance(now_ms) if has_news else None
        wake_deletes = log_start > start_before
        if expansion is None and advance_to is None and not wake_deletes:
            return NOTHING
        why = None if expansion is None else f"replica {replica} holds all records up to {offset}"
        return LeaderEffects(expansion, why, advance_to, wake_deletes)

    def _advance(self, now_ms: int) -> Offset | None:
        if len(self.isr) < self.needed_in_sync:
            return None
        safe, in_sync = self.durable_end, self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end < safe and (replica in in_sync or self._is_joining(replica, follower, now_ms)):
                safe = follower.log_end
        if safe <= self.high_watermark:
            return None
        self.high_watermark = safe
        return safe

    def _is_joining(self, replica: BrokerId, follower: FollowerProgress, now_ms: int) -> bool:
        """A replica that keeps up is waited for: with the high watermark always ahead of it, it could never join."""
        if follower.is_refused or not self._may_join(replica, follower):
            return False
        return follower.is_caught_up(self.log_end, now_ms, self.lag_ms)

    def _may_join(self, replica: BrokerId, follower: FollowerProgress) -> bool:
        """Only a living process that fetched itself, not the one before it that may have had more."""
        epoch = self.brokers.get(replica)
        return epoch is not None and (epoch == ANY_EPOCH or follower.broker_epoch in (ANY_EPOCH, epoch))

    # The ISR

    def _expansion(self, replica: BrokerId, follower: FollowerProgress) -> Proposal | None:
        if self.pending is not None or replica in self.isr or not self._may_join(replica, follower):
            return None
        if follower.log_end < max(self.high_watermark, self.epoch_start):
            return None
        return self._propose((*self.isr, replica))

    def shrink(self, now_ms: int, silent: Collection[BrokerId] = ()) -> LeaderEffects:
        """Periodic: followers that were not caught up for too long leave the ISR, or are not waited for to join.

        `silent`: brokers that need not be late for that long, if enough stay in sync without them.
        """
        advanced = self._advanced(now_ms)
        if self.pending is not None:
            return advanced
        followers = [replica for replica in self.isr if replica != self.me]
        late = [replica for replica in followers if self._is_late(replica, now_ms, self.lag_ms)]
        missing = [replica for replica in followers if replica in late or self._is_missing(replica, now_ms, silent)]
        if len(self.isr) - len(missing) >= self.needed_in_sync:
            late = missing
        if not late:
            return advanced
        why = "; ".join(self._lateness(replica, now_ms) for replica in late)
        proposal = self._propose(tuple(replica for replica in self.isr if replica not in late))
        return advanced._replace(alter_isr=proposal, why=why)

    def brokers_left(self, gone: Collection[BrokerId], now_ms: int) -> LeaderEffects:
        """The live brokers have changed: these are gone, or other processes.

        In-sync replicas count until the controller decides. Deletions of records wait for live brokers alone.
        """
        left = [replica for replica in self.followers if replica in gone]
        for replica in left:
            if replica not in self.isr:
                self.followers[replica].forget()
        return self._advanced(now_ms)._replace(wake_deletes=True) if left else NOTHING

    def _is_late(self, replica: BrokerId, now_ms: int, lag_ms: int) -> bool:
        follower = self.followers.get(replica)
        return follower is None or not follower.is_caught_up(self.log_end, now_ms, lag_ms)

    def _is_missing(self, replica: BrokerId, now_ms: int, silent: Collection[BrokerId]) -> bool:
        return replica in silent and self._is_late(replica, now_ms, 0)

    def _lateness(self, replica: BrokerId, now_ms: int) -> str:
        follower = self.followers.get(replica)
        if follower is None:
            return f"replica {replica} is not assigned"
        behind = f"replica {replica} is at {follower.log_end}, the log ends at {self.log_end}"
        return f"{behind}; caught up {now_ms - follower.caught_up_ms} ms ago, replica.lag.time.max.ms={self.lag_ms}"

    def _propose(self, isr: tuple[BrokerId, ...]) -> Proposal:
        proposed = LeaderAndIsr(self.me, self.epoch, isr, self.partition_epoch)
        self.pending, self._in_flight = Proposal(proposed, tuple(map(self._broker_epoch, isr))), True
        return self.pending

    def _broker_epoch(self, replica: BrokerId) -> int:
        if replica == self.me:
            return self.brokers.get(replica, ANY_EPOCH)
        follower = self.followers.get(replica)
        return ANY_EPOCH if follower is None or follower.broker_epoch is None else follower.broker_epoch

    def isr_altered(self, proposal: Proposal, decision: LeaderAndIsr, now_ms: int) -> LeaderEffects:
        """The controller's answer to a proposal: that very object, not an equal one."""
        if proposal is not self.pending:
            return NOTHING  # another decision came first
        self._in_flight = False
        if decision.leader_epoch != self.epoch or decision.partition_epoch < self.partition_epoch:
            return NOTHING
        left = [replica for replica in self.followers if replica in self.isr and replica not in decision.isr]
        self.isr, self.partition_epoch, self.pending = decision.isr, decision.partition_epoch, None
        for replica, follower in self.followers.items():
            follower.is_refused = follower.is_refused and replica not in self.isr
        for replica in left:
            self.followers[replica].forget()
        return self._advanced(now_ms)

    def alter_refused(self, proposal: Proposal, code: int, now_ms: int) -> LeaderEffects:
        """The controller answered a proposal with an error, or did not answer."""
        if proposal is not self.pending:
            return NOTHING
        refusal = AFTER_REFUSAL.get(code, Refusal.RETRY)
        if refusal is Refusal.RETRY:
            return LeaderEffects(alter_isr=proposal)  # for the same reason as before
        self._in_flight = False
        if refusal is Refusal.AWAIT:
            return NOTHING
        self.pending = None
        for replica in proposal.proposed.isr:
            if replica not in self.isr and replica in self.followers:
                self.followers[replica].is_refused = True
        return self._advanced(now_ms)

    def decided(self, decision: LeaderAndIsr, replicas: tuple[BrokerId, ...], now_ms: int) -> LeaderEffects:
        """The controller keeps this broker as leader, with other replicas, another ISR, perhaps a new epoch."""
        if decision.partition_epoch < self.partition_epoch or decision.leader_epoch < self.epoch:
            return NOTHING
        is_repeated = (decision.leader_epoch, decision.partition_epoch) == (self.epoch, self.partition_epoch)
        if not (is_repeated and self._in_flight):  # else the controller may be one proposal ahead of this decision
            self.isr, self.pending, self._in_flight = decision.isr, None, False
        self.replicas, self.partition_epoch = replicas, decision.partition_epoch
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress() for replica in replicas if replica != self.me
        }
        if decision.leader_epoch > self.epoch:
            self.epoch, self.epoch_start = decision.leader_epoch, self.log_end
            for replica, follower in self.followers.items():
                follower.epoch_began(self.log_end, now_ms, in_sync=replica in self.isr)
        return self._advanced(now_ms)

    def _advanced(self, now_ms: int) -> LeaderEffects:
        advance_to = self._advance(now_ms)
        return NOTHING if advance_to is None else LeaderEffects(advance_to=advance_to)

    # Waits of clients

    def is_safe(self, offset: Offset) -> bool:
        """Whether all in-sync replicas have everything below an offset: acks=all waits for it."""
        return self.high_watermark >= offset

    def check_in_sync(self) -> None:
        """Before an append with acks=all. NotEnoughReplicas."""
        if len(self.isr) < self.needed_in_sync:
            raise NotEnoughReplicas(self._too_few(self.isr))

    def too_few_in_sync(self) -> NotEnoughReplicasAfterAppend | None:
        """Why records below the high watermark may be on too few replicas. None: they are on enough."""
        if len(self.maximal_isr) < self.needed_in_sync:
            return NotEnoughReplicasAfterAppend(self._too_few(self.maximal_isr))
        return None

    def _too_few(self, in_sync: tuple[BrokerId, ...]) -> str:
        return f"the ISR is {sorted(in_sync)}, smaller than min.insync.replicas={self.min_isr}"

    def low_watermark(self, log_start: Offset) -> Offset:
        """The offset below which no live replica has records: a deletion of records waits for it."""
        starts = (follower.log_start for replica, follower in self.followers.items() if replica in self.brokers)
        return min([log_start, *starts])
