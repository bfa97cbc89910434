"""Three brokers, three folders, one partition: what is acknowledged is on all that are in sync, whoever fails."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from leadline.api import fetch_sessions
from leadline.cluster.broker_client import EncodeRequest, LeaderClient, NextRequest, PeerLost
from leadline.errors import (
    FencedLeaderEpoch,
    LeaderNotAvailable,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RequestTimedOut,
    StaleControllerEpoch,
    UnknownLeaderEpoch,
)
from leadline.model import TopicPartition
from leadline.replication.follower import FetchState
from leadline.replication.partition import LeaderAndIsr, LeaderEffects
from leadline.wire.messages import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support import in_memory
from tests.support.brokers import PATIENCE_S, TOPIC_ID, TP, Brokers, DirectLeaderClient, Node, brokers
from tests.support.logs import batch, offsets_in, whole_log
from tests.support.waiting import eventually

ALL, LONG_MS = -1, 60_000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Brokers], Awaitable[None]], *, sockets: bool = False, **topic: str) -> None:
    async def main() -> None:
        async with brokers(path, sockets=sockets, **topic) as cluster, asyncio.timeout(4 * PATIENCE_S):
            await test(cluster)

    asyncio.run(main())


async def produce(
    node: Node, *, acks: int = ALL, timeout_ms: int = LONG_MS, version: int = 10
) -> ProduceResponse.PartitionProduceResponse:
    data = ProduceRequest.PartitionProduceData(index=TP.partition, records=bytes(batch(2, size=100)))
    topic = ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    return (await node.serve(request, ProduceResponse, version)).responses[0].partition_responses[0]


async def produced(node: Node, count: int, *, acks: int = ALL) -> None:
    for _ in range(count):
        assert (await produce(node, acks=acks)).error_code == 0


async def fetch(node: Node, offset: int, *, rack: str = "", epoch: int = -1) -> FetchResponse.PartitionData:
    """As a consumer does."""
    part = FetchRequest.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=epoch
    )
    topic = FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[part])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], rack_id=rack, session_epoch=-1)
    return (await node.serve(request, FetchResponse, 16)).responses[0].partitions[0]


async def latest(node: Node, replica: int = -1, version: int = 8) -> tuple[int, int]:
    """An error code, and where the log ends."""
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsRequest.ListOffsetsTopic(name=TP.topic, partitions=[partition])
    request = ListOffsetsRequest(replica_id=replica, topics=[topic])
    part = (await node.serve(request, ListOffsetsResponse, version)).topics[0].partitions[0]
    return part.error_code, part.offset


def are_alike(cluster: Brokers) -> bool:
    return len({whole_log(node.log) for node in cluster.nodes.values()}) == 1


@pytest.mark.parametrize("sockets", [False, True])
def test_followers_hold_the_leaders_bytes(tmp_path: Path, sockets: bool) -> None:
    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 20)
        await cluster.all_hold(40)
        assert are_alike(cluster)
        assert offsets_in(whole_log(cluster.nodes[3].log)) == list(range(40))
        assert cluster.isr == {1, 2, 3}

    run(tmp_path, test, sockets=sockets, segment_bytes="2000")


def test_records_that_came_broken_are_fetched_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spoiled: list[int] = []

    def spoil(answer: bytearray) -> None:
        if (at := answer.find(b"vvvv")) >= 0 and len(spoiled) < 2:
            answer[at] ^= 1
            spoiled.append(at)

    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        leader.replicas.append(TP, batch(1, size=100))
        await cluster.all_hold(1)
        cluster.on_the_way = spoil
        leader.replicas.append(TP, batch(1, size=100))
        leader.replicas.append(TP, batch(1, size=100))
        await cluster.all_hold(3)
        assert are_alike(cluster)

    run(tmp_path, test)
    assert len(spoiled) == 2
    assert "CRC" in caplog.text


def test_usual_responses_do_not_wake_the_requesting_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    converse = DirectLeaderClient.converse

    async def counted(
        self: DirectLeaderClient, what: str, first: EncodeRequest, next_request: NextRequest, timeout_s: float, /
    ) -> bytearray:
        begun.append(what)
        return await converse(self, what, first, next_request, timeout_s)

    monkeypatch.setattr(DirectLeaderClient, "converse", counted)

    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        leader.replicas.append(TP, batch(1, size=100))
        await cluster.all_hold(1)
        begun.clear()
        for _ in range(40):
            await leader.replicas.committed(TP, leader.replicas.append(TP, batch(1, size=100)).last_offset + 1)
        assert len(begun) < 40  # of 80 answers: only now and then something else is due

    run(tmp_path, test)


@pytest.mark.parametrize("version", [6, 10])
def test_acks_all_waits_for_all_in_sync_replicas(tmp_path: Path, version: int) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 1)
        leader.hosted.leader.lag_ms = LONG_MS  # nobody leaves
        cluster.cut_off.add(3)
        late = await produce(leader, timeout_ms=20, version=version)
        assert (late.error_code, late.base_offset) == (RequestTimedOut.code, 2)
        assert (await produce(leader, acks=1, version=version)).error_code == 0
        waiting = asyncio.create_task(produce(leader, version=version))
        await eventually(lambda: leader.log.log_end == 8)
        assert not waiting.done()
        cluster.cut_off.clear()
        assert (await waiting).error_code == 0
        assert cluster.nodes[3].log.log_end == 8

    run(tmp_path, test)


def test_a_broker_that_is_gone_leaves_the_isr_and_joins_again(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 3)
        await cluster.kill(3, noticed=False)
        leader.hosted.leader.lag_ms = 3000  # one that lives is never so late
        waiting = asyncio.create_task(produce(leader))
        await eventually(lambda: leader.log.log_end == 8)

        async def is_removed() -> bool:
            await leader.replicas.tasks.expire_isrs()
            return cluster.isr == {1, 2}

        await eventually(is_removed)
        assert (await waiting).error_code == 0
        leader.hosted.leader.lag_ms = LONG_MS
        await cluster.restart(3)
        await eventually(lambda: cluster.isr == {1, 2, 3})
        await produced(leader, 2)
        await cluster.all_hold(12)
        assert are_alike(cluster)

    run(tmp_path, test)


def test_what_a_former_leader_wrote_alone_goes(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        old = cluster.leader
        await produced(old, 3)
        cluster.cut_off.add(old.id)
        await eventually(lambda: not old.has_waiting_fetches)  # fetches under way would still carry it out
        await produced(old, 4, acks=1)
        await cluster.kill(old.id)
        cluster.cut_off.clear()
        assert cluster.leader.id == 2
        await produced(cluster.leader, 2)
        await cluster.restart(old.id)
        await cluster.all_hold(10)
        assert are_alike(cluster)
        await eventually(lambda: cluster.isr == {1, 2, 3})

    run(tmp_path, test)


def test_a_follower_that_truncated_still_gets_the_high_watermark(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        old = cluster.leader
        await produced(old, 3)
        await cluster.all_hold(6)
        cluster.cut_off.add(old.id)
        await eventually(lambda: not old.has_waiting_fetches)
        await produced(old, 1, acks=1)
        await cluster.kill(old.id)
        cluster.cut_off.clear()
        (tmp_path / str(old.id) / "replication-offset-checkpoint").unlink()
        await cluster.restart(old.id)
        await eventually(lambda: cluster.isr == {1, 2, 3})
        await cluster.all_hold(6)  # though nothing is written any more

    run(tmp_path, test)


def test_an_unreachable_leader_is_tried_again_after_a_rest(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        tried = list[int]()

        def nowhere(leader: int) -> LeaderClient:
            tried.append(leader)
            assert len(tried) < 1000, "nobody else gets a turn"
            raise PeerLost(f"nobody has told of broker {leader}")

        node = cluster.nodes[3]
        node.replicas._connect = nowhere
        await node.replicas.follow(TP, TOPIC_ID, LeaderAndIsr(9, 5, (9,)))
        await eventually(lambda: len(tried) > 2)
        assert len(tried) < 1000

    run(tmp_path, test)


def test_a_leader_that_becomes_a_follower_fails_waiting_requests(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        old, resigned = cluster.leader, list[object]()
        old.replicas.on_drop.append(resigned.append)
        await produced(old, 1)
        cluster.cut_off |= {2, 3}
        await eventually(lambda: not old.has_waiting_fetches)
        waiting = asyncio.create_task(produce(old))
        await eventually(lambda: old.log.log_end == 4)
        await old.replicas.follow(TP, TOPIC_ID, LeaderAndIsr(2, 5, (1, 2, 3)))
        assert (await waiting).error_code == NotLeaderOrFollower.code
        assert resigned == [TP]

    run(tmp_path, test)


def test_a_follower_behind_the_log_start_begins_there(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 2)
        await cluster.all_hold(4)
        await cluster.kill(3)
        await produced(leader, 10)
        leader.log.delete_records(20)
        await eventually(lambda: cluster.nodes[2].log.log_start == 20)
        await cluster.restart(3)
        await cluster.all_hold(24)
        log = cluster.nodes[3].log
        assert (log.log_start, log.segments.first.base_offset) == (20, 20)
        assert whole_log(leader.log).endswith(whole_log(log))

    run(tmp_path, test)


def test_a_deletion_of_records_waits_for_the_living_replicas(tmp_path: Path) -> None:
    async def delete(node: Node, before: int, timeout_ms: int) -> tuple[int, int]:
        part = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=TP.topic, partitions=[part])
        answer = await node.serve(DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms), DeleteRecordsResponse, 2)
        return answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark

    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 3)
        await cluster.all_hold(6)
        assert await delete(leader, 2, LONG_MS) == (0, 2)
        assert {node.log.log_start for node in cluster.nodes.values()} == {2}
        leader.hosted.leader.lag_ms = LONG_MS
        cluster.cut_off.add(3)
        assert await delete(leader, 4, 300) == (RequestTimedOut.code, 2)
        await cluster.kill(3)
        assert await delete(leader, 4, LONG_MS) == (0, 4)

    run(tmp_path, test)


def test_a_new_leader_lists_no_end_offset_before_it_knows_it(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 1)
        await cluster.all_hold(2)
        node = cluster.nodes[2]
        cluster.cut_off |= {1, 3}
        await node.replicas.follow(TP, TOPIC_ID, LeaderAndIsr(-1, 1, (2,)))
        node.log.append_as_leader(batch(4), 0)  # copied, and not known to be safe
        await node.replicas.lead(TP, TOPIC_ID, LeaderAndIsr(2, 2, (1, 2, 3)), (1, 2, 3))
        for version, code in ((8, OffsetNotAvailable.code), (4, LeaderNotAvailable.code)):
            assert await latest(node, version=version) == (code, -1)
        cluster.cut_off.clear()
        for other in (1, 3):
            await cluster.nodes[other].replicas.follow(TP, TOPIC_ID, LeaderAndIsr(2, 2, (1, 2, 3)))
        await cluster.all_hold(6)
        assert await latest(node) == (0, 6)

    run(tmp_path, test)


def test_a_broken_disk_stops_its_partition_and_no_other(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 1)
        await cluster.all_hold(2)
        node, other = cluster.nodes[2], TopicPartition("orders", 1)
        for broker in cluster.nodes.values():
            if broker is cluster.leader:
                await broker.replicas.lead(other, TOPIC_ID, LeaderAndIsr(1, 0, (1, 2)), (1, 2))
            elif broker is node:
                await broker.replicas.follow(other, TOPIC_ID, LeaderAndIsr(1, 0, (1, 2)))
        node.log.offline = True  # as it is when its directory has failed
        cluster.leader.replicas.append(TP, batch())
        cluster.leader.replicas.append(other, batch())
        await eventually(lambda: node.dirs.logs[other].log_end == 1)
        await eventually(
            lambda: node.hosted.follower_state is not None and node.hosted.follower_state.state is FetchState.FAILED
        )
        cluster.leader.replicas.append(other, batch())
        await eventually(lambda: node.dirs.logs[other].log_end == 2)

    run(tmp_path, test)


def test_too_few_in_sync_replicas_refuse_acks_all_only(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await cluster.kill(2)
        await cluster.kill(3)
        leader = cluster.leader
        assert cluster.isr == {1}
        for _ in range(2):  # the second in a lane
            assert (await produce(leader)).error_code == NotEnoughReplicas.code
        assert leader.log.log_end == 0
        assert (await produce(leader, acks=1)).error_code == 0
        assert leader.log.high_watermark == 0
        await cluster.restart(2)
        await cluster.all_hold(2)
        await produced(leader, 1)

    run(tmp_path, test, min_insync_replicas="2")


def test_the_high_watermark_survives_a_crash(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 3)
        await cluster.all_hold(6)
        follower = cluster.nodes[2]
        await follower.replicas.tasks.checkpoint_high_watermarks()
        await cluster.kill(2)
        await cluster._start(2)
        assert cluster.nodes[2].log.high_watermark == 6

    run(tmp_path, test)


def test_a_follower_serves_only_consumers(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 3)
        await cluster.all_hold(6)
        follower = cluster.nodes[2]
        part = await fetch(follower, 0)
        assert (part.error_code, offsets_in(bytes(part.records))) == (0, list(range(6)))  # type: ignore[arg-type]
        refused = await produce(follower)
        assert (refused.error_code, refused.current_leader.leader_id) == (NotLeaderOrFollower.code, 1)
        for replica, code in ((-1, NotLeaderOrFollower.code), (3, NotLeaderOrFollower.code), (-2, 0)):
            assert (await latest(follower, replica))[0] == code
        for epoch, code in ((1, UnknownLeaderEpoch.code), (0, 0)):
            assert (await fetch(follower, 0, epoch=epoch)).error_code == code

    run(tmp_path, test)


def test_a_consumer_is_sent_to_a_replica_in_its_rack(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 1)
        assert (await fetch(leader, 0, rack="rack2")).preferred_read_replica == -1
        cluster.settings["replica.selector.class"] = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        await cluster.kill(1)
        await cluster.restart(1)
        await eventually(lambda: cluster.isr == {1, 2, 3})
        await cluster.all_hold(2)
        await cluster.kill(2)
        await cluster.restart(2)
        await eventually(lambda: cluster.isr == {1, 2, 3})
        leader = cluster.leader
        for rack, preferred in (("rack1", 1), ("rack2", 2), ("rack9", -1)):
            part = await fetch(leader, 0, rack=rack)
            assert part.preferred_read_replica == (-1 if preferred == leader.id else preferred)

    run(tmp_path, test)


def test_what_an_older_controller_decided_is_refused(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        node = cluster.nodes[2]
        await node.replicas.follow(TP, TOPIC_ID, LeaderAndIsr(3, 5, (1, 2, 3)))
        with pytest.raises(StaleControllerEpoch):
            await node.replicas.follow(TP, TOPIC_ID, LeaderAndIsr(1, 4, (1, 2, 3)))
        with pytest.raises(StaleControllerEpoch):
            await node.replicas.lead(TP, TOPIC_ID, LeaderAndIsr(node.id, 4, (node.id,)), (1, 2, 3))
        with pytest.raises(FencedLeaderEpoch):
            node.replicas.holding(TP, 4)

    run(tmp_path, test)


def test_only_assigned_replicas_fetch_as_followers(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 1)
        for epoch, code in ((0, UnknownLeaderEpoch.code), (-1, NotLeaderOrFollower.code)):
            part = FetchRequest.FetchPartition(partition_max_bytes=1 << 20, current_leader_epoch=epoch)
            topic = FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[part])
            state = FetchRequest.ReplicaState(replica_id=9, replica_epoch=-1)
            request = FetchRequest(replica_state=state, topics=[topic], session_epoch=-1)
            answer = await cluster.leader.serve(request, FetchResponse, 16)
            assert answer.responses[0].partitions[0].error_code == code

    run(tmp_path, test)


@pytest.mark.parametrize("leader_is_first", [True, False])
def test_a_partition_that_comes_does_not_wait_for_a_fetch_of_others(tmp_path: Path, leader_is_first: bool) -> None:
    """Which waits at the leader until there is more. Who leads may hear of it before its followers do, or after."""
    second = TopicPartition(TP.topic, 1)

    async def main() -> None:
        cluster = Brokers(tmp_path, (1, 2), {}, sockets=True)
        for name in ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "replica.lag.time.max.ms"):
            cluster.settings[name] = str(2 * PATIENCE_S * 1000)
        await cluster.start()
        leader, follower = cluster.nodes[1], cluster.nodes[2]

        async def lead() -> None:
            await leader.replicas.lead(second, TOPIC_ID, LeaderAndIsr(1, 0, (1, 2)), (1, 2))
            leader.replicas.append(second, batch(2))

        try:
            await produced(leader, 2)
            if leader_is_first:
                await lead()
            hosted = await follower.replicas.follow(second, TOPIC_ID, LeaderAndIsr(1, 0, (1, 2)))
            if not leader_is_first:
                await eventually(lambda: hosted.follower_state is not None and hosted.follower_state.rests_until_ms > 0)
                await lead()
            await eventually(lambda: follower.dirs.logs[second].log_end == 2)
        finally:
            for id in list(cluster.nodes):
                await cluster.kill(id, noticed=False)

    asyncio.run(main())


def test_a_broker_that_stops_begins_to_follow_nothing(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        replicas = cluster.nodes[2].replicas
        await replicas.stop()
        with pytest.raises(NotLeaderOrFollower):
            await replicas.follow(TP, TOPIC_ID, LeaderAndIsr(3, 9, (3,), 9))

    run(tmp_path, test)


def test_a_broker_that_leaves_copies_nothing_that_it_is_not_to_join(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        replicas = cluster.nodes[2].replicas
        replicas.is_leaving = True
        assert (await replicas.follow(TP, TOPIC_ID, LeaderAndIsr(3, 9, (3,), 9))).follower_state is None
        assert (await replicas.follow(TP, TOPIC_ID, LeaderAndIsr(3, 10, (2, 3), 10))).follower_state is not None

    run(tmp_path, test)


def test_waiting_produces_go_on_when_a_broker_is_gone(tmp_path: Path) -> None:
    """A producer for a replica that was about to join, a deletion of records for one that should delete them, too."""

    async def test(cluster: Brokers) -> None:
        assert cluster.controller is not None
        node = cluster.leader
        await produced(node, 2)
        await cluster.all_hold(4)
        cluster.cut_off.add(3)
        leader = node.hosted.leader
        leader.isr, leader.lag_ms = (1, 2), LONG_MS  # but it keeps up, for all we know
        acknowledged = asyncio.create_task(produce(node))
        deleted = asyncio.create_task(node.hosted.deleted(2))
        await eventually(
            lambda: node.hosted.acknowledgements.next_deadline_s < float("inf") and leader.followers[2].log_end == 6
        )
        node.log.delete_records(2)
        await eventually(lambda: leader.followers[2].log_start == 2)
        assert not acknowledged.done()
        assert not deleted.done()
        node.replicas.alive({1: 1, 2: 1}, 1)
        assert (await acknowledged).error_code == 0
        await deleted

    run(tmp_path, test)


@pytest.mark.parametrize("sockets", [False, True])
def test_a_follower_that_has_everything_joins_again_without_a_new_record(
    tmp_path: Path, sockets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It caught up while it was being taken out of the ISR, and has nothing new to say."""
    monkeypatch.setattr(fetch_sessions, "READ_ALL_MS", LONG_MS)

    async def test(cluster: Brokers) -> None:
        await produced(cluster.leader, 2)
        await cluster.all_hold(4)
        hosted, leader = cluster.leader.hosted, cluster.leader.hosted.leader
        proposal = leader._propose(tuple(replica for replica in leader.isr if replica != 3))
        hosted._carry_out(LeaderEffects(proposal, "the test wants it"))
        await eventually(lambda: 3 not in leader.isr)
        await eventually(lambda: 3 in leader.isr)

    run(tmp_path, test, sockets=sockets)


# Cut off from the controller


def test_a_fenced_leader_sends_clients_away_and_goes_on_when_it_is_not_any_longer(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 1)
        cluster.cut_off.add(leader.id)
        waiting = asyncio.create_task(produce(leader))
        await eventually(lambda: leader.log.log_end == 4)
        leader.replicas.fence()
        assert (await waiting).error_code == NotLeaderOrFollower.code
        for acks in (ALL, 1):
            assert (await produce(leader, acks=acks)).error_code == NotLeaderOrFollower.code
        assert (await fetch(leader, 0)).error_code == NotLeaderOrFollower.code
        cluster.cut_off.clear()
        leader.replicas.unfence()
        await produced(leader, 1)
        await cluster.all_hold(6)
        assert leader.hosted.epoch == 0

    run(tmp_path, test, min_insync_replicas="2")


def test_followers_of_a_fenced_leader_catch_up_nevertheless(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 1)
        leader.replicas.fence()
        leader.replicas.unfence()
        await produced(leader, 1)
        leader.replicas.fence()
        await cluster.all_hold(4)
        await eventually(lambda: leader.log.high_watermark == 4)

    run(tmp_path, test)


def test_a_leader_that_is_in_sync_alone_is_not_fenced(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        cluster.cut_off.update(set(cluster.ids) - {leader.id})
        leader.hosted.leader.lag_ms = 100
        await produced(leader, 1, acks=1)
        await eventually(lambda: cluster.isr == {leader.id})
        leader.replicas.fence()
        await produced(leader, 1)

    run(tmp_path, test)


def test_a_leader_that_hears_of_a_later_epoch_leads_no_longer(tmp_path: Path) -> None:
    async def test(cluster: Brokers) -> None:
        leader = cluster.leader
        await produced(leader, 1)
        cluster.cut_off.add(leader.id)
        waiting = asyncio.create_task(produce(leader))
        await eventually(lambda: leader.log.log_end == 4)
        leader.replicas.superseded(TP, 2, leader.hosted.epoch)
        assert leader.hosted.leader_state is not None  # that is no later epoch
        leader.replicas.superseded(TP, 2, leader.hosted.epoch + 1)
        assert (await waiting).error_code == NotLeaderOrFollower.code
        assert (await produce(leader)).error_code == NotLeaderOrFollower.code
        assert leader.hosted.leader_id == 2

    run(tmp_path, test)
