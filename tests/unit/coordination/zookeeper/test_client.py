"""The tree in ZooKeeper: what becomes of calls, watches and ephemerals when the way to it breaks."""

import asyncio
import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from leadline.coordination.tree import (
    Change,
    Check,
    ConnectionLost,
    Create,
    Created,
    Event,
    NodeExists,
    SessionExpired,
    SessionState,
    SetData,
    TooLarge,
    TreeError,
)
from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.coordination.zookeeper.requests import MAX_REQUEST_BYTES
from tests.conformance.kafka.broker import ZooKeeper, zookeeper
from tests.support.proxy import Proxy, proxy_to
from tests.support.waiting import eventually

from ..conftest import InZooKeeper, Run

CONNECTED, SUSPENDED, EXPIRED = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.EXPIRED
WAIT_S = 120
SHORT_SESSION_MS = 5000


async def through(proxy: Proxy, home: InZooKeeper, session_timeout_ms: int = 20_000) -> ZooKeeperTree:
    chroot = home.connect.partition("/")[2]
    return await InZooKeeper(f"127.0.0.1:{proxy.port}/{chroot}", session_timeout_ms).open()


def states_of(tree: ZooKeeperTree) -> asyncio.Queue[SessionState]:
    states: asyncio.Queue[SessionState] = asyncio.Queue()
    tree.watch_session(states.put_nowait)
    return states


async def next_of(queue: asyncio.Queue[SessionState]) -> SessionState:
    async with asyncio.timeout(WAIT_S):
        return await queue.get()


async def through_to(tree: ZooKeeperTree) -> None:
    """Until a call, and all before it, has been answered in a session that lives."""

    async def is_answered() -> bool:
        with suppress(SessionExpired):
            await tree.exists("/")
            return True
        return False

    await eventually(is_answered)


async def wait_for_change(tree: ZooKeeperTree, path: str, change: Change) -> None:
    """Waits until a change has been seen. It may have happened already."""
    changed = asyncio.Event()
    await tree.watch(path, lambda event: changed.set() if event.change is change else None)
    if (await tree.exists(path)) is (change is Change.CREATED):
        return
    async with asyncio.timeout(WAIT_S):
        await changed.wait()


def test_what_is_created_in_a_multi_has_the_id_of_its_transaction(run: Run, in_zookeeper: InZooKeeper) -> None:
    async def scenario() -> None:
        tree = await in_zookeeper.open()
        alone = await tree.create("/a", ephemeral=True)
        (together,) = await tree.multi([Create("/b", ephemeral=True)])
        for created in (alone, together):
            assert isinstance(created, Created)
            node = await tree.get(created.path)
            assert node is not None
            assert (node.czxid, node.owner) == (created.czxid, tree.session)
        await tree.close()

    run(scenario())


def test_all_lies_below_the_path_of_the_address(run: Run, server: ZooKeeper, tmp_path: Path) -> None:
    async def scenario() -> None:
        below = await InZooKeeper(f"{server.connect}/deep/{tmp_path.name}/").open()
        top = await InZooKeeper(server.connect).open()
        await below.create("/a", b"data")
        node = await top.get(f"/deep/{tmp_path.name}/a")
        assert node is not None
        assert node.data == b"data"
        await below.close()
        await top.close()

    run(scenario())


def test_a_host_that_is_down_is_passed_over(run: Run, in_zookeeper: InZooKeeper) -> None:
    home = InZooKeeper(f"127.0.0.1:1,{in_zookeeper.connect}")

    async def scenario() -> None:
        for _ in range(4):  # which host comes first is up to chance
            tree = await home.open()
            assert await tree.exists("/")
            await tree.close()

    run(scenario())


def test_an_unreachable_server_is_an_error_after_the_connection_timeout(run: Run) -> None:
    opening = ZooKeeperTree.open("127.0.0.1:1", session_timeout_ms=1000, connection_timeout_ms=200, max_in_flight=10)
    with pytest.raises(
        ConnectionLost, match=r"ZooKeeper at 127\.0\.0\.1:1: .* 0\.2 s \(zookeeper\.connection\.timeout\.ms\)"
    ):
        run(opening)


def test_a_server_that_accepts_and_stays_silent_is_given_up(run: Run) -> None:
    async def scenario() -> None:
        async with proxy_to(target_port=1) as proxy:
            proxy.keep_silent()
            with pytest.raises(ConnectionLost, match=r"zookeeper\.connection\.timeout\.ms"):
                async with asyncio.timeout(WAIT_S / 2):
                    await ZooKeeperTree.open(
                        f"127.0.0.1:{proxy.port}",
                        session_timeout_ms=1000 * WAIT_S,
                        connection_timeout_ms=200,
                        max_in_flight=10,
                    )

    run(scenario())


@pytest.mark.parametrize("connect", ["", "host:port", "host:2181//a", "host:2181/a/../b"])
def test_what_is_no_address_is_refused(run: Run, connect: str) -> None:
    with pytest.raises(ValueError, match=f"zookeeper.connect={connect}: "):
        run(InZooKeeper(connect).open())


def test_a_node_may_have_nearly_a_megabyte_and_not_more(run: Run, in_zookeeper: InZooKeeper) -> None:
    async def scenario() -> None:
        tree = await in_zookeeper.open()
        await tree.create("/large", bytes(1_000_000))
        node = await tree.get("/large")
        assert node is not None
        assert len(node.data) == 1_000_000
        for call in (tree.create("/a", bytes(MAX_REQUEST_BYTES)), tree.set("/large", bytes(MAX_REQUEST_BYTES))):
            with pytest.raises(TooLarge, match=r"jute\.maxbuffer"):
                await call
        assert await tree.children("/") == ["large"]
        await tree.close()

    run(scenario())


def test_many_nodes_are_read_at_once(run: Run, in_zookeeper: InZooKeeper) -> None:
    async def scenario() -> None:
        tree = await in_zookeeper.open()
        numbers = range(2000)
        await asyncio.gather(*(tree.create(f"/{number}", b"%d" % number) for number in numbers))
        nodes = await asyncio.gather(*(tree.get(f"/{number}") for number in numbers))
        assert [node and node.data for node in nodes] == [b"%d" % number for number in numbers]
        await tree.close()

    run(scenario())


def test_no_more_calls_are_under_way_than_allowed(run: Run, server: ZooKeeper, in_zookeeper: InZooKeeper) -> None:
    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree, other = await through(proxy, in_zookeeper), await in_zookeeper.open()
            proxy.lose_answers()
            calls = asyncio.gather(*(tree.create(f"/{number}") for number in range(30)), return_exceptions=True)
            await wait_for_change(other, "/9", Change.CREATED)
            assert proxy.frames() == 10
            assert len(await other.children("/") or []) == 10
            proxy.cut()
            proxy.mend()
            results = await calls
            assert [type(result) for result in results] == [ConnectionLost] * 10 + [Created] * 20
            await tree.close()
            await other.close()

    run(scenario())


def test_a_repeated_request_keeps_its_place_in_the_order(
    run: Run, server: ZooKeeper, in_zookeeper: InZooKeeper
) -> None:
    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree = await through(proxy, in_zookeeper)
            await tree.create("/n", b"old")
            proxy.lose_answers()
            reads = asyncio.gather(*(tree.get("/n") for _ in range(10)))
            write = asyncio.create_task(tree.set("/n", b"new"))
            await asyncio.sleep(0)
            proxy.cut()
            proxy.mend()
            assert [node and node.data for node in await reads] == [b"old"] * 10
            assert await write == 1
            await tree.close()

    run(scenario())


def test_a_break_shorter_than_the_session_is_only_a_wait(
    run: Run, server: ZooKeeper, in_zookeeper: InZooKeeper
) -> None:
    events: list[Event] = []

    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree, other = await through(proxy, in_zookeeper), await in_zookeeper.open()
            states, session = states_of(tree), tree.session
            await tree.create("/mine", ephemeral=True)
            await tree.watch("/news", events.append)
            await tree.watch_children("/", events.append)
            proxy.cut()
            assert await next_of(states) is SUSPENDED
            waiting = asyncio.gather(tree.get("/news"), tree.create("/late"), tree.children("/"))
            await other.create("/news", b"1")
            proxy.mend()
            assert await next_of(states) is CONNECTED
            news, late, names = await waiting
            assert news is not None
            assert (news.data, late.path, names) == (b"1", "/late", ["late", "mine", "news"])
            assert tree.session == session
            await tree.exists("/")  # goes behind the watch that /late has used up, and that is set again
            events.clear()
            await other.set("/news", b"2")
            await other.delete("/late")
            assert (await tree.children("/")) == ["mine", "news"]
            assert events == [Event(Change.SET, "/news"), Event(Change.CHILDREN, "/")]
            await tree.close()
            await other.close()

    run(scenario())


def test_a_break_longer_than_the_session_ends_it_and_begins_another(
    run: Run, server: ZooKeeper, in_zookeeper: InZooKeeper
) -> None:
    events: list[Event] = []

    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree, other = (
                await through(proxy, in_zookeeper, session_timeout_ms=SHORT_SESSION_MS),
                await in_zookeeper.open(),
            )
            states, session = states_of(tree), tree.session
            await tree.create("/mine", ephemeral=True)
            await tree.watch("/mine", events.append)
            proxy.cut()
            assert await next_of(states) is SUSPENDED
            waiting = asyncio.gather(tree.get("/mine"), tree.create("/late"), return_exceptions=True)
            await wait_for_change(other, "/mine", Change.DELETED)
            proxy.mend()
            assert await next_of(states) is EXPIRED
            assert tree.session == session
            with pytest.raises(SessionExpired, match="has expired"):
                await tree.create("/mine", ephemeral=True)
            assert await next_of(states) is CONNECTED
            assert [type(result) for result in await waiting] == [SessionExpired, SessionExpired]
            assert tree.session not in (session, 0)
            assert events == []
            await tree.create("/mine", ephemeral=True)
            assert events == [Event(Change.CREATED, "/mine")]
            node = await other.get("/mine")
            assert node is not None
            assert node.owner == tree.session
            assert not await other.exists("/late")
            await tree.close()
            assert not await other.exists("/mine")
            await other.close()

    run(scenario())


def test_what_is_left_of_an_expired_session_connects_no_more(run: Run, server: ZooKeeper) -> None:
    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree = await InZooKeeper(f"127.0.0.1:{proxy.port},127.0.0.1:{proxy.port}", SHORT_SESSION_MS).open()
            other, states = await InZooKeeper(server.connect).open(), states_of(tree)
            path = (await tree.create(f"/{tree.session}", ephemeral=True)).path
            proxy.cut()
            await wait_for_change(other, path, Change.DELETED)
            proxy.mend()
            assert [await next_of(states) for _ in range(3)] == [SUSPENDED, EXPIRED, CONNECTED]
            await tree.close()
            await other.close()
            assert proxy.accepted == 2  # one that learns of the end, one for the new session

    run(scenario())


@pytest.mark.parametrize(
    ("call", "after"),
    [
        (lambda tree: tree.create("/a"), ConnectionLost),
        (lambda tree: tree.create("/a", ephemeral=True), Created),
        (lambda tree: tree.create("/a/b", ephemeral=True, make_parents=True), Created),
        (lambda tree: tree.create("/s", sequential=True), ConnectionLost),
        (lambda tree: tree.create("/there", ephemeral=True), NodeExists),
        (lambda tree: tree.create("/there"), ConnectionLost),
        (lambda tree: tree.set("/there", b"1", expected_version=0), ConnectionLost),
        (lambda tree: tree.delete("/there"), ConnectionLost),
        (lambda tree: tree.multi([Create("/a", ephemeral=True)]), ConnectionLost),
        (lambda tree: tree.get("/there"), "Node"),
    ],
)
def test_an_answer_that_was_lost(
    run: Run,
    server: ZooKeeper,
    in_zookeeper: InZooKeeper,
    call: Callable[[ZooKeeperTree], asyncio.Future[object]],
    after: type[TreeError] | type[Created] | str,
) -> None:
    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree, other = await through(proxy, in_zookeeper), await in_zookeeper.open()
            await other.create("/there")
            states = states_of(tree)
            proxy.lose_answers()
            lost = asyncio.gather(call(tree), tree.create("/done"), return_exceptions=True)
            await wait_for_change(other, "/done", Change.CREATED)
            proxy.cut()
            proxy.mend()
            result = (await lost)[0]
            assert after in (type(result), type(result).__name__)
            if isinstance(result, Created):
                node = await other.get(result.path)
                assert node is not None
                assert (node.czxid, node.owner) == (result.czxid, tree.session)
            assert [await next_of(states), await next_of(states)] == [SUSPENDED, CONNECTED]
            await tree.close()
            await other.close()

    run(scenario())


def test_a_session_survives_a_restart_of_zookeeper(run: Run, tmp_path: Path) -> None:
    async def scenario(stack: ExitStack) -> None:
        first = await asyncio.to_thread(stack.enter_context, zookeeper(tmp_path))
        async with proxy_to(first.port) as proxy:
            tree = await InZooKeeper(f"127.0.0.1:{proxy.port}/kafka", 60_000).open()
            states, session = states_of(tree), tree.session
            mine = await tree.create("/mine", b"data", ephemeral=True)
            first.kill()
            assert await next_of(states) is SUSPENDED
            second = await asyncio.to_thread(stack.enter_context, zookeeper(tmp_path))
            proxy.target_port = second.port
            assert await next_of(states) is CONNECTED
            node = await tree.get("/mine")
            assert node is not None
            assert (node.data, node.czxid, node.owner) == (b"data", mine.czxid, session)
            assert tree.session == session
            await tree.close()
        direct = await InZooKeeper(f"{second.connect}/kafka").open()
        assert await direct.children("/") == []
        await direct.close()

    with ExitStack() as stack:
        run(scenario(stack))


def test_a_tree_without_a_way_to_zookeeper_can_be_closed(
    run: Run, server: ZooKeeper, in_zookeeper: InZooKeeper
) -> None:
    async def scenario() -> None:
        async with proxy_to(server.port) as proxy:
            tree = await through(proxy, in_zookeeper)
            states = states_of(tree)
            proxy.cut()
            assert await next_of(states) is SUSPENDED
            waiting = asyncio.create_task(tree.get("/"))
            await asyncio.sleep(0)
            async with asyncio.timeout(WAIT_S):
                await tree.close()
            with pytest.raises(SessionExpired, match="it was closed"):
                await waiting

    run(scenario())


class InterruptedCallers:
    """Callers at work while the connection to ZooKeeper breaks again and again."""

    def __init__(self, tree: ZooKeeperTree, other: ZooKeeperTree, proxy: Proxy, seed: int) -> None:
        self.tree, self.other, self.proxy, self.chance = tree, other, proxy, random.Random(seed)
        self.created: dict[str, int] = {}  # what was acknowledged, by path: its czxid
        self.calm = asyncio.Event()
        self.children: list[str] | None = None  # as read after the last change
        self.looking: set[asyncio.Task[None]] = set()

    async def work(self, worker: int) -> None:
        number = 0
        while not self.calm.is_set():
            path = f"/w{worker}-{number}"
            number += 1
            try:
                created = await self.tree.create(path)
                assert (await self.tree.create(path + "e", ephemeral=True)).path == path + "e"
                await self.tree.multi([SetData(path, b"1", 0), Check("/", 0)])
                self.created[path] = created.czxid
            except (ConnectionLost, SessionExpired):
                await asyncio.sleep(0.001)

    async def break_connections(self) -> None:
        """One of the breaks is longer than the session."""
        session = await self.tree.create("/session", ephemeral=True)
        for gust in range(15):
            await through_to(self.tree)
            await asyncio.sleep(self.chance.uniform(0, 0.05))
            if self.chance.random() < 0.5:
                self.proxy.lose_answers()
                await asyncio.sleep(self.chance.uniform(0, 0.02))
            self.proxy.cut()
            if gust == 7:
                await wait_for_change(self.other, session.path, Change.DELETED)
            self.proxy.mend()
        self.calm.set()

    def look(self, _: object) -> None:
        task = asyncio.create_task(self.look_again())
        self.looking.add(task)
        task.add_done_callback(self.looking.discard)

    async def look_again(self) -> None:
        with suppress(SessionExpired):
            self.children = await self.tree.children("/")


def test_in_a_storm_every_call_ends_and_what_was_acknowledged_is_there(
    run: Run, server: ZooKeeper, in_zookeeper: InZooKeeper
) -> None:
    """Two storms at once: each waits for seconds until a session is over."""

    async def scenario(seed: int) -> None:
        home = InZooKeeper(f"{in_zookeeper.connect}/{seed}")
        async with proxy_to(server.port) as proxy:
            tree, other = await through(proxy, home, session_timeout_ms=SHORT_SESSION_MS), await home.open()
            callers = InterruptedCallers(tree, other, proxy, seed)
            tree.watch_session(lambda state: callers.look(state) if state is CONNECTED else None)
            await tree.watch_children("/", callers.look)
            async with asyncio.timeout(WAIT_S):
                await asyncio.gather(callers.break_connections(), *map(callers.work, range(20)))
                await through_to(tree)
                while callers.looking:
                    await asyncio.wait(callers.looking)
            assert callers.children == await other.children("/")
            assert len(callers.created) > 50
            nodes = await asyncio.gather(*map(other.get, callers.created))
            assert [node and (node.czxid, node.version) for node in nodes] == [
                (czxid, 1) for czxid in callers.created.values()
            ]
            await tree.close()
            assert not [name for name in await other.children("/") or [] if name.endswith("e")]
            await other.close()

    async def both() -> None:
        await asyncio.gather(scenario(0), scenario(1))

    run(both())
