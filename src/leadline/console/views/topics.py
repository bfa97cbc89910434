"""Topics, their partitions and their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.kafka_python.partitions import list_reassignments
from leadline.admin.offsets import offset_ranges
from leadline.admin.partitions import OffsetRange
from leadline.admin.reassign.plan import OngoingReassignment
from leadline.admin.session import ClusterSession
from leadline.admin.settings import alter_configs, read_settings
from leadline.admin.topic_changes import CLUSTER_DEFAULT, add_partitions, create_topic, delete_topic
from leadline.admin.topic_description import INTERNAL, PartitionDescription
from leadline.config.settings import nearest
from leadline.console.page import BadRequest, Console, Form, NotInCluster, number, optional_number
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata, TopicMetadata

MOST_OFFSETS = 2000  # partitions whose offsets one page requests

SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": "set for this topic",
    "DYNAMIC_BROKER_CONFIG": "set for this broker, at run time",
    "DYNAMIC_DEFAULT_BROKER_CONFIG": "set for all brokers, at run time",
    "STATIC_BROKER_CONFIG": "the broker's file of settings",
    "DEFAULT_CONFIG": "Kafka's default",
}


@dataclass(frozen=True, slots=True)
class TopicSummary:
    name: str
    partitions: int
    replication_factor: int
    without_leader: int
    under_replicated: int
    records: int | None  # offsets between start and end; None: not known

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL


def topic_list(console: Console, request: Request) -> Response:
    show_internal = request.query_params.get("internal") == "1"
    search = request.query_params.get("search", "").strip()
    with console.pool.session() as session:
        cluster = session.connection.metadata(session.admin)
        names = [
            name
            for name in sorted(cluster.topics)
            if (show_internal or name not in INTERNAL) and search.lower() in name.lower()
        ]
        ranges = _ranges(session, cluster, names)
        topics = [_summary(name, cluster.topics[name], ranges) for name in names]
        hidden = len(INTERNAL & cluster.topics.keys()) if not show_internal else 0
    return console.page(
        request,
        "topics.html",
        "Topics",
        topics=topics,
        hidden=hidden,
        show_internal=show_internal,
        search=search,
        brokers=len(cluster.brokers),
    )


def _ranges(session: ClusterSession, cluster: "ClusterMetadata", names: list[str]) -> dict[TopicPartition, OffsetRange]:
    """The offsets of all partitions that have a leader; of none if they are too many."""
    answering = {*session.client.answering}
    partitions = [
        TopicPartition(name, id)
        for name in names
        for id, partition in cluster.topics[name].partitions.items()
        if partition.leader in answering
    ]
    if len(partitions) > MOST_OFFSETS:
        return {}
    return offset_ranges(session.connection, session.admin, partitions) if partitions else {}


def _summary(name: str, topic: "TopicMetadata", ranges: Mapping[TopicPartition, OffsetRange]) -> TopicSummary:
    held = [ranges.get(TopicPartition(name, id)) for id in topic.partitions]
    return TopicSummary(
        name,
        len(topic.partitions),
        max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
        sum(partition.leader < 0 for partition in topic.partitions.values()),
        sum(len(partition.isrs) < len(partition.replicas) for partition in topic.partitions.values()),
        sum(offsets.end - offsets.start for offsets in held if offsets is not None) if all(held) else None,
    )


def existing_topic(session: ClusterSession, name: str) -> "TopicMetadata":
    topics = session.connection.metadata(session.admin).topics
    if name not in topics:
        raise NotInCluster(f"there is no topic {name}{nearest(name, topics)}")
    return topics[name]


def topic(console: Console, request: Request) -> Response:
    name = request.path_params["topic"]
    show_all = request.query_params.get("settings") == "all"
    with console.pool.session() as session:
        metadata = existing_topic(session, name)
        ranges = _ranges(session, session.connection.metadata(session.admin), [name])
        settings = read_settings(session.connection, session.admin, "topic", name)
        moving = _moving(session, metadata)
    partitions = [
        PartitionDescription(
            id,
            partition.leader if partition.leader >= 0 else None,
            list(partition.replicas),
            list(partition.isrs),
            moving.get(TopicPartition(name, id)),
        )
        for id, partition in sorted(metadata.partitions.items())
    ]
    own = [setting for setting in settings if setting.source == "DYNAMIC_TOPIC_CONFIG"]
    return console.page(
        request,
        "topic.html",
        name,
        topic=name,
        partitions=partitions,
        ranges={tp.partition: held for tp, held in ranges.items()},
        settings=settings if show_all else [setting for setting in settings if setting.source != "DEFAULT_CONFIG"],
        all_settings=settings,
        own=own,
        show_all=show_all,
        sources=SOURCES,
        is_internal=name in INTERNAL,
    )


def _moving(session: ClusterSession, topic: "TopicMetadata") -> dict[TopicPartition, OngoingReassignment]:
    """A new replica is not in sync: if all are in sync, no request is needed."""
    if all(len(partition.isrs) == len(partition.replicas) for partition in topic.partitions.values()):
        return {}
    if session.connection.controller in session.connection.silent:
        return {}
    return list_reassignments(session.client)


def create(console: Console, request: Request, form: Form) -> Response:
    name = form.get("name", "").strip()
    if not name:
        raise BadRequest("a topic needs a name")
    partitions = optional_number(form.get("partitions", ""), "The number of partitions", 1)
    factor = optional_number(form.get("replication_factor", ""), "The replication factor", 1)
    with console.pool.session() as session:
        create_topic(
            session.connection,
            session.admin,
            name,
            partitions if partitions is not None else CLUSTER_DEFAULT,
            factor if factor is not None else CLUSTER_DEFAULT,
        )
    return console.done("/topics", f"Created topic {name}.")


def alter_topic(console: Console, request: Request, form: Form) -> Response:
    name = request.path_params["topic"]
    with console.pool.session() as session:
        existing_topic(session, name)
        text = change_setting(session, "topic", name, form)
    return console.done(f"/topics/{name}", text)


def change_setting(session: ClusterSession, kind: str, resource: str, form: Form) -> str:
    """Set a setting, or delete it so that the next source counts. Returns a sentence about it."""
    from confluent_kafka.admin._config import AlterConfigOpType

    setting, value = form.get("setting", "").strip(), form.get("value", "")
    names = [shown.name for shown in read_settings(session.connection, session.admin, kind, resource)]
    if setting not in names:
        raise BadRequest(f"a {kind} has no setting {setting}{nearest(setting, names)}")
    if form.get("action") == "delete":
        alter_configs(session.connection, session.admin, kind, resource, [(setting, None, AlterConfigOpType.DELETE)])
        return f"{setting} has its default again."
    alter_configs(session.connection, session.admin, kind, resource, [(setting, value, AlterConfigOpType.SET)])
    return f"Set {setting} to {value}."


def grow(console: Console, request: Request, form: Form) -> Response:
    name = request.path_params["topic"]
    total = number(form.get("partitions", ""), "The number of partitions", 1)
    with console.pool.session() as session:
        before = len(existing_topic(session, name).partitions)
        if total <= before:
            raise BadRequest(f"{name} has {before} partitions, and the number can only grow")
        add_partitions(session.connection, session.admin, name, total)
    return console.done(f"/topics/{name}", f"{name} now has {total} partitions, up from {before}.")


def delete(console: Console, request: Request, form: Form) -> Response:
    name = request.path_params["topic"]
    if form.get("confirm", "").strip() != name:
        raise BadRequest(f"to delete topic {name} with all its records, type its name")
    with console.pool.session() as session:
        existing_topic(session, name)
        delete_topic(session.connection, session.admin, name)
    return console.done("/topics", f"Deleted topic {name}.")
