"""The coordinator of offsets in a broker: which commits are refused, and commits from a template."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline.controller.topics import assign
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.offset_coordinator import ConsumerGroupMetadata, FetchedOffset, OffsetCoordinator
from leadline.errors import GroupIdNotFound, IllegalGeneration, OffsetMetadataTooLarge
from leadline.model import TopicPartition
from tests.support.in_process import broker_in_process
from tests.support.waiting import eventually

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
STRANGER = ConsumerGroupMetadata("g", "", None, -1)
SETTINGS = {"offsets.topic.num.partitions": "1", "offset.metadata.max.bytes": "3"}
PATIENCE_S = 120


@asynccontextmanager
async def coordinator(path: Path, settings: dict[str, str] | None = None) -> AsyncIterator[OffsetCoordinator]:
    async with broker_in_process(path, settings=SETTINGS | (settings or {})) as broker:
        me = broker.cluster.metadata.me.id
        await broker.cluster.create_topic(OFFSETS_TOPIC, assign({me: None}, 1, 1), {"cleanup.policy": "compact"})
        await eventually(lambda: 0 in broker.groups.runtime.shards)
        yield broker.groups.offsets


def test_metadata_that_is_too_long_refuses_its_own_partition_alone(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as offsets:
            commits = {ONE: OffsetAndMetadata(5, "abcd", 1), TWO: OffsetAndMetadata(6, "abc", 1)}
            assert offsets.commit(STRANGER, commits) == {ONE: OffsetMetadataTooLarge.code, TWO: 0}
            fetched = offsets.fetch("g", [ONE, TWO], require_stable=True)
            assert fetched[ONE] == FetchedOffset(None)
            committed = fetched[TWO].committed
            assert committed is not None
            assert (committed.offset, committed.metadata) == (6, "abc")

    asyncio.run(run())


def test_a_member_of_a_group_that_does_not_exist_cannot_commit(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as offsets:
            member = ConsumerGroupMetadata("absent", "m", None, 3)
            assert offsets.commit(member, {ONE: OffsetAndMetadata(5, "", 1)}) == {ONE: IllegalGeneration.code}
            assert offsets.fetch("absent", [ONE], require_stable=False) == {ONE: FetchedOffset(None)}
            assert offsets.fetch("absent", None, require_stable=False) == {}
            with pytest.raises(GroupIdNotFound):
                await offsets.delete("absent")
            with pytest.raises(GroupIdNotFound):
                await offsets.delete_offsets("absent", [ONE])

    asyncio.run(run())


def test_a_commit_from_a_template_equals_one_without(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as offsets:
            template = offsets.template("g", {ONE: "a", TWO: ""})
            assert template is not None
            assert offsets.commit_from_template(STRANGER, template, [5, 6], [1, 2]) is template.accepted
            fetched = offsets.fetch("g", None, require_stable=True)
            values = {tp: partition_offset.committed for tp, partition_offset in fetched.items()}
            assert {tp: value and value[:2] for tp, value in values.items()} == {ONE: (5, "a"), TWO: (6, "")}
            assert [value and (value.leader_epoch, value.record_offset) for value in values.values()] == [
                (1, 0),
                (2, 0),
            ]

    asyncio.run(run())


def test_a_commit_that_would_be_refused_or_compressed_has_no_template(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path / "plain") as offsets:
            assert offsets.template("g", {ONE: "abcd"}) is None
        async with coordinator(tmp_path / "gzip", {"offsets.topic.compression.codec": "1"}) as offsets:
            assert offsets.template("g", {ONE: ""}) is None

    (tmp_path / "plain").mkdir()
    (tmp_path / "gzip").mkdir()
    asyncio.run(run())


def test_the_offsets_of_a_deleted_topic_are_deleted(tmp_path: Path) -> None:
    async def run() -> None:
        async with coordinator(tmp_path) as offsets:
            other = TopicPartition("u", 0)
            offsets.commit(STRANGER, {ONE: OffsetAndMetadata(5, "", 1), other: OffsetAndMetadata(6, "", 1)})
            offsets.topic_deleted("t")
            assert list(offsets.fetch("g", None, require_stable=True)) == [other]

    asyncio.run(run())
