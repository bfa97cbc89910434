"""Reading the partitions of a fetch: what is refused before anything is read, and what a position gets."""

from uuid import UUID

import pytest

from leadline.api import TABLE
from leadline.api.context import Context
from leadline.api.fetch_params import FetchParams
from leadline.api.fetch_sessions import TopicIdPartition
from leadline.api.partition_reader import PartitionReader
from leadline.model import TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.wire.fetch_position import FetchPosition
from leadline.wire.messages import FetchRequest, FetchResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

TP = TopicPartition("orders", 0)
FETCH, CONSUMER, FOLLOWER = 1, -1, 2
UNKNOWN_TOPIC, NOT_LEADER, UNSUPPORTED_VERSION = 3, 6, 35
FENCED, UNKNOWN_LEADER_EPOCH, UNSUPPORTED_COMPRESSION, UNKNOWN_TOPIC_ID = 74, 75, 76, 100


class Reading:
    """A reader on a broker's partition, and the reads of a test."""

    def __init__(
        self, client: InMemoryClient, version: int = 16, replica: int = CONSUMER, *, committed: bool = False
    ) -> None:
        services = client.broker.services
        request = FetchRequest(
            replica_id=replica,
            replica_state=FetchRequest.ReplicaState(replica_id=replica),
            isolation_level=int(committed),
            max_bytes=1 << 20,
        )
        params = FetchParams(request, version, services.config)
        topic = services.metadata.topics.get(TP.topic)
        self.topic_id = UUID(int=0) if topic is None else topic.id
        context = Context(services, version, client.client_id, client.client, TABLE[FETCH].authorization)
        self.reader = PartitionReader(params, None, context, None)

    def read(
        self,
        offset: int = 0,
        *,
        epoch: int = -1,
        last_epoch: int = -1,
        limit: int = 1 << 20,
        min_one: bool = True,
        partition: int = 0,
        topic_id: UUID | None = None,
    ) -> FetchResponse.PartitionData:
        id = (topic_id or self.topic_id).bytes
        position = FetchPosition(id, partition, epoch, offset, last_epoch, -1, 1 << 20)
        self.key = TopicIdPartition(TP.topic, id, partition)
        return self.reader.read(self.key, position, limit, min_one=min_one)


def size_of(part: FetchResponse.PartitionData) -> int:
    records = part.records or b""
    return len(records) if isinstance(records, bytes | bytearray | memoryview) else records.length


async def filled(client: InMemoryClient, count: int = 3, **configs: str) -> int:
    """The size of each of the batches, with one record each."""
    await client.create(TP.topic, 1, **configs)
    for _ in range(count):
        await client.produce(TP, batch(1, size=100))
    return len(batch(1, size=100))


def test_a_position_gets_the_batches_from_it_on() -> None:
    async def test(client: InMemoryClient) -> None:
        size = await filled(client)
        part = Reading(client).read(1)
        assert (part.error_code, part.high_watermark, size_of(part)) == (0, 3, 2 * size)

    run(test)


@pytest.mark.parametrize(("min_one", "batches"), [(True, 1), (False, 0)])
def test_the_first_batch_is_larger_than_the_limit_only_if_it_may(min_one: bool, batches: int) -> None:
    async def test(client: InMemoryClient) -> None:
        size = await filled(client)
        reading = Reading(client)
        assert size_of(reading.read(limit=10, min_one=min_one)) == batches * size
        assert reading.key in reading.reader.unsettled

    run(test)


def test_a_position_at_the_end_is_settled() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        reading = Reading(client)
        assert (reading.read(3).error_code, size_of(reading.read(3))) == (0, 0)
        assert reading.reader.unsettled == set()

    run(test)


def test_a_partition_that_is_not_here_is_unknown() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        assert Reading(client).read(partition=5).error_code == UNKNOWN_TOPIC

    run(test)


def test_an_unknown_topic_id_is_refused() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        assert Reading(client).read(topic_id=UUID(int=5)).error_code == UNKNOWN_TOPIC_ID

    run(test)


def test_an_older_epoch_is_refused_with_the_current_leader() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        hosted = client.broker.replicas.hosted[TP]
        part = Reading(client).read(epoch=hosted.epoch + 1)
        assert part.error_code == UNKNOWN_LEADER_EPOCH
        hosted.elected(LeaderAndIsr(hosted.leader_id, hosted.epoch + 1, (hosted.leader_id,)), (hosted.leader_id,))
        part = Reading(client).read(epoch=hosted.epoch - 1)
        assert (part.error_code, part.current_leader.leader_id) == (FENCED, client.broker.services.metadata.me.id)
        assert Reading(client, 15).read(epoch=hosted.epoch - 1).current_leader.leader_id == -1

    run(test)


def test_a_replica_that_does_not_belong_to_the_partition_is_refused() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        assert Reading(client, replica=FOLLOWER).read().error_code == NOT_LEADER

    run(test)


def test_a_broker_that_is_cut_off_refuses_consumers() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        hosted = client.broker.replicas.hosted[TP]
        hosted.is_fenced = True
        assert Reading(client).read().error_code == NOT_LEADER

    run(test)


@pytest.mark.parametrize(("version", "code"), [(9, UNSUPPORTED_COMPRESSION), (10, 0)])
def test_zstd_needs_a_version_that_has_it(version: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client, compression_type="zstd")
        assert Reading(client, version).read().error_code == code

    run(test)


@pytest.mark.parametrize(("version", "code"), [(3, UNSUPPORTED_VERSION), (4, 0)])
def test_old_versions_need_down_conversion(version: int, code: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client, message_downconversion_enable="false")
        assert Reading(client, version).read().error_code == code

    run(test)


def test_a_log_that_diverges_gets_the_end_of_its_epoch() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        epoch = client.broker.replicas.hosted[TP].epoch
        part = Reading(client).read(5, last_epoch=epoch)
        assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (epoch, 3)
        assert size_of(part) == 0
        assert size_of(Reading(client).read(2, last_epoch=epoch)) > 0

    run(test)


def test_read_committed_names_aborted_transactions() -> None:
    async def test(client: InMemoryClient) -> None:
        await filled(client)
        assert Reading(client, committed=True).read().aborted_transactions == []
        assert Reading(client).read().aborted_transactions is None

    run(test)
