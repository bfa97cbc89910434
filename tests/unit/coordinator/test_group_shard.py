"""A shard of the group coordinator: what a replay makes of the records, and who is called when it is loaded."""

import asyncio
from collections.abc import Iterable

import pytest

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_effects import CancelTimer, Effect
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_records import group_key, group_value, offset_key, offset_value
from leadline.coordinator.group_shard import GroupShard
from leadline.coordinator.group_state import GroupState
from leadline.model import TopicPartition
from leadline.records.batch import walk
from leadline.records.build import BatchFields, build_at
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.records.record import records_of
from leadline.runtime.ports import Time
from tests.support.logs import ManualClock

TP = TopicPartition("t", 0)
IN_TRANSACTION = BatchFields(base_sequence=0, producer_id=7, producer_epoch=0, transactional=True)
Records = list[tuple[bytes, bytes | None]]


class Owner:
    def __init__(self) -> None:
        self.clock: Time = ManualClock()
        self.effects: list[Effect] = []
        self.loaded_shards: list[GroupShard] = []

    def new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, GroupLimits(10, 0), 0)

    def carry_out(self, shard: GroupShard, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        self.effects += effects

    def loaded(self, shard: GroupShard) -> None:
        self.loaded_shards.append(shard)


def replayed(owner: Owner, *batches: bytearray) -> GroupShard:
    shard = GroupShard(0, owner)
    for data in batches:
        for position, header in walk(data):
            shard.replay(header, records_of(data, position, header))
    return shard


def offset_of(group: str, offset: int) -> Records:
    return [(offset_key(group, TP), offset_value(OffsetAndMetadata(offset, "", 5)))]


def plain(records: Records) -> bytearray:
    return build_at(5, records, BatchFields())


def test_a_group_has_the_offsets_that_were_read_before_its_own_record() -> None:
    async def run() -> None:
        owner = Owner()
        record = (group_key("g"), group_value(owner.new_group("g"), {}))
        shard = replayed(owner, plain(offset_of("g", 4)), plain([record]))
        assert shard.groups["g"].offsets.committed[TP].offset == 4
        shard.loaded()
        assert owner.loaded_shards == [shard]
        assert list(shard.groups) == ["g"]

    asyncio.run(run())


@pytest.mark.parametrize("committed", [False, True])
def test_a_marker_commits_or_discards_the_offsets_of_a_transaction(committed: bool) -> None:
    async def run() -> None:
        marker = EndMarker(ControlType.COMMIT if committed else ControlType.ABORT, 0, 5)
        written = build_at(5, offset_of("g", 4), IN_TRANSACTION)
        shard = replayed(Owner(), written, end_marker(marker, 7, 0))
        assert not shard.open_transactions
        assert (TP in shard.groups["g"].offsets.committed) == committed

    asyncio.run(run())


def test_a_group_that_is_deleted_is_gone_and_one_without_offsets_is_not_kept() -> None:
    async def run() -> None:
        owner = Owner()
        record = (group_key("g"), group_value(owner.new_group("g"), {}))
        deleted = plain([(offset_key("h", TP), None)])
        shard = replayed(owner, plain([record]), plain([(group_key("g"), None)]), plain(offset_of("h", 1)), deleted)
        shard.loaded()
        assert not shard.groups

    asyncio.run(run())


def test_an_unloaded_shard_ends_its_groups_and_timers() -> None:
    async def run() -> None:
        owner = Owner()
        shard = replayed(owner, plain(offset_of("g", 4)))
        shard.timers.set(("g", ("group", "join")), 60_000)
        shard.unloaded()
        assert shard.groups["g"].state is GroupState.DEAD
        assert any(isinstance(effect, CancelTimer) for effect in owner.effects)
        assert len(shard.timers) == 0

    asyncio.run(run())
