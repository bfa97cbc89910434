"""A partition on its leader: who has which records, and up to where they are safe to show.

    the high watermark is the smallest log end among the in-sync replicas, and never goes back within an epoch
    what lies below it is on every in-sync replica

Pure: decides over offsets, and hands back what must be done.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.model import BrokerId, LeaderEpoch, Offset


class Effects(NamedTuple):
    """What must happen, top to bottom."""

    advance_to: Offset | None = None  # the new high watermark: wake those who wait for it


NOTHING = Effects()


@dataclass(slots=True)
class Leader:
    """One epoch of leadership."""

    me: BrokerId
    epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: frozenset[BrokerId]
    high_watermark: Offset
    ends: dict[BrokerId, Offset] = field(default_factory=dict)  # each replica's log end, as far as it is known

    def appended(self, log_end: Offset) -> Effects:
        """The leader's own log ends here now."""
        self.ends[self.me] = log_end
        return self._advance()

    def _advance(self) -> Effects:
        safe = self.ends[self.me] if len(self.isr) == 1 else min(map(self._end_of, self.isr))
        if safe <= self.high_watermark:
            return NOTHING
        self.high_watermark = safe
        return Effects(advance_to=safe)

    def _end_of(self, replica: BrokerId) -> Offset:
        return self.ends.get(replica, 0)

    def is_safe(self, offset: Offset) -> bool:
        """Whether everything below an offset is on all in-sync replicas: what acks=all waits for."""
        return self.high_watermark >= offset

    def offline_replicas(self, alive: Iterable[BrokerId]) -> list[BrokerId]:
        living = set(alive)
        return [replica for replica in self.replicas if replica not in living]
