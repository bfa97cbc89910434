"""The cluster's own client, for what a test does in one line: topics, records in, records out.

It runs on a loop of its own, by the real clock. A request that fails for the moment, such as one to a leader that was
just killed, is repeated until its time is over.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from leadline.cluster.broker_client import PeerLost, TcpBrokerClient
from leadline.errors import WireError, by_code
from leadline.model import TopicPartition
from leadline.records.batch import walk
from leadline.records.build import build
from leadline.records.control import ControlType, read_end_marker
from leadline.records.record import Record, records_of
from leadline.runtime.network import TcpNetwork
from leadline.testing.errors import ClusterError
from leadline.testing.records import ConsumedRecord, spread
from leadline.testing.requests import OWN_CLIENT
from leadline.wire.classes import Message
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

T = TypeVar("T")
M = TypeVar("M", bound=Message)
REQUEST_S = 10.0
RETRY_S = 0.02
LATEST, EARLIEST = -1, -2
FETCH_BYTES = 1 << 24


class _Again(Exception):
    """A request that cannot be carried out now. The message has the reason."""


class LocalClient:
    def __init__(self, addresses: Callable[[], Mapping[int, tuple[str, int]]]) -> None:
        """`addresses`: of the brokers that run, by id."""
        self._addresses = addresses
        self._channels: dict[tuple[str, int], TcpBrokerClient] = {}

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    async def _ask(self, address: tuple[str, int], request: Message, kind: type[M], version: int) -> M:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = TcpBrokerClient(
                address, OWN_CLIENT, TcpNetwork(), setup_timeout_s=(2.0, 2.0)
            )
        try:
            return await channel.ask(request, kind, version, REQUEST_S)
        except PeerLost as error:
            raise _Again(str(error)) from None

    async def _ask_any(self, request: Message, kind: type[M], version: int) -> M:
        why = "no broker runs"
        for address in self._addresses().values():
            try:
                return await self._ask(address, request, kind, version)
            except _Again as error:
                why = str(error)
        raise _Again(why)

    async def _ask_controller(self, request: Message, kind: type[M], version: int) -> M:
        metadata = await self._ask_any(MetadataRequest(topics=[]), MetadataResponse, 9)
        for broker in metadata.brokers:
            if broker.node_id == metadata.controller_id:
                return await self._ask((broker.host, broker.port), request, kind, version)
        raise _Again("there is no controller")

    async def _repeated(self, what: str, work: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        why = ""
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    try:
                        return await work()
                    except _Again as error:
                        why = str(error)
                    except WireError as error:
                        if not error.retriable:
                            raise ClusterError(f"{what}: {_text(error)}") from None
                        why = _text(error)
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise ClusterError(f"{what}, after {timeout_s:g} s: {why or 'no response'}") from None

    # Topics

    async def create_topic(
        self, topic: str, partitions: int, replication_factor: int, configs: Mapping[str, str], timeout_s: float
    ) -> None:
        spec = CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            configs=[
                CreateTopicsRequest.CreateableTopicConfig(name=name, value=value) for name, value in configs.items()
            ],
        )
        request = CreateTopicsRequest(topics=[spec], timeout_ms=int(REQUEST_S * 1000))

        async def create() -> None:
            response = await self._ask_controller(request, CreateTopicsResponse, 5)
            _check(response.topics[0].error_code, response.topics[0].error_message)

        await self._repeated(f"topic {topic} cannot be created", create, timeout_s)
        await self._repeated(f"topic {topic} has no leaders", lambda: self._leaders(topic), timeout_s)

    async def delete_topics(self, topics: Sequence[str], timeout_s: float) -> None:
        request = DeleteTopicsRequest(topic_names=list(topics), timeout_ms=int(REQUEST_S * 1000))

        async def delete() -> None:
            response = await self._ask_controller(request, DeleteTopicsResponse, 5)
            for result in response.responses:
                _check(result.error_code, result.error_message)

        await self._repeated(f"topics {', '.join(topics)} cannot be deleted", delete, timeout_s)

    async def _metadata(self, topic: str, *, create: bool = False) -> MetadataResponse:
        named = [MetadataRequest.MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=create)
        response = await self._ask_any(request, MetadataResponse, 9)
        _check(response.topics[0].error_code, None)
        return response

    async def _leaders(self, topic: str, *, create: bool = False) -> dict[int, tuple[str, int]]:
        """The address of the leader of each partition. All have one."""
        response = await self._metadata(topic, create=create)
        addresses = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        leaders: dict[int, tuple[str, int]] = {}
        for partition in response.topics[0].partitions:
            if partition.leader_id not in addresses:
                raise _Again(f"{topic}-{partition.partition_index} has no leader")
            leaders[partition.partition_index] = addresses[partition.leader_id]
        return dict(sorted(leaders.items()))

    # Records in

    async def produce(
        self, topic: str, records: Sequence[Record], partition: int | None, timeout_s: float
    ) -> dict[int, int]:
        """The first offset of the records, by partition."""
        leaders = await self._repeated(
            f"topic {topic} cannot be written", lambda: self._leaders(topic, create=True), timeout_s
        )
        if partition is not None and partition not in leaders:
            raise ClusterError(f"topic {topic} has no partition {partition}: it has {len(leaders)}, from 0")
        first: dict[int, int] = {}
        for number, own in spread(records, len(leaders), partition).items():
            write = partial(self._write, topic, number, own)
            first[number] = await self._repeated(f"{topic}-{number} cannot be written", write, timeout_s)
        return first

    async def _write(self, topic: str, partition: int, records: Sequence[Record]) -> int:
        leader = (await self._leaders(topic))[partition]
        numbered = [record._replace(offset=number) for number, record in enumerate(records)]
        data = ProduceRequest.PartitionProduceData(index=partition, records=bytes(build(numbered)))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(REQUEST_S * 1000),
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )
        response = await self._ask(leader, request, ProduceResponse, 9)
        result = response.responses[0].partition_responses[0]
        _check(result.error_code, result.error_message)
        return result.base_offset

    # Records out

    async def offsets(self, topic: str, timestamp: int, *, committed: bool, timeout_s: float) -> dict[int, int]:
        async def ask() -> dict[int, int]:
            return {
                partition: await self._offset(topic, partition, leader, timestamp, committed)
                for partition, leader in (await self._leaders(topic)).items()
            }

        return await self._repeated(f"topic {topic} cannot be read", ask, timeout_s)

    async def _offset(
        self, topic: str, partition: int, leader: tuple[str, int], timestamp: int, committed: bool
    ) -> int:
        part = ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        named = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[part])
        request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=[named])
        response = await self._ask(leader, request, ListOffsetsResponse, 5)
        result = response.topics[0].partitions[0]
        _check(result.error_code, None)
        return result.offset

    async def records(
        self, topic: str, partition: int | None, *, committed: bool, timeout_s: float
    ) -> list[ConsumedRecord]:
        """All records that a consumer can get now, by partition and offset."""
        starts = await self.offsets(topic, EARLIEST, committed=committed, timeout_s=timeout_s)
        ends = await self.offsets(topic, LATEST, committed=committed, timeout_s=timeout_s)
        if partition is not None and partition not in ends:
            raise ClusterError(f"topic {topic} has no partition {partition}: it has {len(ends)}, from 0")
        records: list[ConsumedRecord] = []
        for number in ends if partition is None else [partition]:
            records += await self._read(
                TopicPartition(topic, number), starts[number], ends[number], committed, timeout_s
            )
        return records

    async def _read(
        self, tp: TopicPartition, offset: int, end: int, committed: bool, timeout_s: float
    ) -> list[ConsumedRecord]:
        records: list[ConsumedRecord] = []
        while offset < end:

            async def fetch(at: int = offset) -> FetchResponse.PartitionData:
                return await self._fetch(tp, at, committed)

            data = await self._repeated(f"{tp} cannot be read", fetch, timeout_s)
            aborted = (
                {txn.producer_id: txn.first_offset for txn in data.aborted_transactions or ()} if committed else {}
            )
            after = _consumed(tp, bytes(data.records or b""), offset, end, aborted, records)  # type: ignore[arg-type]
            if after == offset:
                break  # compaction or a deletion has left nothing
            offset = after
        return records

    async def _fetch(self, tp: TopicPartition, offset: int, committed: bool) -> FetchResponse.PartitionData:
        leader = (await self._leaders(tp.topic))[tp.partition]
        part = FetchRequest.FetchPartition(
            partition=tp.partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES, current_leader_epoch=-1
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            isolation_level=int(committed),
            session_epoch=-1,
            topics=[FetchRequest.FetchTopic(topic=tp.topic, partitions=[part])],
        )
        response = await self._ask(leader, request, FetchResponse, 11)
        _check(response.error_code, None)
        data = response.responses[0].partitions[0]
        _check(data.error_code, None)
        return data


def _consumed(
    tp: TopicPartition, data: bytes, offset: int, end: int, aborted: dict[int, int], records: list[ConsumedRecord]
) -> int:
    """Add the records that a consumer keeps. Where the next fetch begins."""
    for position, header in walk(data):
        if header.is_control:
            marker = read_end_marker(data, position, header)
            if marker is not None and marker.type is ControlType.ABORT:
                aborted.pop(header.producer_id, None)
        elif not (header.is_transactional and aborted.get(header.producer_id, end) <= header.base_offset):
            records += [
                ConsumedRecord(tp.topic, tp.partition, *record)
                for record in records_of(data, position, header)
                if offset <= record.offset < end
            ]
        after = header.last_offset + 1
        if after >= end:
            return end
        offset = max(offset, after)
    return offset


def _check(code: int, message: str | None) -> None:
    if code:
        raise by_code(code, message or "")


def _text(error: WireError) -> str:
    return (
        f"{type(error).__name__}: {error}"
        if str(error)
        else f"{type(error).__name__} {type(error).default_message}".strip()
    )
