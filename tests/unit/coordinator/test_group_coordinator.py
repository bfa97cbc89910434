"""The coordinator of groups in a broker: what it writes, what it knows after a restart, when it forgets."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pytest

from leadline.broker.broker import Broker
from leadline.controller.topics import assign
from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_coordinator import GroupCoordinator
from leadline.coordinator.group_effects import JoinResult, LeavingMember, SyncResult
from leadline.coordinator.group_member import JoinRequest, MemberProtocol
from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.group_state import GroupState
from leadline.coordinator.offset_coordinator import (
    ConsumerGroupMetadata,
    ErrorCodes,
    OffsetCoordinator,
    OffsetTransaction,
)
from leadline.coordinator.runtime import CoordinatorRecord
from leadline.errors import (
    CoordinatorLoadInProgress,
    GroupIdNotFound,
    InvalidGroupId,
    NotCoordinator,
    UnknownServerError,
)
from leadline.log.producer_state import TRUSTED, AppendOrigin
from leadline.model import TopicPartition
from leadline.records.control import ControlType, EndMarker, end_marker
from leadline.runtime.ports import SystemTime
from tests.support.in_process import broker_in_process
from tests.support.waiting import eventually

TP, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
PRODUCER = 77
PATIENCE_S = 120

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[None, None, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def commits_of(broker: Broker) -> OffsetCoordinator:
    """With its journal, loaded."""
    for name in (OFFSETS_TOPIC, "t", "u"):
        if name not in broker.cluster.metadata.topics:
            config = {"cleanup.policy": "compact"} if name == OFFSETS_TOPIC else {}
            await broker.cluster.create_topic(name, assign({broker.cluster.metadata.me.id: None}, 2, 1), config)
    await eventually(lambda: not broker.groups.is_loading)
    return broker.groups.offsets


async def groups_of(broker: Broker) -> GroupCoordinator:
    await commits_of(broker)
    return broker.groups


def join_request(member_id: str = "", instance: str | None = None, session_ms: int = 10_000) -> JoinRequest:
    return JoinRequest(
        member_id, instance, "client", "/h", session_ms, 10_000, "consumer", (MemberProtocol("range", b""),)
    )


async def settled(groups: GroupCoordinator, instance: str | None = None) -> JoinResult:
    """The only member of a stable group."""
    joined = await groups.join("g", join_request(instance=instance))
    synced = await groups.sync("g", joined.member_id, instance, 1, (None, None), {joined.member_id: b"all"})
    assert synced == SyncResult(0, "consumer", "range", b"all")
    return joined


def commit(
    commits: OffsetCoordinator,
    offsets: Mapping[TopicPartition, int],
    txn: bool = False,
    member: ConsumerGroupMetadata | None = None,
) -> ErrorCodes:
    committed = {tp: OffsetAndMetadata(offset, "", SystemTime().now_ms()) for tp, offset in offsets.items()}
    within = OffsetTransaction(PRODUCER, 0, TRUSTED) if txn else None
    verdicts = commits.commit(member or ConsumerGroupMetadata("g", "", None, -1), committed, within)
    assert isinstance(verdicts, dict)  # a single node: at once
    return verdicts


def offsets(commits: OffsetCoordinator, group_id: str = "g") -> dict[TopicPartition, int]:
    fetched = commits.fetch(group_id, None, require_stable=False)
    return {
        tp: partition_offset.committed.offset
        for tp, partition_offset in fetched.items()
        if partition_offset.committed is not None
    }


def current_group(groups: GroupCoordinator) -> ClassicGroup:
    group = groups.find("g")
    assert group is not None
    return group


def mark(broker: Broker, committed: bool) -> None:
    """Ends the transaction, as its coordinator does."""
    partition = broker.groups.partition_of("g")
    marker = EndMarker(ControlType.COMMIT if committed else ControlType.ABORT, 0, 0)
    tp = TopicPartition(OFFSETS_TOPIC, partition)
    broker.replicas.append(tp, end_marker(marker, PRODUCER, 0), AppendOrigin.COORDINATOR)
    broker.groups.transaction_ended(partition, PRODUCER, committed=committed)


@pytest.mark.parametrize("crash", [False, True])
@in_loop
async def test_members_go_on_after_a_restart(tmp_path: Path, crash: bool) -> None:
    async with broker_in_process(tmp_path, settings=QUICK, crash=crash) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        member = await settled(groups, instance="i")
        assert commit(commits, {TP: 5, OTHER: 6}, member=ConsumerGroupMetadata("g", member.member_id, "i", 1)) == {
            TP: 0,
            OTHER: 0,
        }
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        assert current_group(groups).state is GroupState.STABLE
        assert offsets(commits) == {TP: 5, OTHER: 6}
        assert groups.heartbeat("g", member.member_id, "i", 1) == 0
        assert (await groups.sync("g", member.member_id, "i", 1, (None, None), {})).assignment == b"all"
        assert commit(commits, {TP: 7}, member=ConsumerGroupMetadata("g", member.member_id, "i", 1)) == {TP: 0}


@in_loop
async def test_a_member_that_does_not_come_back_after_a_restart_is_expelled(tmp_path: Path) -> None:
    shortest = QUICK | {"group.min.session.timeout.ms": "1"}
    async with broker_in_process(tmp_path, settings=shortest) as broker:
        groups = await groups_of(broker)
        member = await groups.join("g", join_request(session_ms=5000))
        await groups.sync("g", member.member_id, None, 1, (None, None), {})
    async with broker_in_process(tmp_path, settings=shortest) as broker:
        groups = await groups_of(broker)
        assert current_group(groups).members
        await eventually(lambda: not current_group(groups).members)
        assert (current_group(groups).state, current_group(groups).generation) == (GroupState.EMPTY, 2)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("restart", ["none", "before the marker", "behind the marker"])
@in_loop
async def test_offsets_of_a_transaction_count_if_it_does(tmp_path: Path, committed: bool, restart: str) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        commit(commits, {TP: 1})
        commit(commits, {TP: 2, OTHER: 3}, txn=True)
        assert offsets(commits) == {TP: 1}
        assert commits.fetch("g", [TP], require_stable=True)[TP].error == 88
        if restart != "before the marker":
            mark(broker, committed)
            assert offsets(commits) == ({TP: 2, OTHER: 3} if committed else {TP: 1})
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        if restart == "before the marker":
            assert commits.fetch("g", [TP], require_stable=True)[TP].error == 88
            mark(broker, committed)
        assert offsets(commits) == ({TP: 2, OTHER: 3} if committed else {TP: 1})
        assert commits.fetch("g", [TP], require_stable=True)[TP].error == 0


@pytest.mark.parametrize("in_use", [False, True])
@in_loop
async def test_a_deleted_group_stays_deleted(tmp_path: Path, in_use: bool) -> None:
    """Also if a transaction that commits its offsets ends after that."""
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        if in_use:
            member = await settled(groups)
            groups.leave("g", [LeavingMember(member.member_id)])
        commit(commits, {TP: 1})
        commit(commits, {TP: 2, OTHER: 3}, txn=True)
        await commits.delete("g")
        mark(broker, committed=True)
        assert groups.find("g") is None
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        assert groups.find("g") is None
        with pytest.raises(GroupIdNotFound):
            await commits.delete("g")


@pytest.mark.parametrize("crash", [False, True])
@in_loop
async def test_offsets_go_with_their_topic(tmp_path: Path, crash: bool) -> None:
    """If the broker is killed before that is written, when it is back."""
    async with broker_in_process(tmp_path, settings=QUICK, crash=crash) as broker:
        commits = await commits_of(broker)
        commit(commits, {TP: 1, OTHER: 2})
        if crash:
            await broker.tree.create("/admin/delete_topics/t")
        else:
            await broker.cluster.delete_topic("t")
            assert offsets(commits) == {OTHER: 2}
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        assert "t" not in broker.cluster.metadata.topics
        commits = await commits_of(broker)
        assert offsets(commits) == {OTHER: 2}
        assert commit(commits, {TP: 3}) == {TP: 0}
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        assert offsets(await commits_of(broker)) == {TP: 3, OTHER: 2}


@in_loop
async def test_old_offsets_are_forgotten(tmp_path: Path) -> None:
    often = QUICK | {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "20"}
    async with broker_in_process(tmp_path, settings=often) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        old = OffsetAndMetadata(1, "", groups.clock.now_ms() - 60_000)
        assert commits.commit(ConsumerGroupMetadata("g", "", None, -1), {TP: old}) == {TP: 0}
        commit(commits, {OTHER: 2}, member=ConsumerGroupMetadata("other", "", None, -1))
        await eventually(lambda: groups.find("g") is None)
        assert offsets(commits, "other") == {OTHER: 2}
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        groups = await groups_of(broker)
        assert [group.id for group in groups.all()] == ["other"]


@in_loop
async def test_tombstones_of_a_large_group_take_several_batches(tmp_path: Path) -> None:
    small = QUICK | {"message.max.bytes": "2000"}
    async with broker_in_process(tmp_path, settings=small) as broker:
        commits = await commits_of(broker)
        for n in range(100):
            assert commit(commits, {TopicPartition(f"topic-{n}", 0): n}) == {TopicPartition(f"topic-{n}", 0): 0}
        many = {TopicPartition(f"topic-{n}", 0): n for n in range(100)}
        assert set(commit(commits, many).values()) == {28}  # INVALID_COMMIT_OFFSET_SIZE
        await commits.delete("g")
    async with broker_in_process(tmp_path, settings=small) as broker:
        assert list((await groups_of(broker)).all()) == []


@in_loop
async def test_waiting_members_are_answered_when_the_broker_stops(tmp_path: Path) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        groups = await groups_of(broker)
        member = await settled(groups)
        waiting = asyncio.create_task(groups.join("g", join_request()))
        await asyncio.sleep(0)
        assert current_group(groups).state is GroupState.PREPARING
    assert (await waiting).error == NotCoordinator.code
    assert groups.heartbeat("g", member.member_id, None, 1) == NotCoordinator.code


@in_loop
async def test_a_member_whose_connection_is_gone_is_still_waited_for(tmp_path: Path) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        groups = await groups_of(broker)
        member = await settled(groups)
        gone = asyncio.create_task(groups.join("g", join_request()))
        await asyncio.sleep(0)
        gone.cancel()
        joined = await groups.join("g", join_request(member.member_id))
        assert (joined.generation, len(joined.members)) == (2, 2)


@in_loop
async def test_requests_are_refused_before_the_journal_is_read(tmp_path: Path) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        member = await settled(groups)
        del groups.runtime.shards[groups.partition_of("g")]
        groups.runtime._loading[groups.partition_of("g")] = asyncio.create_task(asyncio.sleep(0))
        with pytest.raises(CoordinatorLoadInProgress):
            commits.fetch("g", None, require_stable=False)
        assert set(commit(commits, {TP: 1}).values()) == {CoordinatorLoadInProgress.code}
        assert groups.heartbeat("g", member.member_id, None, 1) == 0
        assert (await groups.sync("g", member.member_id, None, 1, (None, None), {})).error == 27
        assert (await groups.join("g", join_request())).error == CoordinatorLoadInProgress.code


@in_loop
async def test_an_assignment_that_is_too_large_is_refused_and_the_group_goes_on(tmp_path: Path) -> None:
    async with broker_in_process(tmp_path, settings=QUICK | {"message.max.bytes": "2000"}) as broker:
        groups = await groups_of(broker)
        joined = await groups.join("g", join_request())
        huge = {joined.member_id: b"x" * 3000}
        assert (await groups.sync("g", joined.member_id, None, 1, (None, None), huge)).error == -1
        again = await groups.join("g", join_request(joined.member_id))
        assert (await groups.sync("g", joined.member_id, None, 2, (None, None), {})).error == again.error == 0


@in_loop
async def test_names_that_no_record_has_room_for_are_refused(tmp_path: Path) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        groups = await groups_of(broker)
        assert (await groups.join("g" * 40_000, join_request())).error == InvalidGroupId.code
        joined = await groups.join("g", join_request(instance="i" * 40_000))
        synced = await groups.sync("g", joined.member_id, None, 1, (None, None), {})
        assert synced.error == UnknownServerError.code
        groups.leave("g", [LeavingMember(joined.member_id)])
        assert current_group(groups).state is GroupState.EMPTY


@in_loop
async def test_records_that_are_damaged_are_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        groups = broker.groups
        commit(commits, {TP: 1})
        partition = groups.partition_of("g")
        groups.runtime.write(
            partition,
            [CoordinatorRecord(b"", b""), CoordinatorRecord(b"\0\7new", b""), CoordinatorRecord(b"\0\2\0\1g", b"\0\3")],
        )
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        assert offsets(await commits_of(broker)) == {TP: 1}
    assert "is skipped" in caplog.text


@in_loop
async def test_the_number_of_partitions_is_learned_when_the_topic_is_there(tmp_path: Path) -> None:
    async with broker_in_process(tmp_path, settings={"offsets.topic.num.partitions": "7"}) as broker:
        assert {broker.groups.partition_of(f"g{n}") for n in range(100)} == set(range(7))
        groups = await groups_of(broker)
        assert {groups.partition_of(f"g{n}") for n in range(100)} == {0, 1}
        racks = broker.cluster.metadata.racks
        await broker.cluster.add_partitions(OFFSETS_TOPIC, lambda _: assign(racks, 3, 1, first=2))
        assert {groups.partition_of(f"g{n}") for n in range(100)} == {0, 1}


@in_loop
async def test_a_journal_that_a_shortage_keeps_from_being_read_is_read_a_little_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        commits = await commits_of(broker)
        assert commit(commits, {TP: 7}) == {TP: 0}
    refusals, in_thread = [1, 2], asyncio.to_thread

    async def hesitant(job: Callable[..., bytes], *arguments: object) -> bytes:
        if refusals:
            refusals.pop()
            raise RuntimeError("can't start new thread")
        return await in_thread(job, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", hesitant)
    monkeypatch.setattr("leadline.coordinator.runtime.RETRY_S", 0.01)
    async with broker_in_process(tmp_path, settings=QUICK) as broker:
        assert offsets(await commits_of(broker)) == {TP: 7}
        assert refusals == []
