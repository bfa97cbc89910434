"""Quotas on a broker in memory whose clock stands still: who is above one is throttled, to the millisecond."""

from collections.abc import Awaitable, Callable

import pytest

from leadline.broker.reply_queue import PendingReply
from leadline.model import TopicPartition
from leadline.security.client_quotas import DEFAULT, QuotaEntity, QuotaKind
from leadline.security.rates import java_round
from leadline.wire import messages as m
from leadline.wire.classes import Message
from leadline.wire.frames import FRONT, request_frame
from tests.support.authorized_broker import ALICE, AUTHORIZER, ROOT
from tests.support.brokers import joined
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import ManualClock, batch

TP = TopicPartition("t", 0)
WINDOW_MS = 10_000  # of a client that is new
LEADER_NOT_AVAILABLE, TOPIC_AUTHORIZATION_FAILED, THROTTLING_QUOTA_EXCEEDED = 5, 29, 89
Scenario = Callable[[InMemoryClient, ManualClock], Awaitable[None]]


class TickingClock(ManualClock):
    """The monotonic clock advances by this step whenever it is read."""

    tick_s = 0.0
    ticked_s = 0.0

    def monotonic_s(self) -> float:
        self.ticked_s += self.tick_s
        return self.ms / 1000 + self.ticked_s


def check(scenario: Scenario, **settings: str) -> None:
    clock = TickingClock()
    run(lambda client: scenario(client, clock), clock, **settings)


def limit(client: InMemoryClient, entity: QuotaEntity | None = None, **bounds: float) -> None:
    quotas = {QuotaKind(name): bound for name, bound in bounds.items()}
    client.broker.services.quotas.put(entity or QuotaEntity(None, client.client_id), quotas)


def produce_request(acks: int = 1, size: int = 1000) -> m.ProduceRequest:
    part = m.ProduceRequest.PartitionProduceData(index=TP.partition, records=bytes(batch(1, size=size)))
    topic = m.ProduceRequest.TopicProduceData(name=TP.topic, partition_data=[part])
    return m.ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[topic])


def frame_bytes(client: InMemoryClient, request: Message, version: int) -> int:
    return len(joined(request_frame(request, version, 7, client.client_id))) - 4


def fetch_request(session_id: int = 0, epoch: int = -1, *, named: bool = True, **other: int) -> m.FetchRequest:
    part = m.FetchRequest.FetchPartition(partition=TP.partition, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [m.FetchRequest.FetchTopic(topic=TP.topic, partitions=[part])] if named else []
    request = m.FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=epoch, topics=topics)
    for field, value in other.items():
        setattr(request, field, value)
    return request


def size_of(response: m.FetchResponse) -> int:
    (topic,) = response.responses
    records = topic.partitions[0].records
    assert isinstance(records, bytes | bytearray | memoryview)
    return len(records)


@pytest.mark.parametrize(
    "version", [1, 2, 3, 7, 8, 9, 11]
)  # the first request is decoded, the others match its template
def test_a_produce_is_throttled_for_its_bytes_on_both_paths(version: int) -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        limit(client, producer_byte_rate=400)
        request = produce_request()
        size = frame_bytes(client, request, version)
        throttled = [(await client.send(request, m.ProduceResponse, version)).throttle_time_ms for _ in range(6)]
        assert throttled == [max(0, java_round(1000 * size * count / 400 - WINDOW_MS)) for count in range(1, 7)]
        assert throttled[3:] == client.muted_ms
        assert client.broker.replicas.hosted[TP].log.log_end == 6  # all of them were appended

    check(scenario)


def test_a_produce_without_acks_is_muted_for_its_bytes_and_not_for_its_time() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        limit(client, producer_byte_rate=10, request_percentage=0.0001)
        assert await client.send_silent(produce_request(acks=0), m.ProduceResponse, 9) is None
        size = frame_bytes(client, produce_request(acks=0), 9)
        assert client.muted_ms == [java_round(1000 * size / 10 - WINDOW_MS)]

    check(scenario)


def test_a_client_that_can_be_throttled_has_one_produce_at_a_time() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic, flush_messages="1")  # the response waits for the disk
        for quotas in (False, True):
            if quotas:
                limit(client, producer_byte_rate=1e9)
            for _ in range(2):
                frame = joined(request_frame(produce_request(acks=-1), 9, 7, client.client_id))
                reply = client.broker.requests.serve(client, memoryview(bytearray(frame))[4:])  # type: ignore[arg-type]
                assert isinstance(reply, PendingReply)
                assert reply.blocks is quotas
                await reply.answer

    check(scenario)


def test_a_fetch_above_the_quota_is_empty_and_its_bytes_do_not_count() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        await client.produce(TP, batch(1, size=1000))
        full = await client.send(fetch_request(), m.FetchResponse, 12)
        limit(client, consumer_byte_rate=200)
        assert [size_of(await client.send(fetch_request(), m.FetchResponse, 12)) for _ in range(1)] == [size_of(full)]
        for _ in range(2):
            throttled = await client.send(fetch_request(), m.FetchResponse, 12)
            assert (throttled.error_code, throttled.responses, throttled.session_id) == (0, [], 0)
            assert throttled.throttle_time_ms == client.muted_ms[-1] > 0
        assert client.muted_ms[0] == client.muted_ms[1]
        clock.ms += 11_000
        assert size_of(await client.send(fetch_request(), m.FetchResponse, 12)) == size_of(full)

    check(scenario)


def test_a_throttled_fetch_opens_no_session_and_changes_none() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        await client.produce(TP, batch(1, size=1000))
        limit(client, consumer_byte_rate=130)
        opened = await client.send(fetch_request(epoch=0), m.FetchResponse, 12)
        assert opened.session_id
        assert size_of(opened)
        refused = await client.send(fetch_request(epoch=0), m.FetchResponse, 12)
        assert (refused.session_id, refused.responses) == (0, [])
        assert list(client.broker.services.sessions.by_id) == [opened.session_id]
        again = await client.send(fetch_request(opened.session_id, 1), m.FetchResponse, 12)
        assert (again.error_code, again.session_id, again.responses) == (0, opened.session_id, [])
        clock.ms += 11_000
        at_last = await client.send(fetch_request(opened.session_id, 2, named=False), m.FetchResponse, 12)
        assert size_of(at_last) == size_of(opened)

    check(scenario)


def test_a_fetch_gets_no_more_at_once_than_its_quota_allows_in_ten_seconds() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        for _ in range(5):
            await client.produce(TP, batch(1, size=1000))
        everything = size_of(await client.send(fetch_request(), m.FetchResponse, 12))
        limit(client, consumer_byte_rate=250)
        throttled = await client.send(fetch_request(), m.FetchResponse, 12)  # for the bytes around the records
        assert 0 < throttled.throttle_time_ms < 1000
        clock.ms += 500  # the window has grown by so much
        assert size_of(await client.send(fetch_request(), m.FetchResponse, 12)) == 2500 < everything

    check(scenario)


def test_followers_are_exempt() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        await client.produce(TP, batch(1, size=1000))
        limit(client, consumer_byte_rate=1, request_percentage=0.0001)
        assert isinstance(clock, TickingClock)
        clock.tick_s = 1.0
        response = await client.send(fetch_request(replica_id=5), m.FetchResponse, 12)
        assert (response.throttle_time_ms, client.muted_ms) == (0, [])

    check(scenario)


def test_a_client_that_fetches_as_a_follower_without_the_right_is_throttled_like_any_other() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        client.client.principal = ROOT
        await client.create(TP.topic)
        limit(client, request_percentage=0.0001)
        assert isinstance(clock, TickingClock)
        clock.tick_s = 1.0
        follower = await client.send(fetch_request(replica_id=5), m.FetchResponse, 12)
        assert (follower.throttle_time_ms, client.muted_ms) == (0, [])
        client.client.principal = ALICE
        stranger = await client.send(fetch_request(replica_id=5), m.FetchResponse, 12)
        assert (stranger.throttle_time_ms, client.muted_ms) == (1000, [1000])
        assert stranger.responses[0].partitions[0].error_code == TOPIC_AUTHORIZATION_FAILED

    check(scenario, **{name.replace(".", "_"): value for name, value in AUTHORIZER.items()})


REQUESTS: list[tuple[Message, type[Message], int, bool]] = [
    (m.MetadataRequest(topics=None), m.MetadataResponse, 12, True),
    (m.ApiVersionsRequest(), m.ApiVersionsResponse, 2, True),
    (m.ListGroupsRequest(), m.ListGroupsResponse, 4, True),
    (m.FindCoordinatorRequest(coordinator_keys=["g"]), m.FindCoordinatorResponse, 4, True),
    (m.DescribeClientQuotasRequest(components=[], strict=False), m.DescribeClientQuotasResponse, 1, True),
    (m.CreateTopicsRequest(topics=[]), m.CreateTopicsResponse, 7, True),
    (m.SaslHandshakeRequest(mechanism="PLAIN"), m.SaslHandshakeResponse, 1, True),  # it has no such field
    (m.UpdateMetadataRequest(), m.UpdateMetadataResponse, 8, True),  # refused, since a single node has no brokers
    (m.WriteTxnMarkersRequest(), m.WriteTxnMarkersResponse, 1, False),
]


@pytest.mark.parametrize(
    ("request_", "kind", "version", "counts"), REQUESTS, ids=lambda request: type(request).__name__
)
def test_each_request_counts_with_the_time_that_it_took(
    request_: Message, kind: type[Message], version: int, counts: bool
) -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        limit(client, request_percentage=0.001)
        assert isinstance(clock, TickingClock)
        clock.tick_s = 1.0
        response = await client.send(request_, kind, version)
        assert client.muted_ms == ([1000] if counts else [])  # of one window at most
        assert getattr(response, "throttle_time_ms", 1000) == 1000 or not counts

    check(scenario)


def test_a_client_that_is_told_which_versions_there_are_is_throttled_too() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        limit(client, QuotaEntity(None, DEFAULT), request_percentage=0.001)
        assert isinstance(clock, TickingClock)
        clock.tick_s = 1.0
        frame = memoryview(bytearray(FRONT.pack(m.ApiVersionsRequest.API_KEY, 99, 7) + b"\0\0"))
        assert client.broker.requests.serve(client, frame)  # type: ignore[arg-type]
        assert client.muted_ms == [1000]

    check(scenario)


def test_a_commit_is_throttled_on_the_fast_path_too() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        part = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=TP.topic, partitions=[part])
        request = m.OffsetCommitRequest(group_id="g", topics=[topic])
        coordinator = m.FindCoordinatorRequest(coordinator_keys=["g"])
        await client.send(coordinator, m.FindCoordinatorResponse, 4)
        for version in (6, 8):
            for _ in range(3):
                response = await client.send(request, m.OffsetCommitResponse, version)
            assert type(client.client.last_commit).__name__ == "OffsetCommitRequestTemplate"
            assert isinstance(clock, TickingClock)
            limit(client, request_percentage=0.001)
            clock.tick_s = 1.0
            response = await client.send(request, m.OffsetCommitResponse, version)
            assert (response.throttle_time_ms, client.muted_ms[-1]) == (1000, 1000)
            assert [part.error_code for part in response.topics[0].partitions] == [0]
            clock.tick_s = 0.0
            clock.ms += 60_000

    check(scenario)


def creating(name: str, partitions: int = 1) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def test_mutations_beyond_the_quota_are_refused_in_versions_that_know_it() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        limit(client, controller_mutation_rate=1)
        first = await client.send(creating("a", 12), m.CreateTopicsResponse, 7)  # of 11 tokens
        assert ([topic.error_code for topic in first.topics], first.throttle_time_ms) == ([0], 0)
        second = await client.send(creating("b"), m.CreateTopicsResponse, 7)
        (refused,) = second.topics
        assert (refused.error_code, refused.error_message) == (
            THROTTLING_QUOTA_EXCEEDED,
            "The throttling quota has been exceeded.",
        )
        assert second.throttle_time_ms == client.muted_ms[-1] == 1000
        growing = m.CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=13, assignments=None)
        grown = await client.send(m.CreatePartitionsRequest(topics=[growing]), m.CreatePartitionsResponse, 3)
        assert (grown.results[0].error_code, grown.throttle_time_ms) == (THROTTLING_QUOTA_EXCEEDED, 1000)
        deleting = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequest.DeleteTopicState(name="a")], timeout_ms=60_000)
        deleted = await client.send(deleting, m.DeleteTopicsResponse, 6)
        assert (deleted.responses[0].error_code, deleted.throttle_time_ms) == (THROTTLING_QUOTA_EXCEEDED, 1000)
        clock.ms += 1000
        assert (await client.send(deleting, m.DeleteTopicsResponse, 6)).responses[0].error_code == 0

    check(scenario)


def test_mutations_beyond_the_quota_are_carried_out_and_throttled_in_older_versions() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        limit(client, QuotaEntity(DEFAULT), controller_mutation_rate=2)
        response = await client.send(creating("a", 25), m.CreateTopicsResponse, 5)  # of 22 tokens
        assert [topic.error_code for topic in response.topics] == [0]
        assert response.throttle_time_ms == client.muted_ms[-1] == 1500

    check(scenario)


def test_topics_that_are_created_on_the_way_count_and_nobody_is_throttled_for_them() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        limit(client, controller_mutation_rate=0.1)
        topic = m.MetadataRequest.MetadataRequestTopic(name="new")
        request = m.MetadataRequest(topics=[topic], allow_auto_topic_creation=True)
        response = await client.send(request, m.MetadataResponse, 8)
        assert (response.topics[0].error_code, response.throttle_time_ms) == (LEADER_NOT_AVAILABLE, 0)
        refused = await client.send(creating("b"), m.CreateTopicsResponse, 7)
        assert refused.topics[0].error_code == THROTTLING_QUOTA_EXCEEDED

    check(scenario, auto_create_topics_enable="true", num_partitions="3")


def test_what_is_only_validated_does_not_count() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        limit(client, controller_mutation_rate=1)
        request = creating("a", 50)
        request.validate_only = True
        for _ in range(2):
            response = await client.send(request, m.CreateTopicsResponse, 7)
            assert (response.topics[0].error_code, response.throttle_time_ms) == (0, 0)

    check(scenario)


def test_without_any_quota_nothing_is_measured() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        for _ in range(3):
            await client.produce(TP)
        await client.send(fetch_request(), m.FetchResponse, 12)
        client.broker.services.quotas.put(QuotaEntity("alice"), {})  # a user who has a password, and no quota
        await client.produce(TP)
        assert client.client_meter is None
        limit(client, QuotaEntity("alice"), producer_byte_rate=1)
        await client.produce(TP)
        assert client.client_meter is not None

    check(scenario)


def test_the_windows_are_those_of_the_settings() -> None:
    async def scenario(client: InMemoryClient, clock: ManualClock) -> None:
        await client.create(TP.topic)
        limit(client, producer_byte_rate=100)
        size = frame_bytes(client, produce_request(), 9)
        response = await client.send(produce_request(), m.ProduceResponse, 9)
        assert response.throttle_time_ms == java_round(1000 * size / 100 - 4000)  # two windows of two seconds

    check(scenario, quota_window_num="3", quota_window_size_seconds="2")
