"""A shard of the group coordinator: the groups of one partition of `__consumer_offsets`, and their timers."""

import logging
from collections.abc import Iterable
from typing import Protocol

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_effects import Effect
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_records import GroupKey, OffsetKey, read_group, read_key, read_offset
from leadline.errors import CorruptMessage
from leadline.model import Offset, ProducerId, TopicPartition
from leadline.records.batch import Header
from leadline.records.control import ControlType, control_type
from leadline.records.record import Record
from leadline.runtime.ports import Time
from leadline.runtime.timers import Timers

log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"

TimerName = tuple[str, tuple[str, str]]  # the group's id, and the name of the timer within the group


class GroupShardOwner(Protocol):
    """The coordinator that a shard belongs to."""

    clock: Time

    def new_group(self, group_id: str) -> ClassicGroup: ...
    def carry_out(self, shard: "GroupShard", group: ClassicGroup, effects: Iterable[Effect]) -> None: ...
    def loaded(self, shard: "GroupShard") -> None: ...


class GroupShard:
    """The groups of one partition, for one leader epoch."""

    def __init__(self, partition: int, coordinator: GroupShardOwner) -> None:
        self.partition = partition
        self.groups: dict[str, ClassicGroup] = {}
        self.open_transactions: dict[ProducerId, set[str]] = {}  # ids of groups with pending offsets, by producer
        self.timers: Timers[TimerName] = Timers(self._timer_expired)
        self._coordinator = coordinator
        self._recorded_groups: set[str] = set()  # while loading: groups that have a record of their own

    def _timer_expired(self, name: TimerName) -> None:
        group_id, timer = name
        if (group := self.groups.get(group_id)) is not None:
            self._coordinator.carry_out(self, group, group.timer_expired(timer, self._coordinator.clock.now_ms()))

    def get_or_create(self, group_id: str) -> ClassicGroup:
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._coordinator.new_group(group_id)
        return group

    def add_pending_offsets(
        self, group: ClassicGroup, producer_id: ProducerId, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        group.offsets.add_pending(producer_id, offsets)
        self.open_transactions.setdefault(producer_id, set()).add(group.id)

    def end_transaction(self, producer_id: ProducerId, *, committed: bool) -> None:
        for group_id in self.open_transactions.pop(producer_id, ()):
            if (group := self.groups.get(group_id)) is not None:
                group.offsets.end_transaction(producer_id, committed=committed)

    # Loading and unloading

    def replay(self, header: Header, records: Iterable[Record]) -> None:
        for record in records:
            try:
                if header.is_control:
                    self.end_transaction(header.producer_id, committed=control_type(record.key) is ControlType.COMMIT)
                else:
                    self._replay(header, record)
            except CorruptMessage as error:
                log.error("%s-%d, offset %d is skipped: %s", OFFSETS_TOPIC, self.partition, record.offset, error)

    def _replay(self, header: Header, record: Record) -> None:
        key = read_key(record.key)
        if isinstance(key, GroupKey):
            self._replay_group(key.group, record.value)
        elif isinstance(key, OffsetKey):
            producer_id = header.producer_id if header.is_transactional else None
            self._replay_offset(key, record.value, header.base_offset, producer_id)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self.groups.pop(group_id, None)
            self._recorded_groups.discard(group_id)
            return
        group = self._coordinator.new_group(group_id)
        read_group(value, group)
        if (before := self.groups.get(group_id)) is not None:
            group.offsets = before.offsets
        self._recorded_groups.add(group_id)
        self.groups[group_id] = group

    def _replay_offset(
        self, key: OffsetKey, value: bytes | None, base_offset: Offset, producer_id: ProducerId | None
    ) -> None:
        group = self.get_or_create(key.group)
        if value is not None and producer_id is not None:
            self.add_pending_offsets(group, producer_id, {key.tp: read_offset(value, base_offset)})
        elif value is not None:
            group.offsets.committed[key.tp] = read_offset(value, base_offset)
        elif producer_id is not None:
            group.offsets.pending.get(producer_id, {}).pop(key.tp, None)
        else:
            group.offsets.delete([key.tp])

    def loaded(self) -> None:
        now_ms = self._coordinator.clock.now_ms()
        for group in list(self.groups.values()):
            if group.id not in self._recorded_groups and not group.offsets:
                del self.groups[group.id]
            else:
                self._coordinator.carry_out(self, group, group.loaded(now_ms))
        self._recorded_groups.clear()
        self._coordinator.loaded(self)

    def unloaded(self) -> None:
        now_ms = self._coordinator.clock.now_ms()
        for group in self.groups.values():
            self._coordinator.carry_out(self, group, group.unload(now_ms))
        self.timers.cancel_all()
