"""librdkafka aborts a transaction right after it committed another, again and again.

The first partitions of the new transaction may come while the old one is being completed. Were they refused until then,
the abort would overtake them, and INVALID_TXN_STATE is fatal for the client.
"""

import random
import threading
import time

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker import RunningBroker

TOPIC, PARTITIONS, PRODUCERS, PAIRS = "aborted-after-commit", 3, 8, 60
PATIENCE_S = 60
PAUSES_S = (0.001, 0.003, 0.01)  # between the records and the abort


def commit_and_abort(bootstrap: str, id: str, failures: list[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": id, "linger.ms": 0, "log_level": 0})
    chosen = random.Random(id)
    try:
        producer.init_transactions(PATIENCE_S)
        for _ in range(PAIRS):
            for ended in (producer.commit_transaction, producer.abort_transaction):
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce(TOPIC, b"x", partition=partition)
                producer.poll(0)
                if ended == producer.abort_transaction:
                    time.sleep(chosen.choice(PAUSES_S))
                ended(PATIENCE_S)
    except KafkaException as error:
        failures.append(f"{id}: {error}")


def test_an_abort_right_after_a_commit_is_no_error(broker: RunningBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE_S)
    failures: list[str] = []
    threads = [
        threading.Thread(target=commit_and_abort, args=(broker.bootstrap, f"{TOPIC}-{n}", failures))
        for n in range(PRODUCERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
