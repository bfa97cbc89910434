"""The simulated ZooKeeper: versions, ephemeral nodes, watches, and sessions that are lost and expire."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from leadline.coordination.tree import (
    BadVersion,
    Change,
    Check,
    ConnectionLost,
    Create,
    Event,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    SetData,
)
from leadline.simulation.ports import VirtualTime
from leadline.simulation.virtual_loop import Process, VirtualLoop
from leadline.simulation.virtual_network import VirtualNetwork
from leadline.simulation.virtual_tree import HOST, Ensemble, VirtualTree

TIMEOUT_S = 6.0


class World:
    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.network = VirtualNetwork(self.loop, lambda source, target: 0.001)
        self.ensemble = Ensemble(self.loop, self.network, VirtualTime(self.loop))
        self.processes = {name: Process(name) for name in ("a", "b")}
        self.a, self.b = (VirtualTree(self.ensemble, name, self.processes[name], TIMEOUT_S) for name in ("a", "b"))

    def cut(self, host: str) -> None:
        self.network.cut(host, HOST)
        self.network.cut(HOST, host)

    def heal(self, host: str) -> None:
        self.network.heal(host, HOST)
        self.network.heal(HOST, host)


def run(test: Callable[[World], Awaitable[None]]) -> None:
    world = World()

    async def main() -> None:
        await world.loop.spawn(world.processes["a"], test(world))  # type: ignore[arg-type]

    world.loop.run_until_complete(main())
    assert not world.loop.failures
    world.loop.close()


def test_all_operations_of_a_multi_take_effect_or_none() -> None:
    async def test(world: World) -> None:
        await world.a.create("/x", b"1")
        with pytest.raises(BadVersion):
            await world.a.multi([SetData("/x", b"2"), Create("/x/y"), Check("/x", 7)])
        node = await world.b.get("/x")
        assert node is not None
        assert (node.data, node.version) == (b"1", 0)
        assert await world.b.children("/x") == []
        await world.a.multi([SetData("/x", b"2"), Create("/x/y"), Check("/x", 1)])
        assert await world.b.children("/x") == ["y"]
        with pytest.raises(NodeExists):
            await world.b.create("/x/y")
        with pytest.raises(NoNode):
            await world.b.delete("/z")

    run(test)


def test_a_watch_is_called_before_a_read_shows_the_change() -> None:
    async def test(world: World) -> None:
        events: list[Event] = []
        await world.b.watch("/x", events.append)
        await world.b.watch_children("/", events.append)
        await world.a.create("/x")
        await world.b.get("/x")
        assert [event.change for event in events] == [Change.CREATED, Change.CHILDREN]

    run(test)


def test_a_session_that_is_not_heard_of_expires_with_its_ephemeral_nodes() -> None:
    async def test(world: World) -> None:
        states: list[SessionState] = []
        world.a.watch_session(states.append)
        await world.a.create("/me", ephemeral=True)
        first = world.a.session
        world.cut("a")
        await asyncio.sleep(TIMEOUT_S * 2)
        assert not await world.b.exists("/me")
        world.heal("a")
        await asyncio.sleep(TIMEOUT_S)
        assert states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
        assert world.a.session != first
        await world.a.create("/me", ephemeral=True)

    run(test)


def test_a_short_loss_keeps_the_session_and_a_write_under_way_is_in_doubt() -> None:
    async def test(world: World) -> None:
        states: list[SessionState] = []
        world.a.watch_session(states.append)
        await world.a.create("/me", ephemeral=True)
        world.network.cut(HOST, "a")  # the write arrives, its answer does not
        with pytest.raises(ConnectionLost):
            await world.a.set("/me", b"1")
        world.heal("a")
        node = await world.a.get("/me")
        assert node is not None
        assert (node.data, node.owner) == (b"1", world.a.session)
        assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]

    run(test)


def test_a_process_that_was_paused_for_too_long_has_no_session() -> None:
    async def test(world: World) -> None:
        await world.b.create("/other", ephemeral=True)
        world.loop.pause(world.processes["b"])
        await asyncio.sleep(TIMEOUT_S * 2)
        assert not await world.a.exists("/other")
        late = world.loop.spawn(world.processes["b"], world.b.set("/", b"late"))
        world.loop.resume(world.processes["b"])
        with pytest.raises(SessionExpired):
            await late

    run(test)


def test_a_killed_process_keeps_its_nodes_for_the_time_out_and_a_closed_one_does_not() -> None:
    async def test(world: World) -> None:
        await world.b.create("/other", ephemeral=True)
        world.loop.kill(world.processes["b"])
        await asyncio.sleep(TIMEOUT_S / 2)
        assert await world.a.exists("/other")
        await asyncio.sleep(TIMEOUT_S)
        assert not await world.a.exists("/other")
        await world.a.create("/me", ephemeral=True)
        await world.a.close()
        assert "/me" not in world.ensemble.nodes
        with pytest.raises(SessionExpired):
            await world.a.get("/")

    run(test)
