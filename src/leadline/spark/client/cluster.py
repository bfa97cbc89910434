"""A client of a cluster for the pipeline: leaders, the first and last offsets of partitions, committed offsets.

It blocks, for drivers and tasks, over `connection`. It looks up leaders and coordinators when it first needs them, and
again when a broker answers that it is not the one. It retries retriable errors for default.api.timeout.ms (60 s), and
then raises the last one.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

from leadline.config.settings import nearest
from leadline.errors import LeaderNotAvailable, NotCoordinator, UnknownTopicOrPartition
from leadline.model import NO_LEADER, BrokerId, Offset, TopicId, TopicPartition, by_topic
from leadline.spark.client.connection import (
    AccessRefused,
    BlockingConnection,
    BrokerAddress,
    ClientSecurity,
    Unreachable,
)
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.retries import Retries
from leadline.spark.errors import partitions_text
from leadline.wire.classes import Message
from leadline.wire.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

M = TypeVar("M", bound=Message)
T = TypeVar("T")

EARLIEST, LATEST = -2, -1  # as times of ListOffsets
GROUP, TRANSACTION = 0, 1  # as kinds of coordinators
CREATION_S = 5.0  # that the creation of a topic may take


class TopicMetadata(NamedTuple):
    name: str
    id: TopicId
    leaders: dict[int, BrokerId]  # of each partition; NO_LEADER while there is none
    is_internal: bool = False

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in sorted(self.leaders)]


class ClusterClient:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self.servers = properties.get("bootstrap.servers", "")
        self.properties = properties
        self.security = ClientSecurity.of(properties)
        self.timeout_s = int(properties.get("default.api.timeout.ms", 60_000)) / 1000
        self._bootstrap = list(addresses(self.servers))
        self._brokers: dict[BrokerId, BrokerAddress] = {}
        self._controller: BrokerId = NO_LEADER
        self._connections: dict[BrokerAddress, BlockingConnection] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._coordinators: dict[tuple[int, str], BrokerAddress] = {}

    def __enter__(self) -> "ClusterClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def limit(self, timeout_s: float) -> None:
        """The time-out of the next requests, and of new connections."""
        self.security = replace(self.security, timeout_s=timeout_s)
        for connection in self._connections.values():
            connection.limit(timeout_s)

    # Metadata and connections

    def topics(self, names: Collection[str] | None = None) -> dict[str, TopicMetadata]:
        """The current metadata of the named topics that exist, or of all topics."""
        requested = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self._metadata(MetadataRequest(topics=requested, allow_auto_topic_creation=False))
        topics: dict[str, TopicMetadata] = {}
        for topic in answer.topics:
            if topic.error_code in (0, LeaderNotAvailable.code) and topic.name is not None:
                leaders = {part.partition_index: part.leader_id for part in topic.partitions}
                topics[topic.name] = TopicMetadata(topic.name, topic.topic_id, leaders, topic.is_internal)
            elif topic.error_code != UnknownTopicOrPartition.code:
                raise RequestFailed(f"topic {topic.name}", topic.error_code)
        self._topics |= topics
        for missing in set(names or ()) - topics.keys():
            self._topics.pop(missing, None)
        return topics

    def existing_topics(self, names: Collection[str]) -> dict[str, TopicMetadata]:
        """As `topics`; NoSuchTopic if one is missing."""
        topics = self.topics(names)
        for name in names:
            if name not in topics:
                raise NoSuchTopic(f"there is no topic {name} at {self.servers}{nearest(name, self.topics())}")
        return topics

    def created_topic(self, name: str) -> TopicMetadata:
        """A topic to write to. The brokers create it if it is missing and auto.create.topics.enable is set."""

        def ask() -> TopicMetadata:
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            codes = {topic.error_code for topic in self._metadata(request).topics}
            topics = self.topics([name])
            if name not in topics:
                raise RequestFailed(f"there is no topic {name} at {self.servers}", max(codes))
            return topics[name]

        return self.topics([name]).get(name) or self.retry(ask, timeout_s=min(CREATION_S, self.timeout_s))

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        answer = self.ask_any_broker(request, MetadataResponse)
        self._brokers = {broker.node_id: BrokerAddress(broker.host, broker.port) for broker in answer.brokers}
        self._controller = answer.controller_id
        return answer

    def ask_any_broker(self, request: Message, kind: type[M]) -> M:
        """The answer of the first broker that can be reached."""
        patience = Retries(self.timeout_s)
        while True:
            error: Exception = AccessRefused(
                "kafka.bootstrap.servers is empty: expected host:port, or several by commas"
            )
            for address in dict.fromkeys([*self._brokers.values(), *self._bootstrap]):
                try:
                    return self._connection(address).ask(request, kind)
                except Unreachable as failed:
                    error = failed
                    self.forget(address)
            patience.wait(error)

    def _connection(self, address: BrokerAddress) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = BlockingConnection(address, self.security)
        return connection

    def forget(self, address: BrokerAddress) -> None:
        """Closes the connection: the broker does not answer."""
        if (connection := self._connections.pop(address, None)) is not None:
            connection.close()

    def ask_brokers(self, request: Message, kind: type[M]) -> list[M]:
        """The answers of all brokers of the cluster."""

        def ask() -> list[M]:
            self.topics([])
            connections = [self._connection(address) for address in self._brokers.values()]
            return [self.using(connection, partial(connection.ask, request, kind)) for connection in connections]

        return self.retry(ask)

    def broker_ids(self) -> list[BrokerId]:
        """The ids of all brokers of the cluster, now."""
        self.topics([])
        return sorted(self._brokers)

    def broker(self, id: BrokerId) -> BlockingConnection:
        """A connection to a broker of the latest metadata."""
        if id not in self._brokers:
            raise RequestFailed(f"broker {id}", LeaderNotAvailable.code)
        return self._connection(self._brokers[id])

    @property
    def controller_id(self) -> BrokerId:
        """The id of the controller, by the latest metadata."""
        return self._controller

    def controller(self) -> BlockingConnection:
        """A connection to the current controller."""
        self.topics([])
        if self._controller not in self._brokers:
            raise RequestFailed("the controller", LeaderNotAvailable.code)
        return self._connection(self._brokers[self._controller])

    def leader(self, tp: TopicPartition) -> BlockingConnection:
        """A connection to the partition's leader. RequestFailed or Unreachable while there is none."""
        topic = self._topics.get(tp.topic) or self.existing_topics([tp.topic])[tp.topic]
        if tp.partition not in topic.leaders:
            raise NoSuchTopic(f"topic {tp.topic} has {partitions_text(len(topic.leaders))}; there is no {tp}")
        leader = topic.leaders[tp.partition]
        if leader == NO_LEADER or leader not in self._brokers:
            raise RequestFailed(str(tp), LeaderNotAvailable.code)
        return self._connection(self._brokers[leader])

    def forget_leaders(self, topic: str) -> None:
        """The leaders of the topic changed: the next use looks them up."""
        self._topics.pop(topic, None)

    def retry(self, what: Callable[[], T], topics: Collection[str] = (), timeout_s: float | None = None) -> T:
        """Retries `what`; looks up the leaders of the topics again before each try."""
        patience = Retries(self.timeout_s if timeout_s is None else timeout_s)
        while True:
            try:
                return what()
            except (Unreachable, RequestFailed) as error:
                if isinstance(error, RequestFailed) and not error.retriable:
                    raise
                patience.wait(error)
            for topic in topics:
                self.forget_leaders(topic)

    def ask_leaders(
        self,
        partitions: Collection[TopicPartition],
        ask: Callable[[BlockingConnection, list[TopicPartition]], Mapping[TopicPartition, tuple[int, T]]],
    ) -> dict[TopicPartition, T]:
        """The answers of the leaders: `ask` returns an error code and an answer for each partition."""
        answers: dict[TopicPartition, T] = {}

        def ask_for_the_rest() -> dict[TopicPartition, T]:
            by_leader: dict[BlockingConnection, list[TopicPartition]] = defaultdict(list)
            for tp in partitions:
                if tp not in answers:
                    by_leader[self.leader(tp)].append(tp)
            failed: RequestFailed | None = None
            for connection, tps in by_leader.items():
                for tp, (code, answer) in self.using(connection, partial(ask, connection, tps)).items():
                    if code == 0:
                        answers[tp] = answer
                    else:
                        failed = RequestFailed(str(tp), code)
            if failed is not None:
                raise failed
            return answers

        return self.retry(ask_for_the_rest, {tp.topic for tp in partitions})

    def using(self, connection: BlockingConnection, ask: Callable[[], T]) -> T:
        """Runs `ask` on a connection, and forgets a broken one."""
        try:
            return ask()
        except Unreachable:
            self.forget(connection.address)
            raise

    # Offsets

    def offsets(
        self, times: Mapping[TopicPartition, int], *, committed: bool = False
    ) -> dict[TopicPartition, Offset | None]:
        """The offset of the first record at or after a time (EARLIEST, LATEST), by partition; None: no such record.

        `committed`: the latest is the last stable offset, not the high watermark.
        """

        def ask(
            connection: BlockingConnection, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, tuple[int, Offset | None]]:
            topics = [
                ListOffsetsRequest.ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.ListOffsetsPartition(partition_index=tp.partition, timestamp=times[tp])
                        for tp in of_topic
                    ],
                )
                for name, of_topic in by_topic(partitions).items()
            ]
            request = ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=topics)
            answer = connection.ask(request, ListOffsetsResponse)
            return {
                TopicPartition(topic.name, part.partition_index): (
                    part.error_code,
                    part.offset if part.offset >= 0 else None,
                )
                for topic in answer.topics
                for part in topic.partitions
            }

        return self.ask_leaders(list(times), ask)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        return _or_zero(self.offsets(dict.fromkeys(partitions, EARLIEST)))

    def latest(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, Offset]:
        return _or_zero(self.offsets(dict.fromkeys(partitions, LATEST), committed=committed))

    def sizes(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The bytes of partitions on their leaders' disks. RequestFailed without permission to describe log dirs."""

        def ask(connection: BlockingConnection, tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
            topics = [
                DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=[tp.partition for tp in of_topic])
                for name, of_topic in by_topic(tps).items()
            ]
            answer = connection.ask(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
            if answer.error_code:
                raise RequestFailed("sizes of partitions", answer.error_code)
            return dict.fromkeys(tps, (0, 0)) | {
                TopicPartition(topic.name, part.partition_index): (0, part.partition_size)
                for log_dir in answer.results
                for topic in log_dir.topics
                for part in topic.partitions
                if not part.is_future_key
            }

        return self.ask_leaders(partitions, ask)

    # Groups

    def coordinator(self, kind: int, key: str) -> BlockingConnection:
        address = self._coordinators.get((kind, key))
        if address is None:
            answer = self.ask_any_broker(FindCoordinatorRequest(key=key, key_type=kind), FindCoordinatorResponse)
            if answer.error_code:
                raise RequestFailed(f"coordinator of {key}", answer.error_code, answer.error_message)
            address = self._coordinators[kind, key] = BrokerAddress(answer.host, answer.port)
        return self._connection(address)

    def ask_coordinator(self, kind: int, key: str, ask: Callable[[BlockingConnection], T]) -> T:
        """The answer of the coordinator; looks it up again if it moved."""

        def once() -> T:
            try:
                connection = self.coordinator(kind, key)
                return self.using(connection, lambda: ask(connection))
            except (Unreachable, RequestFailed) as error:
                if not isinstance(error, RequestFailed) or error.code in (NotCoordinator.code, 15):
                    self._coordinators.pop((kind, key), None)
                raise

        return self.retry(once)

    def committed(self, group: str, partitions: Collection[TopicPartition]) -> dict[TopicPartition, "GroupOffset"]:
        """The offsets that a group has committed; waits for pending transactions.

        A request for all partitions does not wait for a pending first commit of a partition: Kafka lists the committed.
        """

        def ask(connection: BlockingConnection) -> dict[TopicPartition, GroupOffset]:
            topics = [
                OffsetFetchRequest.OffsetFetchRequestTopic(
                    name=name, partition_indexes=[tp.partition for tp in of_topic]
                )
                for name, of_topic in by_topic(partitions).items()
            ]
            request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
            answer = connection.ask(request, OffsetFetchResponse)
            parts = {
                TopicPartition(topic.name, part.partition_index): part
                for topic in answer.topics
                for part in topic.partitions
            }
            for code in (answer.error_code, *(part.error_code for part in parts.values())):
                if code:
                    raise RequestFailed(f"group {group}", code)
            return {
                tp: GroupOffset(part.committed_offset, part.metadata or "")
                for tp, part in parts.items()
                if part.committed_offset >= 0
            }

        return self.ask_coordinator(GROUP, group, ask)

    def commit(self, group: str, offsets: Mapping[TopicPartition, Offset], metadata: str = "") -> None:
        """Commits offsets for a group without members."""

        def ask(connection: BlockingConnection) -> None:
            topics = [
                OffsetCommitRequest.OffsetCommitRequestTopic(
                    name=name,
                    partitions=[
                        OffsetCommitRequest.OffsetCommitRequestPartition(
                            partition_index=tp.partition, committed_offset=offsets[tp], committed_metadata=metadata
                        )
                        for tp in of_topic
                    ],
                )
                for name, of_topic in by_topic(offsets).items()
            ]
            answer = connection.ask(OffsetCommitRequest(group_id=group, topics=topics), OffsetCommitResponse)
            for topic in answer.topics:
                for part in topic.partitions:
                    if part.error_code:
                        raise RequestFailed(f"group {group}: {topic.name}-{part.partition_index}", part.error_code)

        self.ask_coordinator(GROUP, group, ask)


class GroupOffset(NamedTuple):
    offset: Offset
    metadata: str


def addresses(servers: str) -> Iterator[BrokerAddress]:
    """The addresses in host:port,host:port. A protocol prefix is ignored, as in Kafka's clients."""
    for server in filter(None, (part.strip() for part in servers.split(","))):
        host, colon, port = server.rpartition("://")[2].rpartition(":")
        if not (colon and host and port.isdigit() and int(port) < 1 << 16):
            raise AccessRefused(f"kafka.bootstrap.servers={servers}: {server!r} is not host:port")
        yield BrokerAddress(host.strip("[]"), int(port))


def _or_zero(offsets: Mapping[TopicPartition, Offset | None]) -> dict[TopicPartition, Offset]:
    return {tp: 0 if offset is None else offset for tp, offset in offsets.items()}
