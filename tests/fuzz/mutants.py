"""Requests as clients send them, and what becomes of them when bytes are lost, changed or put in."""

import random
from collections.abc import Iterator
from struct import pack

from leadline.api import TABLE
from leadline.records.compression import Codec
from leadline.wire import schema
from leadline.wire.apis import APIS
from leadline.wire.classes import Message
from leadline.wire.frames import request_frame
from leadline.wire.messages import FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest
from tests.support.logs import batch
from tests.support.message_sets import plain, wrapped
from tests.unit.wire.random_messages import RandomValues

TOPIC = "fuzzed"
NUMBERS = [0, 1, -1, 2, 127, 128, 255, 1 << 15, (1 << 15) - 1, 1 << 30, (1 << 31) - 1, -(1 << 31)]


# What requests to coordinators may name: groups, members, producers and transactions that others of them make.
COORDINATOR_VALUES: dict[str, list[object]] = {
    "group_id": ["group", "other"],
    "transactional_id": ["payments", "orders"],
    "v3_and_below_transactional_id": ["payments", "orders"],
    "key": ["group", "payments"],
    "name": [TOPIC],
    "topic": [TOPIC],
    "member_id": [""],
    "group_instance_id": [None, "one", "two"],
    "protocol_type": ["consumer"],
    "session_timeout_ms": [6000, 45_000],
    "rebalance_timeout_ms": [1, 60_000],
    "transaction_timeout_ms": [1, 60_000],
    "producer_id": [-1, 0, 1, 2, 3],
    "v3_and_below_producer_id": [0, 1, 2, 3],
    "producer_epoch": [-1, 0, 1, 2],
    "v3_and_below_producer_epoch": [0, 1, 2],
    "generation_id": [-1, 0, 1, 2, 3],
    "generation_id_or_member_epoch": [-1, 1, 2, 3],
    "partition_index": [0, 1],
    "committed_offset": [0, 5, 1 << 40],
}
COORDINATED = """
    FindCoordinator JoinGroup SyncGroup Heartbeat LeaveGroup DescribeGroups ListGroups DeleteGroups
    OffsetCommit OffsetFetch OffsetDelete InitProducerId AddPartitionsToTxn AddOffsetsToTxn TxnOffsetCommit EndTxn
    WriteTxnMarkers DescribeTransactions ListTransactions
""".split()


class ExistingNames(RandomValues):
    """Most of what it names is there, or may be."""

    def _value(self, field: schema.FieldSchema, root: type[Message], version: int) -> object:
        if field.name in COORDINATOR_VALUES and field.struct is None and self.random.random() < 0.9:
            value = self.random.choice(COORDINATOR_VALUES[field.name])
            if value is not None or version in field.nullable:
                return value
        return super()._value(field, root, version)


def frame(message: Message, version: int) -> bytes:
    """Without its size."""
    pieces = request_frame(message, version, 7, "fuzz")
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray))[4:]


def valid(seed: int, per_version: int) -> Iterator[bytes]:
    """Every request in every version with random content; those about records with a topic that is there, and those to
    coordinators with groups and transactions that may be there."""
    for key in TABLE:
        api = APIS[key]
        for version in api.versions:
            for n in range(per_version):
                random_one = RandomValues(f"{seed} {n}", is_tame=bool(n % 2))
                yield frame(random_one.message(f"{api.name}Request", version), version)
                if api.name in COORDINATED:
                    familiar = ExistingNames(f"{seed} {n}", is_tame=True)
                    yield frame(familiar.message(f"{api.name}Request", version), version)
    for version in ProduceRequest.VERSIONS:
        for codec in Codec:
            data = bytes(batch(3, codec=codec, producer_id=version))
            part = ProduceRequest.PartitionProduceData(index=0, records=data)
            topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
            yield frame(ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic]), version)
    for version in range(3):
        for data in (plain(version // 2), wrapped(version // 2, plain(version // 2), Codec(version + 1))):
            part = ProduceRequest.PartitionProduceData(index=0, records=data)
            topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
            yield frame(ProduceRequest(acks=1, timeout_ms=100, topic_data=[topic]), version)
    for version in range(13):
        parts = [FetchRequest.FetchPartition(partition=n, partition_max_bytes=1000) for n in range(2)]
        yield frame(FetchRequest(topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=parts)]), version)
    for version in MetadataRequest.VERSIONS:
        yield frame(MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)]), version)
    for version in ListOffsetsRequest.VERSIONS:
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[partition])]
        yield frame(ListOffsetsRequest(replica_id=-1, topics=topics), version)


class Mutants:
    """Endless and repeatable: one seed, one sequence."""

    def __init__(self, seed: int, per_version: int = 2) -> None:
        self.random = random.Random(seed)
        self.corpus = list(valid(seed, per_version))

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.one()

    def one(self) -> bytes:
        mutant = bytearray(self.random.choice(self.corpus))
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3, 8))):
            if mutant:
                self._change(mutant)
        return bytes(mutant)

    def _change(self, mutant: bytearray) -> None:
        chance = self.random
        at = chance.randrange(len(mutant)) if chance.random() < 0.8 else min(chance.randrange(24), len(mutant) - 1)
        kind = chance.randrange(7)
        if kind == 0:
            mutant[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif kind == 1:
            del mutant[at:]
        elif kind == 2:
            del mutant[at : at + chance.randint(1, 8)]
        elif kind == 3:
            mutant[at:at] = chance.randbytes(chance.randint(1, 8))
        elif kind == 4:
            mutant[at : at + 4] = pack(">i", chance.choice(NUMBERS) if chance.random() < 0.9 else chance.randrange(99))
        elif kind == 5:
            mutant[at : at + 2] = pack(">h", chance.choice((0, 1, -1, 3, 300, 0x7FFF, -0x8000)))
        else:
            other = chance.choice(self.corpus)
            mutant[at:] = other[min(at, len(other)) :]
