"""Groups: members, lag over time, causes of rebalances, resets with a dry run, undo."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.errors import Failure
from leadline.admin.group import GroupDescription, await_coordinator, delete_group, node_text, refuse_active
from leadline.admin.group_progress import group_names, lags, progress, total_lag
from leadline.admin.kafka_python.groups import describe_group, list_groups
from leadline.admin.offset_reset import (
    ResetPosition,
    carry_out,
    change_row,
    change_times,
    new_offsets,
    too_late_lines,
)
from leadline.admin.offsets import committed_by, existing_partitions, offset_ranges, resolve_partitions
from leadline.admin.partitions import topic_in
from leadline.admin.rebalances import rebalances
from leadline.admin.rebalances import rows as rebalance_rows
from leadline.admin.reset_plan import ImpossibleReset, OffsetChange, changes, total, undo, with_notes
from leadline.admin.session import ClusterSession
from leadline.console.page import BadRequest, Console, Form, NotInCluster, now_ms, number
from leadline.console.views.records import moment

if TYPE_CHECKING:
    from leadline.admin.reset_plan import ResetUndo

WITH_LAG = 100  # groups whose lag is listed
POSITIONS = {
    "earliest": "the first record",
    "latest": "the end",
    "offset": "an offset",
    "shift": "some records back or forward",
    "time": "a time",
}


def group_list(console: Console, request: Request) -> Response:
    search = request.query_params.get("search", "").strip()
    with console.pool.session() as session:
        listings = [group for group in list_groups(session.client) if search.lower() in group.group_id.lower()]
        coordinators = {
            group.coordinator: node_text(group.coordinator, session.connection.brokers) for group in listings
        }
        lag = lags(session.connection, session.admin, [group.group_id for group in listings[:WITH_LAG]])
    for group_id, records in lag.items():
        console.lag.add(group_id, now_ms(), records)
    return console.page(
        request,
        "groups.html",
        "Groups",
        groups=listings,
        coordinators=coordinators,
        lag=lag,
        most_lag=max(lag.values(), default=0),
        without_lag=max(len(listings) - WITH_LAG, 0),
        search=search,
    )


def _existing_group(session: ClusterSession, name: str) -> GroupDescription:
    try:
        group_names(session.client, [name])
    except Failure as error:
        raise NotInCluster(str(error)) from None
    return describe_group(session.client, name)


def group(console: Console, request: Request) -> Response:
    name = request.query_params.get("id", "")
    with console.pool.session() as session:
        description = _existing_group(session, name)
        partitions = progress(session.connection, session.admin, description)
        history = rebalances(session.client, description)
        coordinator = node_text(description.coordinator, session.connection.brokers)
    lag = total_lag(partitions)
    return console.page(
        request,
        "group.html",
        name,
        group=description,
        coordinator=coordinator,
        partitions=partitions,
        topics=sorted({partition.tp.topic for partition in partitions}),
        lag=lag,
        samples=console.lag.add(name, now_ms(), lag),
        history_problem=history if isinstance(history, str) else "",
        history=[] if isinstance(history, str) else rebalance_rows(history),
        positions=POSITIONS,
    )


@dataclass(frozen=True, slots=True)
class PlannedReset:
    planned: list[OffsetChange]
    rows: list[list[str]]
    summary: str
    warnings: list[str]


def _plan_reset(session: ClusterSession, form: Form) -> PlannedReset:
    name, connection, admin = form.get("id", ""), session.connection, session.admin
    refuse_active(_existing_group(session, name), "reset")
    await_coordinator(connection, name)
    committed = committed_by(connection, admin, name)
    if topic := form.get("topic", ""):
        try:
            partitions = resolve_partitions(connection, admin, [topic_in(topic)])
        except ValueError as error:
            raise BadRequest(str(error)) from None
    else:
        partitions = sorted(existing_partitions(connection, admin, committed))
    if not partitions:
        raise BadRequest(f"group {name} has committed nothing: name a topic")
    ranges = offset_ranges(connection, admin, partitions)
    try:
        offsets = new_offsets(connection, admin, _position(form), partitions, committed, ranges)
    except ImpossibleReset as error:
        raise BadRequest(str(error)) from None
    planned = with_notes(changes(offsets, committed, ranges), now_ms())
    times = change_times(connection, planned)
    return PlannedReset(planned, [change_row(change, times) for change in planned], total(planned), [])


def _position(form: Form) -> ResetPosition:
    value = form.get("value", "")
    match form.get("to", ""):
        case "earliest":
            return ResetPosition("earliest")
        case "latest":
            return ResetPosition("latest")
        case "offset":
            return ResetPosition("offset", number(value, "The offset"))
        case "shift":
            return ResetPosition("shift", number(value, "The number of records", -(1 << 62)))
        case "time":
            return ResetPosition("time", moment(value))
    raise BadRequest(f"choose where the group continues: {', '.join(POSITIONS)}")


def reset_plan(console: Console, request: Request) -> Response:
    """The dry run."""
    with console.pool.session() as session:
        plan = _plan_reset(session, request.query_params)
    return _plan_page(console, request, plan, "reset")


def _plan_page(console: Console, request: Request, plan: PlannedReset, action: str) -> Response:
    name = request.query_params.get("id", "")
    return console.page(
        request,
        "reset.html",
        f"{'Reset' if action == 'reset' else 'Undo the reset of'} {name}",
        group_id=name,
        plan=plan,
        action=action,
        fields={key: request.query_params.get(key, "") for key in ("id", "topic", "to", "value")},
        command=_command(request.query_params) if action == "reset" else _undo_command(name),
    )


def _command(params: Form) -> str:
    """The same on the command line."""
    topic = f"--topic {params['topic']}" if params.get("topic") else "--all-topics"
    options = {"earliest": "--to-earliest", "latest": "--to-latest", "offset": "--to-offset", "shift": "--shift-by"}
    position = options.get(params.get("to", ""), "--to-datetime")
    value = f" {params['value']}" if params.get("to") not in ("earliest", "latest") else ""
    return f"leadline groups reset-offsets {params.get('id', '')} {topic} {position}{value} --execute"


def _undo_command(name: str) -> str:
    return f"leadline groups reset-offsets {name} --undo --execute"


def reset(console: Console, request: Request, form: Form) -> Response:
    with console.pool.session() as session:
        plan = _plan_reset(session, form)
        _carry_out(session, form["id"], plan.planned)
    return console.done("/groups/group", f"Reset {form['id']}. {plan.summary}.", id=form["id"])


def _carry_out(session: ClusterSession, group_id: str, planned: list[OffsetChange]) -> None:
    if failed := carry_out(session.connection, session.admin, group_id, planned):
        raise Failure(f"{len(failed)} of {len(planned)} partitions could not be changed: {'; '.join(failed)}")


def _plan_undo(session: ClusterSession, name: str) -> PlannedReset:
    connection, admin = session.connection, session.admin
    refuse_active(_existing_group(session, name), "reset")
    await_coordinator(connection, name)
    committed = committed_by(connection, admin, name)
    existing = existing_partitions(connection, admin, committed)
    last: ResetUndo | None = undo(committed, offset_ranges(connection, admin, existing))
    if last is None:
        raise BadRequest(f"nothing to undo: group {name} was not reset, or has committed since")
    times = change_times(connection, last.changes)
    rows = [change_row(change, times) for change in last.changes]
    return PlannedReset(last.changes, rows, total(last.changes), too_late_lines(last))


def undo_plan(console: Console, request: Request) -> Response:
    with console.pool.session() as session:
        plan = _plan_undo(session, request.query_params.get("id", ""))
    return _plan_page(console, request, plan, "undo")


def undo_reset(console: Console, request: Request, form: Form) -> Response:
    name = form.get("id", "")
    with console.pool.session() as session:
        _carry_out(session, name, _plan_undo(session, name).planned)
    return console.done("/groups/group", f"The reset of {name} is undone.", id=name)


def delete(console: Console, request: Request, form: Form) -> Response:
    name = form.get("id", "")
    if form.get("confirm", "").strip() != name:
        raise BadRequest(f"to delete group {name} with its committed offsets, type its name")
    with console.pool.session() as session:
        refuse_active(_existing_group(session, name), "deleted")
        delete_group(session.connection, session.admin, name)
    return console.done("/groups", f"Deleted group {name}.")
