"""Brokers in one process that copy a partition from each other: real logs, real requests, a controller of plain state.

Requests go through the codec and THE TABLE, with or without a socket between. A broker can be killed, which closes
nothing, started again on what it left, and cut off from the others.
"""

import asyncio
import os
import random
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from leadline.api.authorization import OWN_REQUEST
from leadline.api.context import ClientConnection, Context, Services
from leadline.api.fast.produce_templates import ProduceTemplates
from leadline.api.fetch_sessions import Sessions
from leadline.api.request_meter import ClientMeter
from leadline.broker.connection import Connection
from leadline.broker.net import Net
from leadline.broker.reply_queue import PendingReply
from leadline.broker.requests import Requests
from leadline.cluster.broker_client import EncodeRequest, LeaderClient, NextRequest, PeerLost, TcpBrokerClient
from leadline.cluster.metadata_cache import BrokerInfo, CachedPartition, CachedTopic, MetadataCache
from leadline.config.topic import LogConfig
from leadline.errors import LogDirFailed
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.log.segment import FileSlice
from leadline.model import BrokerId, Buffer, Offset, TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.partition import LeaderAndIsr, Proposal
from leadline.replication.replicas import OtherBrokers, Replicas
from leadline.runtime.network import TcpNetwork
from leadline.runtime.ports import Files, SystemTime
from leadline.wire.classes import Message
from leadline.wire.codec import decode, to_bytes
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import AlterPartitionRequest, AlterPartitionResponse
from leadline.wire.primitives import BUFFERS, Piece
from tests.support.chance import SeededChance
from tests.support.crash_disk import Unsynced
from tests.support.net import net_of
from tests.support.replicas import Controller, ControllerUpdate
from tests.support.settings import live_settings
from tests.support.waiting import eventually

TP = TopicPartition("orders", 0)
TOPIC_ID = uuid.UUID(int=77)
PATIENCE_S = 120
SETTINGS = {
    "replica.fetch.wait.max.ms": "100",
    "replica.fetch.backoff.ms": "20",
    "replica.lag.time.max.ms": "5000",
    "replica.high.watermark.checkpoint.interval.ms": "50",
}
M = TypeVar("M", bound=Message)


class NoSocket:
    """The connection of a request that came through no socket."""

    def __init__(self) -> None:
        self.client = ClientConnection("localhost", "PLAINTEXT")
        self.client_meter: ClientMeter | None = None

    def mute(self, throttle_ms: int) -> None:
        """Nobody reads from it."""


class Node:
    """One broker, from one start to its end."""

    def __init__(self, brokers: "Brokers", id: BrokerId, path: Path, incarnation: int) -> None:
        self.brokers, self.id, self.incarnation = brokers, id, incarnation
        log_dirs = {"log.dirs": ",".join(f"{path}{mark}" for mark in brokers.folders)}
        clock, live = SystemTime(), live_settings({**log_dirs, **brokers.settings})
        topic_config = LogConfig.parse(brokers.topic)
        self.dirs = LogDirs(live, clock, SeededChance(id), brokers.files_of(id), lambda _: topic_config)
        self.replicas = Replicas(self.dirs, id, live, OtherBrokers(self._connect, self._alter))
        metadata = MetadataCache(BrokerInfo(id, {}), "cluster")
        metadata.topics[TP.topic] = metadata.by_id[TOPIC_ID] = CachedTopic(TP.topic, TOPIC_ID)
        metadata.brokers = {broker: BrokerInfo(broker, {}, f"rack{broker}") for broker in brokers.ids}
        nobody = cast(Any, None)
        self.services = Services(
            settings=live, metadata=metadata, configs=nobody, client_configs=nobody,
            controller=nobody, cluster=nobody, peers=nobody,
            replicas=self.replicas, dirs=self.dirs, sessions=Sessions(1000, random.randint),
            groups=nobody, offsets=nobody, transactions=nobody, markers=nobody, clock=clock,
            is_alone=False, produce_templates=ProduceTemplates(),
        )  # fmt: skip
        self.requests = Requests(self.services, clock.monotonic_s)
        self.net: Net | None = None
        self.port = 0

    async def start(self) -> None:
        await self.dirs.open()
        if self.brokers.sockets:
            self.net = net_of()
            _, self.port = self.net.listen("PLAINTEXT", "127.0.0.1", 0)
            self.net.start(self.requests.serve, self.replicas.completions)

    @property
    def has_waiting_fetches(self) -> bool:
        """Whether fetches are under way."""
        return any(session.waiting is not None for session in self.services.sessions.by_id.values())

    @property
    def log(self) -> Log:
        return self.dirs.logs[TP]

    @property
    def hosted(self) -> HostedPartition:
        return self.replicas.hosted[TP]

    async def apply(self, update: ControllerUpdate) -> None:
        if update.incarnation != self.incarnation:
            return
        decision = update.decision
        self.replicas.alive(update.alive, self.incarnation)
        partition = CachedPartition(decision.leader, decision.leader_epoch, update.assigned, decision.isr)
        self.services.metadata.topics[TP.topic].partitions[TP.partition] = partition
        hosted = self.replicas.hosted.get(TP)
        if hosted is not None and decision.leader_epoch < hosted.epoch:
            return
        if decision.leader == self.id:
            await self.replicas.lead(TP, TOPIC_ID, decision._replace(recovering=False), update.assigned)
        else:
            await self.replicas.follow(TP, TOPIC_ID, decision)

    async def serve(self, request: Message, kind: type[M], version: int) -> M:
        """As if it had come over a socket: the same bytes, in a process of its own."""
        frame = await self.answer(joined(request_frame(request, version, 7, "test")))
        return parse_response(kind, frame, version)[1]

    async def answer(self, request: Buffer) -> bytearray:
        reply = self.requests.serve(cast(Connection, NoSocket()), memoryview(bytearray(request))[4:])
        if isinstance(reply, PendingReply):
            reply = reply.frame(await reply.answer)
        elif isinstance(reply, Awaitable):
            reply = await reply
        assert reply is not None
        return bytearray(joined([reply] if isinstance(reply, bytes) else reply))[4:]

    def context(self, version: int) -> Context:
        return Context(self.services, version, None, ClientConnection("localhost", "PLAINTEXT"), OWN_REQUEST)

    def _connect(self, leader: BrokerId) -> LeaderClient:
        other = self.brokers.nodes.get(leader)
        if self.brokers.sockets and other is not None:
            return TcpBrokerClient(("127.0.0.1", other.port), f"broker-{self.id}", TcpNetwork())
        return DirectLeaderClient(self.brokers, self.id, leader)

    async def _alter(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        if not self.brokers.is_connected(self.id, None):
            raise PeerLost("the controller is away")
        return self.brokers.alter(decode(AlterPartitionRequest, to_bytes(request, version), version))

    async def kill(self) -> None:
        """Nothing is closed or flushed; only its tasks end and its locks are given up, as the system would."""
        await self.replicas.stop()
        if self.net is not None:
            await self.net.close(0)
        for path in list(self.dirs.dirs):
            disk = self.dirs.dirs[path].disk
            await disk.drain()
            self.dirs.take_offline(LogDirFailed(path, "running", OSError("killed by the test")))
            await disk.stop()


class DirectLeaderClient:
    """A peer without a socket."""

    def __init__(self, brokers: "Brokers", follower: BrokerId, leader: BrokerId) -> None:
        self._brokers, self._follower, self._leader = brokers, follower, leader

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        frame = await self._exchange(joined(request_frame(request, version, 7, "test")))
        return parse_response(kind, frame, version)[1]

    async def converse(
        self, what: str, first: EncodeRequest, next_request: NextRequest, timeout_s: float, /
    ) -> bytearray:
        ask: EncodeRequest | None = first
        while ask is not None:
            frame = await self._exchange(ask(7, "test"))
            ask = next_request(memoryview(frame))
        return frame

    async def _exchange(self, request: Buffer) -> bytearray:
        await asyncio.sleep(0)
        node = self._brokers.nodes.get(self._leader)
        if node is None or not self._brokers.is_connected(self._follower, self._leader):
            raise PeerLost("cut off by the test")
        answer = await node.answer(request)
        if not self._brokers.is_connected(self._follower, self._leader):
            raise PeerLost("cut off by the test")
        self._brokers.on_the_way(answer)
        return answer

    def close(self) -> None:
        """There is nothing to close."""


class Brokers:
    def __init__(self, path: Path, ids: tuple[BrokerId, ...], topic: Mapping[str, str], sockets: bool) -> None:
        self.path, self.ids, self.topic, self.sockets = path, ids, topic, sockets
        self.settings: dict[str, str] = dict(SETTINGS)
        self.folders: tuple[str, ...] = ("",)  # of each broker: what its log directories have behind their names
        self.files_of: Callable[[BrokerId], Files] = lambda _: Unsynced()
        self.nodes: dict[BrokerId, Node] = {}
        self.cut_off: set[BrokerId] = set()
        self.on_the_way: Callable[[bytearray], None] = lambda _: None  # sees each answer that goes through no socket
        self._incarnations = dict.fromkeys(ids, 0)
        self._to_tell: list[tuple[BrokerId, ControllerUpdate]] = []
        self.controller: Controller | None = None

    def is_connected(self, one: BrokerId, other: BrokerId | None) -> bool:
        return one not in self.cut_off and other not in self.cut_off

    async def start(self) -> None:
        for id in self.ids:
            await self._start(id)
        self.controller = Controller(self.ids, lambda broker, update: self._to_tell.append((broker, update)))
        await self.tell()

    async def _start(self, id: BrokerId) -> None:
        self._incarnations[id] += 1
        node = Node(self, id, self.path / str(id), self._incarnations[id])
        await node.start()
        self.nodes[id] = node

    async def tell(self) -> None:
        while self._to_tell:
            broker, update = self._to_tell.pop(0)
            if broker in self.nodes:
                await self.nodes[broker].apply(update)

    async def kill(self, id: BrokerId, *, noticed: bool = True) -> None:
        await self.nodes.pop(id).kill()
        if noticed:
            assert self.controller is not None
            self.controller.failed(id)
            await self.tell()

    async def restart(self, id: BrokerId) -> None:
        await self._start(id)
        assert self.controller is not None
        self.controller.started(id, self._incarnations[id])
        await self.tell()

    def alter(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        assert self.controller is not None
        response = AlterPartitionResponse()
        for topic in request.topics:
            topic_data = AlterPartitionResponse.TopicData(topic_id=topic.topic_id)
            for partition in topic.partitions:
                isr = tuple(member.broker_id for member in partition.new_isr_with_epochs)
                epochs = tuple(member.broker_epoch for member in partition.new_isr_with_epochs)
                proposed = LeaderAndIsr(request.broker_id, partition.leader_epoch, isr, partition.partition_epoch)
                topic_data.partitions.append(
                    _altered(partition.partition_index, self.controller.alter(Proposal(proposed, epochs)))
                )
            response.topics.append(topic_data)
        return response

    @property
    def leader(self) -> Node:
        assert self.controller is not None
        return self.nodes[self.controller.current.leader]

    @property
    def isr(self) -> set[BrokerId]:
        assert self.controller is not None
        return set(self.controller.current.isr)

    async def all_hold(self, offset: Offset) -> None:
        """Wait until all that run have so much, and know that it is safe."""
        await eventually(lambda: all(TP in node.replicas.hosted for node in self.nodes.values()))
        await eventually(lambda: all(node.log.high_watermark == offset for node in self.nodes.values()))
        await eventually(lambda: all(node.log.log_end == offset for node in self.nodes.values()))


def _altered(partition: int, decision: LeaderAndIsr | int) -> AlterPartitionResponse.PartitionData:
    if isinstance(decision, int):
        return AlterPartitionResponse.PartitionData(partition_index=partition, error_code=decision)
    return AlterPartitionResponse.PartitionData(
        partition_index=partition,
        leader_id=decision.leader,
        leader_epoch=decision.leader_epoch,
        isr=list(decision.isr),
        partition_epoch=decision.partition_epoch,
    )


def joined(pieces: list[Piece]) -> bytes:
    """With what is to be sent out of files."""
    return b"".join(bytes(piece) if isinstance(piece, BUFFERS) else _out_of_file(piece) for piece in pieces)


def _out_of_file(piece: object) -> bytes:
    assert isinstance(piece, FileSlice)
    return os.pread(piece.file.fd, piece.length, piece.position)


@asynccontextmanager
async def brokers(
    path: Path,
    files_of: Callable[[BrokerId], Files] = lambda _: Unsynced(),
    /,
    *,
    sockets: bool = False,
    folders: str = "",
    **topic: str,
) -> AsyncIterator[Brokers]:
    """`topic`: its settings, with _ for a dot. `folders`: as in Brokers, with commas. `files_of`: each one's disk."""
    started = Brokers(path, (1, 2, 3), {name.replace("_", "."): value for name, value in topic.items()}, sockets)
    started.folders, started.files_of = tuple(folders.split(",")), files_of
    await started.start()
    try:
        yield started
    finally:
        for id in list(started.nodes):
            await started.kill(id, noticed=False)
