"""Offsets of a cluster: of partitions, of groups, and the times of records."""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from leadline.admin.connection import MIN_TIMEOUT_S, ClusterConnection, no_topic
from leadline.admin.errors import Failure, client_error_text
from leadline.admin.partitions import OffsetRange, PartitionOffset
from leadline.admin.reset_plan import OffsetChange
from leadline.model import NO_EPOCH, Offset, TopicPartition

if TYPE_CHECKING:
    import confluent_kafka
    from confluent_kafka.admin import AdminClient

WAIT_S = 0.1
MAX_COMMIT_PARTITIONS = 200  # partitions in one commit
LEADER_CHANGED = frozenset(
    "NOT_LEADER_FOR_PARTITION LEADER_NOT_AVAILABLE FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH _TRANSPORT".split()
)  # errors while a partition changes its leader


def committed_by(
    connection: ClusterConnection, admin: "AdminClient", group: str
) -> dict[TopicPartition, PartitionOffset]:
    """All committed offsets of a group."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = [ConsumerGroupTopicPartitions(group)]
    answer = admin.list_consumer_group_offsets(request, request_timeout=connection.remaining_s)
    committed = {}
    for partition in connection.wait(answer[group]).topic_partitions or ():
        tp = TopicPartition(partition.topic, partition.partition)
        if partition.error is not None:
            raise Failure(f"group {group}, {tp}: {client_error_text(partition.error)}")
        if partition.offset >= 0:
            epoch = partition.leader_epoch if partition.leader_epoch is not None else NO_EPOCH
            committed[tp] = PartitionOffset(partition.offset, epoch, _metadata(partition))
    return committed


def _metadata(partition: "confluent_kafka.TopicPartition") -> str:
    """The metadata of a commit. librdkafka does not end the string, so it may contain bytes that are not UTF-8."""
    try:
        return partition.metadata or ""
    except UnicodeDecodeError:
        return ""


def existing_partitions(
    connection: ClusterConnection, admin: "AdminClient", partitions: Iterable[TopicPartition]
) -> set[TopicPartition]:
    """The partitions among these that the cluster has."""
    topics = connection.metadata(admin).topics
    return {tp for tp in partitions if tp.topic in topics and tp.partition in topics[tp.topic].partitions}


def resolve_partitions(
    connection: ClusterConnection, admin: "AdminClient", selections: Iterable[tuple[str, list[int] | None]]
) -> list[TopicPartition]:
    """The selected partitions, sorted. No numbers: all partitions of the topic. A Failure if one does not exist."""
    topics = connection.metadata(admin).topics
    partitions: set[TopicPartition] = set()
    for topic, numbers in selections:
        if topic not in topics:
            raise no_topic(topic, topics)
        held = topics[topic].partitions
        for number in numbers if numbers is not None else held:
            if number not in held:
                raise Failure(f"{topic} has the partitions 0 to {len(held) - 1}: there is no {number}")
            partitions.add(TopicPartition(topic, number))
    return sorted(partitions)


NOT_ANSWERED = -1001  # librdkafka's offset, without an error, if the request for it timed out


def offset_ranges(
    connection: ClusterConnection, admin: "AdminClient", partitions: Collection[TopicPartition]
) -> dict[TopicPartition, OffsetRange]:
    starts, ends = (list_offsets(connection, admin, partitions, which) for which in ("earliest", "latest"))
    return {tp: OffsetRange(starts[tp], ends[tp]) for tp in partitions}


def stable_and_end_offsets(
    connection: ClusterConnection, admin: "AdminClient", partitions: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, Offset], dict[TopicPartition, Offset]]:
    """The last stable offsets and the high watermarks.

    Two requests are two moments. The high watermark comes first: in the other order, what is written in between would
    seem to wait for a transaction.
    """
    ends = list_offsets(connection, admin, partitions, "latest")
    stable = list_offsets(connection, admin, partitions, "latest", committed_only=True)
    return {tp: min(offset, ends[tp]) for tp, offset in stable.items()}, ends


def list_offsets(
    connection: ClusterConnection,
    admin: "AdminClient",
    partitions: Collection[TopicPartition],
    which: int | str,
    *,
    committed_only: bool = False,
) -> dict[TopicPartition, Offset]:
    """The `earliest` or `latest` offset, or the first at or after a time in ms; -1 if there is none.

    `committed_only`: the latest is the last stable offset. A request is repeated while a partition changes its leader.
    """
    offsets: dict[TopicPartition, Offset] = {}
    while missing := [tp for tp in partitions if tp not in offsets]:
        answers = _request_offsets(connection, admin, missing, which, committed_only)
        for tp, answer in answers.items():
            if answer == NOT_ANSWERED:
                raise Failure(f"{tp}: its leader does not answer")
            if isinstance(answer, int):
                offsets[tp] = answer
            elif answer.name() not in LEADER_CHANGED or connection.remaining_s <= MIN_TIMEOUT_S:
                raise Failure(f"{tp}: {client_error_text(answer)}")
        if len(offsets) < len(partitions):
            time.sleep(WAIT_S)
            admin = connection.admin()  # the old client keeps the epoch of the old leader
            connection.metadata(admin)
    return offsets


def _request_offsets(
    connection: ClusterConnection,
    admin: "AdminClient",
    partitions: Collection[TopicPartition],
    which: int | str,
    committed_only: bool,
) -> "dict[TopicPartition, Offset | confluent_kafka.KafkaError]":
    from confluent_kafka import IsolationLevel, KafkaException
    from confluent_kafka import TopicPartition as Theirs
    from confluent_kafka.admin._listoffsets import OffsetSpec

    spec = getattr(OffsetSpec, which)() if isinstance(which, str) else OffsetSpec.for_timestamp(which)
    isolation = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    specs = {Theirs(tp.topic, tp.partition): spec for tp in partitions}
    futures = admin.list_offsets(specs, isolation_level=isolation, request_timeout=connection.remaining_s)
    offsets: dict[TopicPartition, Offset | confluent_kafka.KafkaError] = {}
    for theirs, future in futures.items():
        tp = TopicPartition(theirs.topic, theirs.partition)
        try:
            offsets[tp] = int(connection.wait(future).offset)
        except KafkaException as error:
            offsets[tp] = error.args[0]
    return offsets


def record_times(
    connection: ClusterConnection, positions: Collection[tuple[TopicPartition, Offset]]
) -> dict[tuple[TopicPartition, Offset], int]:
    """The time of the record at an offset, or of the next record. Missing if no record follows."""
    times: dict[tuple[TopicPartition, Offset], int] = {}
    left = set(positions)
    consumer = connection.consumer(
        {
            "group.id": "leadline",
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "auto.offset.reset": "error",
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": "100",
            "fetch.queue.backoff.ms": "10",  # wait of a full queue; one record fills it
            "queued.min.messages": "1",
            "fetch.message.max.bytes": "65536",
        }
    )
    try:
        while left:  # a partition can be assigned only once at a time
            assigned = dict(sorted(left))
            left -= set(assigned.items())
            times |= _times(consumer, assigned, connection.timeout_s)
    finally:
        consumer.close()
    return times


def _times(
    consumer: "confluent_kafka.Consumer", assigned: Mapping[TopicPartition, Offset], timeout_s: float
) -> dict[tuple[TopicPartition, Offset], int]:
    from confluent_kafka import TopicPartition as Theirs

    times: dict[tuple[TopicPartition, Offset], int] = {}
    waiting, deadline = dict(assigned), time.monotonic() + timeout_s
    consumer.assign([Theirs(tp.topic, tp.partition, offset) for tp, offset in assigned.items()])
    while waiting and time.monotonic() < deadline:
        message = consumer.poll(WAIT_S)
        if message is None:
            continue
        tp = TopicPartition(message.topic() or "", message.partition() or 0)
        offset = waiting.pop(tp, None)
        if offset is not None and message.error() is None and message.timestamp()[0]:
            times[tp, offset] = message.timestamp()[1]
    return times


def commit(
    connection: ClusterConnection, admin: "AdminClient", group: str, changes: Sequence[OffsetChange]
) -> list[str]:
    """Commit the new offsets, in several requests. Returns the errors, one line per partition."""
    from confluent_kafka import TopicPartition as Theirs

    new = [
        Theirs(change.tp.topic, change.tp.partition, after.offset, after.metadata, after.epoch)
        for change in changes
        if (after := change.after) is not None
    ]
    failed: list[str] = []
    for n in range(0, len(new), MAX_COMMIT_PARTITIONS):
        failed += _commit(connection, admin, group, new[n : n + MAX_COMMIT_PARTITIONS])
    return failed


def _commit(
    connection: ClusterConnection, admin: "AdminClient", group: str, new: "list[confluent_kafka.TopicPartition]"
) -> list[str]:
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = [ConsumerGroupTopicPartitions(group, new)]
    answer = connection.wait(admin.alter_consumer_group_offsets(request, request_timeout=connection.remaining_s)[group])
    return [
        f"{partition.topic}-{partition.partition}: {client_error_text(partition.error)}"
        for partition in answer.topic_partitions or ()
        if partition.error is not None
    ]
