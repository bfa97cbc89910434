"""Streams keep their order, wait for a link to heal, and end with the process at their other end."""

import asyncio
from collections.abc import Callable

import pytest

from leadline.runtime.network import Socket
from leadline.simulation.ports import VirtualTime
from leadline.simulation.virtual_disk import MountedDisk, VirtualDisk
from leadline.simulation.virtual_loop import Process, VirtualLoop
from leadline.simulation.virtual_network import HostNetwork, VirtualNetwork


class Received(asyncio.BufferedProtocol):
    """The side that connects."""

    def __init__(self) -> None:
        self.data, self.is_lost = b"", False
        self._room = bytearray(10)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._room)

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self._room[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


class World:
    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.network = VirtualNetwork(self.loop, lambda source, target: 0.001)
        self.server = Process("server")
        self.accepted: list[Socket] = []

    def host(self, name: str) -> HostNetwork:
        return self.network.of(name, MountedDisk(VirtualDisk(VirtualTime(self.loop)), name))

    async def listen(self) -> None:
        listening = self.host("server").listen("server", 9092, 50)
        listening.on_readable(lambda: self.accepted.append(listening.accept_connection()[0]))

    async def connected(self) -> Received:
        await self.loop.spawn(self.server, self.listen())
        client = await self.host("client").connect(Received, "server", 9092)
        await asyncio.sleep(0.1)
        return client


def run(test: Callable[[World], "asyncio.Future[None] | object"]) -> None:
    world = World()
    world.loop.run_until_complete(test(world))  # type: ignore[arg-type]
    assert not world.loop.failures
    world.loop.close()


def test_bytes_arrive_in_their_order_both_ways() -> None:
    async def test(world: World) -> None:
        client = await world.connected()
        (server,) = world.accepted
        for part in (b"first ", b"second ", b"third"):
            client.transport.write(part)
            server.send(part)
        room = bytearray(100)
        with pytest.raises(BlockingIOError):
            server.recv_into(room)
        await asyncio.sleep(0.1)
        assert room[: server.recv_into(room)] == client.data == b"first second third"

    run(test)


def test_what_is_sent_over_a_cut_link_arrives_when_it_has_healed() -> None:
    async def test(world: World) -> None:
        client = await world.connected()
        world.network.cut("server", "client")
        world.accepted[0].send(b"late")
        await asyncio.sleep(30)
        assert client.data == b""
        world.network.heal("server", "client")
        await asyncio.sleep(0.1)
        assert client.data == b"late"

    run(test)


def test_a_connection_over_a_cut_link_waits_and_to_nobody_is_refused() -> None:
    async def test(world: World) -> None:
        await world.connected()
        with pytest.raises(ConnectionRefusedError):
            await world.host("client").connect(Received, "server", 1)
        world.network.cut("client", "server")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.host("client").connect(Received, "server", 9092), 20)

    run(test)


def test_a_killed_process_resets_its_connections_and_a_host_without_power_is_silent() -> None:
    async def test(world: World) -> None:
        client = await world.connected()
        world.network.power_off("server")
        world.loop.kill(world.server)
        world.network.killed(world.server)
        await asyncio.sleep(30)
        assert not client.is_lost
        world.network.power_on("server")
        await asyncio.sleep(0.1)
        assert client.is_lost
        with pytest.raises(ConnectionRefusedError):
            await world.host("client").connect(Received, "server", 9092)

    run(test)


def test_a_dropped_connection_loses_what_is_on_its_way_and_both_ends_notice() -> None:
    async def test(world: World) -> None:
        client = await world.connected()
        (server,) = world.accepted
        assert world.network.peers_of("server") == ["client"]
        assert world.network.drop("client", lambda: False) == world.network.drop("elsewhere", lambda: True) == 0
        client.transport.write(b"request")
        server.send(b"response")
        assert world.network.drop("server", lambda: True) == 1
        await asyncio.sleep(0.1)
        assert client.is_lost
        assert client.data == b""
        with pytest.raises(ConnectionResetError):
            server.recv_into(bytearray(100))
        assert world.network.peers_of("server") == []
        await world.host("client").connect(Received, "server", 9092)  # it still listens

    run(test)


def test_a_full_stream_makes_the_sender_wait() -> None:
    async def test(world: World) -> None:
        await world.connected()
        (server,) = world.accepted
        world.network.cut("server", "client")
        assert [server.send(bytes(200_000)) for _ in range(2)] == [200_000, 256 * 1024 - 200_000]
        with pytest.raises(BlockingIOError):
            server.send(b"1")

    run(test)
