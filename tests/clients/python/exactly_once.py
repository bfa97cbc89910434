"""Reads a topic in a group, and writes each record to another in transactions that carry the offsets, with librdkafka.

One instance, a static member with a transactional id of its own. It is meant to be killed; its stdin's end is its end.
"""

import random
import select
import sys
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

WAIT_S = 60


def main(bootstrap: str, source: str, target: str, name: str, *settings: str) -> None:
    """`settings`: NAME=VALUE of both clients."""
    # Else, when its only broker was away, librdkafka 2.16 may go on waiting for a coordinator that it has let go of.
    common: dict[str, str | int] = {
        "bootstrap.servers": bootstrap, "log_level": 0, "metadata.recovery.strategy": "none",
        **dict(setting.split("=", 1) for setting in settings),
    }  # fmt: skip
    while _goes_on():
        producer = Producer(common | {"transactional.id": name, "linger.ms": 1})
        consumer = Consumer(
            common
            | {
                "group.id": "loop",
                "group.instance.id": name,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 4000,
                "heartbeat.interval.ms": 300,
                "partition.assignment.strategy": "range",
            }
        )
        try:
            producer.init_transactions(WAIT_S)
            consumer.subscribe([source])
            while _goes_on():
                _one_transaction(producer, consumer, target)
        except KafkaException as error:  # begin anew: what was not committed is read again
            print(f"{name} failed {error}", flush=True)
        finally:
            consumer.close()


def _goes_on() -> bool:
    return not select.select([sys.stdin], [], [], 0)[0]


def _one_transaction(producer: Producer, consumer: Consumer, target: str) -> None:
    records = []
    for record in consumer.consume(20, 0.1):
        if (error := record.error()) is None:
            records.append(record)
        elif error.fatal():
            raise KafkaException(error)
    if not records:
        return
    producer.begin_transaction()
    read: dict[tuple[str | None, int | None], TopicPartition] = {}
    for record in records:
        topic, partition, offset, value = record.topic(), record.partition(), record.offset(), record.value()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        producer.produce(target, b"done: " + value, record.key())
        read[topic, partition] = TopicPartition(topic, partition, offset + 1)
    producer.flush(WAIT_S)
    time.sleep(random.uniform(0, 0.1))  # most kills are to meet an open transaction
    producer.send_offsets_to_transaction(list(read.values()), consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)
    print("committed", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
