"""Brokers on simulated hosts: started, stopped, killed, paused, cut off and powered off as a scenario wants it."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.coordination import znodes
from leadline.coordination.tree import Tree
from leadline.model import Offset, TopicPartition
from leadline.simulation.checkers.running import ProcessMarks, RunningChecks
from leadline.simulation.disk_contents import stored_end
from leadline.simulation.moments import Moments
from leadline.simulation.ports import SeededChance, VirtualTime
from leadline.simulation.virtual_disk import MountedDisk, VirtualDisk
from leadline.simulation.virtual_loop import Process, VirtualLoop
from leadline.simulation.virtual_network import VirtualNetwork
from leadline.simulation.virtual_tree import Ensemble, VirtualTree

PORT = 9092
SETTINGS = {
    "zookeeper.connect": "simulated",
    "zookeeper.session.timeout.ms": "6000",
    "log.dirs": "/data",
    "log.cleaner.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class Host:
    """A machine with a disk. At most one broker runs on it at a time."""

    def __init__(self, cluster: "VirtualCluster", id: int, settings: Mapping[str, str]) -> None:
        self._cluster, self.id, self.name = cluster, id, f"broker-{id}"
        self._settings = (
            dict(SETTINGS)
            | dict(settings)
            | {
                "broker.id": str(id),
                "listeners": f"PLAINTEXT://{self.name}:{PORT}",
                "advertised.listeners": f"PLAINTEXT://{self.name}:{PORT}",
            }
        )
        self.time = VirtualTime(cluster.loop)
        self.disk = VirtualDisk(self.time)
        self.lives = 0
        self.process: Process | None = None
        self.broker: Broker | None = None
        self.starting: asyncio.Task[None] | None = None
        self.moments = Moments()
        self._files = MountedDisk(self.disk, self.name)
        self._stored_ends: dict[TopicPartition, Offset] = {}  # while nothing runs here

    @property
    def is_running(self) -> bool:
        return self.process is not None

    @property
    def _running(self) -> tuple[Process, Broker | None]:
        assert self.process is not None, f"nothing runs on {self.name}"
        return self.process, self.broker

    def start(self) -> "asyncio.Task[None]":
        assert self.process is None, f"{self.name} runs"
        self.lives += 1
        self.process = Process(f"{self.name}.{self.lives}")
        files = self._files = MountedDisk(self.disk, self.process.name, self.moments.came)
        ports = Ports(
            time=self.time,
            files=files,
            network=self._cluster.network.of(self.name, files),
            chance=SeededChance(f"{self._cluster.seed} {self.process.name}"),
            open_tree=self._open_tree,
        )
        self.starting = self._cluster.loop.spawn(self.process, self._start(ports))
        return self.starting

    async def _start(self, ports: Ports) -> None:
        broker = self.broker = Broker(broker_settings(self._settings), ports)
        await broker.start()
        process, checks = self.process, self._cluster.checks
        if process is not None and checks is not None:
            process.after_step = partial(checks.stepped, broker, ProcessMarks())

    async def _open_tree(self, config: BrokerConfig, directory: str, ports: Ports) -> Tree:
        process, _ = self._running
        timeout_s = config.zookeeper_session_timeout_ms / 1000
        return VirtualTree(self._cluster.ensemble, self.name, process, timeout_s)

    def log_end(self, tp: TopicPartition) -> Offset:
        """Where a log ends. If the broker is down, starts, or has lost its directory, its disk is asked."""
        log = None if self.broker is None else self.broker.dirs.logs.get(tp)
        if log is not None:
            return log.log_end
        if self.broker is not None:
            return stored_end(self.disk, tp)
        if tp not in self._stored_ends:
            self._stored_ends[tp] = stored_end(self.disk, tp)
        return self._stored_ends[tp]

    def stop_writing(self) -> None:
        """From now on the disk takes nothing of this process."""
        self._files.end()

    def kill(self) -> None:
        """As SIGKILL: the system keeps what the process wrote."""
        process, _ = self._running
        self._cluster.loop.kill(process)
        self._files.end()
        self._cluster.network.killed(process)
        self.process = self.broker = None
        self._stored_ends.clear()

    def power_off(self, chance: Random) -> None:
        self._cluster.network.power_off(self.name)
        self.kill()
        self.lose_unsynced(chance)

    def power_on(self) -> None:
        self._cluster.network.power_on(self.name)

    def replace_disk(self) -> None:
        """Puts an empty disk in its place. Nothing runs here."""
        assert self.process is None, f"{self.name} runs"
        self.disk = VirtualDisk(self.time)
        self._stored_ends.clear()

    def lose_unsynced(self, chance: Random) -> None:
        """Drops what was not synced before the disk failed. Nothing runs here."""
        assert self.process is None, f"{self.name} runs"
        self.disk.fail_power(chance)
        self._stored_ends.clear()

    def slow_down(self, times: float) -> None:
        """Make the disk slower by a factor, until the process ends."""
        self._running[0].slowness = times

    def pause(self) -> None:
        self._cluster.loop.pause(self._running[0])

    def resume(self) -> None:
        self._cluster.loop.resume(self._running[0])

    async def stop(self) -> None:
        """A clean stop."""
        process, broker = self._running
        assert broker is not None
        await self._cluster.loop.spawn(process, broker.stop())
        self.kill()


class Delays:
    """The delays of the network and of threads. Each link draws by itself, so one does not change another."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._links: dict[tuple[str, str], Callable[[], float]] = {}
        self._threads = Random(f"{seed} threads").random
        self.slow: dict[tuple[str, str], float] = {}  # links with additional delay

    def network_s(self, source: str, target: str) -> float:
        draw = self._links.get((source, target))
        if draw is None:
            draw = self._links[source, target] = Random(f"{self._seed} {source} {target}").random
        return 0.0001 + 0.0009 * draw() + self.slow.get((source, target), 0.0)

    def thread_s(self) -> float:
        return 0.0002 + 0.0018 * self._threads()


class VirtualCluster:
    """`variant`: other delays; everything else follows from the seed."""

    def __init__(
        self, seed: int, brokers: int = 3, settings: Mapping[str, str] | None = None, variant: int = 0
    ) -> None:
        self.seed = seed
        delays = self.delays = Delays(f"{seed} {variant}")
        self.loop = VirtualLoop(delays.thread_s)
        self.network = VirtualNetwork(self.loop, delays.network_s)
        self.ensemble = Ensemble(self.loop, self.network, VirtualTime(self.loop))
        self.checks: RunningChecks | None = None
        self.hosts = {id: Host(self, id, settings or {}) for id in range(1, brokers + 1)}

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.hosts.values()]

    def controller_name(self) -> str | None:
        """As the tree has it; None while there is none."""
        node = self.ensemble.nodes.get(znodes.CONTROLLER)
        return None if node is None else self.hosts[znodes.decode_controller(node.data).broker].name
