"""What the state of a follower decides, carried out on its log: truncate, append, advance, delete.

If an append raises, nothing has happened to the log.
"""

import logging
from typing import NamedTuple, Protocol

from leadline.errors import UnexpectedAppendOffset
from leadline.log.log import Log
from leadline.log.log_truncation import LogTruncation
from leadline.model import BrokerId, Buffer, TopicPartition
from leadline.replication.context import ReplicationContext
from leadline.replication.follower import FollowerEffects, FollowerState
from leadline.replication.history import History, Truncation

log = logging.getLogger(__name__)


class FetchedReplica(Protocol):
    """A partition on this broker, as far as a fetcher needs it."""

    log: Log
    history: History

    def wake(self) -> None:
        """There may be more to read."""


class FollowedPartition(NamedTuple):
    state: FollowerState
    replica: FetchedReplica


class EffectsOnLogs:
    """Carries out the effects on logs that are fetched from one leader."""

    def __init__(self, leader: BrokerId, context: ReplicationContext, truncation: LogTruncation) -> None:
        self._leader, self._truncation = leader, truncation
        self._clock, self._pressure, self._metrics = context.clock, context.pressure, context.topic_metrics

    def apply(self, followed: FollowedPartition, effects: FollowerEffects, records: Buffer) -> None:
        """All effects but a truncation. If the append raises, nothing has happened."""
        state, replica = followed
        hosted_log = replica.log
        if effects.append:
            hosted_log.append_as_follower(records)
            self._pressure.appended(hosted_log, len(records))
            self._metrics.replication_bytes_in += len(records)
        if effects.high_watermark is not None and hosted_log.set_high_watermark(effects.high_watermark):
            replica.wake()
        if effects.log_start is not None:
            hosted_log.delete_records(effects.log_start)
        state.settled(hosted_log)

    async def truncate_and_apply(
        self, tp: TopicPartition, followed: FollowedPartition, effects: FollowerEffects, records: Buffer
    ) -> None:
        state, replica = followed
        if replica.log.offline:
            replica.log.refuse()
        if effects.warning is not None:
            log.warning("%s, fetched from broker %d: %s", tp, self._leader, effects.warning)
        if effects.start_at is not None or effects.truncate_to is not None:
            await self._truncate(tp, followed, effects)
        try:
            self.apply(followed, effects, records)
        except UnexpectedAppendOffset as overlap:
            again = state.overlapped(overlap.first_offset, overlap.last_offset, replica.log)
            await self.truncate_and_apply(tp, followed, again, records)
            self.apply(followed, effects._replace(append=False), b"")

    async def _truncate(self, tp: TopicPartition, followed: FollowedPartition, effects: FollowerEffects) -> None:
        state, replica = followed
        log_end = replica.log.log_end
        if effects.start_at is not None:
            await self._truncation.truncate_fully_and_start_at(tp, effects.start_at)
        if effects.truncate_to is not None:
            await self._truncation.truncate_to(tp, effects.truncate_to)
        epoch, now_ms = state.leader_epoch, self._clock.now_ms()
        truncation = Truncation(now_ms, epoch, self._leader, log_end, replica.log.log_end, effects.warning)
        replica.history.truncated(truncation)
