"""One simulation: a cluster, clients and faults, all from one seed; then what must hold is checked."""

import asyncio
import hashlib
from random import Random

from leadline.model import TopicPartition
from leadline.simulation import checkers
from leadline.simulation.checkers import Stored
from leadline.simulation.client import NoAnswer, NotServed, SimulatedClient
from leadline.simulation.client_history import ClientHistory
from leadline.simulation.faults import Faults
from leadline.simulation.outcome import SimulationOutcome
from leadline.simulation.ports import VirtualTime
from leadline.simulation.producers import IdempotentProducer
from leadline.simulation.virtual_cluster import VirtualCluster
from leadline.simulation.virtual_disk import MountedDisk, VirtualDisk
from leadline.simulation.virtual_loop import Process
from leadline.wire.messages import CreateTopicsRequest, CreateTopicsResponse

TOPIC = "records"
SETTLE_S = 60.0  # after the last fault


class Simulation:
    def __init__(self, seed: int, brokers: int = 3, partitions: int = 4, producers: int = 3, length_s: float = 60.0):
        self.seed, self.length_s = seed, length_s
        self.is_synced = Random(f"{seed} kind").random() < 0.5  # each append is on disk before it is acknowledged
        settings = {"log.flush.interval.messages": "1"} if self.is_synced else {}
        self.cluster = VirtualCluster(seed, brokers, settings)
        self.partitions = [TopicPartition(TOPIC, n) for n in range(partitions)]
        self.history = ClientHistory()
        self.story: list[str] = []
        self._producers = producers
        self.clock = VirtualTime(self.cluster.loop)
        self.faults = Faults(self.cluster, Random(f"{seed} faults"), self.tell, self.is_synced)

    def tell(self, line: str) -> None:
        self.story.append(f"{self.cluster.loop.time():10.6f}  {line}")

    def client(self, name: str) -> tuple[Process, SimulatedClient]:
        cluster = self.cluster
        network = cluster.network.of(name, MountedDisk(VirtualDisk(self.clock), name))
        brokers = [host.name for host in cluster.hosts.values()]
        return Process(name), SimulatedClient(name, network, brokers, Random(f"{self.seed} {name}"))

    def run(self) -> SimulationOutcome:
        loop = self.cluster.loop
        try:
            violations = loop.run_until_complete(self._run())
            violations += [f"a callback failed: {failure}" for failure in loop.failures]
        finally:
            loop.close()
        digest = hashlib.sha256("\n".join(self.story).encode())
        digest.update(repr([(a.value, a.offset) for a in self.history.attempts]).encode())
        digest.update(repr((loop.steps, loop.time())).encode())
        return SimulationOutcome(
            self.seed, violations, self.story, loop.time(), loop.steps, self.faults.counts,
            sum(a.offset is not None for a in self.history.attempts), len(self.history.attempts),
            digest.hexdigest()[:16], self.history.errors,
        )  # fmt: skip

    async def _run(self) -> list[str]:
        cluster, loop = self.cluster, self.cluster.loop
        for host in cluster.hosts.values():
            await host.start()
        process, admin = self.client("admin")
        await loop.spawn(process, self._create(admin))
        producers, tasks = [], []
        for n in range(self._producers):
            process, client = self.client(f"producer-{n}")
            producer = IdempotentProducer(client, self.history, self.clock)
            producers.append(producer)
            tasks.append(loop.spawn(process, producer.run(self.partitions, 0.3)))
        await self.faults.run(loop.time() + self.length_s, 3.0)
        self.tell("the faults are over")
        healed_s = loop.time()
        await asyncio.sleep(SETTLE_S)
        violations = [
            f"stalled: nothing was acknowledged in {tp} since {self.history.acknowledged_s.get(tp, 0):.3f} s"
            for tp in self.partitions
            if self.history.acknowledged_s.get(tp, 0) < healed_s + SETTLE_S - 10
        ]
        for producer in producers:
            producer.is_stopping = True
        done, pending = await asyncio.wait(tasks, timeout=30.0)
        violations += [f"stalled: {len(pending)} producers do not end"] if pending else []
        for task in tasks:
            if task in done:
                task.result()
        process, reader = self.client("reader")
        stored = await loop.spawn(process, self._read_all(reader))
        await asyncio.sleep(2.0)
        brokers = [host.broker for host in cluster.hosts.values() if host.broker is not None]
        return violations + list(checkers.violations(self.history, stored, brokers))

    async def _create(self, admin: SimulatedClient) -> None:
        topic = CreateTopicsRequest.CreatableTopic(
            name=TOPIC, num_partitions=len(self.partitions), replication_factor=3
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        while (await admin.ask_any(request, CreateTopicsResponse, 5)).topics[0].error_code:
            await admin.back_off()

    async def _read_all(self, reader: SimulatedClient) -> Stored:
        return {tp: await self._read(reader, tp) for tp in self.partitions}

    async def _read(self, reader: SimulatedClient, tp: TopicPartition) -> dict[int, bytes]:
        values: dict[int, bytes] = {}
        offset, end = 0, -1
        while offset != end:
            try:
                part = await reader.fetch(tp, offset, is_committed=False)
            except (NoAnswer, NotServed):
                await reader.back_off()
                continue
            if part.error_code:
                reader.forget_leader(tp)
                await reader.back_off()
                continue
            end = part.high_watermark
            records = part.records or b""
            assert isinstance(records, bytes | bytearray | memoryview)
            values |= checkers.values_in(records)
            offset = checkers.end_of(records, offset)
        return values
