"""The requests of a follower: the fast path writes the bytes of the codec."""

import uuid

import pytest

from leadline.config.replication import ReplicationConfig
from leadline.model import TopicPartition
from leadline.replication.fetch_requests import (
    FetchingBroker,
    fast_frame,
    fetch_request,
    fits_fast_path,
    offsets_request,
)
from leadline.replication.fetch_session import FetchSessionRequest, ForgottenPartition
from leadline.replication.follower import LATEST_TIMESTAMP, AskOffset
from leadline.wire.fetch_position import FULL_EPOCH, FetchPosition
from leadline.wire.follower_fetch import MOST_TOPICS
from leadline.wire.frames import request_frame
from tests.support.brokers import joined

ME, CONFIG, MAX_WAIT_MS = FetchingBroker(3, 99), ReplicationConfig(), 500
TPS = [TopicPartition(topic, n) for topic in "tu" for n in range(3)]
IDS = {"t": uuid.UUID(int=1).bytes, "u": uuid.UUID(int=2).bytes}


def position(tp: TopicPartition, topic_id: bytes) -> FetchPosition:
    return FetchPosition(topic_id, tp.partition, 5, 100 + tp.partition, 4, 7, 1 << 20)


NAMED = {tp: position(tp, IDS[tp.topic]) for tp in TPS}
REQUEST = FetchSessionRequest(77, 2, NAMED, [], [], True)


def test_the_fast_path_writes_the_same_bytes_as_the_codec() -> None:
    message = fetch_request(REQUEST, ME, CONFIG, MAX_WAIT_MS)
    assert fits_fast_path(REQUEST)
    assert fast_frame(REQUEST, ME, CONFIG, MAX_WAIT_MS, 12, "broker-3") == joined(
        request_frame(message, 16, 12, "broker-3")
    )


@pytest.mark.parametrize(
    "request_",
    [
        REQUEST._replace(by_id=False),
        REQUEST._replace(session_epoch=FULL_EPOCH),
        REQUEST._replace(forgotten=[ForgottenPartition(TPS[0], IDS["t"])]),
        REQUEST._replace(replaced=[ForgottenPartition(TPS[0], IDS["t"])]),
        REQUEST._replace(
            named={
                (tp := TopicPartition(f"t{n}", 0)): position(tp, uuid.UUID(int=n + 1).bytes)
                for n in range(MOST_TOPICS + 1)
            }
        ),
    ],
    ids=["by name", "full", "forgets", "replaces", "many topics"],
)
def test_any_other_request_goes_through_the_codec(request_: FetchSessionRequest) -> None:
    assert not fits_fast_path(request_)


def test_partitions_are_named_in_their_order_and_replaced_ones_are_forgotten_by_id_alone() -> None:
    mixed = {tp: NAMED[tp] for tp in (TPS[0], TPS[3], TPS[1])}
    request = REQUEST._replace(named=mixed, replaced=[ForgottenPartition(TPS[0], IDS["u"])])
    by_id = fetch_request(request, ME, CONFIG, MAX_WAIT_MS)
    assert [(topic.topic, [part.partition for part in topic.partitions]) for topic in by_id.topics] == [
        ("t", [0]),
        ("u", [0]),
        ("t", [1]),
    ]
    assert [(topic.topic_id.bytes, topic.partitions) for topic in by_id.forgotten_topics_data] == [(IDS["u"], [0])]
    by_name = fetch_request(request._replace(by_id=False), ME, CONFIG, MAX_WAIT_MS)
    assert (by_name.replica_id, by_name.forgotten_topics_data) == (3, [])


def test_requests_for_offsets_carry_the_leader_epoch() -> None:
    request = offsets_request({TPS[0]: AskOffset(5, LATEST_TIMESTAMP)}, ME)
    (part,) = request.topics[0].partitions
    assert (request.replica_id, part.current_leader_epoch, part.timestamp) == (3, 5, LATEST_TIMESTAMP)
