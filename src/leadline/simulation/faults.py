"""The faults of a simulation, as its scenario plans them. Each ends by itself after a while."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

from leadline.simulation.checkers.pauses import CleanStop
from leadline.simulation.disk_faults import DISK_FAILS, DISK_FULL, DISK_KINDS, LOSE_DISK, DiskFaults
from leadline.simulation.invariants import Invariants
from leadline.simulation.scenario import POWER_CUT, PlannedFault
from leadline.simulation.virtual_cluster import Host, VirtualCluster
from leadline.simulation.virtual_disk import FSYNC, WRITE
from leadline.simulation.virtual_tree import HOST as ZOOKEEPER

HOST_KINDS = (  # each is a method of Faults
    "kill", "pause", "cut_off", "cut_one_way", "clean_stop", "lose_zookeeper", "late_watches", "clock_jump",
    "late_proposal", "slow_links", "drop_connections", "cut_from_clients", "zookeeper_down",
)  # fmt: skip
KINDS = (*HOST_KINDS, *DISK_KINDS)
SYNCED_KINDS = (*KINDS, POWER_CUT)  # power may go only where each append is synced: without, Kafka promises nothing
PATIENCE_S = 5.0  # to wait for a moment
SOON_S = 0.005  # after it
SLOW_DISK = 30.0  # times slower
LATE_ANSWERS_S = 0.5  # at most: a clean stop must not pause acknowledgements for longer than a second
SLOW_LINK_S = 2.0  # at most
DROPS = 5  # at most
BEFORE_PROPOSAL_S = 1.5  # a leader that has not heard a follower for a little longer takes it out of the ISR
STRIKING_KINDS = (POWER_CUT, DISK_FAILS, DISK_FULL)  # they begin within the call that makes their moment


class Faults:
    """`tell` gets a line for each thing that happens. A fault draws from the chance that it is given."""

    def __init__(
        self, cluster: VirtualCluster, tell: Callable[[str], None], invariants: Invariants, *, is_synced: bool = False
    ) -> None:
        self._cluster, self._tell, self._invariants = cluster, tell, invariants
        self.disks = DiskFaults(cluster, tell, invariants, self._start, is_synced=is_synced)
        self.counts: dict[str, int] = {}
        self._is_disk_lost = False  # of a broker that is still in sync: nothing else goes wrong
        self._busy: set[int] = set()  # hosts with a fault of their own

    async def run(self, planned: Sequence[PlannedFault]) -> None:
        """Returns when the last one has ended."""
        loop = self._cluster.loop
        began_s, running = loop.time(), []
        for fault in planned:
            await asyncio.sleep(max(began_s + fault.at_s - loop.time(), 0))
            host = self._cluster.hosts[fault.broker]
            if host.id not in self._busy and host.is_running and not self._is_disk_lost:
                running.append(asyncio.ensure_future(self._play(host, fault)))
        for task in running:
            await task

    async def _play(self, host: Host, fault: PlannedFault) -> None:
        self._busy.add(host.id)
        faults = self.disks if fault.kind in DISK_KINDS else self
        kind: Callable[[Host, Random], Awaitable[None]] = getattr(faults, fault.kind)
        try:
            chance = fault.chance(self._cluster.seed)
            if await self._is_time(host, fault, chance):
                self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
                self._is_disk_lost = fault.kind == LOSE_DISK
                await kind(host, chance)
        finally:
            self._busy.discard(host.id)
            self._is_disk_lost = self._is_disk_lost and fault.kind != LOSE_DISK

    async def _is_time(self, host: Host, fault: PlannedFault, chance: Random) -> bool:
        """Wait for the moment of a fault. False if it did not come, or the broker runs no more."""
        if fault.moment is not None:
            if not await host.moments.wait_for(fault.moment, PATIENCE_S, partial(self._strike, host, fault.kind)):
                return False
            self._tell(f"{host.name}: {fault.moment}")
            if fault.kind not in STRIKING_KINDS and chance.random() < 0.5:
                await asyncio.sleep(chance.uniform(0, SOON_S))
        if fault.kind == LOSE_DISK and not self._can_lose_disk(host):
            return False
        return host.is_running

    def _strike(self, host: Host, kind: str) -> None:
        """Within the call that makes the moment."""
        if kind == POWER_CUT:
            host.stop_writing()
        elif kind == DISK_FAILS:
            self.disks.fail(host, WRITE, FSYNC)
        elif kind == DISK_FULL:
            self.disks.fill(host)

    def _can_lose_disk(self, host: Host) -> bool:
        are_well = all(other.is_running for other in self._cluster.hosts.values()) and self._busy == {host.id}
        return are_well and self.disks.can_lose_disk(host)

    async def _start(self, host: Host) -> None:
        while True:
            self._tell(f"{host.name} starts")
            try:
                await host.start()
            except Exception as error:  # noqa: BLE001 - reported, and tried again, as an operator would
                self._tell(f"{host.name} fails to start: {type(error).__name__}: {error}")
                host.kill()
                await asyncio.sleep(2.0)
            else:
                self._invariants.opened(host)
                return

    async def kill(self, host: Host, chance: Random) -> None:
        self._tell(f"{host.name} is killed")
        host.kill()
        self._invariants.crashed(host)
        await asyncio.sleep(chance.uniform(0, 8.0))
        await self._start(host)

    async def power_cut(self, host: Host, chance: Random) -> None:
        self._tell(f"{host.name} loses its power")
        host.power_off(chance)
        self._invariants.crashed(host)
        await asyncio.sleep(chance.uniform(0, 8.0))
        host.power_on()
        await self._start(host)

    async def clean_stop(self, host: Host, chance: Random) -> None:
        if host.starting is not None and not host.starting.done():
            return
        self._tell(f"{host.name} is stopped")
        await host.stop()
        await asyncio.sleep(chance.uniform(0, 4.0))
        await self._start(host)

    async def stop_while_all_is_well(self, host: Host, chance: Random) -> CleanStop:
        """Stops a broker, perhaps with a slow disk and a controller that answers late. Returns when it serves again."""
        began_s = self._cluster.loop.time()
        host.slow_down(SLOW_DISK if chance.random() < 0.5 else 1.0)
        slow, controller = self._cluster.delays.slow, self._cluster.controller_name()
        if chance.random() < 0.5 and controller is not None:
            delay_s = slow[controller, host.name] = chance.uniform(0.1, LATE_ANSWERS_S)
            self._tell(f"{host.name} hears {controller} {delay_s:.1f} s late")
        await self.clean_stop(host, chance)
        slow.pop((controller or "", host.name), None)
        return CleanStop(host.name, began_s, self._cluster.loop.time())

    async def pause(self, host: Host, chance: Random) -> None:
        self._tell(f"{host.name} is paused")
        host.pause()
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"{host.name} resumes")
        host.resume()

    async def cut_off(self, host: Host, chance: Random) -> None:
        """Cut off from all others, or from some."""
        others = [other for other in self._cluster.names if other != host.name]
        cut = [other for other in others if chance.random() < 0.7] or others
        self._tell(f"{host.name} is cut off from {', '.join(cut)}")
        for other in cut:
            self._cluster.network.cut(host.name, other)
            self._cluster.network.cut(other, host.name)
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"{host.name} is connected again")
        for other in cut:
            self._cluster.network.heal(host.name, other)
            self._cluster.network.heal(other, host.name)

    async def cut_one_way(self, host: Host, chance: Random) -> None:
        other = chance.choice([name for name in self._cluster.names if name != host.name])
        source, target = (host.name, other) if chance.random() < 0.5 else (other, host.name)
        self._tell(f"nothing from {source} reaches {target}")
        self._cluster.network.cut(source, target)
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"{source} reaches {target} again")
        self._cluster.network.heal(source, target)

    async def slow_links(self, host: Host, chance: Random) -> None:
        """To and from some brokers and clients, or one way."""
        peers = [peer for peer in self._cluster.network.peers_of(host.name) if chance.random() < 0.5]
        delay_s, ways = chance.uniform(0.01, SLOW_LINK_S), chance.choice(["to", "from", "to and from"])
        links = [(host.name, peer) for peer in peers] if "to" in ways else []
        links += [(peer, host.name) for peer in peers] if "from" in ways else []
        self._tell(f"links of {host.name} {ways} {', '.join(peers)} are {delay_s:.1f} s slower")
        slow = self._cluster.delays.slow
        slow.update(dict.fromkeys(links, delay_s))
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"links of {host.name} are as quick as before")
        for link in links:
            slow.pop(link, None)  # another fault may have ended it

    async def drop_connections(self, host: Host, chance: Random) -> None:
        """Both ends live, and do not know what the other one has received."""
        for _ in range(chance.randint(1, DROPS)):
            count = self._cluster.network.drop(host.name, lambda: chance.random() < 0.5)
            self._tell(f"{host.name} loses {count} connections")
            await asyncio.sleep(chance.uniform(0, 2.0))

    async def cut_from_clients(self, host: Host, chance: Random) -> None:
        """Other brokers are reached. Answers may be lost alone."""
        network, brokers = self._cluster.network, self._cluster.names
        clients = [peer for peer in network.peers_of(host.name) if peer not in brokers and chance.random() < 0.7]
        links = [(host.name, client) for client in clients]
        links += [(client, host.name) for client in clients] if chance.random() < 0.5 else []
        self._tell(
            f"{host.name} {'does not reach' if len(links) == len(clients) else 'is cut off from'} {', '.join(clients)}"
        )
        for link in links:
            network.cut(*link)
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"{host.name} reaches its clients again")
        for link in links:
            network.heal(*link)

    async def late_proposal(self, host: Host, chance: Random) -> None:
        """A broker loses a follower. When it is about to propose an ISR without it, it reaches the controller late."""
        controller = self._cluster.controller_name()
        if controller is None:
            return
        names = [name for name in self._cluster.names if name != controller]
        leader = host.name if host.name in names else chance.choice(names)
        follower, delay_s = chance.choice([name for name in names if name != leader]), chance.uniform(0.5, 2.5)
        self._tell(f"{leader} is cut off from {follower}")
        network, slow = self._cluster.network, self._cluster.delays.slow
        network.cut(leader, follower)
        network.cut(follower, leader)
        await asyncio.sleep(BEFORE_PROPOSAL_S)
        self._tell(f"{leader} reaches {controller} {delay_s:.1f} s late")
        slow[leader, controller] = delay_s
        await asyncio.sleep(chance.uniform(3.0, 6.0))
        self._tell(f"{leader} is connected to {follower} again, and reaches {controller} at once")
        network.heal(leader, follower)
        network.heal(follower, leader)
        slow.pop((leader, controller), None)  # another fault may have ended it

    async def lose_zookeeper(self, host: Host, chance: Random) -> None:
        self._tell(f"{host.name} does not reach ZooKeeper")
        self._cluster.network.cut(host.name, ZOOKEEPER)
        self._cluster.network.cut(ZOOKEEPER, host.name)
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"{host.name} reaches ZooKeeper again")
        self._cluster.network.heal(host.name, ZOOKEEPER)
        self._cluster.network.heal(ZOOKEEPER, host.name)

    async def zookeeper_down(self, host: Host, chance: Random) -> None:
        """For all brokers. Sessions live on: the next leader of the ensemble gives each its whole time."""
        self._tell("ZooKeeper is down")
        self._cluster.ensemble.is_down = True
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell("ZooKeeper is up again")
        self._cluster.ensemble.is_down = False

    async def late_watches(self, host: Host, chance: Random) -> None:
        """Answers of ZooKeeper arrive late, in order."""
        delay_s = chance.uniform(0.2, 2.0)
        self._tell(f"{host.name} hears of changes {delay_s:.1f} s late")
        self._cluster.delays.slow[ZOOKEEPER, host.name] = delay_s
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"{host.name} hears of changes at once")
        self._cluster.delays.slow.pop((ZOOKEEPER, host.name), None)  # another fault may have ended it

    async def clock_jump(self, host: Host, chance: Random) -> None:
        """The wall clock, by up to an hour, and back."""
        jump_ms = chance.choice([-1, 1]) * chance.choice([500, 10_000, 3_600_000])
        self._tell(f"the clock of {host.name} jumps by {jump_ms / 1000:.1f} s")
        host.time.skew_ms += jump_ms
        await asyncio.sleep(chance.uniform(0, 12.0))
        self._tell(f"the clock of {host.name} is right again")
        host.time.skew_ms -= jump_ms
