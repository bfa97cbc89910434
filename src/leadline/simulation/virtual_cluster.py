"""Brokers on simulated hosts: started, stopped, killed, paused, cut off and powered off as a scenario wants it."""

import asyncio
from collections.abc import Mapping
from random import Random

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.coordination.tree import Tree
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
        self._files = MountedDisk(self.disk, self.name)

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
        files = self._files = MountedDisk(self.disk, self.process.name)
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
        self.broker = Broker(broker_settings(self._settings), ports)
        await self.broker.start()

    async def _open_tree(self, config: BrokerConfig, directory: str, ports: Ports) -> Tree:
        process, _ = self._running
        timeout_s = config.zookeeper_session_timeout_ms / 1000
        return VirtualTree(self._cluster.ensemble, self.name, process, timeout_s)

    def kill(self) -> None:
        """As SIGKILL: the system keeps what the process wrote."""
        process, _ = self._running
        self._cluster.loop.kill(process)
        self._files.end()
        self._cluster.network.killed(process)
        self.process = self.broker = None

    def power_off(self, chance: Random) -> None:
        self._cluster.network.power_off(self.name)
        self.kill()
        self.disk.fail_power(chance)

    def power_on(self) -> None:
        self._cluster.network.power_on(self.name)

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


class VirtualCluster:
    def __init__(self, seed: int, brokers: int = 3, settings: Mapping[str, str] | None = None) -> None:
        self.seed = seed
        self.chance = Random(f"{seed} world")
        self.loop = VirtualLoop(lambda: self.chance.uniform(0.0002, 0.002))
        self.network = VirtualNetwork(self.loop, lambda source, target: self.chance.uniform(0.0001, 0.001))
        self.ensemble = Ensemble(self.loop, self.network, VirtualTime(self.loop))
        self.hosts = {id: Host(self, id, settings or {}) for id in range(1, brokers + 1)}

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.hosts.values()]
