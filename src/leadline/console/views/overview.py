"""The first page: the parts of the cluster, and those that need attention."""

from collections import Counter
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.formatting import ids_text
from leadline.admin.kafka_python.groups import list_groups
from leadline.admin.kafka_python.partitions import list_reassignments
from leadline.console.page import Console
from leadline.console.views.brokers import away_text, brokers_away
from leadline.model import TopicPartition


class Attention(NamedTuple):
    tp: TopicPartition
    what: str
    is_bad: bool


SHOWN = 50


def overview(console: Console, request: Request) -> Response:
    with console.pool.session() as session:
        cluster = session.connection.metadata(session.admin)
        silent = dict(session.connection.silent)
        groups = list_groups(session.client)
        controller_answers = session.connection.controller not in silent
        ongoing = list_reassignments(session.client) if controller_answers else {}
    partitions = {
        TopicPartition(name, id): partition
        for name, topic in sorted(cluster.topics.items())
        for id, partition in sorted(topic.partitions.items())
    }
    attention = []
    for tp, partition in partitions.items():
        if partition.leader < 0:
            attention.append(Attention(tp, "no leader: it can be neither written nor read", True))
        elif len(partition.isrs) < len(partition.replicas) and tp not in ongoing:
            behind = [id for id in partition.replicas if id not in partition.isrs]
            attention.append(Attention(tp, f"without in-sync replica on broker {ids_text(behind)}", False))
    away = [away_text(id, replicas) for id, replicas in sorted(brokers_away(cluster).items())]
    return console.page(
        request,
        "overview.html",
        "Overview",
        cluster=cluster,
        problems=[*away, *silent.values()],
        partition_count=len(partitions),
        group_states=Counter(group.state for group in groups),
        group_count=len(groups),
        ongoing=len(ongoing),
        attention=attention[:SHOWN],
        more_attention=max(len(attention) - SHOWN, 0),
    )
