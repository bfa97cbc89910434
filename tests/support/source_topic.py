"""Topics that the format `leadline` reads as Spark's driver and tasks do, without Spark."""

import itertools
import json
import pickle

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient
from pyspark.sql.streaming.datasource import ReadLimit

from leadline.spark.topics.options import read_options
from leadline.spark.topics.source import BatchReader
from leadline.spark.topics.stream_source import StreamReader
from tests.support.broker import RunningBroker
from tests.support.topics import create_topic

_fresh = itertools.count()
Json = dict[str, object]


class SourceTopic:
    """A topic of its own for each test, with records whose values are numbers."""

    def __init__(self, broker: RunningBroker, partitions: int = 2) -> None:
        self.broker, self.name = broker, f"orders-{next(_fresh)}"
        create_topic(broker.bootstrap, self.name, partitions)
        self.admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def produce(self, count: int, first: int = 0, partitions: int = 2, timestamp: int = 0) -> None:
        """Produces numbers, in turns to the partitions."""
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 1})
        for n in range(first, first + count):
            producer.produce(
                self.name, value=str(n), partition=n % partitions, timestamp=timestamp + n if timestamp else 0
            )
        producer.flush()

    def transact(self, values: list[int], *, commit: bool) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "transactional.id": f"t{next(_fresh)}"})
        producer.init_transactions()
        producer.begin_transaction()
        for n in values:
            producer.produce(self.name, value=str(n), partition=n % 2)
        producer.flush()
        producer.commit_transaction() if commit else producer.abort_transaction()

    def delete_before(self, offset: int) -> None:
        for future in self.admin.delete_records([Theirs(self.name, n, offset) for n in range(2)]).values():
            future.result(120)

    def delete(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(120)

    def options(self, **options: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "kafka.default.api.timeout.ms": "5000",
            **({} if "assign" in options or "subscribePattern" in options else {"subscribe": self.name}),
            **{name.replace("__", "."): value for name, value in options.items()},
        }

    def batch(self, **options: str) -> list[int]:
        """The values, in the order of partitions and offsets."""
        reader = BatchReader(read_options(self.options(**options), streaming=False))
        return values(reader, reader.partitions())

    def stream(self, **options: str) -> "DrivenStream":
        return DrivenStream(StreamReader(read_options(self.options(**options), streaming=True)))


def values(reader, partitions) -> list[int]:  # type: ignore[no-untyped-def]
    task_reader = pickle.loads(pickle.dumps(reader))
    rows = [
        (row["topic"], row["partition"], row["offset"], int(row["value"]))
        for partition in partitions
        for batch in task_reader.read(pickle.loads(pickle.dumps(partition)))
        for row in batch.to_pylist()
    ]
    return [value for *_, value in sorted(rows)]


class DrivenStream:
    """A stream as Spark drives it: the offsets of a batch are stored before it is read."""

    def __init__(self, reader: StreamReader, checkpoint: Json | None = None) -> None:
        self.reader, self.at = reader, checkpoint

    def next(self, limit: ReadLimit | None = None) -> list[int]:
        start = self.reader.initialOffset() if self.at is None else self.at
        end = self.reader.latestOffset(_stored(start), limit or self.reader.getDefaultReadLimit())
        self.at = _stored(end)
        return [] if end == start else values(self.reader, self.reader.partitions(_stored(start), self.at))

    def restarted(self, reader: StreamReader) -> "DrivenStream":
        return DrivenStream(reader, self.at)


def _stored(offsets: Json) -> Json:
    stored: Json = json.loads(json.dumps(offsets))
    return stored


def in_order(numbers: range) -> list[int]:
    return [*(n for n in numbers if n % 2 == 0), *(n for n in numbers if n % 2 == 1)]
