"""Reassignments: their progress, plans, moves started and cancelled."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.errors import Failure
from leadline.admin.formatting import brokers_text
from leadline.admin.kafka_python.partitions import (
    LogDirReplica,
    alter_reassignments,
    broker_racks,
    describe_log_dirs,
    list_reassignments,
)
from leadline.admin.reassign.move_text import move_row, summary
from leadline.admin.reassign.plan import OngoingReassignment, ReplicaMove, make_plan, moves
from leadline.admin.reassign.plan_file import PlanError, parse_plan, plan_text
from leadline.admin.reassign.throttles import remove_throttles, set_throttles
from leadline.admin.session import ClusterSession
from leadline.console.page import BadRequest, Console, Form, NotInCluster, optional_number
from leadline.model import BrokerId, TopicPartition


class MoveProgress(NamedTuple):
    tp: TopicPartition
    reassignment: OngoingReassignment
    copied_bytes: int  # on all new brokers together
    total_bytes: int

    @property
    def share(self) -> float:
        return min(self.copied_bytes / self.total_bytes, 1.0) if self.total_bytes else 0.0


def _progress(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    held: Mapping[BrokerId, Mapping[TopicPartition, Collection[LogDirReplica]]],
) -> list[MoveProgress]:
    def size(tp: TopicPartition, broker: BrokerId) -> int:
        return sum(replica.size_bytes for replica in held.get(broker, {}).get(tp, ()) if not replica.is_future)

    return [
        MoveProgress(
            tp,
            reassignment,
            sum(size(tp, broker) for broker in reassignment.adding),
            max((size(tp, broker) for broker in reassignment.replicas), default=0) * len(reassignment.adding),
        )
        for tp, reassignment in ongoing.items()
    ]


def reassignment_list(console: Console, request: Request) -> Response:
    with console.pool.session() as session:
        ongoing = list_reassignments(session.client)
        held = describe_log_dirs(session.client, session.client.answering) if ongoing else {}
        topics = sorted(session.connection.metadata(session.admin).topics)
        brokers = broker_racks(session.client)
    return console.page(
        request,
        "reassignments.html",
        "Reassignments",
        moving=_progress(ongoing, held),
        topics=topics,
        brokers=brokers,
    )


class PlannedMoves(NamedTuple):
    changes: list[ReplicaMove]
    before: str  # the plan that moves everything back
    after: str


def _plan(session: ClusterSession, form: Form) -> PlannedMoves:
    topic, assignment = form.get("topic", ""), session.assignment()
    current = {tp: replicas for tp, replicas in assignment.items() if not topic or tp.topic == topic}
    if not current:
        raise NotInCluster(f"there is no topic {topic}")
    racks = broker_racks(session.client)
    chosen = _brokers(form.get("brokers", ""), racks)
    factor = optional_number(form.get("replication_factor", ""), "The replication factor", 1)
    try:
        plan = make_plan(current, {broker: racks[broker] for broker in chosen}, factor)
    except PlanError as error:
        raise BadRequest(str(error)) from None
    return _moves(session, current, plan, racks)


def _moves(
    session: ClusterSession,
    current: Mapping[TopicPartition, list[BrokerId]],
    plan: Mapping[TopicPartition, list[BrokerId]],
    racks: Collection[BrokerId],
) -> PlannedMoves:
    changes = moves(current, plan, session.sizes(sorted(racks)))
    return PlannedMoves(
        changes,
        plan_text({move.tp: move.before for move in changes}),
        plan_text({move.tp: move.after for move in changes}),
    )


def _brokers(text: str, racks: Collection[BrokerId]) -> list[BrokerId]:
    ids = [part.strip() for part in text.split(",") if part.strip()]
    if not all(id.isdecimal() and int(id) in racks for id in ids):
        raise BadRequest(f"expected ids of brokers with commas between them: {brokers_text(racks)}")
    return [int(id) for id in ids] or sorted(racks)


def plan_page(console: Console, request: Request) -> Response:
    """The dry run."""
    with console.pool.session() as session:
        planned = _plan(session, request.query_params)
    return console.page(
        request,
        "plan.html",
        "Plan of a reassignment",
        planned=planned,
        rows=[move_row(move) for move in planned.changes],
        summary=summary(planned.changes) if planned.changes else "",
        throttle=request.query_params.get("throttle", ""),
    )


def execute(console: Console, request: Request, form: Form) -> Response:
    """Carry out exactly the plan that the page has shown."""
    try:
        plan = parse_plan(form.get("plan", ""))
    except PlanError as error:
        raise BadRequest(f"the plan cannot be read: {error}") from None
    throttle = optional_number(form.get("throttle", ""), "The throttle", 1)
    with console.pool.session() as session:
        assignment, racks = session.assignment(), broker_racks(session.client)
        for tp, replicas in plan.items():
            if tp not in assignment:
                raise BadRequest(f"there is no partition {tp}")
            _brokers(",".join(map(str, replicas)), racks)
        planned = _moves(session, assignment, plan, racks)
        if throttle is not None:
            set_throttles(session, planned.changes, throttle)
        if errors := alter_reassignments(session.client, {move.tp: move.after for move in planned.changes}):
            raise Failure("; ".join(errors))
    text = "Started: " + summary(planned.changes) if planned.changes else "Nothing to move"
    return console.done("/reassignments", f"{text}.")


def cancel(console: Console, request: Request, form: Form) -> Response:
    with console.pool.session() as session:
        ongoing = list_reassignments(session.client)
        if errors := alter_reassignments(session.client, dict.fromkeys(ongoing)):
            raise Failure("; ".join(errors))
        remove_throttles(session, ongoing)
    return console.done("/reassignments", f"Cancelled: {len(ongoing)} partitions stay where they were.")


def unthrottle(console: Console, request: Request, form: Form) -> Response:
    with console.pool.session() as session:
        remove_throttles(session, session.assignment())
    return console.done("/reassignments", "Removed the throttles of everything that is not moving.")
