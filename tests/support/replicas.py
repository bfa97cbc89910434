"""Replicas of one partition and their controller as plain state: the pure cores, with logs in memory and no network.

What travels between them is handed from one method to another; whoever drives them decides when, how often and whether.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.controller import elections
from leadline.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnexpectedAppendOffset,
    UnknownLeaderEpoch,
    WireError,
)
from leadline.log.epochs import LeaderEpochs
from leadline.model import BrokerId, LeaderEpoch, Offset
from leadline.replication import follower, partition
from leadline.replication.follower import (
    LATEST_TIMESTAMP,
    UNDEFINED,
    AskOffset,
    FetchAnswer,
    FollowerState,
    follow,
)
from leadline.replication.partition import IsrLimits, LastContact, LeaderAndIsr, LeaderState, LogOffsets, Proposal
from leadline.wire.fetch_position import FetchPosition

LAG_MS = 30_000
AT_ONCE = 3  # records in one answer
Ask = FetchPosition | AskOffset


class Record(NamedTuple):
    offset: Offset
    epoch: LeaderEpoch
    value: str


class MemoryLog:
    """Records in a list; some of them are only in memory until they are flushed."""

    def __init__(self, *, keeps_epochs: bool = True) -> None:
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.log_start = self.high_watermark = 0
        self.flushed = self.checkpoint = 0  # the log's end and the high watermark, as they are on disk
        self.keeps_epochs = keeps_epochs

    @property
    def log_end(self) -> Offset:
        return self.log_start + len(self.records)

    def values(self) -> str:
        return "".join(record.value for record in self.records)

    def begin_epoch(self, epoch: LeaderEpoch) -> None:
        if self.keeps_epochs:
            self.epochs.assign(epoch, self.log_end)

    def append(self, epoch: LeaderEpoch, value: str) -> Offset:
        self.copy([Record(self.log_end, epoch, value)])
        return self.log_end

    def copy(self, records: Sequence[Record]) -> None:
        if records[0].offset < self.log_end:
            raise UnexpectedAppendOffset("has them", records[0].offset, records[-1].offset)
        for record in records:
            assert record.offset == self.log_end, f"a gap before {record}"
            if self.keeps_epochs:
                self.epochs.assign(record.epoch, record.offset)
            self.records.append(record)

    def read(self, offset: Offset, most: int = AT_ONCE) -> tuple[Record, ...]:
        if not self.log_start <= offset <= self.log_end:
            raise OffsetOutOfRange(f"{offset} is not in [{self.log_start}, {self.log_end}]")
        return tuple(self.records[offset - self.log_start :][:most])

    def truncate_to(self, offset: Offset) -> None:
        if offset < self.log_start:
            self.start_at(offset)
            return
        del self.records[offset - self.log_start :]
        self.epochs.truncate_from_end(self.log_end)
        self.high_watermark, self.flushed = min(self.high_watermark, offset), min(self.flushed, offset)

    def start_at(self, offset: Offset) -> None:
        self.records.clear()
        self.epochs.clear()
        self.log_start = self.high_watermark = self.flushed = offset

    def set_high_watermark(self, offset: Offset) -> None:
        self.high_watermark = min(max(offset, self.log_start), self.log_end)

    def delete_records(self, before: Offset) -> None:
        assert self.log_start <= before <= self.high_watermark
        del self.records[: before - self.log_start]
        self.log_start = before
        self.epochs.truncate_from_start(before)

    def flush(self) -> None:
        self.flushed, self.checkpoint = self.log_end, self.high_watermark

    def reopen(self, *, power_failed: bool) -> None:
        """As it is found after a crash."""
        if power_failed:
            self.truncate_to(max(self.flushed, self.log_start))
        self.set_high_watermark(self.checkpoint)


class ControllerUpdate(NamedTuple):
    """A request of the controller: LeaderAndIsr and UpdateMetadata in one."""

    decision: LeaderAndIsr
    assigned: tuple[BrokerId, ...]
    alive: dict[BrokerId, int]
    incarnation: int  # of the broker that is to hear it


class Reply(NamedTuple):
    """The response of a leader to any request."""

    answer: FetchAnswer
    records: tuple[Record, ...] = ()
    offset: Offset = UNDEFINED


@dataclass
class FetchSession:
    """What a leader remembers of one process that fetches from it."""

    incarnation: int
    last_contact: LastContact = field(default_factory=LastContact)
    position: FetchPosition | None = None  # as last named; a fetch that names nothing says that it stands


@dataclass
class Node:
    """A broker with its replica."""

    id: BrokerId
    log: MemoryLog
    min_isr: int = 1
    incarnation: int = 1  # counts its processes: its broker epoch
    is_up: bool = True
    epoch: LeaderEpoch = -1  # the latest that it was told
    leader: LeaderState | None = None
    following: FollowerState | None = None
    follows: BrokerId = -1
    proposals: list[Proposal] = field(default_factory=list)  # for the controller, still to be sent
    warnings: list[str] = field(default_factory=list)
    brokers: dict[BrokerId, int] = field(default_factory=dict)
    sessions: dict[BrokerId, FetchSession] = field(default_factory=dict)  # of its followers
    is_leaving: bool = False  # it asked the controller for its leave: it does not begin to copy what it is not to join

    def apply(self, update: ControllerUpdate, now_ms: int) -> None:
        decision = update.decision
        if update.incarnation != self.incarnation or decision.leader_epoch < self.epoch:
            return
        gone = {broker for broker, epoch in self.brokers.items() if update.alive.get(broker) != epoch}
        self.brokers.clear()
        self.brokers.update(update.alive)
        if gone and self.leader is not None:
            self._carry_out(self.leader.brokers_left(gone, now_ms))
        is_new, self.epoch = decision.leader_epoch > self.epoch, decision.leader_epoch
        if self.id not in update.assigned:
            self.leader = self.following = None
            self.log = MemoryLog(keeps_epochs=self.log.keeps_epochs)
        elif decision.leader == self.id:
            self._lead(decision, update.assigned, now_ms)
        elif is_new:
            self._follow(decision)

    def _lead(self, decision: LeaderAndIsr, assigned: tuple[BrokerId, ...], now_ms: int) -> None:
        self.following = None
        if self.leader is not None:
            if decision.leader_epoch > self.leader.epoch:
                self.log.begin_epoch(decision.leader_epoch)
            self._carry_out(self.leader.decided(decision, assigned, now_ms))
            return
        self.log.begin_epoch(decision.leader_epoch)
        self.leader = LeaderState(
            decision,
            assigned,
            LogOffsets(self.log.high_watermark, self.log.log_end, self.log.log_end),
            now_ms,
            self.brokers,
            IsrLimits(self.min_isr, LAG_MS),
        )
        self._carry_out(self.leader.appended(self.log.log_end, now_ms))

    def _follow(self, decision: LeaderAndIsr) -> None:
        self.leader, self.follows = None, decision.leader
        if decision.leader < 0 or (self.is_leaving and self.id not in decision.isr):
            self.following = None
            return
        if self.following is not None and self.following.continues(decision.leader_epoch):
            return
        self.following, effects = follow(self.log, decision.leader_epoch)
        self._obey(effects, Reply(FetchAnswer()))

    def crash(self, *, power_failed: bool = False) -> None:
        """The process is gone; with the power, also what was not flushed."""
        self.is_up, self.is_leaving, self.leader, self.following = False, False, None, None
        self.proposals.clear()
        self.sessions.clear()
        self.log.reopen(power_failed=power_failed)

    def start(self) -> None:
        self.is_up, self.epoch = True, -1
        self.incarnation += 1

    # As a leader

    def append(self, value: str, now_ms: int, *, acks_all: bool = True) -> Offset:
        """The offset behind it."""
        if self.leader is None:
            raise NotLeaderOrFollower(f"{self.id} does not lead")
        if acks_all:
            self.leader.check_in_sync()
        end = self.log.append(self.leader.epoch, value)
        self._carry_out(self.leader.appended(end, now_ms))
        return end

    def serve(self, replica: BrokerId, incarnation: int, ask: Ask, now_ms: int) -> Reply:
        """A follower's request."""
        try:
            leader = self._leading(ask.current_leader_epoch)
            match ask:
                case FetchPosition():
                    return self._read(leader, replica, incarnation, ask, now_ms)
                case AskOffset():
                    latest = ask.timestamp == LATEST_TIMESTAMP
                    return Reply(FetchAnswer(), offset=self.log.log_end if latest else self.log.log_start)
        except WireError as error:
            return Reply(FetchAnswer(error.code))

    def _leading(self, epoch: LeaderEpoch) -> LeaderState:
        if epoch < self.epoch:
            raise FencedLeaderEpoch("")
        if epoch > self.epoch:
            raise UnknownLeaderEpoch("")
        if self.leader is None:
            raise NotLeaderOrFollower("")
        return self.leader

    def _read(
        self, leader: LeaderState, replica: BrokerId, incarnation: int, position: FetchPosition, now_ms: int
    ) -> Reply:
        log = self.log
        leader.follower(replica, position.current_leader_epoch)
        answer = FetchAnswer(high_watermark=log.high_watermark, log_start=log.log_start)
        if position.last_fetched_epoch >= 0:
            end = log.epochs.end_of(position.last_fetched_epoch, log.log_end)
            if end is None or position.fetch_offset < log.log_start:
                raise OffsetOutOfRange("")
            if end.epoch < position.last_fetched_epoch or end.end_offset < position.fetch_offset:
                return Reply(answer._replace(diverging=end))
        records = log.read(position.fetch_offset)
        self._note_fetch(leader, replica, incarnation, position, now_ms)
        return Reply(answer._replace(has_records=bool(records)), records)

    def _note_fetch(
        self, leader: LeaderState, replica: BrokerId, incarnation: int, position: FetchPosition, now_ms: int
    ) -> None:
        """A follower in sync without news only renews its last contact."""
        session = self.sessions.get(replica)
        if session is None or session.incarnation != incarnation:
            session = self.sessions[replica] = FetchSession(incarnation)
        session.last_contact.last_ms = now_ms
        if session.position != position or replica not in leader.isr:
            session.position = position
            self._carry_out(
                leader.follower_fetched(
                    replica, position.fetch_offset, position.log_start_offset, now_ms, incarnation, session.last_contact
                )
            )

    def shrink(self, now_ms: int) -> None:
        if self.leader is not None:
            self._carry_out(self.leader.shrink(now_ms))

    def altered(self, proposal: Proposal, decision: LeaderAndIsr | int, now_ms: int) -> None:
        """The controller's answer, or the code of its error."""
        if self.leader is None:
            return
        if isinstance(decision, int):
            self._carry_out(self.leader.alter_refused(proposal, decision, now_ms))
        else:
            self._carry_out(self.leader.isr_altered(proposal, decision, now_ms))

    def _carry_out(self, effects: partition.LeaderEffects) -> None:
        if effects.alter_isr is not None:
            self.proposals.append(effects.alter_isr)
        if effects.advance_to is not None:
            assert effects.advance_to <= self.log.log_end
            self.log.set_high_watermark(effects.advance_to)

    # As a follower

    def ask(self, now_ms: int) -> Ask | None:
        return None if self.following is None else self.following.next_request(self.log, now_ms, 1000)

    def receive(self, ask: Ask, reply: Reply, now_ms: int) -> None:
        following = self.following
        if following is None:
            return
        match ask:
            case FetchPosition():
                effects = following.received(ask, reply.answer, self.log, now_ms)
            case AskOffset():
                effects = following.received_offset(ask, reply.answer.error_code, reply.offset, self.log, now_ms)
        self._obey(effects, reply)

    def _obey(self, effects: follower.FollowerEffects, reply: Reply) -> None:
        if effects is follower.NOTHING or self.following is None:
            return
        if effects.warning is not None:
            self.warnings.append(effects.warning)
        if effects.start_at is not None:
            self.log.start_at(effects.start_at)
        if effects.truncate_to is not None:
            assert effects.truncate_to >= self.log.high_watermark or effects.warning is not None
            self.log.truncate_to(effects.truncate_to)
        if effects.append:
            self.log.copy(reply.records)
        if effects.high_watermark is not None:
            self.log.set_high_watermark(effects.high_watermark)
        if effects.log_start is not None:
            self.log.delete_records(effects.log_start)
        self.following.settled(self.log)


class Controller:
    """The one that decides. What it decides is handed to `tell`, for each broker that is to hear it."""

    def __init__(
        self,
        assigned: tuple[BrokerId, ...],
        tell: Callable[[BrokerId, ControllerUpdate], None],
        *,
        unclean: bool = False,
    ) -> None:
        self.assigned = self.target = assigned
        self.alive = dict.fromkeys(assigned, 1)
        self.shutting_down: set[BrokerId] = set()  # alive still, but not to lead or to join
        self.unclean, self.tell = unclean, tell
        decision = elections.first(assigned, self.alive)
        assert decision is not None
        self.current = decision
        self.tell_all()

    @property
    def eligible(self) -> dict[BrokerId, int]:
        """Those that may lead and join."""
        return {broker: epoch for broker, epoch in self.alive.items() if broker not in self.shutting_down}

    def tell_all(self, *more: BrokerId) -> None:
        for broker in [*self.assigned, *more]:
            if broker in self.alive:
                self.tell(broker, ControllerUpdate(self.current, self.assigned, dict(self.alive), self.alive[broker]))

    def _decide(self, decision: LeaderAndIsr | None, *more: BrokerId) -> bool:
        """Write it and tell it. False if there is none."""
        if decision is None:
            return False
        self.current = decision._replace(partition_epoch=decision.partition_epoch + 1)
        self.tell_all(*more)
        return True

    def elect(self) -> bool:
        """A leader, if there is none."""
        if self.current.leader in self.alive:
            return False
        return self._decide(elections.offline(self.current, self.assigned, self.eligible, unclean=self.unclean))

    def failed(self, broker: BrokerId) -> None:
        del self.alive[broker]
        self.shutting_down.discard(broker)
        self.elect()
        if not self._decide(elections.without(self.current, broker)):
            self.tell_all()

    def started(self, broker: BrokerId, incarnation: int) -> None:
        """One that was not missed yet was gone all the same."""
        if broker in self.alive:
            self.failed(broker)
        self.alive[broker] = incarnation
        self.elect()
        self.tell_all()
        if self.target != self.assigned:
            self.finish_reassignment()

    def elect_preferred(self) -> bool:
        if self.current.leader == self.assigned[0]:
            return False
        return self._decide(elections.preferred(self.current, self.assigned, self.eligible))

    def shut_down(self, broker: BrokerId) -> bool:
        """A broker wants to go. Whether it leads nothing any longer."""
        self.shutting_down.add(broker)
        if self.current.leader == broker:
            going = self.shutting_down
            return self._decide(elections.controlled_shutdown(self.current, self.assigned, self.alive, going))
        return self._decide(elections.without(self.current, broker)) or True

    def alter(self, proposal: Proposal) -> LeaderAndIsr | int:
        """The answer to AlterPartition."""
        try:
            decision = elections.altered(self.current, proposal, self.eligible)
        except WireError as error:
            return error.code
        if decision is not self.current:
            self.current = decision = decision._replace(partition_epoch=decision.partition_epoch + 1)
            if self.target != self.assigned:
                self.finish_reassignment()
        return decision

    def reassign(self, target: tuple[BrokerId, ...]) -> None:
        """First all of the old and the new, then only the new ones."""
        self.assigned = (*target, *(broker for broker in self.assigned if broker not in target))
        self.target = target
        self._decide(elections.new_epoch(self.current))
        self.finish_reassignment()

    def finish_reassignment(self) -> None:
        if not elections.is_reassigned(self.current, self.target):
            return
        leaving = [broker for broker in self.assigned if broker not in self.target]
        before, self.assigned = self.assigned, self.target
        stays = self.current.leader in self.target and self.current.leader in self.alive
        decision = (elections.new_epoch if stays else self._led_by_target)(self.current)
        if not self._decide(decision):
            self.assigned = before
            return
        for broker in leaving:
            self._decide(elections.without(self.current, broker), *leaving)

    def _led_by_target(self, current: LeaderAndIsr) -> LeaderAndIsr | None:
        return elections.reassigned(current, self.target, self.eligible)
