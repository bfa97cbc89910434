"""One broker of a cluster in a test: a real broker on a loop in a thread of its own.

running, paused    as a process that runs, or is stopped by SIGSTOP
killed             as by SIGKILL: its sockets are closed, its files stay unchanged, its session expires in time
stopped            cleanly: other brokers lead its partitions, and everything is in its files
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.coordination.memory_tree import MemoryTree
from leadline.coordination.tree import Tree
from leadline.log.open_files import CACHE
from leadline.runtime.ports import Chance, SystemChance
from leadline.simulation.ports import SeededChance
from leadline.testing.broker_files import BrokerFiles
from leadline.testing.broker_loop import BrokerLoop
from leadline.testing.broker_network import TREE, BrokerNetwork
from leadline.testing.errors import ClusterError

if TYPE_CHECKING:
    from leadline.testing.cluster import LocalCluster

T = TypeVar("T")
log = logging.getLogger(__name__)

START_S = 60.0
STOP_S = 60.0


class BrokerState(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    KILLED = "killed"
    STOPPED = "stopped"


class _Life:
    """One run of a broker, from its start to its end."""

    def __init__(self, broker: "LocalBroker", number: int) -> None:
        self.name = f"broker-{broker.id}"
        self.loop = BrokerLoop(broker.cluster.clock, self.name)
        self.files = BrokerFiles(CACHE.make_room)
        self.network = BrokerNetwork(broker.id, broker.cluster.network, broker.cluster.broker_at)
        seed = broker.cluster.seed
        chance: Chance = SystemChance() if seed is None else SeededChance(f"{seed} {broker.id} {number}")
        ports = Ports(broker.cluster.clock, self.files, self.network, chance, self._open_tree)
        self._local, self._ports = broker, ports
        self.broker: Broker | None = None
        self.tree: MemoryTree | None = None
        self.started = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(None)
        starting = self.loop.create_task(self._start())
        try:
            self.loop.run_forever()
        finally:
            self.loop.end_threads()
            self.loop.close_transports()
            self.loop.close()
            self.started.set()
            del starting

    async def _start(self) -> None:
        try:
            broker = self.broker = Broker(broker_settings(self._local.settings), self._ports)
            await broker.start()
            broker.net.serve = self._local.cluster.requests.serve_for(self._local.id, broker)
            broker.metadata.on_change.append(self._local.cluster.changed)
        except Exception as error:  # noqa: BLE001  the test gets it
            self.error = error
            self.network.close_all()
            self.loop.call_soon(self.loop.stop)
        self.started.set()

    async def _open_tree(self, config: BrokerConfig, directory: str, ports: Ports) -> Tree:
        timeout_s = config.zookeeper_session_timeout_ms / 1000
        self.tree = self._local.cluster.tree.connect(timeout_s, self._reaches_tree)
        return self.tree

    def _reaches_tree(self) -> bool:
        network, me = self._local.cluster.network, self._local.id
        return not self.loop.is_paused and not network.is_cut(me, TREE) and not network.is_cut(TREE, me)

    def call(self, call: Callable[..., T], *args: Any) -> T:
        """Calls on the loop, from another thread. Returns the result."""

        async def run() -> T:
            return call(*args)

        return self.ask(run())

    def ask(self, work: Coroutine[Any, Any, T], timeout_s: float = STOP_S) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    async def stop(self) -> None:
        assert self.broker is not None
        await self.broker.stop()

    def end(self) -> None:
        """After a clean stop, or a start that failed."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def kill(self) -> None:
        if self.error is None:
            if self.tree is not None:
                self.tree.is_closed = True
            self.loop.kill(self.network.close_all)
        self._thread.join()
        if self.tree is not None:
            if len(self._local.cluster.ids) == 1:  # the tree of a single node ends with it, and so do its sessions
                self._local.cluster.tree.end_session(self.tree.session)
            self._local.cluster.tree.closed(self.tree)
        if self.broker is not None:
            for log_dir in self.broker.dirs.dirs.values():
                log_dir.lock.release()
        self.files.end()


class LocalBroker:
    """`cluster.broker(1)`: what a test does to one broker."""

    def __init__(self, cluster: "LocalCluster", id: int, settings: dict[str, str]) -> None:
        self.cluster, self.id, self.settings = cluster, id, settings
        self.state = BrokerState.STOPPED
        self._life: _Life | None = None
        self._lives = 0
        self._ended: list[_Life] = []  # killed ones: their tasks end with the cluster

    def __repr__(self) -> str:
        return f"<broker {self.id}, {self.state.value}, {self.address}>"

    @property
    def address(self) -> str:
        """host:port, the same after a restart."""
        return self.cluster.addresses[self.id]

    @property
    def is_running(self) -> bool:
        """Whether it runs, and is not paused."""
        return self.state is BrokerState.RUNNING

    @property
    def inside(self) -> Broker:
        """The broker itself. Its parts belong to the loop of its thread: use `run` to work with them."""
        broker = self._living.broker
        assert broker is not None
        return broker

    @property
    def _living(self) -> _Life:
        if self._life is None:
            raise ClusterError(
                f"broker {self.id} is {self.state.value}: start it with cluster.broker({self.id}).start()"
            )
        return self._life

    def run(self, call: Callable[[Broker], T]) -> T:
        """Call a function with the broker, in its thread, and get its result."""
        life = self._living
        if self.state is BrokerState.PAUSED:
            raise ClusterError(f"broker {self.id} is paused: resume it with cluster.broker({self.id}).resume()")
        return life.call(call, self.inside)

    # Life and death

    def begin(self) -> None:
        """Start without waiting."""
        if self._life is not None:
            raise ClusterError(f"broker {self.id} is {self.state.value} already")
        self._lives += 1
        self._life = _Life(self, self._lives)
        self._life.start()

    def wait_until_started(self) -> None:
        life = self._living
        if not life.started.wait(START_S):
            raise ClusterError(f"broker {self.id} has not started in {START_S:g} s")
        if life.error is not None:
            self._life = None
            life.kill()
            raise ClusterError(f"broker {self.id} cannot start: {life.error}") from life.error
        self.state = BrokerState.RUNNING

    def start(self) -> None:
        """Start it again after `stop` or `kill`. It serves when this returns."""
        self.begin()
        self.wait_until_started()
        self.cluster.wait_until_joined(self.id)

    def kill(self) -> None:
        """As SIGKILL."""
        life = self._living
        self._life, self.state = None, BrokerState.KILLED
        life.kill()
        self._ended.append(life)
        self.cluster.changed()

    def stop(self) -> None:
        """As SIGTERM: a clean stop."""
        life = self._living
        self.resume()
        life.ask(life.stop())
        self._life, self.state = None, BrokerState.STOPPED
        life.end()
        self.cluster.changed()

    def restart(self) -> None:
        """Stop it cleanly if it runs, and start it. It serves when this returns."""
        if self._life is not None:
            self.stop()
        self.start()

    def pause(self) -> None:
        """As SIGSTOP: it does nothing, and its connections stay open."""
        self._living.loop.pause()
        self.state = BrokerState.PAUSED

    def resume(self) -> None:
        """As SIGCONT. It does nothing to a broker that is not paused."""
        self._living.loop.resume()
        self.state = BrokerState.RUNNING

    # For the cluster

    def call(self, call: Callable[..., T], *args: Any) -> T:
        return self._living.call(call, *args)

    @property
    def loop(self) -> BrokerLoop:
        return self._living.loop

    @property
    def network(self) -> BrokerNetwork:
        return self._living.network

    def end(self) -> None:
        """The cluster ends."""
        if self._life is not None:
            self.kill()
        for life in self._ended:
            life.loop.close_orphans()
        self._ended.clear()
