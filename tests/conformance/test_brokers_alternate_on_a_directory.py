"""A real broker and Leadline take turns on one log directory: what one wrote, the other serves.

Kafka writes and stops; Leadline reads all of it, writes more and stops; Kafka serves old and new, writes on and is
killed; Leadline recovers it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from leadline.config.topic import LogConfig
from leadline.log.log import Isolation, Log
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import AppendOrigin
from leadline.model import TopicPartition as LeadlineTopicPartition
from leadline.records.batch import walk
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.control import ControlType, control_type
from leadline.records.record import Record, RecordHeader, records_of
from leadline.runtime.ports import OsFiles, SystemChance, SystemTime
from tests.conformance.kafka.broker import Broker, broker, zookeeper
from tests.conformance.kafka.oracle import Oracle
from tests.support.logs import bytes_of, marker, whole_log
from tests.support.settings import live_settings

pytestmark = pytest.mark.conformance

T = TypeVar("T")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    "plain": (2, {"segment.bytes": "30000", "index.interval.bytes": "1000"}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "exact": (2, {"segment.bytes": "20000"}),
}
BROKER = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "zookeeper.session.timeout.ms": 6000,
    "auto.create.topics.enable": "false",
}


class SeenRecord(NamedTuple):
    """A record as a consumer gets it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Everything = dict[tuple[str, int], list[SeenRecord]]
Headers = list[tuple[str, str | bytes | None]]


# Clients


def produce(bootstrap: str, round: str) -> None:
    for codec in CODECS:
        client = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
        for n in range(120):
            key = None if n % 4 == 0 else f"{round}-{codec}-{n}"
            value = None if n % 10 == 9 else f"{n}" * (n % 50)
            headers: Headers = [("codec", codec.encode()), ("none", None)] if n % 3 == 0 else []
            client.produce("plain", key=key, value=value, headers=headers, timestamp=1_600_000_000_000 + n)
            client.produce("stamped", key=key, value=value)
        flush(client)
    idempotent = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for n in range(200):
        idempotent.produce("exact", key=f"{n}", value=f"{round}-once-{n}", partition=n % 2)
    flush(idempotent)


def transact(bootstrap: str, round: str, *, leave_open: bool = False) -> list[Producer]:
    """Transactions committed and aborted, interleaved with each other; the last one stays open if wished."""
    clients = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{round}-{n}", "compression.type": "lz4"})
        for n in range(2)
    ]
    for client in clients:
        client.init_transactions(60)
    for n in range(6):
        for client in clients:
            client.begin_transaction()
        for i in range(15):
            for number, client in enumerate(clients):
                client.produce("exact", key=f"{i}", value=f"{round}-{number}-{n}-{i}", partition=i % 2)
        for number, client in enumerate(clients):
            client.flush()
            client.commit_transaction(60) if (n + number) % 3 else client.abort_transaction(60)
    if leave_open:
        clients[0].begin_transaction()
        clients[0].produce("exact", key="open", value=f"{round}-open", partition=0)
        flush(clients[0])
    return clients


def flush(client: Producer) -> None:
    assert client.flush(60) == 0


def consume(bootstrap: str, isolation: str) -> Everything:
    """All records of all topics."""
    client = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-of-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
        }
    )
    unfinished = {(topic, n) for topic, (partitions, _) in TOPICS.items() for n in range(partitions)}
    records: Everything = {partition: [] for partition in unfinished}
    client.assign([TopicPartition(topic, n, 0) for topic, n in unfinished])
    while unfinished:
        message = client.poll(30)
        assert message is not None, f"no more came from {unfinished}"
        topic, partition = message.topic() or "", message.partition() or 0
        error = message.error()
        if error is None:
            records[topic, partition].append(seen_by_client(message))
        elif error.code() == ClientError._PARTITION_EOF:
            unfinished.discard((topic, partition))
        else:
            raise KafkaException(error)
    client.commit(asynchronous=False)  # so that __consumer_offsets has something to say
    client.close()
    return records


def seen_by_client(message: Message) -> SeenRecord:
    kind, timestamp = message.timestamp()
    assert (kind == TIMESTAMP_LOG_APPEND_TIME) == (message.topic() == "stamped")
    headers = tuple((str(pair[0]), _bytes(pair[1])) for pair in message.headers() or [])
    offset, key, value = message.offset(), message.key(), message.value()
    assert offset is not None
    return SeenRecord(offset, timestamp, _bytes(key), _bytes(value), headers)


def _bytes(data: object) -> bytes | None:
    assert data is None or isinstance(data, bytes)
    return data


# Leadline


def with_leadline(directory: Path, work: Callable[[LogDirs], Awaitable[T]]) -> T:
    """Start on a log directory, do something, stop cleanly."""

    async def run() -> T:
        settings = live_settings({"log.dirs": str(directory)})
        dirs = LogDirs(settings, SystemTime(), SystemChance(), OsFiles(), topic_config)
        await dirs.open()
        try:
            return await work(dirs)
        finally:
            await dirs.close(broker_epoch=1)

    return asyncio.run(run())


def topic_config(topic: str) -> LogConfig:
    return LogConfig.parse(TOPICS[topic][1] if topic in TOPICS else {"cleanup.policy": "compact"})


def uncommitted(log: Log) -> list[SeenRecord]:
    data = whole_log(log)
    return [seen_in_log(r) for at, header in walk(data) if not header.is_control for r in records_of(data, at, header)]


def committed(log: Log) -> list[SeenRecord]:
    """As a client does it: what is read with COMMITTED, without the batches of the transactions named as aborted."""
    records: list[SeenRecord] = []
    offset = log.log_start
    while data := bytes_of(read := log.read(offset, 50_000, Isolation.COMMITTED)):
        aborted = sorted(read.aborted, key=lambda txn: txn.first_offset)
        aborting: set[int] = set()
        for at, header in walk(data):
            while aborted and aborted[0].first_offset <= header.last_offset:
                aborting.add(aborted.pop(0).producer_id)
            if header.is_control:
                if control_type(next(records_of(data, at, header)).key) is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                records += [seen_in_log(r) for r in records_of(data, at, header) if r.offset >= offset]
            last = header.last_offset
        offset = last + 1
    return records


def seen_in_log(record: Record) -> SeenRecord:
    headers = tuple((header.key, header.value) for header in record.headers)
    return SeenRecord(record.offset, record.timestamp, record.key, record.value, headers)


async def read_all(dirs: LogDirs) -> tuple[Everything, Everything, dict[LeadlineTopicPartition, bytes]]:
    """Every record, the committed ones, and the bytes of the internal topics."""
    assert not dirs.offline
    assert not dirs.offline_logs()
    for log in dirs.logs.values():
        log.set_high_watermark(log.log_end)  # as the leader that it would be
    mine = {tp: log for tp, log in dirs.logs.items() if tp.topic in TOPICS}
    internal = {tp: whole_log(log) for tp, log in dirs.logs.items() if tp.topic not in TOPICS}
    return (
        {(tp.topic, tp.partition): uncommitted(log) for tp, log in mine.items()},
        {(tp.topic, tp.partition): committed(log) for tp, log in mine.items()},
        internal,
    )


async def write_more(dirs: LogDirs) -> None:
    """As the next leader: all codecs, an idempotent producer, transactions."""
    now = SystemTime().now_ms()
    for tp, log in dirs.logs.items():
        if tp.topic not in TOPICS:
            continue
        epoch = log.epochs.latest.epoch if log.epochs.latest else 0
        for number, codec in enumerate(Codec):
            records = [
                Record(n, now + n, f"leadline-{codec.name}".encode(), b"v" * n, (RecordHeader("from", b"leadline"),))
                for n in range(20)
            ]
            log.append_as_leader(build(records, BatchFields(codec=codec)), epoch)
            for transactional, producer in ((False, 900_000), (True, 900_001)):
                fields = BatchFields(
                    codec=codec,
                    producer_id=producer,
                    producer_epoch=0,
                    base_sequence=20 * number,
                    transactional=transactional,
                )
                log.append_as_leader(build(records, fields), epoch)
            log.append_as_leader(marker(900_001, commit=number % 2 == 0), epoch, AppendOrigin.COORDINATOR)
        log.advance_high_watermark(log.log_end)


# The turns


@dataclass
class Observations:
    """What was seen at each turn."""

    by_consumer: dict[str, Everything] = field(default_factory=dict)
    by_leadline: dict[str, Everything] = field(default_factory=dict)
    internal: dict[str, dict[LeadlineTopicPartition, bytes]] = field(default_factory=dict)
    directory: Path = Path()

    def note_consumers(self, turn: str, kafka: Broker) -> None:
        for isolation in ("read_uncommitted", "read_committed"):
            self.by_consumer[f"{turn} {isolation}"] = consume(kafka.bootstrap, isolation)

    def note_leadline(self, turn: str) -> None:
        all_records, committed_ones, internal = with_leadline(self.directory, read_all)
        self.by_leadline[f"{turn} read_uncommitted"] = all_records
        self.by_leadline[f"{turn} read_committed"] = committed_ones
        self.internal[turn] = internal


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> Observations:
    parent = tmp_path_factory.mktemp("turns")
    observations = Observations()
    with zookeeper(parent / "zk") as zk:
        with broker(parent / "kafka", zk, **BROKER) as kafka:
            observations.directory = kafka.log_dir
            create_topics(kafka.bootstrap)
            produce(kafka.bootstrap, "first")
            transact(kafka.bootstrap, "first")
            observations.note_consumers("after Kafka", kafka)
            kafka.stop()
        observations.note_leadline("after Kafka")
        with_leadline(observations.directory, write_more)
        with broker(parent / "kafka", zk, **BROKER) as kafka:
            observations.note_consumers("after Leadline", kafka)
            produce(kafka.bootstrap, "second")
            clients = transact(kafka.bootstrap, "second", leave_open=True)
            observations.note_consumers("before the kill", kafka)
            kafka.kill()
            del clients
    assert not (observations.directory / ".kafka_cleanshutdown").exists()
    observations.note_leadline("after the kill")
    return observations


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, partitions, 1, config=config) for name, (partitions, config) in TOPICS.items()]
    for done in admin.create_topics(topics).values():
        done.result(120)


ISOLATIONS = ("read_uncommitted", "read_committed")


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_leadline_reads_what_a_broker_wrote(observations: Observations, isolation: str) -> None:
    ours = observations.by_leadline[f"after Kafka {isolation}"]
    assert ours == observations.by_consumer[f"after Kafka {isolation}"]
    assert sum(map(len, ours.values())) > 1200


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_a_broker_serves_what_leadline_wrote(observations: Observations, isolation: str) -> None:
    before, after = (
        observations.by_consumer[f"after Kafka {isolation}"],
        observations.by_consumer[f"after Leadline {isolation}"],
    )
    ours_committed = {"read_uncommitted": 5 * 20 * 3, "read_committed": 5 * 20 * 2 + 3 * 20}[isolation]
    for partition, records in after.items():
        assert records[: len(before[partition])] == before[partition]
        new = records[len(before[partition]) :]
        assert len(new) == ours_committed
        assert all(record.headers == (("from", b"leadline"),) for record in new)


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_leadline_recovers_what_a_killed_broker_left(observations: Observations, isolation: str) -> None:
    assert (
        observations.by_leadline[f"after the kill {isolation}"]
        == observations.by_consumer[f"before the kill {isolation}"]
    )
    open_ones = [
        record
        for record in observations.by_leadline[f"after the kill {isolation}"]["exact", 0]
        if record.value == b"second-open"
    ]
    assert len(open_ones) == (isolation == "read_uncommitted")


@pytest.mark.parametrize("turn", ["after Kafka", "after the kill"])
def test_internal_topics_are_read_as_kafka_reads_them(observations: Observations, oracle: Oracle, turn: str) -> None:
    internal = observations.internal[turn]
    assert {tp.topic for tp in internal} == {"__consumer_offsets", "__transaction_state"}
    for data in internal.values():
        ours = [records_of(data, at, header) for at, header in walk(data)]
        theirs = oracle.parse(data)
        assert [[(r.offset, r.key, r.value) for r in batch] for batch in ours] == [
            [(r.offset, r.key, r.value) for r in batch.records] for batch in theirs
        ]
        assert all(batch.valid for batch in theirs)
    assert sum(map(len, internal.values())) > 1000


def test_kafkas_dump_finds_nothing_wrong_in_the_end(observations: Observations, oracle: Oracle) -> None:
    suffixes = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    for topic in TOPICS:
        directory = observations.directory / f"{topic}-0"
        files = ",".join(str(path) for path in sorted(directory.iterdir()) if path.suffix in suffixes)
        dump = oracle.dump("--files", files, "--deep-iteration")
        for complaint in ("Mismatch", "Non-consecutive", "isvalid: false", "rror"):
            assert complaint not in dump
