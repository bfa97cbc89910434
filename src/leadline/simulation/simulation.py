"""One simulation: a cluster, clients and faults, all from one seed; then the laws are checked."""

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from random import Random

from leadline.errors import CorruptMessage
from leadline.model import TopicPartition
from leadline.runtime.garbage import collections_off
from leadline.simulation.checkers import at_rest, groups
from leadline.simulation.checkers.at_rest import StoredRecords
from leadline.simulation.checkers.pauses import paused_acknowledgements
from leadline.simulation.checkers.running import RunningChecks
from leadline.simulation.client import SimulatedClient
from leadline.simulation.client_history import ClientHistory
from leadline.simulation.cluster_state import moves_under_way, partitions_of_cluster
from leadline.simulation.faults import KINDS, SYNCED_KINDS, Faults
from leadline.simulation.group_offsets import committed_offsets
from leadline.simulation.invariants import Invariants
from leadline.simulation.outcome import SimulationOutcome
from leadline.simulation.ports import VirtualTime
from leadline.simulation.scenario import Scenario, scenario_of
from leadline.simulation.virtual_cluster import VirtualCluster
from leadline.simulation.virtual_disk import MountedDisk, VirtualDisk
from leadline.simulation.virtual_loop import Deadlock, Ended, Process
from leadline.simulation.workloads.by_name import workload_of
from leadline.simulation.workloads.group_member import Member
from leadline.simulation.workloads.reader import PollingReader
from leadline.simulation.workloads.transforming_producer import TransformingProducer
from leadline.simulation.workloads.workload import Workload, WorkloadContext
from leadline.wire.messages import CreateTopicsRequest, CreateTopicsResponse

TOPIC, TRANSFORMED = "records", "transformed"
SETTLE_S = 40.0  # after the last fault
LAST_REQUESTS_S = 30.0  # for workloads to stop
CLEAN_STOP_PAUSE_S = 1.0  # the longest that a clean stop may keep a record from being acknowledged
OPEN_TRANSACTIONS_S = 25.0  # after that the coordinator has aborted those whose producers have ended


class Simulation:
    """Plays a scenario, or that of a seed."""

    def __init__(self, scenario: Scenario | int) -> None:
        if isinstance(scenario, int):
            scenario = scenario_of(scenario, KINDS, SYNCED_KINDS)
        self.scenario, self.seed = scenario, scenario.seed
        settings = {
            "log.segment.bytes": str(scenario.segment_bytes),
            "replica.lag.time.max.ms": str(scenario.lag_ms),
        }
        if scenario.is_synced:
            settings["log.flush.interval.messages"] = "1"
        self.cluster = VirtualCluster(self.seed, scenario.brokers, settings, scenario.variant)
        self.partitions = [TopicPartition(TOPIC, n) for n in range(scenario.partitions)]
        is_transforming = any(name.startswith(TransformingProducer.prefix) for name in scenario.clients)
        self.outputs = [TopicPartition(TRANSFORMED, n) for n in range(2)] if is_transforming else []
        self.history = ClientHistory()
        self.story: list[str] = []
        self.on_line: Callable[[str], None] = lambda line: None
        self.clock = VirtualTime(self.cluster.loop)
        self.world = WorkloadContext(self.history, self.clock, self.partitions, self.outputs)
        self.invariants = Invariants(self.cluster, self.tell)
        checks = self.cluster.checks = RunningChecks(self.invariants.violated)
        self.cluster.ensemble.on_write = checks.written
        self.history.on_acknowledged = self.invariants.acknowledged
        self.faults = Faults(self.cluster, self.tell, self.invariants, is_synced=scenario.is_synced)

    @property
    def all_partitions(self) -> list[TopicPartition]:
        return self.partitions + self.outputs

    def tell(self, line: str) -> None:
        self.on_line(line)
        self.story.append(f"{self.cluster.loop.time():10.6f}  {line}")

    def client(self, name: str) -> tuple[Process, SimulatedClient]:
        cluster = self.cluster
        network = cluster.network.of(name, MountedDisk(VirtualDisk(self.clock), name))
        brokers = [host.name for host in cluster.hosts.values()]
        return Process(name), SimulatedClient(name, network, brokers, Random(f"{self.seed} {name}"))

    def run(self, until: str | None = None) -> SimulationOutcome:
        """`until`: a law. Once it is seen to be broken, nothing more is played.

        The cycles of a minute take some megabytes: they are collected afterwards. So nothing depends on when Python
        collects them, either.
        """
        with collections_off():
            return self._play(until)

    def _play(self, until: str | None) -> SimulationOutcome:
        loop = self.cluster.loop
        self.invariants.on_violation = lambda text: loop.end() if until and text.startswith(until) else None
        try:
            violations = loop.run_until_complete(self._run())
        except Ended:
            violations = []
        except Deadlock as error:
            violations = [f"stalled: {error}"]
        except CorruptMessage as error:
            violations = [f"unreadable records: {error}"]
        finally:
            loop.close()
        violations = self.invariants.violations + violations
        violations += [f"a callback failed: {failure}" for failure in loop.failures]
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
        await loop.spawn(process, self._create_topics(admin))
        workloads: dict[Workload, asyncio.Task[None]] = {}
        for name in self.scenario.clients:
            process, client = self.client(name)
            workload = workload_of(client, self.world)
            workloads[workload] = loop.spawn(process, workload.run())
        ends_s = loop.time() + self.scenario.length_s
        await self.faults.run(self.scenario.faults)
        await asyncio.sleep(max(ends_s - loop.time(), 0))
        self.tell("the faults are over")
        healed_s, self.world.is_calm = loop.time(), True
        await asyncio.sleep(SETTLE_S)
        violations = self._stalled(healed_s) + self._unsettled(list(workloads))
        chance = Random(f"{self.seed} stop")
        stop = await self.faults.stop_while_all_is_well(cluster.hosts[chance.randint(1, len(cluster.hosts))], chance)
        violations += await self._end(workloads)
        violations += paused_acknowledgements(self.history, stop)
        process, reader = self.client("reader")
        reading = loop.spawn(process, self._read_all(reader, list(workloads)))
        await asyncio.wait([reading], timeout=LAST_REQUESTS_S)
        if not reading.done():
            return [*violations, "stalled: stored records cannot be read"]
        records = reading.result()
        await asyncio.sleep(2.0)
        for host in cluster.hosts.values():
            self.invariants.opened(host)
        brokers = [host.broker for host in cluster.hosts.values() if host.broker is not None]
        return violations + list(at_rest.violations(self.history, records, brokers))

    async def _end(self, workloads: "dict[Workload, asyncio.Task[None]]") -> list[str]:
        """Ends the workloads: writers first, so that readers can read everything."""
        readers: dict[Workload, asyncio.Task[None]] = {
            w: task for w, task in workloads.items() if isinstance(w, PollingReader)
        }
        writers = {w: task for w, task in workloads.items() if w not in readers}
        violations = await self._end_all(writers)
        await asyncio.sleep(OPEN_TRANSACTIONS_S)
        return violations + await self._end_all(readers)

    async def _end_all(self, workloads: "dict[Workload, asyncio.Task[None]]") -> list[str]:
        if not workloads:
            return []
        for workload in workloads:
            workload.stop()
        await asyncio.wait(workloads.values(), timeout=LAST_REQUESTS_S)
        violations = []
        for workload, task in workloads.items():
            if not task.done():
                violations.append(f"stalled: {workload.name} does not end")
            elif isinstance(error := task.exception(), CorruptMessage):
                violations.append(f"unreadable records: {workload.name}: {error}")
            else:
                task.result()
        return violations

    def _stalled(self, healed_s: float) -> list[str]:
        paused = [
            f"paused: {tp} took {slowest_s:.3f} s to acknowledge a record, though brokers were only stopped cleanly"
            for tp, slowest_s in self.history.slowest_s.items()
            if self.scenario.is_gentle and slowest_s > CLEAN_STOP_PAUSE_S
        ]
        written = {attempt.tp for attempt in self.history.attempts}  # a scenario may have no producer
        return paused + [
            f"stalled: nothing was acknowledged in {tp} since {self.history.acknowledged_s.get(tp, 0):.3f} s"
            for tp in self.partitions
            if tp in written and self.history.acknowledged_s.get(tp, 0) < healed_s + SETTLE_S - 10
        ]

    def _unsettled(self, workloads: Sequence[Workload]) -> list[str]:
        members = [workload for workload in workloads if isinstance(workload, Member)]
        return [
            violation
            for group in sorted({member.group for member in members})
            for violation in groups.unsettled(
                group, {m.name: (m.generation, m.assigned) for m in members if m.group == group}, self.partitions
            )
        ]

    # Before and after

    async def _create_topics(self, admin: SimulatedClient) -> None:
        await self._create(admin, TOPIC, len(self.partitions))
        if self.outputs:
            await self._create(admin, TRANSFORMED, len(self.outputs))

    @staticmethod
    async def _create(admin: SimulatedClient, name: str, partitions: int) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=3)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        while (await admin.ask_any(request, CreateTopicsResponse, 5)).topics[0].error_code:
            await admin.back_off()

    async def _read_all(self, client: SimulatedClient, workloads: Sequence[Workload]) -> StoredRecords:
        partitions, records = self.partitions + self.outputs, StoredRecords()
        records.stored = await self._read(client, partitions, is_committed=False)
        records.visible = await self._read(client, partitions, is_committed=True)
        for group in sorted({w.group for w in workloads if isinstance(w, TransformingProducer)}):
            records.transformed[group] = await committed_offsets(client, self.history, group, self.partitions)
        for group in sorted({w.group for w in workloads if isinstance(w, Member)}):
            records.committed[group] = await committed_offsets(client, self.history, group, self.partitions)
        records.cluster = await partitions_of_cluster(client)
        records.moves = await moves_under_way(client)
        return records

    async def _read(
        self, client: SimulatedClient, partitions: Sequence[TopicPartition], *, is_committed: bool
    ) -> dict[TopicPartition, dict[int, bytes]]:
        history = ClientHistory()
        reader = PollingReader(client, WorkloadContext(history, self.clock, partitions), is_committed=is_committed)
        reader.stop()
        await reader.run()
        values: dict[TopicPartition, dict[int, bytes]] = {tp: {} for tp in partitions}
        for poll in history.polls:
            values[poll.tp] |= poll.values
        return values
