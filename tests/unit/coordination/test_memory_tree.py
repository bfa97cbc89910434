"""The tree in memory that brokers of several threads share: sessions that are lost, expire and continue."""

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from leadline.coordination.memory_nodes import MemoryNodes
from leadline.coordination.memory_tree import MemoryTree, MemoryTreeServer
from leadline.coordination.tree import Event, SessionExpired, SessionState

TEST_S = 120.0


class ManualClock:
    def __init__(self) -> None:
        self.at_s = 100.0

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def monotonic_s(self) -> float:
        return self.at_s


class Client:
    """A session of 6 s whose reach the test decides."""

    def __init__(self, server: MemoryTreeServer) -> None:
        self.is_reachable = True
        self.tree: MemoryTree = server.connect(6.0, lambda: self.is_reachable)
        self.states: list[SessionState] = []
        self.tree.watch_session(self.states.append)


def run(test: Callable[[MemoryTreeServer, ManualClock], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(TEST_S):
            clock = ManualClock()
            await test(MemoryTreeServer(clock), clock)

    asyncio.run(main())


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_ephemeral_nodes_end_with_their_session_and_others_are_told() -> None:
    async def test(server: MemoryTreeServer, clock: ManualClock) -> None:
        one, other = Client(server), Client(server)
        events: list[Event] = []
        await other.tree.watch("/a", events.append)
        await one.tree.create("/a", ephemeral=True)
        await one.tree.close()
        assert not await other.tree.exists("/a")
        assert [event.change.value for event in events] == ["created", "deleted"]
        with pytest.raises(SessionExpired):
            await one.tree.get("/a")

    run(test)


def test_a_client_that_is_back_in_time_keeps_its_session() -> None:
    async def test(server: MemoryTreeServer, clock: ManualClock) -> None:
        client = Client(server)
        await client.tree.create("/a", ephemeral=True)
        session = client.tree.session
        client.is_reachable = False
        clock.at_s += 4.5
        server.tick()
        await turns()
        assert client.states == [SessionState.SUSPENDED]
        waiting = asyncio.create_task(client.tree.get("/a"))
        await turns()
        assert not waiting.done()
        client.is_reachable = True
        server.tick()
        assert await waiting is not None
        assert client.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert client.tree.session == session

    run(test)


def test_a_client_that_is_late_has_another_session_and_lost_its_nodes() -> None:
    async def test(server: MemoryTreeServer, clock: ManualClock) -> None:
        client, other = Client(server), Client(server)
        await client.tree.create("/a", ephemeral=True)
        session = client.tree.session
        client.is_reachable = False
        clock.at_s += 6.5
        server.tick()
        assert not await other.tree.exists("/a")
        client.is_reachable = True
        server.tick()
        await turns()
        assert client.states == [SessionState.SUSPENDED, SessionState.EXPIRED, SessionState.CONNECTED]
        assert client.tree.session != session

    run(test)


def test_the_session_of_a_dead_client_expires_in_its_time() -> None:
    async def test(server: MemoryTreeServer, clock: ManualClock) -> None:
        dead, other = Client(server), Client(server)
        await dead.tree.create("/a", ephemeral=True)
        server.closed(dead.tree)
        clock.at_s += 5.0
        server.tick()
        assert await other.tree.exists("/a")
        clock.at_s += 1.5
        server.tick()
        assert not await other.tree.exists("/a")

    run(test)


def test_a_watch_is_called_before_a_read_of_another_thread_shows_the_change() -> None:
    async def test(server: MemoryTreeServer, clock: ManualClock) -> None:
        writes = 200
        tree, seen_changes = server.connect(), 0
        await tree.create("/a", b"0")

        def changed(event: Event) -> None:
            nonlocal seen_changes
            seen_changes += 1

        await tree.watch("/a", changed)

        async def write() -> None:
            theirs = server.connect()
            for number in range(1, writes + 1):
                await theirs.set("/a", str(number).encode())

        thread = threading.Thread(target=asyncio.run, args=(write(),))
        thread.start()
        version = 0
        while version < writes:
            node = await tree.get("/a")
            assert node is not None
            version = node.version
            assert seen_changes >= version
        thread.join()

    run(test)


def test_stored_nodes_make_the_same_tree() -> None:
    nodes, copy = MemoryNodes(), MemoryNodes()
    nodes.put("/a/b", b"data")
    nodes.put("/c")
    copy.restore(list(nodes.stored()), nodes.zxid)
    assert [copy.get(path) for path in ("/a", "/a/b", "/c")] == [nodes.get(path) for path in ("/a", "/a/b", "/c")]
    assert (copy.children("/"), copy.zxid) == (["a", "c"], nodes.zxid)
