"""Brokers, their log directories, their settings."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.formatting import brokers_text, count_text
from leadline.admin.kafka_python.partitions import LogDirReplica, broker_racks, describe_log_dirs, elect_leaders
from leadline.admin.session import ClusterSession
from leadline.admin.settings import read_settings
from leadline.console.page import Console, Form, NotInCluster
from leadline.console.views.topics import SOURCES, change_setting
from leadline.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

LARGEST = 20  # replicas that are listed


@dataclass
class LogDirSummary:
    path: str
    replicas: int = 0
    size_bytes: int = 0


@dataclass
class BrokerSummary:
    id: BrokerId
    address: str
    rack: str
    is_controller: bool
    silent: str  # that it does not answer; empty: it does
    is_away: bool = False  # it is not registered, but has replicas
    leads: int = 0
    replicas: int = 0
    size_bytes: int = 0
    log_dirs: list[LogDirSummary] = field(default_factory=list)


Held = dict[TopicPartition, list[LogDirReplica]]


def summaries(session: ClusterSession) -> list[BrokerSummary]:
    cluster = session.connection.metadata(session.admin)
    racks = broker_racks(session.client)
    held = describe_log_dirs(session.client, session.client.answering)
    led: dict[BrokerId, int] = defaultdict(int)
    hosted: dict[BrokerId, int] = defaultdict(int)
    for topic in cluster.topics.values():
        for partition in topic.partitions.values():
            led[partition.leader] += 1
            for replica in partition.replicas:
                hosted[replica] += 1
    registered = [
        BrokerSummary(
            id,
            f"{node.host}:{node.port}",
            racks.get(id) or "",
            id == cluster.controller_id,
            session.connection.silent.get(id, ""),
            leads=led[id],
            replicas=hosted[id],
            size_bytes=sum(replica.size_bytes for replicas in held.get(id, {}).values() for replica in replicas),
            log_dirs=_log_dirs(held.get(id, {})),
        )
        for id, node in cluster.brokers.items()
    ]
    away = [
        BrokerSummary(id, "–", "", False, away_text(id, count), is_away=True, replicas=count)
        for id, count in brokers_away(cluster).items()
    ]
    return sorted([*registered, *away], key=lambda broker: broker.id)


def brokers_away(cluster: "ClusterMetadata") -> Counter[BrokerId]:
    """The brokers that are not registered, with the number of their replicas."""
    partitions = [partition for topic in cluster.topics.values() for partition in topic.partitions.values()]
    return Counter(id for partition in partitions for id in partition.replicas if id not in cluster.brokers)


def away_text(id: BrokerId, replicas: int) -> str:
    return f"broker {id} is away: it is not registered, and has {count_text(replicas, 'replica')}"


def _log_dirs(held: Held) -> list[LogDirSummary]:
    directories: dict[str, LogDirSummary] = {}
    for replica in (replica for replicas in held.values() for replica in replicas):
        directory = directories.setdefault(replica.path, LogDirSummary(replica.path))
        directory.replicas += 1
        directory.size_bytes += replica.size_bytes
    return sorted(directories.values(), key=lambda directory: directory.path)


def broker_list(console: Console, request: Request) -> Response:
    with console.pool.session() as session:
        brokers = summaries(session)
    largest = max((broker.size_bytes for broker in brokers), default=0)
    return console.page(request, "brokers.html", "Brokers", brokers=brokers, largest=largest)


def broker(console: Console, request: Request) -> Response:
    id = int(request.path_params["broker"])
    show_all = request.query_params.get("settings") == "all"
    with console.pool.session() as session:
        brokers = {summary.id: summary for summary in summaries(session)}
        if id not in brokers:
            raise NotInCluster(f"there is no broker {id}: {brokers_text(brokers)}")
        summary = brokers[id]
        settings = [] if summary.silent else read_settings(session.connection, session.admin, "broker", str(id))
        held = {} if summary.silent else describe_log_dirs(session.client, [id]).get(id, {})
    replicas = [(tp, replica) for tp, copies in held.items() for replica in copies]
    return console.page(
        request,
        "broker.html",
        f"Broker {id}",
        broker=summary,
        settings=settings if show_all else [setting for setting in settings if setting.source != "DEFAULT_CONFIG"],
        all_settings=settings,
        show_all=show_all,
        sources=SOURCES,
        replicas=sorted(replicas, key=lambda item: item[1].size_bytes, reverse=True)[:LARGEST],
        replica_count=len(replicas),
    )


def _check(session: ClusterSession, id: BrokerId) -> None:
    brokers = session.connection.metadata(session.admin).brokers
    if id not in brokers:
        raise NotInCluster(f"there is no broker {id}: {brokers_text(brokers)}")


def alter_broker(console: Console, request: Request, form: Form) -> Response:
    id = int(request.path_params["broker"])
    with console.pool.session() as session:
        _check(session, id)
        text = change_setting(session, "broker", str(id), form)
    return console.done(f"/brokers/{id}", text)


def elect(console: Console, request: Request, form: Form) -> Response:
    """Let the first replica of each partition lead again, where it is in sync."""
    with console.pool.session() as session:
        assignment = session.assignment()
        result = elect_leaders(session.client, sorted(assignment), unclean=False)
    elected = f"{len(result.elected)} of {len(assignment)} partitions have another leader now"
    failed = f"; {len(result.failed)} could not be changed" if result.failed else ""
    return console.done("/brokers", f"{elected}{failed}.")
