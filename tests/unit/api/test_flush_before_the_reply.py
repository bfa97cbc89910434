"""flush.messages: a produce whose append triggers a flush is answered, and its records are shown, after the fsync."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.broker.connection_state import CloseConnection
from leadline.broker.reply_queue import PendingReply
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.errors import StorageError
from leadline.log.log_tasks import LogTasks
from leadline.model import TopicPartition
from leadline.runtime.ports import Files
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from tests.support import in_memory
from tests.support.brokers import PATIENCE_S, TP, Brokers, Node, NoSocket, brokers, joined
from tests.support.in_process import broker_in_process
from tests.support.logs import batch, offsets_in, whole_log
from tests.support.slow_disk import SlowDisk
from tests.support.waiting import eventually

SILENT, LEADER, ALL = 0, 1, -1
CALM_S = 0.2  # in which what must not happen would have happened
FLUSHED = TopicPartition("flushed", 0)
OTHER = TopicPartition("other", 0)
Part = ProduceResponse.PartitionProduceResponse


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(4 * PATIENCE_S):
            await test()

    asyncio.run(main())


@asynccontextmanager
async def one_broker(path: Path, disk: SlowDisk, *more: Path, **settings: str) -> AsyncIterator[Broker]:
    """With a topic that is flushed after each record, and one that is not."""
    async with broker_in_process(path / "one", *more, settings=settings, files=disk) as broker:
        cluster = broker.services.cluster
        me = cluster.metadata.me.id
        await cluster.create_topic(FLUSHED.topic, ((me,), (me,)), {"flush.messages": "1"})
        await cluster.create_topic(OTHER.topic, ((me,),), {})
        yield broker


def request_of(tp: TopicPartition, acks: int, *, timeout_ms: int = 60_000) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=tp.partition, records=bytes(batch(1, size=100)))
    topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])


async def answered(broker: Broker, request: ProduceRequest | FetchRequest, version: int = 9) -> object:
    """Through THE TABLE, which may take the fast path."""
    frame = bytearray(joined(request_frame(request, version, 7, "test")))
    reply = broker.requests.serve(NoSocket(), memoryview(frame)[4:])  # type: ignore[arg-type]
    if isinstance(reply, PendingReply):
        reply = reply.frame(await reply.answer)
    elif isinstance(reply, Awaitable):
        reply = await reply
    if reply is None:
        return None
    kind = ProduceResponse if isinstance(request, ProduceRequest) else FetchResponse
    return parse_response(kind, joined([reply] if isinstance(reply, bytes) else reply)[4:], version)[1]


def produce(broker: Broker, tp: TopicPartition, acks: int, *, timeout_ms: int = 60_000) -> "asyncio.Task[Part | None]":
    async def produced() -> Part | None:
        answer = await answered(broker, request_of(tp, acks, timeout_ms=timeout_ms))
        return answer.responses[0].partition_responses[0] if isinstance(answer, ProduceResponse) else None

    return asyncio.create_task(produced())


async def shown(broker: Broker, tp: TopicPartition) -> list[int]:
    """The offsets that a consumer sees."""
    part = FetchRequest.FetchPartition(partition=tp.partition, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic=tp.topic, partitions=[part])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[topic], session_epoch=-1)
    answer = await answered(broker, request, 12)
    assert isinstance(answer, FetchResponse)
    return offsets_in(bytes(answer.responses[0].partitions[0].records or b""))  # type: ignore[arg-type]


@pytest.mark.parametrize("acks", [LEADER, ALL])
@pytest.mark.parametrize("is_fast", [False, True])
def test_the_reply_and_the_consumers_wait_for_the_fsync(tmp_path: Path, acks: int, is_fast: bool) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk) as broker:
            if is_fast:
                await produce(broker, FLUSHED, acks)
            before = broker.dirs.logs[FLUSHED].log_end
            with disk.slow():
                produced = produce(broker, FLUSHED, acks, timeout_ms=1)  # the time of others, not of our own disk
                await eventually(lambda: disk.waiting == 1)
                await asyncio.wait([produced], timeout=CALM_S)
                assert not produced.done()
                assert broker.dirs.logs[FLUSHED].log_end == before + 1
                assert await shown(broker, FLUSHED) == list(range(before))
            part = await produced
            assert part is not None
            assert (part.error_code, part.base_offset) == (0, before)
            assert await shown(broker, FLUSHED) == list(range(before + 1))

    run(test)


@pytest.mark.parametrize("acks", [SILENT, LEADER, ALL])
def test_other_partitions_are_served_while_the_disk_is_busy(tmp_path: Path, acks: int) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk) as broker:
            with disk.slow():
                produced = produce(broker, FLUSHED, acks)
                await eventually(lambda: disk.waiting == 1)
                part = await produce(broker, OTHER, LEADER)
                assert part is not None
                assert part.error_code == 0
                assert await shown(broker, OTHER) == [0]
                assert not produced.done()
            await produced

    run(test)


def test_produces_that_arrive_during_an_fsync_share_the_next_one(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk) as broker:
            disk.synced.clear()
            with disk.slow():
                produced = [produce(broker, FLUSHED, LEADER)]
                await eventually(lambda: disk.waiting == 1)
                second = TopicPartition(FLUSHED.topic, 1)
                produced += [produce(broker, tp, LEADER) for tp in (FLUSHED, second) * 20]
                await eventually(lambda: broker.dirs.logs[second].log_end == 20)
            parts = await asyncio.gather(*produced)
            assert [part.error_code for part in parts if part is not None] == [0] * 41
            assert sorted(disk.synced) == ["flushed-0", "flushed-0", "flushed-1"]

    run(test)


def test_records_that_trigger_no_flush_are_acknowledged_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk) as broker:
            await broker.services.cluster.create_topic(
                "third", ((broker.services.metadata.me.id,),), {"flush.messages": "3"}
            )
            third = TopicPartition("third", 0)
            with disk.slow():
                for _ in range(2):
                    await produce(broker, third, ALL)
                triggering = produce(broker, third, LEADER)
                await eventually(lambda: disk.waiting == 1)
                behind = produce(broker, third, LEADER)
                await asyncio.wait([triggering, behind], timeout=CALM_S)
                assert not triggering.done()
                assert not behind.done()  # in Kafka the append waits behind the flush of the one before it
                assert await shown(broker, third) == [0, 1]
            await asyncio.gather(triggering, behind)
            assert await shown(broker, third) == [0, 1, 2, 3]

    run(test)


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_a_flush_by_time_holds_no_reply_up(tmp_path: Path, acks: int) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk, **{"log.flush.interval.ms": "0"}) as broker:
            await produce(broker, OTHER, acks)
            with disk.slow():
                await LogTasks(broker.dirs).flush_dirty()
                await eventually(lambda: disk.waiting == 1)
                part = await produce(broker, OTHER, acks)
                assert part is not None
                assert part.error_code == 0
                assert await shown(broker, OTHER) == [0, 1]
                assert broker.dirs.logs[OTHER].recovery_point == 0
            await eventually(lambda: broker.dirs.logs[OTHER].recovery_point >= 1)

    run(test)


def test_partitions_are_flushed_beside_each_other(tmp_path: Path) -> None:
    async def test() -> None:
        disk, second = SlowDisk(), TopicPartition(FLUSHED.topic, 1)
        async with one_broker(tmp_path, disk) as broker:
            await produce(broker, FLUSHED, LEADER)
            await produce(broker, second, LEADER)
            with disk.slow():
                produced = [produce(broker, FLUSHED, LEADER)]
                await eventually(lambda: disk.waiting == 1)
                produced.append(produce(broker, second, LEADER))
                await eventually(lambda: disk.waiting == 2)
            await asyncio.gather(*produced)
            assert [broker.dirs.logs[tp].recovery_point for tp in (FLUSHED, second)] == [2, 2]

    run(test)


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_an_fsync_that_fails_fails_the_produce_and_takes_the_directory_offline(
    tmp_path: Path, acks: int, is_fast: bool
) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk, tmp_path / "two") as broker:
            if is_fast:
                await produce(broker, FLUSHED, acks)
            high_watermark, log = broker.dirs.logs[FLUSHED].high_watermark, broker.dirs.logs[FLUSHED]
            with disk.slow():
                produced = [produce(broker, FLUSHED, acks) for _ in range(5)]
                await eventually(lambda: disk.waiting == 1)
                disk.fails = True
            for part in await asyncio.gather(*produced):
                assert part is not None
                assert (part.error_code, part.base_offset) == (StorageError.code, -1)
            assert list(broker.dirs.offline) == [log.parent]
            assert log.high_watermark == high_watermark
            disk.fails = False

    run(test)


def test_a_failed_fsync_closes_the_connection_of_a_producer_with_acks_0(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk, tmp_path / "two") as broker:
            with disk.slow():
                produced = produce(broker, FLUSHED, SILENT)
                await eventually(lambda: disk.waiting == 1)
                disk.fails = True
            with pytest.raises(CloseConnection, match=r"log directory .* failed"):
                await produced
            disk.fails = False

    run(test)


def test_flush_messages_counts_from_the_moment_it_is_changed(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk) as broker:
            log, config = broker.dirs.logs[FLUSHED], broker.dirs.logs[FLUSHED].config
            with disk.slow():
                waiting = produce(broker, FLUSHED, LEADER)
                await eventually(lambda: disk.waiting == 1)
                log.update_config(config.with_values({"flush.messages": "1000"}))
                behind = produce(broker, FLUSHED, LEADER)
                await asyncio.wait([waiting, behind], timeout=CALM_S)
                assert not waiting.done()
                assert not behind.done()
            await asyncio.gather(waiting, behind)
            with disk.slow():
                await produce(broker, FLUSHED, LEADER)
                log.update_config(config)
                waiting = produce(broker, FLUSHED, LEADER)
                await eventually(lambda: disk.waiting == 1)
                assert not waiting.done()
            await waiting

    run(test)


def test_what_is_being_flushed_is_acknowledged_before_the_broker_stops(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk) as broker:
            with disk.slow():
                produced = produce(broker, FLUSHED, LEADER)
                await eventually(lambda: disk.waiting == 1)
                stopping = asyncio.create_task(broker.services.replicas.stop())
                await asyncio.wait([stopping], timeout=CALM_S)
                assert not stopping.done()
            part = await produced
            assert part is not None
            assert part.error_code == 0
            await stopping

    run(test)


def test_a_move_to_another_directory_acknowledges_what_waited_for_the_old_one(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        async with one_broker(tmp_path, disk, tmp_path / "two") as broker:
            replicas, here = broker.services.replicas, broker.dirs.logs[FLUSHED].parent
            produced = [produce(broker, FLUSHED, LEADER) for _ in range(5)]
            replicas.moves.move(FLUSHED, next(path for path in broker.dirs.dirs if path != here))
            produced.append(produce(broker, FLUSHED, LEADER))
            await asyncio.gather(*(move.task for move in replicas.moves._moves.values()))
            produced.append(produce(broker, FLUSHED, ALL))
            parts = await asyncio.gather(*produced)
            assert {part.error_code for part in parts if part is not None} == {0}
            moved = broker.dirs.logs[FLUSHED]
            assert moved.parent != here
            assert (moved.durable_end, moved.high_watermark) == (moved.log_end, moved.log_end)

    run(test)


def test_a_coordinator_answers_once_its_journal_is_flushed(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SlowDisk()
        settings = {"log.flush.interval.messages": "1", "offsets.topic.num.partitions": "1"}
        async with one_broker(tmp_path, disk, **settings) as broker:
            cluster = broker.services.cluster
            await cluster.create_topic(OFFSETS_TOPIC, ((cluster.metadata.me.id,),), {})
            journal = broker.services.groups.runtime
            await eventually(lambda: 0 in journal.shards)
            with disk.slow():
                end = journal.write(0, [(b"k", b"v")])
                committed = asyncio.create_task(journal.committed(0, end))
                await eventually(lambda: disk.waiting == 1)
                assert not journal.is_committed(0, end)
                await asyncio.wait([committed], timeout=CALM_S)
                assert not committed.done()
            await committed
            assert journal.is_committed(0, end)

    run(test)


# Followers


def run_cluster(
    path: Path, disks: dict[int, SlowDisk], test: Callable[[Brokers], Awaitable[None]], *, sockets: bool
) -> None:
    async def main() -> None:
        def files_of(id: int) -> Files:
            return disks.setdefault(id, SlowDisk())

        started = brokers(path, files_of, sockets=sockets, flush_messages="1")
        async with asyncio.timeout(4 * PATIENCE_S), started as cluster:
            await test(cluster)

    asyncio.run(main())


async def produce_to(node: Node, acks: int) -> int:
    answer = await node.serve(request_of(TP, acks), ProduceResponse, 9)
    return answer.responses[0].partition_responses[0].error_code


@pytest.mark.parametrize("sockets", [False, True])
def test_a_record_is_acknowledged_once_the_follower_has_flushed_it(tmp_path: Path, sockets: bool) -> None:
    disks: dict[int, SlowDisk] = {}

    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        for _ in range(3):  # so that the fetches are as most are
            assert await produce_to(leader, ALL) == 0
        await cluster.all_hold(3)
        follower = next(id for id in cluster.nodes if id != leader.id)
        with disks[follower].slow():
            of_all = asyncio.create_task(produce_to(leader, ALL))
            assert await produce_to(leader, LEADER) == 0
            await eventually(lambda: disks[follower].waiting > 0)
            await asyncio.wait([of_all], timeout=CALM_S)
            assert not of_all.done()
            assert leader.log.high_watermark == 3
            assert leader.hosted.leader.followers[follower].log_end == 3
        assert await of_all == 0
        await cluster.all_hold(5)
        assert len({whole_log(node.log) for node in cluster.nodes.values()}) == 1

    run_cluster(tmp_path, disks, test, sockets=sockets)


def test_the_high_watermark_waits_for_the_leaders_own_flush(tmp_path: Path) -> None:
    disks: dict[int, SlowDisk] = {}

    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        assert await produce_to(leader, ALL) == 0
        await cluster.all_hold(1)
        with disks[leader.id].slow():
            of_all = asyncio.create_task(produce_to(leader, ALL))
            followers = leader.hosted.leader.followers
            await eventually(lambda: all(follower.log_end == 2 for follower in followers.values()))
            assert (leader.log.log_end, leader.log.high_watermark) == (2, 1)
            assert not of_all.done()
        assert await of_all == 0
        await cluster.all_hold(2)

    run_cluster(tmp_path, disks, test, sockets=False)


def test_a_follower_whose_disk_fails_is_offline_and_not_counted(tmp_path: Path) -> None:
    disks: dict[int, SlowDisk] = {}

    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        assert await produce_to(leader, ALL) == 0
        await cluster.all_hold(1)
        follower = next(id for id in cluster.nodes if id != leader.id)
        failing_log = cluster.nodes[follower].log
        with disks[follower].slow():
            of_all = asyncio.create_task(produce_to(leader, ALL))
            await eventually(lambda: disks[follower].waiting > 0)
            disks[follower].fails = True
        await eventually(lambda: failing_log.offline)
        leader.hosted.leader.lag_ms = 100
        assert await of_all == 0  # once the follower has left the ISR
        assert follower not in cluster.isr
        assert leader.hosted.leader.followers[follower].log_end == 1
        disks[follower].fails = False

    run_cluster(tmp_path, disks, test, sockets=False)
