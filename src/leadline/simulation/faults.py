"""What goes wrong in a simulation, drawn from its chance. Each fault ends by itself after a while."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from leadline.simulation.virtual_cluster import Host, VirtualCluster
from leadline.simulation.virtual_tree import HOST as ZOOKEEPER

Fault = Callable[[], Awaitable[None]]


class Faults:
    """`tell` gets a line for each thing that happens."""

    def __init__(
        self, cluster: VirtualCluster, chance: Random, tell: Callable[[str], None], may_cut_power: bool
    ) -> None:
        self._cluster, self._chance, self._tell = cluster, chance, tell
        self._may_cut_power = may_cut_power
        self.counts: dict[str, int] = {}
        self._busy: set[int] = set()  # hosts with a fault of their own

    async def run(self, until_s: float, pause_s: float) -> None:
        kinds: list[Callable[[Host], Awaitable[None]]] = [
            self.kill, self.pause, self.cut_off, self.cut_one_way, self.clean_stop, self.lose_zookeeper,
            self.power_cut if self._may_cut_power else self.kill,
        ]  # fmt: skip
        running: list[asyncio.Task[None]] = []
        while self._cluster.loop.time() < until_s:
            await asyncio.sleep(self._chance.uniform(0, 2 * pause_s))
            free = [host for host in self._cluster.hosts.values() if host.id not in self._busy and host.is_running]
            if not free:
                continue
            host, kind = self._chance.choice(free), self._chance.choice(kinds)
            running.append(asyncio.ensure_future(self._play(host, kind)))
        for task in running:
            await task

    async def _play(self, host: Host, kind: Callable[[Host], Awaitable[None]]) -> None:
        self._busy.add(host.id)
        name = getattr(kind, "__name__", "")
        self.counts[name] = self.counts.get(name, 0) + 1
        try:
            await kind(host)
        finally:
            self._busy.discard(host.id)

    async def _while(self, longest_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(0, longest_s))

    async def _start(self, host: Host) -> None:
        while True:
            self._tell(f"{host.name} starts")
            try:
                await host.start()
            except Exception as error:  # noqa: BLE001 - told, and tried again, as an operator would
                self._tell(f"{host.name} fails to start: {type(error).__name__}: {error}")
                host.kill()
                await asyncio.sleep(2.0)
            else:
                return

    async def kill(self, host: Host) -> None:
        self._tell(f"{host.name} is killed")
        host.kill()
        await self._while(8.0)
        await self._start(host)

    async def power_cut(self, host: Host) -> None:
        self._tell(f"{host.name} loses its power")
        host.power_off(self._chance)
        await self._while(8.0)
        host.power_on()
        await self._start(host)

    async def clean_stop(self, host: Host) -> None:
        if host.starting is not None and not host.starting.done():
            return
        self._tell(f"{host.name} is stopped")
        await host.stop()
        await self._while(4.0)
        await self._start(host)

    async def pause(self, host: Host) -> None:
        self._tell(f"{host.name} is paused")
        host.pause()
        await self._while(12.0)
        self._tell(f"{host.name} goes on")
        host.resume()

    async def cut_off(self, host: Host) -> None:
        """From everybody, or from some."""
        others = [other for other in self._cluster.names if other != host.name]
        cut = [other for other in others if self._chance.random() < 0.7] or others
        self._tell(f"{host.name} is cut off from {', '.join(cut)}")
        for other in cut:
            self._cluster.network.cut(host.name, other)
            self._cluster.network.cut(other, host.name)
        await self._while(12.0)
        self._tell(f"{host.name} is connected again")
        for other in cut:
            self._cluster.network.heal(host.name, other)
            self._cluster.network.heal(other, host.name)

    async def cut_one_way(self, host: Host) -> None:
        other = self._chance.choice([name for name in self._cluster.names if name != host.name])
        source, target = (host.name, other) if self._chance.random() < 0.5 else (other, host.name)
        self._tell(f"nothing from {source} reaches {target}")
        self._cluster.network.cut(source, target)
        await self._while(12.0)
        self._tell(f"{source} reaches {target} again")
        self._cluster.network.heal(source, target)

    async def lose_zookeeper(self, host: Host) -> None:
        self._tell(f"{host.name} does not reach ZooKeeper")
        self._cluster.network.cut(host.name, ZOOKEEPER)
        self._cluster.network.cut(ZOOKEEPER, host.name)
        await self._while(12.0)
        self._tell(f"{host.name} reaches ZooKeeper again")
        self._cluster.network.heal(host.name, ZOOKEEPER)
        self._cluster.network.heal(ZOOKEEPER, host.name)
