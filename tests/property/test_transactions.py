"""Whatever producers and time do, and wherever the coordinator is killed: whole transactions or none."""

import asyncio
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import WireError
from leadline.model import TopicPartition
from tests.support.in_memory import SHARED_MEMORY
from tests.support.logs import ManualClock
from tests.support.transactions import Node, coordinator, ended_in, init

PARTITIONS = [TopicPartition("t", n) for n in range(2)]
NAMES = ["one", "two"]
TIMEOUT_MS = 1000

OPERATIONS = "write write write write stray commit commit abort init late kill restart settle".split()
STEPS = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 3), st.integers(0, 4)), min_size=10, max_size=60)


@dataclass
class Txn:
    """One of a producer's transactions, as that producer knows it."""

    values: dict[TopicPartition, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    commit: bool | None = None  # True: to commit it; False: to abort it; None: neither yet
    outcome: bool | None = None  # told that it stands


@dataclass
class Producer:
    """Two of each transactional id: only the one that began last may do anything."""

    name: str
    identity: ProducerIdAndEpoch | None = None
    sequences: dict[TopicPartition, int] = field(default_factory=lambda: defaultdict(int))
    txns: list[Txn] = field(default_factory=lambda: [Txn()])


class World:
    """What happens, and what must be true of it."""

    def __init__(self) -> None:
        self.producers = [Producer(NAMES[n % 2]) for n in range(4)]
        self.latest: dict[str, Producer] = {}
        self.epochs: dict[str, ProducerIdAndEpoch] = {}
        self.count = 0

    async def step(self, node: Node, operation: str, number: int, where: int) -> None:
        producer, tp = self.producers[number], PARTITIONS[where % 2]
        if operation == "init":
            await self.init(node, producer)
        elif operation == "late":
            node.clock.ms += TIMEOUT_MS + 1
            node.transactions.abort_timed_out()
        elif operation == "kill":
            node.kill_after(where)
        elif operation == "settle":
            await node.settled()
        else:
            if producer.identity is None:
                await self.init(node, producer)
            if producer.identity is not None:
                await self.use(node, producer, producer.identity, operation, tp)

    async def init(self, node: Node, producer: Producer) -> None:
        try:
            identity = await node.transactions.init(producer.name, TIMEOUT_MS, None)
        except WireError:
            return  # its transaction may still be open, and may be ended
        producer.txns.append(Txn())
        last = self.epochs.get(producer.name)
        assert last is None or identity > last, "epochs only grow"
        self.epochs[producer.name] = producer.identity = identity
        self.latest[producer.name] = producer
        producer.sequences.clear()

    async def use(
        self, node: Node, producer: Producer, identity: ProducerIdAndEpoch, operation: str, tp: TopicPartition
    ) -> None:
        """As clients do: a producer that got no answer to EndTxn repeats it, and does nothing else."""
        commit = {"commit": True, "abort": False}.get(operation)
        if producer.txns[-1].commit not in (None, commit):
            return
        try:
            if commit is not None:
                await self.end(node, producer, identity, commit=commit)
            else:
                await self.write(node, producer, identity, tp, stray=operation == "stray")
        except WireError:
            return
        assert self.latest[producer.name] is producer, f"{identity} is fenced, and got {operation} through"

    async def end(self, node: Node, producer: Producer, identity: ProducerIdAndEpoch, *, commit: bool) -> None:
        txn = producer.txns[-1]
        txn.commit = commit
        await node.transactions.end(producer.name, identity, commit=commit)
        txn.outcome = commit
        producer.txns.append(Txn())

    async def write(
        self, node: Node, producer: Producer, identity: ProducerIdAndEpoch, tp: TopicPartition, *, stray: bool
    ) -> None:
        if not stray:
            await node.transactions.add_partitions(producer.name, identity, [tp])
        self.count += 1
        value = str(self.count).encode()
        node.write(producer.name, identity, tp, producer.sequences[tp], value)
        producer.sequences[tp] += 1
        producer.txns[-1].values[tp].append(value)

    async def check(self, node: Node) -> None:
        for name in NAMES:
            await init(node, name)
        await node.settled()
        outcomes: dict[bytes, bool] = {}
        for tp in PARTITIONS:
            assert node.is_stable(tp), "the last stable offset moves on"
            for ended in ended_in(node, tp):
                outcomes |= dict.fromkeys(ended.values, ended.committed)
        for txn in (txn for producer in self.producers for txn in producer.txns):
            results = {outcomes.pop(value) for values in txn.values.values() for value in values}
            assert len(results) <= 1, "one outcome for all of it"
            if txn.outcome is not None:
                assert results <= {txn.outcome}, "what was told holds"
            elif txn.commit is not True:
                assert results <= {False}, "what nobody committed is aborted"
        assert not outcomes


@settings(max_examples=120, deadline=None)
@given(STEPS)
def test_whole_transactions_or_none_whatever_happens(steps: list[tuple[str, int, int]]) -> None:
    async def main(place: Path) -> None:
        world, clock, producer_ids, epoch, left = World(), ManualClock(), list[int](), 0, list(steps)
        while left:
            async with coordinator(place, clock, producer_ids, PARTITIONS, epoch=epoch) as node:
                while left:
                    step = left.pop(0)
                    if step[0] == "restart":
                        break
                    await world.step(node, *step)
                    await asyncio.sleep(0)
            epoch += 1
        async with coordinator(place, clock, producer_ids, PARTITIONS, epoch=epoch) as node:
            await world.check(node)

    shared = SHARED_MEMORY if Path(SHARED_MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(dir=shared, ignore_cleanup_errors=True) as place:
        asyncio.run(main(Path(place)))
