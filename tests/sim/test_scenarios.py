"""Stories that simulations have told, each played again as short as it can be."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from leadline.model import ACKS_ALL, Offset, TopicPartition
from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.simulation.client import NoAnswer, NotServed, SimulatedClient
from leadline.simulation.moments import APPEND
from leadline.simulation.scenario import Scenario
from leadline.simulation.simulation import Simulation
from leadline.simulation.virtual_cluster import VirtualCluster
from leadline.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

TP = TopicPartition("moved", 0)
SESSION_S = 10.0  # a paused broker has lost its session by then


def play(brokers: int, story: Callable[[VirtualCluster, SimulatedClient], Awaitable[None]]) -> None:
    play_simulation(Simulation(Scenario(1, is_synced=False, faults=(), brokers=brokers, clients=())), story)


def play_simulation(
    simulation: Simulation, story: Callable[[VirtualCluster, SimulatedClient], Awaitable[None]]
) -> None:
    cluster = simulation.cluster
    process, client = simulation.client("client")

    async def run() -> None:
        for host in cluster.hosts.values():
            await host.start()
        await cluster.loop.spawn(process, tell())

    async def tell() -> None:
        await story(cluster, client)

    try:
        cluster.loop.run_until_complete(run())
    finally:
        cluster.loop.close()
    assert simulation.invariants.violations == []
    assert cluster.loop.failures == []


async def until(condition: Callable[[], bool]) -> None:
    """In virtual time."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - whatever it waits for has no event
            await asyncio.sleep(0.1)


async def create_on(client: SimulatedClient, brokers: list[int]) -> None:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=brokers)
    topic = CreateTopicsRequest.CreatableTopic(
        name=TP.topic, num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    response = await client.ask_controller(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse, 5)
    assert response.topics[0].error_code == 0


async def produce(client: SimulatedClient, count: int = 1, acks: int = ACKS_ALL) -> Offset:
    """One batch, however often it has to be sent. Returns its first offset."""
    batch = bytes(build([Record(n, 0, None, b"value") for n in range(count)], BatchFields()))
    while True:
        try:
            answer = await client.produce(TP, batch, acks=acks)
            if not answer.error_code:
                return answer.base_offset
        except (NoAnswer, NotServed):
            pass
        client.forget_leader(TP)
        await client.back_off()


async def move_to(client: SimulatedClient, brokers: list[int]) -> None:
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=brokers)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=TP.topic, partitions=[partition])
    request = AlterPartitionReassignmentsRequest(topics=[topic])
    while True:
        try:
            response = await client.ask_controller(request, AlterPartitionReassignmentsResponse, 0)
        except NoAnswer:
            await client.back_off()
        else:
            assert response.error_code == response.responses[0].partitions[0].error_code == 0
            return


def test_a_leader_whose_partition_moved_away_while_it_was_paused_gives_it_up() -> None:
    async def story(cluster: VirtualCluster, client: SimulatedClient) -> None:
        def hosted_by(id: int) -> bool:
            broker = cluster.hosts[id].broker
            return broker is not None and TP in broker.replicas.hosted

        await create_on(client, [2, 3, 4])
        await until(lambda: hosted_by(2))
        cluster.hosts[2].pause()
        await asyncio.sleep(SESSION_S)
        await move_to(client, [3, 4, 1])
        await until(lambda: hosted_by(1))
        await asyncio.sleep(5.0)
        assert hosted_by(2)  # it does not know
        cluster.hosts[2].resume()
        await until(lambda: not hosted_by(2))

    play(4, story)


def test_a_broker_whose_power_goes_during_an_append_counts_with_what_its_disk_has() -> None:
    """Its directory goes offline in the same call, and the broker has no log any more when it ends."""

    async def story(cluster: VirtualCluster, client: SimulatedClient) -> None:
        await create_on(client, [1, 2, 3])
        for _ in range(3):
            await produce(client)
        host = cluster.hosts[3]
        await until(lambda: host.log_end(TP) == 3)
        host.moments.noticed = lambda moment: host.stop_writing() if moment == APPEND else None
        await produce(client)
        broker = host.broker
        assert broker is not None
        await until(lambda: not broker.dirs.logs)
        assert host.log_end(TP) >= 3
        host.kill()
        assert host.log_end(TP) >= 3

    play(3, story)


def test_the_disk_of_each_broker_fills_up_fails_and_is_lost_and_what_was_acknowledged_stays() -> None:
    simulation = Simulation(Scenario(1, is_synced=True, faults=(), clients=()))
    disks, hosts = simulation.faults.disks, simulation.cluster.hosts

    async def story(cluster: VirtualCluster, client: SimulatedClient) -> None:
        await create_on(client, [1, 2, 3])
        for host, fault in zip(hosts.values(), (disks.disk_full, disks.disk_fails, disks.lose_disk), strict=True):
            await until(lambda: all(disks.can_lose_disk(other) for other in hosts.values()))
            playing = asyncio.ensure_future(fault(host, Random(1)))
            while not playing.done():
                simulation.invariants.acknowledged(TP, await produce(client))
                await asyncio.sleep(0.5)
            await playing
        await until(lambda: len({host.log_end(TP) for host in hosts.values()}) == 1)

    play_simulation(simulation, story)
    story_lines = "\n".join(simulation.story)
    for line in ("broker-1 is full", "broker-1 has room again", "broker-2 fails", "broker-2 has no log directory left"):
        assert line in story_lines
    assert "broker-3 is killed, and its disk is lost" in story_lines


def test_links_connections_and_zookeeper_fail_and_clients_go_on_afterwards() -> None:
    simulation = Simulation(Scenario(1, is_synced=False, faults=(), clients=()))
    faults, host = simulation.faults, simulation.cluster.hosts[1]

    async def story(cluster: VirtualCluster, client: SimulatedClient) -> None:
        await create_on(client, [1, 2, 3])
        for fault in (faults.slow_links, faults.drop_connections, faults.cut_from_clients, faults.zookeeper_down):
            playing = asyncio.ensure_future(fault(host, Random(1)))
            while not playing.done():
                simulation.invariants.acknowledged(TP, await produce(client))
                await asyncio.sleep(0.5)
            await playing
            simulation.invariants.acknowledged(TP, await produce(client))
        await until(lambda: len({other.log_end(TP) for other in cluster.hosts.values()}) == 1)

    play_simulation(simulation, story)
    assert simulation.cluster.delays.slow == {}
    story_lines = "\n".join(simulation.story)
    for line in (
        "links of broker-1",
        "broker-1 loses",
        "does not reach client",
        "reaches its clients again",
        "ZooKeeper is down",
    ):
        assert line in story_lines
