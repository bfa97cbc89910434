"""flush.messages=1: every record is on disk before its produce is answered.

Each producer has one connection and sends its next request when the last one is answered. So as many records can share
an fsync as there are producers for one partition. Where each partition has one producer, no fsync can be shared.
"""

import selectors
import socket
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from struct import Struct

from tests.bench.batches import Maker
from tests.bench.load.brokers import Broker, pairs
from tests.bench.load.client import Connection, Refused, create_topics, delete_topic, produce_request
from tests.bench.results import Goal, Row
from tests.bench.run import Run, in_turns
from tests.bench.sides import same

SETTINGS = {"log.flush.interval.messages": "1"}


@dataclass(frozen=True, slots=True)
class ConcurrentProducers:
    producers: int
    partitions: int
    full: int  # requests in one round
    quick: int

    @property
    def topic(self) -> str:
        return f"flushed-{self.producers}-{self.partitions}"

    @property
    def name(self) -> str:
        producers = "1 producer" if self.producers == 1 else f"{self.producers} producers"
        return f"{producers}, {'1 partition' if self.partitions == 1 else f'{self.partitions} partitions'}"

    @property
    def goal(self) -> Goal:
        """Twice its rate where an fsync can be shared."""
        return Goal(times=2 if self.producers > self.partitions else 1)


CROWDS = (
    ConcurrentProducers(1, 1, 400, 40),
    ConcurrentProducers(8, 1, 1600, 160),
    ConcurrentProducers(64, 1, 3200, 640),
    ConcurrentProducers(8, 8, 1600, 160),
    ConcurrentProducers(64, 8, 3200, 640),
)


def measure(run: Run) -> list[Row]:
    rows = {crowd: Row(f"{crowd.name}, flush.messages=1", "/s", crowd.goal) for crowd in CROWDS}
    cpu = {crowd: Row(f"{crowd.name}: CPU per request", "us") for crowd in CROWDS}
    batch = bytes(Maker(1, 100).batch())
    with pairs(run.folder, more=SETTINGS) as (pair,):
        brokers = list(pair)
        for n in run.each_round("flush"):
            rates, costs = (
                defaultdict[ConcurrentProducers, list[float]](list),
                defaultdict[ConcurrentProducers, list[float]](list),
            )
            for crowd, side in in_turns(CROWDS, brokers):
                count = run.sized(crowd.full, crowd.quick)
                spent_s, cpu_s = _produce(brokers[side], crowd, f"{crowd.topic}-{n}", batch, count)
                rates[crowd].append(count / spent_s)
                costs[crowd].append(cpu_s / count * 1e6)
            if n:
                for crowd in CROWDS:
                    rows[crowd].add(*rates[crowd])
                    cpu[crowd].add(*costs[crowd])
    return [row for crowd in CROWDS for row in (rows[crowd], cpu[crowd])]


def _produce(broker: Broker, crowd: ConcurrentProducers, topic: str, batch: bytes, count: int) -> tuple[float, float]:
    """The seconds, and the broker's CPU seconds. Each offset of each partition is given once."""
    create_topics(broker.port, {topic: crowd.partitions})
    with ExitStack() as ends:
        sockets = [ends.enter_context(Connection(broker.port)).sock for _ in range(crowd.producers)]
        producers = [
            OneAtATime(sock, topic, number % crowd.partitions, batch, count // crowd.producers)
            for number, sock in enumerate(sockets)
        ]
        spent = broker.measure(lambda: send_all(producers))
    for partition in range(crowd.partitions):
        offsets = sorted(offset for one in producers if one.partition == partition for offset in one.offsets)
        same("the offsets of a partition", offsets, list(range(count // crowd.partitions)))
    delete_topic(broker.port, topic)
    broker.wait_until_gone(topic)
    return spent.seconds, spent.cpu_seconds


class OneAtATime:
    """A producer whose next request leaves when the last one is answered."""

    def __init__(self, sock: socket.socket, topic: str, partition: int, batch: bytes, count: int) -> None:
        self.sock, self.partition, self.left = sock, partition, count
        self.offsets: list[int] = []
        self._request = produce_request(topic, partition, batch, 1)
        self._reply = Struct(f">ii6x{len(topic.encode())}x4xihq20x")  # as in `Producer`
        self._buffer = memoryview(bytearray(self._reply.size))
        self._held = 0

    def send(self) -> None:
        self.left -= 1
        self.sock.sendall(self._request)

    def receive(self) -> bool:
        """Whether the answer is there."""
        got = self.sock.recv_into(self._buffer[self._held :])
        if not got:
            raise ConnectionError("the broker closed the connection")
        self._held += got
        if self._held < self._reply.size:
            return False
        self._held = 0
        size, _, partition, error, offset = self._reply.unpack(self._buffer)
        if (size, partition, error) != (self._reply.size - 4, self.partition, 0):
            raise Refused(f"a produce to partition {self.partition} was answered with {partition=}, {error=}")
        self.offsets.append(offset)
        return True


def send_all(producers: Sequence[OneAtATime]) -> None:
    with selectors.DefaultSelector() as selector:
        for one in producers:
            selector.register(one.sock, selectors.EVENT_READ, one)
            one.send()
        waiting = len(producers)
        while waiting:
            for key, _ in selector.select():
                if key.data.receive():
                    if key.data.left:
                        key.data.send()
                    else:
                        waiting -= 1
