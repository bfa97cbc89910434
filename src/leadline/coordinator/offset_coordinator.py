"""The offsets that groups commit: written to their journal, told, and forgotten when nobody needs them any longer.

A shell around `Offsets`, beside the one around `Group`: both speak of the same shards of the same journal.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from leadline.coordinator.classic_group import ClassicGroup, GroupState
from leadline.coordinator.group_coordinator import GroupCoordinator
from leadline.coordinator.group_offsets import OffsetAndMetadata, is_longer
from leadline.coordinator.group_records import group_key, offset_key, offset_value
from leadline.coordinator.group_shard import GroupShard
from leadline.coordinator.offset_commit_template import OffsetCommitTemplate
from leadline.coordinator.runtime import CoordinatorRecord
from leadline.errors import (
    GroupIdNotFound,
    IllegalGeneration,
    InvalidCommitOffsetSize,
    OffsetMetadataTooLarge,
    RecordListTooLarge,
    RecordTooLarge,
    UnstableOffsetCommit,
    WireError,
)
from leadline.log.producer_state import TRUSTED, Verification
from leadline.model import Offset, ProducerId, TopicPartition
from leadline.records.build import BatchFields
from leadline.records.compression import Codec
from leadline.runtime.periodic import every

log = logging.getLogger(__name__)

MINUTE_MS = 60_000
EXPIRED_AT_ONCE = 100  # groups looked at between two turns of the others
PER_TOMBSTONE = 32  # bytes of a record around its key, at most
NONE = 0

ErrorCodes = dict[TopicPartition, int]  # an error code for each


class ConsumerGroupMetadata(NamedTuple):
    """Who commits offsets."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class OffsetTransaction(NamedTuple):
    """The transaction that a commit is part of."""

    producer_id: ProducerId
    producer_epoch: int
    verified: Verification | None  # that its coordinator knows of it


class FetchedOffset(NamedTuple):
    """A committed offset, or why there is none to tell."""

    committed: OffsetAndMetadata | None
    error: int = NONE


class OffsetCoordinator:
    """The offsets of the groups whose coordinator this broker is."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self.groups = groups
        self._runtime, self._fields = groups.runtime, groups.fields
        self._clock, self._config = groups.clock, groups.config
        # Sequence 0, as Kafka writes it: what a coordinator writes is not checked for it.
        self._commit_fields = BatchFields(codec=self._fields.codec, base_sequence=0)
        self._expiry: asyncio.Task[None] | None = None
        self._deleted: set[str] = set()  # topics whose offsets go from shards as they are loaded
        groups.on_loaded.append(self._forget_deleted_topics)

    def start(self) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        self._expiry = asyncio.create_task(every(interval_ms, self._expire_all, first_ms=0), name="offset-expiration")

    async def stop(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            await asyncio.gather(self._expiry, return_exceptions=True)

    def commit(
        self,
        who: ConsumerGroupMetadata,
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        txn: OffsetTransaction | None = None,
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        """The verdict on each, once they are committed."""
        try:
            shard, group = self._checked_group(who, in_transaction=txn is not None)
        except WireError as error:
            return dict.fromkeys(commits, error.code)
        most = self._config.offset_metadata_max_bytes
        too_large = [tp for tp, commit in commits.items() if commit.metadata and is_longer(commit.metadata, most)]
        verdicts: ErrorCodes = dict.fromkeys(commits, NONE)
        accepted = commits
        if too_large:
            verdicts |= dict.fromkeys(too_large, OffsetMetadataTooLarge.code)
            accepted = {tp: commit for tp, commit in commits.items() if verdicts[tp] == NONE}
        return self._write_commits(shard, group, accepted, verdicts, txn) if accepted else verdicts

    def template(self, group_id: str, metadata: Mapping[TopicPartition, str]) -> OffsetCommitTemplate | None:
        """For `commit_again`, if such a commit can be a form."""
        most = self._config.offset_metadata_max_bytes
        if self._commit_fields.codec is not Codec.NONE or any(is_longer(text, most) for text in metadata.values()):
            return None
        try:
            return OffsetCommitTemplate(group_id, metadata, self._commit_fields)
        except ValueError:
            return None

    def commit_from_template(
        self,
        who: ConsumerGroupMetadata,
        template: OffsetCommitTemplate,
        offsets: Sequence[Offset],
        epochs: Sequence[int],
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        """As `commit`. `form.accepted` itself, if all are committed at once."""
        now_ms = self._clock.now_ms()
        try:
            shard, group = self._checked_group(who)
            end = self._runtime.append(shard.partition, template.batch(offsets, epochs, now_ms))
        except WireError as error:
            return dict.fromkeys(template.accepted, _error_for_committers(error).code)
        written = template.commits(offsets, epochs, now_ms, end - len(offsets))
        return self._written(shard, group, written, end, template.accepted)

    def _checked_group(
        self, who: ConsumerGroupMetadata, *, in_transaction: bool = False
    ) -> tuple[GroupShard, ClassicGroup]:
        """The group, if this member of it, or this stranger, may commit now."""
        shard = self.groups.shard(who.group_id, may_be_nameless=not in_transaction)
        group = shard.groups.get(who.group_id)
        if group is None:
            if not in_transaction and who.generation >= 0:
                raise IllegalGeneration(f"there is no group {who.group_id}, nor its generation {who.generation}")
            group = shard.get_or_create(who.group_id)
        effects = group.check_commit(who.member_id, who.instance_id, who.generation, transactional=in_transaction)
        if effects:
            self.groups.carry_out(shard, group, effects)
        return shard, group

    def _write_commits(
        self,
        shard: GroupShard,
        group: ClassicGroup,
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        verdicts: ErrorCodes,
        txn: OffsetTransaction | None,
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        group_id = group.id
        entries = [(offset_key(group_id, tp), offset_value(commit)) for tp, commit in commits.items()]
        try:
            verified = TRUSTED if txn is None else txn.verified
            end = self._runtime.write(shard.partition, entries, self._in_transaction(txn), verified)
        except WireError as error:
            return verdicts | dict.fromkeys(commits, _error_for_committers(error).code)
        at = end - len(entries)
        written = {tp: commit.written_at(at) for tp, commit in commits.items()}
        return self._written(shard, group, written, end, verdicts, txn)

    def _written(
        self,
        shard: GroupShard,
        group: ClassicGroup,
        commits: dict[TopicPartition, OffsetAndMetadata],
        end: Offset,
        verdicts: ErrorCodes,
        txn: OffsetTransaction | None = None,
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        """They stand in the journal, up to its `end`; the verdicts hold once that is committed."""
        offsets, is_safe = group.offsets, self._runtime.is_committed(shard.partition, end)
        if txn is not None:
            shard.stage_in_transaction(group, txn.producer_id, commits)
        elif is_safe:
            offsets.settle_latest(commits)
        else:
            offsets.stage(commits)
        if is_safe:
            return verdicts

        done: asyncio.Future[ErrorCodes] = asyncio.get_running_loop().create_future()

        def decided(error: WireError | None) -> None:
            if txn is None:
                (offsets.commit if error is None else offsets.unstage)(commits)
            elif error is not None:
                offsets.withdraw(txn.producer_id, commits)
            code = NONE if error is None else _error_for_committers(error).code
            if not done.cancelled():
                done.set_result(verdicts | dict.fromkeys(commits, code))

        self.groups.when_committed(shard.partition, end, decided)
        return done

    def _in_transaction(self, txn: OffsetTransaction | None) -> BatchFields:
        if txn is None:
            return self._commit_fields
        return BatchFields(
            codec=self._fields.codec,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            base_sequence=0,
            transactional=True,
        )

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Offsets of these partitions, or of all that have one. NotCoordinator, CoordinatorLoadInProgress."""
        group = self.groups.find(group_id)
        if group is None:
            return {tp: FetchedOffset(None) for tp in partitions or ()}
        offsets = group.offsets
        return {
            tp: (
                FetchedOffset(None, UnstableOffsetCommit.code)
                if require_stable and offsets.is_unstable(tp)
                else FetchedOffset(offsets.committed.get(tp))
            )
            for tp in (offsets.committed if partitions is None else partitions)
        }

    # Deleting

    async def delete(self, group_id: str) -> None:
        """GroupIdNotFound, NonEmptyGroup, NotCoordinator, CoordinatorLoadInProgress."""
        shard = self.groups.shard(group_id, may_be_nameless=True)
        group = shard.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        group.check_deletion()
        end = self._forget(shard, group, group.offsets.partitions(), also_group=True)
        if end is not None:
            await self._runtime.committed(shard.partition, end)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> ErrorCodes:
        """GroupIdNotFound, NonEmptyGroup, InvalidGroupId, NotCoordinator, CoordinatorLoadInProgress."""
        shard = self.groups.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        verdicts = group.check_offset_deletion(partitions)
        end = self._forget(shard, group, {tp for tp, code in verdicts.items() if code == NONE})
        if end is not None:
            await self._runtime.committed(shard.partition, end)
        return verdicts

    def topic_deleted(self, topic: str) -> None:
        """Its offsets mean nothing to a later topic of that name."""
        if not self._is_loaded:
            self._deleted.add(topic)
        for shard in self._runtime.shards.values():
            self._forget_topics(shard, {topic})

    def _forget_deleted_topics(self, shard: GroupShard) -> None:
        """A shard that was loaded after topics were deleted still has their offsets."""
        self._forget_topics(shard, self._deleted)
        if self._is_loaded:
            self._deleted.clear()

    @property
    def _is_loaded(self) -> bool:
        return self._expiry is not None and not self.groups.is_loading

    def _forget_topics(self, shard: GroupShard, topics: set[str]) -> None:
        for group in list(shard.groups.values()) if topics else ():
            if gone := {tp for tp in group.offsets.partitions() if tp.topic in topics}:
                self._forget_or_log(shard, group, gone)

    async def _expire_all(self) -> None:
        for shard in list(self._runtime.shards.values()):
            await self._expire(shard)

    async def _expire(self, shard: GroupShard) -> None:
        retention_ms = self._config.offsets_retention_minutes * MINUTE_MS
        for n, group in enumerate(list(shard.groups.values())):
            if n % EXPIRED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if self._runtime.shards.get(shard.partition) is shard and group.state is not GroupState.DEAD:
                self._forget_or_log(shard, group, set(group.expired(self._clock.now_ms(), retention_ms)))

    def _forget_or_log(self, shard: GroupShard, group: ClassicGroup, gone: AbstractSet[TopicPartition]) -> None:
        try:
            self._forget(shard, group, gone)
        except WireError as error:
            log.warning("offsets of group %s cannot be forgotten now: %s", group.id, error)

    def _forget(
        self, shard: GroupShard, group: ClassicGroup, gone: AbstractSet[TopicPartition], *, also_group: bool = False
    ) -> Offset | None:
        """Delete offsets of a group, and the group itself if then nothing is left of it. The offset to wait for.

        The tombstone of the group comes last: what a crash leaves of it is a group that can be deleted.
        """
        known = group.offsets.partitions()
        keys = [offset_key(group.id, tp) for tp in known & gone]
        dies = group.state is GroupState.EMPTY and (also_group or not known - gone)
        if dies and group.generation > 0:
            keys.append(group_key(group.id))
        end = self._write_tombstones(shard.partition, keys)
        group.offsets.forget(gone)
        if dies:
            del shard.groups[group.id]
            self.groups.carry_out(shard, group, group.die(self._clock.now_ms()))
        return end

    def _write_tombstones(self, partition: int, keys: list[bytes]) -> Offset | None:
        """In as many batches as it takes."""
        end: Offset | None = None
        entries: list[CoordinatorRecord] = []
        size = 0
        for key in keys:
            if entries and size + len(key) + PER_TOMBSTONE > self._runtime.max_bytes(partition):
                end, entries, size = self._runtime.write(partition, entries, self._fields), [], 0
            entries.append(CoordinatorRecord(key, None))
            size += len(key) + PER_TOMBSTONE
        return self._runtime.write(partition, entries, self._fields) if entries else end


def _error_for_committers(error: WireError) -> WireError:
    return InvalidCommitOffsetSize(str(error)) if isinstance(error, RecordTooLarge | RecordListTooLarge) else error
