"""Groups: how long until many have settled, and how fast offsets are committed.

The members are the same plain sockets towards both brokers, in one process; they send a heartbeat every 20 ms, as one
learns of another's arrival by it. Commits are those of a lone consumer, a few of them on their way at a time.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from leadline.wire.frames import response_frame
from leadline.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from tests.bench.load.brokers import Broker, pairs
from tests.bench.load.client import HOST, IN_FLIGHT, Connection, Refused, create_topics, frame
from tests.bench.results import Goal, Row, Unit
from tests.bench.run import Run, in_turns
from tests.support.members import groups, settle_all

GROUPS, MEMBERS = 50, 4
COMMIT_VERSION = 8
CONNECTIONS = 8
TOPIC = "committed"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
}
Values = dict[str, float]

QUANTITIES: dict[str, tuple[Unit, Goal | None]] = {
    f"{GROUPS} groups of {MEMBERS} settle": ("s", Goal(times=1)),
    f"{GROUPS} groups of {MEMBERS} settle: CPU": ("s", None),
    "commit 1 offset": ("/s", Goal(times=1)),
    "commit 1 offset: CPU per request": ("us", Goal(times=1)),
    f"commit 1 offset, {CONNECTIONS} connections": ("/s", Goal(times=1)),
    f"commit 1 offset, {CONNECTIONS} connections: CPU per request": ("us", Goal(times=1)),
    "commit 50 offsets": ("/s", Goal(times=1)),
    "commit 50 offsets: CPU per request": ("us", Goal(times=1)),
}


class Commits:
    """The same commit again and again, on several connections in turns, each for a group of its own."""

    def __init__(self, port: int, name: str, partitions: int, connections: int) -> None:
        self._connections = [Connection(port) for _ in range(connections)]
        requests = [_request(f"{name}-{n}", partitions) for n in range(connections)]
        dues = {
            _checked(connection.ask(request, OffsetCommitResponse, COMMIT_VERSION), partitions)
            for connection, request in zip(self._connections, requests, strict=True)
        }
        (due,) = dues  # the order of partitions is a broker's own, and always the same
        self._due, self._buffer = due * IN_FLIGHT, bytearray(len(due) * IN_FLIGHT)
        self._frames = [frame(request, COMMIT_VERSION) * IN_FLIGHT for request in requests]

    def close(self) -> None:
        for connection in self._connections:
            connection.sock.close()

    def send(self, count: int) -> None:
        """At least so many; until all are answered."""
        pairs = [(connection.sock, frames) for connection, frames in zip(self._connections, self._frames, strict=True)]
        for _ in range(0, count, IN_FLIGHT * len(pairs)):
            for sock, frames in pairs:
                sock.sendall(frames)
            for sock, _ in pairs:
                self._receive(sock)

    def _receive(self, sock: socket.socket) -> None:
        view = memoryview(self._buffer)
        while view:
            got = sock.recv_into(view)
            if not got:
                raise ConnectionError("the broker closed the connection")
            view = view[got:]
        if self._buffer != self._due:
            raise Refused("a commit was answered otherwise than the first")


def _request(group: str, partitions: int) -> OffsetCommitRequest:
    parts = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=n, committed_offset=n)
        for n in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
    )


def _checked(answer: OffsetCommitResponse, partitions: int) -> bytes:
    """An answer without an error, as it came."""
    codes = sorted((part.partition_index, part.error_code) for part in answer.topics[0].partitions)
    if codes != [(n, 0) for n in range(partitions)]:
        raise Refused(f"a commit was answered with (partition, error) = {codes}")
    pieces = response_frame(answer, COMMIT_VERSION, 0)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))


Step = Callable[[Run, Broker, int], Values]


def measure(run: Run) -> list[Row]:
    """One step on Leadline, then the same on Kafka, then the next; each when both have come to rest."""
    samples: tuple[defaultdict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    with pairs(run.folder, more=SETTINGS) as (pair,):
        brokers = list(pair)
        for broker in brokers:
            asyncio.run(_settle(broker, "first", 1, 1))  # the topic of offsets comes to be
            create_topics(broker.port, {TOPIC: 50})
        for n in run.each_round("groups"):
            for step, side in in_turns(STEPS, brokers):
                for what, value in step(run, brokers[side], n).items():
                    samples[side][what] += [value] if n else []
    ours, theirs = samples
    return [Row(what, unit, goal, ours[what], theirs[what]) for what, (unit, goal) in QUANTITIES.items()]


def _join(run: Run, broker: Broker, n: int) -> Values:
    return asyncio.run(_settle(broker, f"round-{n}", run.sized(GROUPS, 5), MEMBERS))


async def _settle(broker: Broker, name: str, count: int, size: int) -> Values:
    """From the first word of the first member until the last group has settled."""
    async with groups(HOST, broker.port, [f"{name}-{n}" for n in range(count)], size) as made:
        meter = broker.meter()
        for group in made:
            group.start()
        await settle_all(made)
        spent = meter()
    what = f"{GROUPS} groups of {MEMBERS} settle"
    return {what: spent.seconds, f"{what}: CPU": spent.cpu_seconds}


def _commit(what: str, partitions: int, connections: int, full: int) -> Step:
    def step(run: Run, broker: Broker, n: int) -> Values:
        count = run.sized(full, 400)
        commits = Commits(broker.port, f"{what}-{n}", partitions, connections)
        try:
            spent = broker.measure(partial(commits.send, count))
        finally:
            commits.close()
        return {what: count / spent.seconds, f"{what}: CPU per request": spent.cpu_seconds / count * 1e6}

    return step


STEPS: tuple[Step, ...] = (
    _join,
    _commit("commit 1 offset", 1, 1, 6000),
    _commit(f"commit 1 offset, {CONNECTIONS} connections", 1, CONNECTIONS, 12_000),
    _commit("commit 50 offsets", 50, 1, 1500),
)
