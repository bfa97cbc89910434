"""Faults of a broker's disk: it fills up, fails, is slow, or is lost with all its files.

    a full disk refuses writes; the directory stays online, and takes records again once there is room
    a disk that fails takes its directory offline; a broker without any directory ends, as `leadline start` ends it
    a broker that lost its disk comes back empty: what its ISR acknowledged is on the others

A disk is only lost while all other brokers are well and each of its partitions has another replica in sync. No other
fault begins before the controller has taken it out of the ISR. Kafka, too, loses records if an empty broker is the last
one in sync.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

from leadline.coordination import znodes
from leadline.model import BrokerId, TopicPartition
from leadline.simulation.invariants import Invariants
from leadline.simulation.virtual_cluster import Host, VirtualCluster
from leadline.simulation.virtual_disk import FSYNC, READ, TOTAL_BYTES, WRITE

DISK_FULL, DISK_FAILS, SLOW_DISK, LOSE_DISK = "disk_full", "disk_fails", "slow_disk", "lose_disk"
DISK_KINDS = (DISK_FULL, DISK_FAILS, SLOW_DISK, LOSE_DISK)  # each is a method of DiskFaults
LONGEST_S = 12.0
ENDING_S = 30.0  # for a broker to end whose only directory has failed
LEAVING_S = 30.0  # for a broker that is down to leave all ISRs
ROOM_BYTES = 4096  # at most, that a full disk has left
SLOWNESS = (10.0, 100.0, 1000.0)
START_WHILE_FULL = 0.3


class DiskFaults:
    """`start` starts a broker, however often that takes. `is_synced`: nothing is acknowledged before it is on disk."""

    def __init__(
        self,
        cluster: VirtualCluster,
        tell: Callable[[str], None],
        invariants: Invariants,
        start: Callable[[Host], Awaitable[None]],
        *,
        is_synced: bool,
    ) -> None:
        self._cluster, self._tell, self._invariants, self._start = cluster, tell, invariants, start
        self._is_synced = is_synced

    async def disk_full(self, host: Host, chance: Random) -> None:
        self.fill(host, chance.randint(0, ROOM_BYTES))
        self._tell(f"the disk of {host.name} is full")
        restarts, full_s = chance.random() < START_WHILE_FULL, chance.uniform(0, LONGEST_S)
        freed = self._cluster.loop.call_later(full_s, self._free, host)
        if restarts:
            await asyncio.sleep(chance.uniform(0, full_s))
            self._tell(f"{host.name} is killed")
            host.kill()
            self._invariants.crashed(host)
            await self._start(host)
        await asyncio.sleep(max(freed.when() - self._cluster.loop.time(), 0))
        if host.broker is not None and host.broker.failed.is_set():
            self._invariants.violated(f"bricked directory: the disk of {host.name} was full, and its directory failed")

    @staticmethod
    def fill(host: Host, room_bytes: int = 0) -> None:
        host.disk.total_bytes = host.disk.used_bytes + room_bytes

    def _free(self, host: Host) -> None:
        self._tell(f"the disk of {host.name} has room again")
        host.disk.total_bytes = TOTAL_BYTES

    async def disk_fails(self, host: Host, chance: Random) -> None:
        """Some of its operations fail, or all of them, until the fault ends."""
        operations = chance.choice([(READ,), (WRITE,), (FSYNC,), (WRITE, FSYNC), (READ, WRITE, FSYNC)])
        self.fail(host, *operations)
        self._tell(f"the disk of {host.name} fails: {', '.join(operations)}")
        broker = host.broker
        assert broker is not None
        try:
            async with asyncio.timeout(chance.uniform(0, LONGEST_S)):
                await broker.failed.wait()
        except TimeoutError:
            self._tell(f"the disk of {host.name} works again")
            host.disk.errors.clear()
        if broker.failed.is_set():
            await self._end_and_repair(host, chance)

    @staticmethod
    def fail(host: Host, *operations: str) -> None:
        host.disk.errors.update(dict.fromkeys(operations, errno.EIO))

    async def _end_and_repair(self, host: Host, chance: Random) -> None:
        self._tell(f"{host.name} has no log directory left, and ends")
        try:
            async with asyncio.timeout(ENDING_S):
                await host.stop()
        except TimeoutError:
            self._invariants.violated(f"stalled: {host.name} does not end, though its disk has failed")
            host.kill()
        except Exception as error:  # noqa: BLE001 - a violation, whatever it is
            self._invariants.violated(f"failed stop: {host.name}: {type(error).__name__}: {error}")
            host.kill()
        if self._is_synced:
            host.lose_unsynced(chance)
        await asyncio.sleep(chance.uniform(0, LONGEST_S))
        self._tell(f"the disk of {host.name} works again")
        host.disk.errors.clear()
        self._invariants.crashed(host)
        await self._start(host)

    async def slow_disk(self, host: Host, chance: Random) -> None:
        times = chance.choice(SLOWNESS)
        self._tell(f"the disk of {host.name} is {times:g} times slower")
        host.slow_down(times)
        await asyncio.sleep(chance.uniform(0, LONGEST_S))
        self._tell(f"the disk of {host.name} is as quick as before")
        host.slow_down(1.0)

    # A disk that is lost

    def can_lose_disk(self, host: Host) -> bool:
        """Whether each partition with several replicas has another one in sync. The others are lost with the disk."""
        return all(
            len(state.isr) > 1
            for tp, state in self._invariants.states()
            if host.id in state.isr and len(self._replicas(tp)) > 1
        )

    def _replicas(self, tp: TopicPartition) -> tuple[BrokerId, ...]:
        node = self._cluster.ensemble.nodes.get(znodes.topic_path(tp.topic))
        assignment = None if node is None else znodes.decode_topic(tp.topic, node.data).partitions.get(tp.partition)
        return () if assignment is None else assignment.replicas

    async def lose_disk(self, host: Host, chance: Random) -> None:
        """The broker is back at once, as another process that the controller knows as such, or after a while."""
        self._tell(f"{host.name} is killed, and its disk is lost")
        is_quick = chance.random() < 0.5 and self._cluster.controller_name() not in (None, host.name)
        host.kill()
        host.replace_disk()
        self._invariants.disk_lost(host)
        if is_quick:
            await self._start(host)
        until_s = self._cluster.loop.time() + LEAVING_S
        while self._invariants.is_excused(host) and self._cluster.loop.time() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if not is_quick:
            await self._start(host)
