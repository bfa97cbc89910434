"""One partition: a picture of its replication, what a failover would do, its epochs and its history."""

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.explanation import explain_partition
from leadline.admin.explanation_reports import collect_reports
from leadline.admin.settings import read_settings
from leadline.admin.transaction_text import holder_texts
from leadline.console.failover import failover, log_end
from leadline.console.page import BadRequest, Console, NotInCluster, now_ms, optional_number
from leadline.console.views.topics import existing_topic
from leadline.model import TopicPartition


def partition(console: Console, request: Request) -> Response:
    tp = TopicPartition(request.path_params["topic"], int(request.path_params["partition"]))
    failing = optional_number(request.query_params.get("fail", ""), "The broker")
    with console.pool.session() as session:
        metadata = existing_topic(session, tp.topic)
        if tp.partition not in metadata.partitions:
            raise NotInCluster(f"{tp.topic} has the partitions 0 to {len(metadata.partitions) - 1}")
        reports, producers = collect_reports(session.connection, session.admin, session.client, [tp])
        settings = read_settings(session.connection, session.admin, "topic", tp.topic)
    explanation = explain_partition(reports[0])
    if failing is not None and failing not in explanation.replicas:
        raise BadRequest(f"broker {failing} has no replica of {tp}")
    chosen = failing if failing is not None else explanation.leader
    min_isr = next((int(s.value or "1") for s in settings if s.name == "min.insync.replicas"), 1)
    blocked = explanation.blocked
    holder = None if blocked is None else blocked.holder
    return console.page(
        request,
        "partition.html",
        str(tp),
        tp=tp,
        partition_count=len(metadata.partitions),
        explanation=explanation,
        ends={status.id: log_end(explanation, status) for status in explanation.statuses},
        failing=chosen,
        steps=[] if chosen is None else failover(explanation, chosen, min_isr),
        min_isr=min_isr,
        holder={} if holder is None else holder_texts(holder, producers.get(holder.producer_id), now_ms()),
    )
