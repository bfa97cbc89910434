"""librdkafka's producer and consumer keep to a quota in bytes per second, and lose nothing by it."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.wire.messages import AlterClientQuotasResponse
from tests.conformance.both import Connection
from tests.support.broker import RunningBroker, leadline
from tests.support.client_quotas import altering

pytestmark = pytest.mark.conformance

QUOTA = 500_000  # bytes a second
RECORDS, RECORD_BYTES = 160, 10_000  # of more than three seconds
WINDOW_S = 2  # what a client may spend at once
PATIENCE_S = 120
TOPIC = "throttled"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("throttled") / "data", quota_window_num=WINDOW_S) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            created.result(PATIENCE_S)
        connection = Connection("localhost", running.port)
        for key in ("producer_byte_rate", "consumer_byte_rate"):
            request = altering({"user": None, "client-id": "limited"}, {key: QUOTA})
            assert [entry.error_code for entry in connection.ask(AlterClientQuotasResponse, request, 1).entries] == [0]
        connection.close()
        yield running


def write(broker: RunningBroker, client_id: str) -> tuple[float, list[float]]:
    """The seconds that it took, and the throttle times that the client noticed."""
    throttled = list[float]()
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "batch.num.messages": 5,
            "compression.type": "none",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    errors, began_s = list[object](), time.monotonic()
    for _ in range(RECORDS):
        producer.produce(TOPIC, bytes(RECORD_BYTES), on_delivery=lambda error, _: errors.append(error))
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * RECORDS
    return time.monotonic() - began_s, throttled


def read(broker: RunningBroker, client_id: str) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "group.id": "unused",
            "fetch.max.bytes": 100_000,
            "message.max.bytes": 100_000,
            "queued.max.messages.kbytes": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    began_s, offsets = time.monotonic(), list[int]()
    while len(offsets) < RECORDS:
        assert time.monotonic() - began_s < PATIENCE_S
        offsets += [int(record.offset() or 0) for record in consumer.consume(100, 0.1) if record.error() is None]
    seconds = time.monotonic() - began_s
    consumer.close()
    assert offsets[:RECORDS] == list(range(RECORDS))
    return seconds


def test_a_producer_and_a_consumer_keep_to_their_quota(broker: RunningBroker) -> None:
    least_s = RECORDS * RECORD_BYTES / QUOTA - WINDOW_S
    seconds, throttled = write(broker, "limited")
    assert seconds >= least_s
    assert any(throttle_s > 0 for throttle_s in throttled)
    assert read(broker, "limited") >= least_s


def test_another_client_is_not_throttled(broker: RunningBroker) -> None:
    _, throttled = write(broker, "free")
    assert not any(throttled)
