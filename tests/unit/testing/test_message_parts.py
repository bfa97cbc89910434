"""What requests name, and the responses that refuse it."""

from leadline.model import NO_ID
from leadline.testing.message_parts import NamedPart, error_response, parts_of
from leadline.wire.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ProduceRequest,
    ProduceResponse,
)


def produce(*partitions: int) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index=partition, records=b"") for partition in partitions]
    return ProduceRequest(topic_data=[ProduceRequest.TopicProduceData(name="t", partition_data=data)])


def test_a_request_names_topics_and_partitions_in_each_of_kafkas_ways() -> None:
    partition = FetchRequest.FetchPartition(partition=3)
    by_name = FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])])
    by_id = FetchRequest(topics=[FetchRequest.FetchTopic(topic_id=NO_ID, partitions=[partition])])
    numbers = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 2])]
    )
    assert parts_of(produce(0, 1), {}) == [NamedPart("t", 0), NamedPart("t", 1)]
    assert parts_of(by_name, {}) == [NamedPart("t", 3)]
    assert parts_of(by_id, {NO_ID: "t"}) == [NamedPart("t", 3)]
    assert parts_of(numbers, {}) == [NamedPart("t", 0), NamedPart("t", 2)]
    assert parts_of(DeleteTopicsRequest(topic_names=["a", "b"]), {}) == [NamedPart("a", None), NamedPart("b", None)]
    assert parts_of(HeartbeatRequest(group_id="g"), {}) == []


def test_only_the_parts_that_fail_have_the_error() -> None:
    response = error_response(produce(0, 1), ProduceResponse, 6, lambda part: part == NamedPart("t", 1), {})
    assert isinstance(response, ProduceResponse)
    (topic,) = response.responses
    assert [(part.index, part.error_code) for part in topic.partition_responses] == [(0, 0), (1, 6)]
    assert topic.name == "t"


def test_each_shape_of_response_is_filled() -> None:
    def refused(request: object, kind: type) -> object:
        return error_response(request, kind, 15, lambda part: True, {})  # type: ignore[arg-type]

    partition = FetchRequest.FetchPartition(partition=3)
    fetch = refused(FetchRequest(topics=[FetchRequest.FetchTopic(topic="t", partitions=[partition])]), FetchResponse)
    assert isinstance(fetch, FetchResponse)
    assert [(part.partition_index, part.error_code) for part in fetch.responses[0].partitions] == [(3, 15)]
    assert fetch.responses[0].topic == "t"
    coordinators = refused(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    assert isinstance(coordinators, FindCoordinatorResponse)
    assert [(part.key, part.error_code) for part in coordinators.coordinators] == [("g", 15)]
    topics = [OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 2])]
    offsets = refused(OffsetFetchRequest(group_id="g", topics=topics), OffsetFetchResponse)
    assert isinstance(offsets, OffsetFetchResponse)
    assert [(part.partition_index, part.error_code) for part in offsets.topics[0].partitions] == [(0, 15), (2, 15)]
    deleted = refused(DeleteTopicsRequest(topic_names=["a"]), DeleteTopicsResponse)
    assert isinstance(deleted, DeleteTopicsResponse)
    assert [(part.name, part.error_code) for part in deleted.responses] == [("a", 15)]
    assert refused(HeartbeatRequest(group_id="g"), HeartbeatResponse) == HeartbeatResponse(error_code=15)
