"""The offsets that groups commit: written to `__consumer_offsets`, fetched, deleted and expired.

It is a shell around `GroupOffsets`. It shares the shards with the group coordinator, the shell around `ClassicGroup`.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple, Protocol

from leadline.config.live_settings import LiveSettings
from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_effects import Effect
from leadline.coordinator.group_offsets import OffsetAndMetadata, is_longer
from leadline.coordinator.group_records import group_key, offset_key, offset_value
from leadline.coordinator.group_shard import GroupShard
from leadline.coordinator.group_state import GroupState
from leadline.coordinator.offset_commit_template import OffsetCommitTemplate
from leadline.coordinator.runtime import CoordinatorRuntime
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
from leadline.model import NONE, Offset, ProducerId, TopicPartition
from leadline.records.build import BatchFields
from leadline.records.compression import Codec
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import every

log = logging.getLogger(__name__)

MINUTE_MS = 60_000
GROUPS_PER_STEP = 100  # checked for expired offsets before other tasks run

ErrorCodes = dict[TopicPartition, int]


class ConsumerGroupMetadata(NamedTuple):
    """The member that commits offsets, as its request names it."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int


class OffsetTransaction(NamedTuple):
    """The transaction that a commit is part of."""

    producer_id: ProducerId
    producer_epoch: int
    verified: Verification | None  # None: its coordinator does not know of the transaction


class FetchedOffset(NamedTuple):
    """A committed offset, or an error code."""

    committed: OffsetAndMetadata | None  # None: the group has committed none, or an error
    error: int = NONE


class CoordinatedGroups(Protocol):
    """The groups that offsets belong to."""

    def shard(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard: ...
    def find(self, group_id: str) -> ClassicGroup | None: ...
    def carry_out(self, shard: GroupShard, group: ClassicGroup, effects: Iterable[Effect]) -> None: ...


class OffsetCoordinator:
    """The offsets of the groups whose coordinator this broker is."""

    def __init__(
        self, runtime: CoordinatorRuntime[GroupShard], groups: CoordinatedGroups, settings: LiveSettings
    ) -> None:
        self._runtime, self._groups, self._settings = runtime, groups, settings
        self._clock = runtime.clock
        codec = Codec(settings.broker.offsets_topic_compression_codec)
        self._tombstone_fields = BatchFields(codec=codec)
        # Kafka writes sequence 0. It is not checked in records of a coordinator.
        self._commit_fields = BatchFields(codec=codec, base_sequence=0)
        self._expiration: asyncio.Task[None] | None = None
        self._deleted_topics: set[str] = set()  # whose offsets are deleted from shards that are still loading

    def start(self) -> None:
        interval_ms = self._settings.broker.offsets_retention_check_interval_ms
        self._expiration = asyncio.create_task(
            every(interval_ms, self._expire_all, first_ms=0), name="offset-expiration"
        )

    async def stop(self) -> None:
        if self._expiration is not None:
            self._expiration.cancel()
            await all_ended(self._expiration)

    def commit(
        self,
        member: ConsumerGroupMetadata,
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        txn: OffsetTransaction | None = None,
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        """Commit offsets. Returns error codes; a future if other replicas must get the offsets first."""
        try:
            shard, group = self._checked_group(member, in_transaction=txn is not None)
        except WireError as error:
            return dict.fromkeys(commits, error.code)
        max_bytes = self._settings.broker.offset_metadata_max_bytes
        too_large = [tp for tp, commit in commits.items() if commit.metadata and is_longer(commit.metadata, max_bytes)]
        codes: ErrorCodes = dict.fromkeys(commits, NONE)
        accepted = commits
        if too_large:
            codes |= dict.fromkeys(too_large, OffsetMetadataTooLarge.code)
            accepted = {tp: commit for tp, commit in commits.items() if codes[tp] == NONE}
        return self._write_commits(shard, group, accepted, codes, txn) if accepted else codes

    def template(self, group_id: str, metadata: Mapping[TopicPartition, str]) -> OffsetCommitTemplate | None:
        """A template for `commit_from_template`. None: such a commit does not fit a template."""
        max_bytes = self._settings.broker.offset_metadata_max_bytes
        if self._commit_fields.codec is not Codec.NONE or any(is_longer(text, max_bytes) for text in metadata.values()):
            return None
        try:
            return OffsetCommitTemplate(group_id, metadata, self._commit_fields)
        except ValueError:
            return None

    def commit_from_template(
        self,
        member: ConsumerGroupMetadata,
        template: OffsetCommitTemplate,
        offsets: Sequence[Offset],
        epochs: Sequence[int],
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        """As `commit`. Returns `template.accepted` itself if all offsets are committed at once."""
        now_ms = self._clock.now_ms()
        try:
            shard, group = self._checked_group(member)
            end = self._runtime.append(shard.partition, template.batch(offsets, epochs, now_ms))
        except WireError as error:
            return dict.fromkeys(template.accepted, _error_for_committers(error).code)
        written = template.commits(offsets, epochs, now_ms, end - len(offsets))
        return self._written(shard, group, written, end, template.accepted)

    def _checked_group(
        self, member: ConsumerGroupMetadata, *, in_transaction: bool = False
    ) -> tuple[GroupShard, ClassicGroup]:
        """The group, if the member may commit now. Otherwise an error of `ClassicGroup.check_commit`."""
        shard = self._groups.shard(member.group_id, may_be_empty=not in_transaction)
        group = shard.groups.get(member.group_id)
        if group is None:
            if not in_transaction and member.generation >= 0:
                raise IllegalGeneration(f"there is no group {member.group_id}, nor its generation {member.generation}")
            group = shard.get_or_create(member.group_id)
        effects = group.check_commit(
            member.member_id, member.instance_id, member.generation, transactional=in_transaction
        )
        if effects:
            self._groups.carry_out(shard, group, effects)
        return shard, group

    def _write_commits(
        self,
        shard: GroupShard,
        group: ClassicGroup,
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        codes: ErrorCodes,
        txn: OffsetTransaction | None,
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        group_id = group.id
        records = [(offset_key(group_id, tp), offset_value(commit)) for tp, commit in commits.items()]
        try:
            verified = TRUSTED if txn is None else txn.verified
            end = self._runtime.write(shard.partition, records, self._fields_of(txn), verified)
        except WireError as error:
            return codes | dict.fromkeys(commits, _error_for_committers(error).code)
        base_offset = end - len(records)
        written = {tp: commit.written_at(base_offset) for tp, commit in commits.items()}
        return self._written(shard, group, written, end, codes, txn)

    def _written(
        self,
        shard: GroupShard,
        group: ClassicGroup,
        commits: dict[TopicPartition, OffsetAndMetadata],
        end: Offset,
        codes: ErrorCodes,
        txn: OffsetTransaction | None = None,
    ) -> "ErrorCodes | asyncio.Future[ErrorCodes]":
        """Apply offsets that are written. `end`: of their batch. `codes` are returned once that is committed."""
        offsets, is_committed = group.offsets, self._runtime.is_committed(shard.partition, end)
        if txn is not None:
            shard.add_pending_offsets(group, txn.producer_id, commits)
        elif is_committed:
            offsets.apply_latest(commits)
        else:
            offsets.stage(commits)
        if is_committed:
            return codes

        reply: asyncio.Future[ErrorCodes] = asyncio.get_running_loop().create_future()

        def on_committed(error: WireError | None) -> None:
            if txn is None:
                (offsets.commit if error is None else offsets.unstage)(commits)
            elif error is not None:
                offsets.withdraw(txn.producer_id, commits)
            code = NONE if error is None else _error_for_committers(error).code
            if not reply.cancelled():
                reply.set_result(codes | dict.fromkeys(commits, code))

        self._runtime.when_committed(shard.partition, end, on_committed)
        return reply

    def _fields_of(self, txn: OffsetTransaction | None) -> BatchFields:
        if txn is None:
            return self._commit_fields
        return BatchFields(
            codec=self._commit_fields.codec,
            producer_id=txn.producer_id,
            producer_epoch=txn.producer_epoch,
            base_sequence=0,
            transactional=True,
        )

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, FetchedOffset]:
        """Offsets of these partitions; None: of all that have one. NotCoordinator, CoordinatorLoadInProgress."""
        group = self._groups.find(group_id)
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

    # Deletion

    async def delete(self, group_id: str) -> None:
        """GroupIdNotFound, NonEmptyGroup, NotCoordinator, CoordinatorLoadInProgress."""
        shard = self._groups.shard(group_id, may_be_empty=True)
        group = shard.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        group.check_deletion()
        end = self._delete(shard, group, group.offsets.partitions(), also_group=True)
        if end is not None:
            await self._runtime.committed(shard.partition, end)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> ErrorCodes:
        """GroupIdNotFound, NonEmptyGroup, InvalidGroupId, NotCoordinator, CoordinatorLoadInProgress."""
        shard = self._groups.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        codes = group.check_offset_deletion(partitions)
        end = self._delete(shard, group, {tp for tp, code in codes.items() if code == NONE})
        if end is not None:
            await self._runtime.committed(shard.partition, end)
        return codes

    def topic_deleted(self, topic: str) -> None:
        """Delete the offsets of a topic: they mean nothing to a later topic of that name."""
        if not self._is_loaded:
            self._deleted_topics.add(topic)
        for shard in self._runtime.shards.values():
            self._delete_topics(shard, {topic})

    def shard_loaded(self, shard: GroupShard) -> None:
        """Delete offsets of topics that were deleted while the shard was loading."""
        self._delete_topics(shard, self._deleted_topics)
        if self._is_loaded:
            self._deleted_topics.clear()

    @property
    def _is_loaded(self) -> bool:
        return self._expiration is not None and not self._runtime.is_loading

    def _delete_topics(self, shard: GroupShard, topics: set[str]) -> None:
        for group in list(shard.groups.values()) if topics else ():
            if deleted := {tp for tp in group.offsets.partitions() if tp.topic in topics}:
                self._delete_or_log(shard, group, deleted)

    async def _expire_all(self) -> None:
        for shard in list(self._runtime.shards.values()):
            await self._expire(shard)

    async def _expire(self, shard: GroupShard) -> None:
        retention_ms = self._settings.broker.offsets_retention_minutes * MINUTE_MS
        for n, group in enumerate(list(shard.groups.values())):
            if n % GROUPS_PER_STEP == 0:
                await asyncio.sleep(0)
            if self._runtime.is_active(shard.partition, shard) and group.state is not GroupState.DEAD:
                self._delete_or_log(shard, group, set(group.expired(self._clock.now_ms(), retention_ms)))

    def _delete_or_log(self, shard: GroupShard, group: ClassicGroup, deleted: AbstractSet[TopicPartition]) -> None:
        try:
            self._delete(shard, group, deleted)
        except WireError as error:
            log.warning("offsets of group %s cannot be deleted now: %s", group.id, error)

    def _delete(
        self, shard: GroupShard, group: ClassicGroup, deleted: AbstractSet[TopicPartition], *, also_group: bool = False
    ) -> Offset | None:
        """Delete offsets of a group, and the group itself if nothing else is left. Returns the end of the tombstones.

        The tombstone of the group is written last. After a crash the rest is a group that can still be deleted.
        """
        partitions = group.offsets.partitions()
        keys = [offset_key(group.id, tp) for tp in partitions & deleted]
        dies = group.state is GroupState.EMPTY and (also_group or not partitions - deleted)
        if dies and group.generation > 0:
            keys.append(group_key(group.id))
        end = self._runtime.write_tombstones(shard.partition, keys, self._tombstone_fields)
        group.offsets.delete(deleted)
        if dies:
            del shard.groups[group.id]
            self._groups.carry_out(shard, group, group.die(self._clock.now_ms()))
        return end


def _error_for_committers(error: WireError) -> WireError:
    return InvalidCommitOffsetSize(str(error)) if isinstance(error, RecordTooLarge | RecordListTooLarge) else error
