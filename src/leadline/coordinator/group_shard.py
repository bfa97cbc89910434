"""The groups of one partition of the journal `__consumer_offsets`: read from it, and looked after until it resigns."""

import logging
from collections.abc import Iterable
from typing import Protocol

from leadline.coordinator.group import Group
from leadline.coordinator.group_effects import Effect
from leadline.coordinator.group_records import CommitKey, GroupKey, read_commit, read_group, read_key
from leadline.coordinator.offsets import Commit
from leadline.errors import CorruptMessage
from leadline.model import Offset, ProducerId, TopicPartition
from leadline.records.batch import Header
from leadline.records.control import ControlType, control_type
from leadline.records.record import Record
from leadline.runtime.ports import Clock
from leadline.runtime.timers import Timers

log = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"

Name = tuple[str, tuple[str, str]]  # of a timer: its group's, and its own there


class Coordinator(Protocol):
    """Who looks after a shard."""

    clock: Clock

    def new_group(self, group_id: str) -> Group: ...
    def carry_out(self, shard: "GroupShard", group: Group, effects: Iterable[Effect]) -> None: ...
    def loaded(self, shard: "GroupShard") -> None: ...


class GroupShard:
    """The groups of one partition of the journal, for one leader epoch."""

    def __init__(self, partition: int, coordinator: Coordinator) -> None:
        self.partition = partition
        self.by_id: dict[str, Group] = {}
        self.open: dict[ProducerId, set[str]] = {}  # groups with pending commits, by the producer of the transaction
        self.alarms: Timers[Name] = Timers(self._rang)
        self._coordinator = coordinator
        self._described: set[str] = set()  # while replaying: groups that have a record of their own

    def _rang(self, name: Name) -> None:
        group_id, timer = name
        if (group := self.by_id.get(group_id)) is not None:
            self._coordinator.carry_out(self, group, group.rang(timer, self._coordinator.clock.now_ms()))

    def get_or_create(self, group_id: str) -> Group:
        found = self.by_id.get(group_id)
        if found is None:
            found = self.by_id[group_id] = self._coordinator.new_group(group_id)
        return found

    def begin(self, group: Group, producer_id: ProducerId, commits: dict[TopicPartition, Commit]) -> None:
        group.offsets.begin(producer_id, commits)
        self.open.setdefault(producer_id, set()).add(group.id)

    def end(self, producer_id: ProducerId, *, committed: bool) -> None:
        for group_id in self.open.pop(producer_id, ()):
            if (group := self.by_id.get(group_id)) is not None:
                group.offsets.end(producer_id, committed=committed)

    # Replaying

    def replay(self, header: Header, records: Iterable[Record]) -> None:
        for record in records:
            try:
                if header.is_control:
                    self.end(header.producer_id, committed=control_type(record.key) is ControlType.COMMIT)
                else:
                    self._replay(header, record)
            except CorruptMessage as error:
                where = f"{OFFSETS_TOPIC}-{self.partition}"
                log.error("%s, offset %d is passed over: %s", where, record.offset, error)

    def _replay(self, header: Header, record: Record) -> None:
        key = read_key(record.key)
        if isinstance(key, GroupKey):
            self._replay_group(key.group, record.value)
        elif isinstance(key, CommitKey):
            producer_id = header.producer_id if header.is_transactional else None
            self._replay_commit(key, record.value, header.base_offset, producer_id)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self.by_id.pop(group_id, None)
            self._described.discard(group_id)
            return
        group = self._coordinator.new_group(group_id)
        read_group(value, group)
        if (before := self.by_id.get(group_id)) is not None:
            group.offsets = before.offsets
        self._described.add(group_id)
        self.by_id[group_id] = group

    def _replay_commit(self, key: CommitKey, value: bytes | None, at: Offset, producer_id: ProducerId | None) -> None:
        group = self.get_or_create(key.group)
        if value is not None and producer_id is not None:
            self.begin(group, producer_id, {key.tp: read_commit(value, at)})
        elif value is not None:
            group.offsets.committed[key.tp] = read_commit(value, at)
        elif producer_id is not None:
            group.offsets.pending.get(producer_id, {}).pop(key.tp, None)
        else:
            group.offsets.forget([key.tp])

    def loaded(self) -> None:
        now_ms = self._coordinator.clock.now_ms()
        for group in list(self.by_id.values()):
            if group.id not in self._described and not group.offsets:
                del self.by_id[group.id]
            else:
                self._coordinator.carry_out(self, group, group.loaded(now_ms))
        self._described.clear()
        self._coordinator.loaded(self)

    def resigned(self) -> None:
        now_ms = self._coordinator.clock.now_ms()
        for group in self.by_id.values():
            self._coordinator.carry_out(self, group, group.unload(now_ms))
        self.alarms.cancel_all()
