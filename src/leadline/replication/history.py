"""The recent history of a partition on this broker: it explains the current state to a person.

It is kept in memory as long as the broker has the partition: the last KEPT events of each kind, so that an ISR that
often changes does not push out the truncation of an hour ago. Offsets are the broker's own. It does not know about
elections before its first command from the controller.

Pure: keeps events.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from leadline.model import BrokerId, LeaderEpoch, Offset
from leadline.replication.partition import LeaderAndIsr, Proposal

KEPT = 20

T = TypeVar("T")


class Election(NamedTuple):
    """The controller named a leader."""

    at_ms: int
    epoch: LeaderEpoch
    leader: BrokerId  # -1: none
    isr: tuple[BrokerId, ...]
    log_end: Offset  # here, at that time
    unclean: bool  # the leader was not in sync: it may lack records that were acknowledged


class IsrChange(NamedTuple):
    """A change as the leader saw it: by its own proposal, or by the controller alone."""

    at_ms: int
    epoch: LeaderEpoch
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    why: str


class Truncation(NamedTuple):
    """Records at the end of this log were removed, because the leader does not have them."""

    at_ms: int
    epoch: LeaderEpoch  # of the leader that is followed
    leader: BrokerId
    log_end: Offset  # before
    to_offset: Offset  # the log's end since then
    warning: str | None  # they were below the high watermark: acknowledged, perhaps


@dataclass(slots=True)
class History:
    """The newest comes last."""

    elections: list[Election] = field(default_factory=list)
    isr_changes: list[IsrChange] = field(default_factory=list)
    truncations: list[Truncation] = field(default_factory=list)
    _proposed: tuple[Proposal, str] | None = None  # with its reason; a repeated proposal keeps it

    def elected(self, decision: LeaderAndIsr, log_end: Offset, now_ms: int) -> None:
        leader, epoch, isr, _, recovering = decision
        _keep(self.elections, Election(now_ms, epoch, leader, isr, log_end, recovering))

    def proposed(self, proposal: Proposal, why: str | None) -> None:
        """The leader proposes another ISR."""
        if self._proposed is None or self._proposed[0] is not proposal:
            self._proposed = (proposal, why or "")

    def altered(self, proposal: Proposal, before: Sequence[BrokerId], now: LeaderAndIsr, now_ms: int) -> None:
        """The controller agreed, or answered with another ISR."""
        why = self._proposed[1] if self._proposed is not None and self._proposed[0] is proposal else ""
        if set(now.isr) != set(proposal.proposed.isr):
            why = "the controller has a different ISR"
        self._isr_is(now, before, why, now_ms)

    def decided(self, before: Sequence[BrokerId], now: LeaderAndIsr, replicas: Sequence[BrokerId], now_ms: int) -> None:
        """The controller elected the same leader again, perhaps with another ISR. It gives no reason."""
        removed = [replica for replica in before if replica not in now.isr]
        dropped = [replica for replica in removed if replica not in replicas]
        away = [replica for replica in removed if replica in replicas]
        reasons = [f"{_named(dropped)} no longer assigned"] if dropped else []
        reasons += [f"{_named(away)} away, shutting down, or with a failed disk"] if away else []
        why = f"the controller took out {'; '.join(reasons)}" if reasons else "the controller decided so"
        self._isr_is(now, before, why, now_ms)

    def _isr_is(self, now: LeaderAndIsr, before: Sequence[BrokerId], why: str, now_ms: int) -> None:
        if set(before) != set(now.isr):
            _keep(self.isr_changes, IsrChange(now_ms, now.leader_epoch, tuple(before), now.isr, why))

    def truncated(self, truncation: Truncation) -> None:
        if truncation.to_offset != truncation.log_end:
            _keep(self.truncations, truncation)

    def as_values(self) -> dict[str, object]:
        """As plain values, for JSON."""
        return {
            "elections": [election._asdict() for election in self.elections],
            "isr_changes": [change._asdict() for change in self.isr_changes],
            "truncations": [truncation._asdict() for truncation in self.truncations],
        }


def _keep(events: list[T], event: T) -> None:
    events.append(event)
    del events[:-KEPT]


def _named(replicas: Sequence[BrokerId]) -> str:
    noun = "replica" if len(replicas) == 1 else "replicas"
    return f"{noun} {', '.join(map(str, replicas))}:"
