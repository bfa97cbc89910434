"""A controller of many partitions: the real controller over a tree in memory, with brokers that only answer.

A broker counts the requests and their bytes, as its connection would encode them, and answers each without an error.
The answers come one after the other, one in a turn of the loop, as if all brokers shared one wire.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar
from uuid import UUID

from leadline.cluster.broker_client import PeerGone
from leadline.config.broker import broker_settings
from leadline.config.live_settings import LiveSettings
from leadline.controller.controller import Controller
from leadline.controller.controller_election import ControllerElection
from leadline.controller.silence_monitor import NoSilenceMonitor
from leadline.controller.state import RegisteredBroker
from leadline.coordination import znodes
from leadline.coordination.registration import RegisteredEndpoint, Registration, encode_registration
from leadline.coordination.znodes import PartitionStateNode, ReplicaAssignment, TopicNode
from leadline.model import BrokerId, TopicPartition
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.ports import SystemTime
from leadline.wire.classes import Message
from leadline.wire.frames import SIZE, request_bytes
from leadline.wire.messages import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
)
from tests.support.chance import SeededChance
from tests.support.memory_tree import CountingTree

M = TypeVar("M", bound=Message)

PARTITIONS_PER_TOPIC = 50
REPLICATION_FACTOR = 3
CONTROLLER: BrokerId = 0
FIRST_EPOCH = 5  # of the leaders in the tree

_PartitionError = LeaderAndIsrResponse.LeaderAndIsrPartitionError


class LargeCluster:
    """`brokers` brokers and `partitions` partitions, three replicas each, all in sync. Broker 0 is the controller."""

    def __init__(self, partitions: int, brokers: int) -> None:
        self.tree = CountingTree()
        self.brokers, self.partitions = brokers, partitions
        self.requests: Counter[str] = Counter()  # by name
        self.request_bytes = 0
        self.largest_request = 0
        self.answering_s = 0.0  # CPU time that the brokers took for their answers
        self.updates: list[bytes] = []  # UpdateMetadata as the last broker got it: frames without their size
        self.gone: set[BrokerId] = set()
        self._wire = asyncio.Lock()
        self._fill()
        settings = LiveSettings(broker_settings({"log.dirs": "/nowhere", "auto.leader.rebalance.enable": "false"}))
        election = ControllerElection(self.tree, CONTROLLER, SystemTime(), NoSilenceMonitor())
        self.controller = Controller(election, settings, self._connect, SeededChance())

    # The tree

    def _fill(self) -> None:
        for path in znodes.PERSISTENT:
            self.tree.put(path)
        for id in range(self.brokers):
            endpoint = RegisteredEndpoint("PLAINTEXT", f"broker-{id}.example", 9092, "PLAINTEXT")
            self.tree.put(znodes.broker_path(id), encode_registration(Registration((endpoint,), 0)))
        for number, name in enumerate(self.topics()):
            assignment = {tp.partition: ReplicaAssignment(self.replicas(tp)) for tp in self.of_topic(number, name)}
            self.tree.put(znodes.topic_path(name), znodes.encode_topic(TopicNode(UUID(int=number + 1), assignment)))
            for tp in self.of_topic(number, name):
                replicas = self.replicas(tp)
                state = PartitionStateNode(replicas[0], FIRST_EPOCH, replicas, 1)
                self.tree.put(znodes.state_path(tp), znodes.encode_state(state))

    def topics(self) -> Iterator[str]:
        for number in range(-(-self.partitions // PARTITIONS_PER_TOPIC)):
            yield f"topic-{number:05}" if number else "__consumer_offsets"

    def of_topic(self, number: int, name: str) -> list[TopicPartition]:
        rest = self.partitions - number * PARTITIONS_PER_TOPIC
        return [TopicPartition(name, n) for n in range(min(rest, PARTITIONS_PER_TOPIC))]

    def all_partitions(self) -> Iterator[TopicPartition]:
        for number, name in enumerate(self.topics()):
            yield from self.of_topic(number, name)

    def replicas(self, tp: TopicPartition, shift: int = 0) -> tuple[BrokerId, ...]:
        """Spread evenly: each broker has as many partitions as any other, and leads a third of them."""
        number = 0 if tp.topic.startswith("__") else int(tp.topic[-5:])
        first = number * PARTITIONS_PER_TOPIC + tp.partition
        step = 1 + number % (self.brokers // REPLICATION_FACTOR)
        return tuple((first + shift + n * step) % self.brokers for n in range(REPLICATION_FACTOR))

    # The brokers

    def _connect(self, broker: RegisteredBroker, lost: Callable[[], None]) -> "AnsweringBroker":
        return AnsweringBroker(self, broker.id)

    async def answer(self, id: BrokerId, request: Message, kind: type[M], version: int) -> M:
        if id in self.gone:
            raise PeerGone(f"broker {id} is gone")
        frame = request_bytes(request, version, 1, "controller")
        self.requests[type(request).__name__] += 1
        self.request_bytes += len(frame)
        self.largest_request = max(self.largest_request, len(frame))
        if isinstance(request, UpdateMetadataRequest) and id == self.brokers - 1:
            self.updates.append(bytes(frame[SIZE.size :]))
        async with self._wire:
            await asyncio.sleep(0)
            began = time.thread_time()
            response = _response(request, kind)
            self.answering_s += time.thread_time() - began
        return response

    # What happens

    async def take_over(self) -> None:
        await self.controller.start()
        await self.controller.settled()

    async def fail(self, id: BrokerId) -> None:
        """A broker's session ends."""
        self.gone.add(id)
        await self.tree.delete(znodes.broker_path(id))
        await self.controller.do(lambda decisions: None)
        await self.controller.settled()

    async def reassign(self, targets: Mapping[TopicPartition, tuple[BrokerId, ...]]) -> None:
        errors = await self.controller.do_in_steps(lambda decisions: decisions.reassignments.alter(targets))
        assert not any(errors.values()), next(filter(None, errors.values()))
        await self.controller.settled()

    def forget_counts(self) -> None:
        self.requests.clear()
        self.tree.counts.clear()
        self.request_bytes = self.largest_request = 0
        self.answering_s = 0.0
        self.updates.clear()

    def leaders(self) -> Mapping[TopicPartition, BrokerId]:
        assert self.controller.decisions is not None
        state = self.controller.decisions.state
        return {tp: partition.decision.leader for tp, partition in state.partitions() if partition.decision is not None}


class AnsweringBroker:
    def __init__(self, cluster: LargeCluster, id: BrokerId) -> None:
        self._cluster, self._id = cluster, id

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        return await self._cluster.answer(self._id, request, kind, version)

    def close(self) -> None: ...


def _response(request: Message, kind: type[M]) -> M:
    response = kind()
    if isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse):
        response.topics = [
            LeaderAndIsrResponse.LeaderAndIsrTopicError(
                topic_id=topic.topic_id,
                partition_errors=[
                    _PartitionError(partition_index=state.partition_index) for state in topic.partition_states
                ],
            )
            for topic in request.topic_states
        ]
    elif isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
        response.partition_errors = [
            StopReplicaResponse.StopReplicaPartitionError(
                topic_name=topic.topic_name, partition_index=state.partition_index
            )
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    return response


class TimedLoop(EventLoop):
    """The broker's event loop, which keeps the CPU time of its longest turn."""

    longest_turn_s = 0.0

    def _run_once(self) -> None:
        began = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest_turn_s = max(self.longest_turn_s, time.thread_time() - began)
