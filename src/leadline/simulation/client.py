"""A client of the simulated cluster: it finds leaders and coordinators, and sends requests as a real client would."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import TypeVar

from leadline.cluster.broker_client import PeerLost, TcpBrokerClient
from leadline.errors import by_code
from leadline.model import ACKS_ALL, Offset, TopicPartition
from leadline.simulation.fetched_records import committed_values_in, end_of, values_in
from leadline.simulation.virtual_network import HostNetwork
from leadline.wire.classes import Message
from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

M = TypeVar("M", bound=Message)
REQUEST_S = 5.0
BACKOFF_S = 0.1
GROUP, TRANSACTION = 0, 1  # whose coordinator
EARLIEST = -2  # the timestamp that stands for the start of the log


class NoAnswer(Exception):
    """The request may have taken effect or not."""


class NotServed(Exception):
    """The request took no effect: no broker could serve it."""


class SimulatedClient:
    def __init__(self, name: str, network: HostNetwork, brokers: Sequence[str], chance: Random) -> None:
        self.name, self._network, self.brokers, self.chance = name, network, list(brokers), chance
        self._channels: dict[tuple[str, int], TcpBrokerClient] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._controller = -1
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    def _channel(self, address: tuple[str, int]) -> TcpBrokerClient:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = TcpBrokerClient(
                address, self.name, self._network, setup_timeout_s=(2.0, 4.0)
            )
        return channel

    async def ask(
        self, address: tuple[str, int], request: Message, kind: type[M], version: int, timeout_s: float = REQUEST_S
    ) -> M:
        """Raises NoAnswer."""
        try:
            return await self._channel(address).ask(request, kind, version, timeout_s)
        except PeerLost as error:
            raise NoAnswer(str(error)) from error

    async def ask_any(self, request: Message, kind: type[M], version: int) -> M:
        return await self.ask((self.chance.choice(self.brokers), 9092), request, kind, version)

    async def ask_controller(self, request: Message, kind: type[M], version: int) -> M:
        """The broker that some broker takes for the controller. Raises NotServed, NoAnswer."""
        try:
            await self.refresh([])
        except NoAnswer as error:
            raise NotServed(str(error)) from error
        if self._controller not in self._addresses:
            raise NotServed("there is no controller")
        return await self.ask(self._addresses[self._controller], request, kind, version)

    # Metadata

    async def refresh(self, topics: Sequence[str]) -> None:
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
        )
        response = await self.ask_any(request, MetadataResponse, 9)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        self._addresses |= addresses
        self._controller = response.controller_id
        for topic in response.topics:
            for partition in topic.partitions:
                tp = TopicPartition(topic.name or "", partition.partition_index)
                if partition.leader_id in addresses:
                    self._leaders[tp] = partition.leader_id
                else:
                    self._leaders.pop(tp, None)

    async def leader_of(self, tp: TopicPartition) -> tuple[str, int]:
        """Raises NotServed."""
        if tp not in self._leaders:
            try:
                await self.refresh([tp.topic])
            except NoAnswer as error:
                raise NotServed(str(error)) from error
        if tp not in self._leaders:
            raise NotServed(f"{tp} has no leader")
        return self._addresses[self._leaders[tp]]

    def forget_leader(self, tp: TopicPartition) -> None:
        self._leaders.pop(tp, None)

    # Coordinators

    async def ask_coordinator(
        self,
        of: tuple[int, str],
        request: Message,
        kind: type[M],
        version: int,
        timeout_s: float = REQUEST_S,
    ) -> M:
        """`of`: GROUP or TRANSACTION, and the id. Raises NotServed, NoAnswer."""
        address = self._coordinators.get(of) or await self._find_coordinator(*of)
        try:
            return await self.ask(address, request, kind, version, timeout_s)
        except NoAnswer:
            self.forget_coordinator(of)
            raise

    async def _find_coordinator(self, key_type: int, key: str) -> tuple[str, int]:
        try:
            response = await self.ask_any(
                FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), FindCoordinatorResponse, 4
            )
        except NoAnswer as error:
            raise NotServed(str(error)) from error
        coordinator = response.coordinators[0]
        if coordinator.error_code:
            raise NotServed(f"{key} has no coordinator: {name_of(coordinator.error_code)}")
        address = self._coordinators[key_type, key] = (coordinator.host, coordinator.port)
        return address

    def forget_coordinator(self, of: tuple[int, str]) -> None:
        self._coordinators.pop(of, None)

    # Records

    async def produce(
        self, tp: TopicPartition, records: bytes, transactional_id: str | None = None, acks: int = ACKS_ALL
    ) -> ProduceResponse.PartitionProduceResponse:
        """Raises NotServed, NoAnswer."""
        address = await self.leader_of(tp)
        data = ProduceRequest.PartitionProduceData(index=tp.partition, records=records)
        topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
        request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=3000, topic_data=[topic])
        try:
            response = await self.ask(address, request, ProduceResponse, 9)
        except NoAnswer:
            self.forget_leader(tp)
            raise
        return response.responses[0].partition_responses[0]

    async def fetch(
        self, tp: TopicPartition, offset: int, *, is_committed: bool, max_wait_ms: int = 200
    ) -> FetchResponse.PartitionData:
        """Raises NotServed, NoAnswer."""
        address = await self.leader_of(tp)
        part = FetchRequest.FetchPartition(
            partition=tp.partition, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=int(is_committed),
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=tp.topic, partitions=[part])],
        )
        try:
            response = await self.ask(address, request, FetchResponse, 11)
        except NoAnswer:
            self.forget_leader(tp)
            raise
        return response.responses[0].partitions[0]

    async def log_start(self, tp: TopicPartition) -> Offset:
        """Raises NotServed, NoAnswer."""
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=tp.partition, timestamp=EARLIEST)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=tp.topic, partitions=[part])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = await self.ask(await self.leader_of(tp), request, ListOffsetsResponse, 5)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise NotServed(name_of(answer.error_code))
        return answer.offset

    @staticmethod
    def records_of(
        part: FetchResponse.PartitionData, start: Offset, *, is_committed: bool
    ) -> tuple[dict[Offset, bytes], Offset]:
        """The values of a fetch from `start` on, and where the next one continues."""
        data = part.records or b""
        assert isinstance(data, bytes | bytearray | memoryview)
        values = committed_values_in(data, part) if is_committed else values_in(data)
        return {offset: value for offset, value in values.items() if offset >= start}, end_of(data, start)

    async def back_off(self) -> None:
        await asyncio.sleep(BACKOFF_S * self.chance.uniform(0.5, 1.5))

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def name_of(code: int) -> str:
    return type(by_code(code, "")).__name__ if code else "none"


def is_retriable(code: int) -> bool:
    return by_code(code, "").retriable
