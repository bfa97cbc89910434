"""One request to two brokers, a real Kafka and Leadline, and their answers compared field by field.

    both.ask_and_compare(ListOffsetsResponse, ListOffsetsRequest(...), version=8)

asks both, fails if the answers differ in anything but what `Plain` says may differ, and returns Leadline's.
Where a request must name what each side has of its own (ids, directories), it is a function of the side.
"""

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import TypeVar
from uuid import UUID

from leadline.wire.classes import Message
from leadline.wire.classes import Struct as Part
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.kafka.broker import broker, zookeeper
from tests.support.broker import RunningBroker, leadline
from tests.support.waiting import until

M = TypeVar("M", bound=Message)
T = TypeVar("T")
Closed = None  # instead of a frame: the broker closed the connection

ANSWER_S = 90
NO_ID = UUID(int=0)
CREATABLE = CreateTopicsRequest.CreatableTopic
_SIZE = Struct(">i")
_MEMBER_END = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")

# The same for both. Two directories, so that replicas can move; frequent upkeep, so that tests need not wait for it;
# connections that outlast the tests between two uses of them.
SETTINGS = {
    "connections.max.idle.ms": 3_600_000,
    "broker.id": 1,
    "broker.rack": "here",
    "num.partitions": 2,
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 300,
    "log.initial.task.delay.ms": 300,
    "log.cleaner.backoff.ms": 300,
    "log.segment.delete.delay.ms": 1000,
    "message.max.bytes": 1_000_000,
    "max.incremental.fetch.session.cache.slots": 50,
    "queued.max.request.bytes": 200_000_000,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.max.size": 10,
}


class Connection:
    """A plain socket: requests go out, frames come in."""

    def __init__(
        self, host: str, port: int, client_id: str = "both", source: str = "", timeout_s: float = ANSWER_S
    ) -> None:
        """`source`: the address that it comes from; empty: as the system chooses it."""
        self.client_id = client_id
        self.socket = socket.create_connection((host, port), timeout_s, (source, 0) if source else None)
        self.reader = self.socket.makefile("rb")
        self.correlation = 0

    def send(self, message: Message, version: int) -> None:
        self.correlation += 1
        pieces = request_frame(message, version, self.correlation, self.client_id)
        self.socket.sendall(b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray)))

    def receive(self) -> bytes | None:
        try:
            front = self.reader.read(4)
            return self.reader.read(_SIZE.unpack(front)[0]) if len(front) == 4 else Closed
        except ConnectionResetError:
            return Closed

    def ask(self, kind: type[M], message: Message, version: int) -> M:
        self.send(message, version)
        frame = self.receive()
        assert frame is not Closed, f"the connection was closed instead of an answer to {message} v{version}"
        correlation, answer = parse_response(kind, frame, version)
        assert correlation == self.correlation
        return answer

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


class Side:
    """One of the two brokers."""

    def __init__(self, name: str, host: str, port: int, dirs: list[str]) -> None:
        self.name, self.host, self.port, self.dirs = name, host, port, dirs
        self.connection = self.connect()
        self.ids: dict[UUID, str] = {}
        self.cluster_id = self.connection.ask(DescribeClusterResponse, DescribeClusterRequest(), 0).cluster_id

    def __repr__(self) -> str:
        return self.name

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self, client_id: str = "both", source: str = "") -> Connection:
        return Connection(self.host, self.port, client_id, source)

    def ask(self, kind: type[M], message: Message, version: int) -> M:
        try:
            return self.connection.ask(kind, message, version)
        except (AssertionError, OSError) as error:  # the others go on with a new one
            self.connection.close()
            self.connection = self.connect()
            raise AssertionError(f"{self}: {error}, asked for {message} v{version}") from error

    def topic_of(self, topic_id: UUID) -> str | None:
        if topic_id not in self.ids:
            answer = self.ask(MetadataResponse, MetadataRequest(topics=None), 12)
            self.ids |= {topic.topic_id: str(topic.name) for topic in answer.topics}
        return self.ids.get(topic_id)

    def id_of(self, topic: str) -> UUID:
        self.topic_of(UUID(int=1))
        return next(id for id, name in reversed(self.ids.items()) if name == topic)


class Plain:
    """An answer as plain values, without what may differ between two brokers that are both right.

    What that is, and why, stands here and nowhere else:

    - hosts, ports, cluster id, directories: each broker has its own; it must tell its own, not just any.
    - topic ids, fetch session ids, new producer ids: drawn by chance, or handed out in blocks.
    - the end of a member id: drawn by chance. What it begins with is the client's, or the static member's, name.
    - times by the broker's clock: within a minute of now.
    - the wording of messages. A success has a message where Kafka's has one. An error must have one wherever the
      protocol has room for it, also where Kafka leaves it out.
    - what a disk holds and what is free on it.
    - is_default, which DescribeConfigs has in version 0 alone: Kafka never fills it in.
    - documentation of settings: our own words; present where Kafka has any.
    - the order of topics, partitions and settings, which in Kafka is that of hash tables. Fetch keeps its order.
    """

    HOSTS = frozenset({"host", "host_name"})
    MESSAGES = frozenset({"error_message", "batch_index_error_message"})
    CLOCK = frozenset({"log_append_time_ms", "transaction_start_time_ms", "last_timestamp"})
    DISK = frozenset({"total_bytes", "usable_bytes"})
    MEMBERS = frozenset({"member_id", "leader"})
    OWN_SETTINGS = frozenset(
        """
        advertised.listeners listeners log.dir log.dirs zookeeper.connect authorizer.class.name
        replica.alter.log.dirs.io.max.bytes.per.second
        """.split()
    )

    def __init__(self, side: Side, version: int) -> None:
        self.side, self.version = side, version

    def of(self, message: Message) -> object:
        self.ordered = type(message).__name__ == "FetchResponse"
        return self._part(message)

    def _part(self, part: Part) -> dict[str, object]:
        fields: dict[str, object] = {}
        failed = bool(getattr(part, "error_code", 0))
        for field in part.SPEC.fields:
            if self.version in field.versions:
                fields[field.name] = self._value(field.name, getattr(part, field.name), failed, part)
        return fields

    def _value(self, name: str, value: object, failed: bool, part: Part) -> object:
        side = self.side
        if isinstance(value, list):
            items = [self._value(name, item, failed, part) for item in value]
            structs = bool(value) and isinstance(value[0], Part)
            return sorted(items, key=repr) if structs and not self.ordered else items
        if isinstance(value, Part):
            return self._part(value)
        if isinstance(value, memoryview):
            return bytes(value)
        if isinstance(value, UUID) and value != NO_ID:
            return f"id of {topic}" if (topic := side.topic_of(value)) else value
        if name in self.HOSTS and value:
            return "its host" if value == side.host else f"not its host: {value}"
        if name == "port" and value != -1:
            return "its port" if value == side.port else f"not its port: {value}"
        if name == "cluster_id" and value:
            return "its cluster id" if value == side.cluster_id else f"not its cluster id: {value}"
        if name == "log_dir" and value in side.dirs:
            return f"directory {side.dirs.index(str(value))}"
        if name == "session_id" and value:
            return "a session"
        if name in self.MESSAGES:
            return ("a message" if failed or name == "batch_index_error_message" else value) if value else (
                "an error without a message" if failed and side.name == "Leadline" else "a message" if failed else value
            )  # fmt: skip
        if name in self.MEMBERS:
            return _MEMBER_END.sub("-*", str(value))
        if name == "documentation":
            return bool(value)
        if name == "is_default":
            return "perhaps"
        if name in self.DISK and isinstance(value, int) and value > 0:
            return "bytes"
        if name in self.CLOCK and isinstance(value, int) and abs(time.time() * 1000 - value) < 60_000:
            return "now"
        if name == "value" and getattr(part, "name", "") in self.OWN_SETTINGS:
            return "its own"
        return value


class Both:
    def __init__(self, kafka: Side, ours: Side, zookeeper: str = "") -> None:
        """`zookeeper`: where Kafka's nodes are."""
        self.kafka, self.ours, self.zookeeper = kafka, ours, zookeeper
        self.sides = (kafka, ours)

    def ask_and_compare(
        self,
        kind: type[M],
        request: Message | Callable[[Side], Message],
        version: int,
        *,
        differ: Callable[[M], None] = lambda _: None,
    ) -> M:
        """Leadline's answer, if it is Kafka's. `differ`: changes both answers where they are meant to differ."""
        answers = [side.ask(kind, request(side) if callable(request) else request, version) for side in self.sides]
        for answer in answers:
            differ(answer)
        return self.compare(answers, version)

    def compare(self, answers: list[M], version: int) -> M:
        theirs, ours = (Plain(side, version).of(answer) for side, answer in zip(self.sides, answers, strict=True))
        report = "\n".join(differences(theirs, ours))
        assert not report, f"{type(answers[0]).__name__} v{version}: Kafka's and Leadline's differ\n{report}"
        return answers[1]

    def map(self, call: Callable[[Side], T]) -> list[T]:
        """What is done to both alike; the answers are the caller's affair."""
        return [call(side) for side in self.sides]

    def create(self, name: str, partitions: int = 1, **configs: object) -> str:
        """A topic on both, there when this returns."""
        settings = [
            CreateTopicsRequest.CreateableTopicConfig(name=key.replace("_", "."), value=str(value))
            for key, value in configs.items()
        ]
        topic = CREATABLE(name=name, num_partitions=partitions, replication_factor=1, configs=settings)
        for side in self.sides:
            until(lambda side=side: _is_created(side, topic))  # type: ignore[misc]
            until(lambda side=side: _leads(side, name))  # type: ignore[misc]
        return name

    def produce(self, topic: str, *batches: bytes, partition: int = 0) -> None:
        for batch in batches:
            request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(topic, batch, partition)])
            for side in self.sides:
                answer = side.ask(ProduceResponse, request, 9)
                assert answer.responses[0].partition_responses[0].error_code == 0, answer


def produced(topic: str, records: bytes | None, partition: int = 0) -> ProduceRequest.TopicProduceData:
    data = ProduceRequest.PartitionProduceData(index=partition, records=records)
    return ProduceRequest.TopicProduceData(name=topic, partition_data=[data])


def _is_created(side: Side, topic: CreateTopicsRequest.CreatableTopic) -> bool:
    (result,) = side.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics
    if "marked for deletion" in (result.error_message or ""):  # Kafka frees a name a moment after it has answered
        return False
    assert result.error_code == 0, result
    return True


def _leads(side: Side, topic: str) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    (description,) = side.ask(MetadataResponse, request, 9).topics
    return description.error_code == 0 and all(partition.leader_id >= 0 for partition in description.partitions)


def differences(theirs: object, ours: object, path: str = "") -> Iterator[str]:
    """Each field that differs, with where it stands."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs:
            yield from differences(theirs[name], ours[name], f"{path}.{name}" if path else name)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for n, pair in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(*pair, f"{path}[{n}]")
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield f"  {path}: {len(theirs)} in Kafka's, {len(ours)} in Leadline's"
        yield from (f"    only in Kafka's: {_short(item)}" for item in theirs if item not in ours)
        yield from (f"    only in Leadline's: {_short(item)}" for item in ours if item not in theirs)
    elif theirs != ours or type(theirs) is not type(ours):
        yield f"  {path}: Kafka {_short(theirs)}, Leadline {_short(ours)}"


def _short(value: object) -> str:
    text = repr(value)
    return f"{len(value)} of {text}"[:2000] if isinstance(value, bytes) else text


@contextmanager
def both_brokers(directory: Path, settings: Mapping[str, object] = SETTINGS) -> Iterator[Both]:
    theirs, ours = (
        [str(directory / name / directory_name) for directory_name in ("one", "two")]
        for name in ("kafka-data", "leadline-data")
    )
    with (
        zookeeper(directory / "zookeeper") as coordinator,
        broker(directory / "kafka", coordinator, **settings, log_dirs=",".join(theirs)) as kafka,
        _leadline(directory / "leadline", {**settings, "log.dirs": ",".join(ours)}) as us,
    ):
        sides = Side("Kafka", "127.0.0.1", kafka.port, theirs), Side("Leadline", "localhost", us.port, ours)
        both = Both(*sides, coordinator.connect)
        yield both
        for side in both.sides:
            side.connection.close()


@contextmanager
def _leadline(directory: Path, settings: dict[str, object]) -> Iterator[RunningBroker]:
    with leadline(directory, **settings) as running:
        yield running
