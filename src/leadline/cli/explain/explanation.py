"""A partition explained: its leader and since when, the position of each replica, the last events and their reasons.

Each broker of Leadline reports what it saw itself (see `leadline.api.explanations`). Other brokers report less. Then
there are gaps, and a line says so.

Pure: reports in, text and JSON out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leadline.cli.formatting import age_text, ids_text, moment_text, size_text, table
from leadline.cli.json_values import Json
from leadline.cli.terminal import Paint
from leadline.cli.transactions.open_transactions import BlockedPartition, TransactionDescription
from leadline.cli.transactions.transaction_text import holder_texts
from leadline.model import BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition

Explanation = Mapping[str, Any]  # the JSON object of a broker's report

SHOWN = 12  # epochs and events at most
NO_LEADER: BrokerId = -1
NO_HISTORY = "These brokers keep no history: earlier leaders and past events are not known."
REPLICA_HEADS = ("REPLICA", "LOG START", "LOG END", "HIGH WATERMARK", "LAG", "SIZE", "IN SYNC", "STATE")
EPOCH_HEADS = ("EPOCH", "STARTS AT", "LED BY", "SINCE")


class ReplicaStatus(NamedTuple):
    """None: not known."""

    id: BrokerId
    is_leader: bool
    in_sync: bool
    log_start: Offset | None = None
    log_end: Offset | None = None
    high_watermark: Offset | None = None
    lag: int | None = None  # records that the leader has and this replica lacks
    size_bytes: int | None = None
    state: str = ""


class LedEpoch(NamedTuple):
    epoch: LeaderEpoch
    start_offset: Offset | None  # None: no record was written in it
    leader: BrokerId | None = None
    since_ms: int | None = None


class PartitionEvent(NamedTuple):
    at_ms: int
    what: str
    is_bad: bool = False


class PartitionExplanation(NamedTuple):
    tp: TopicPartition
    leader: BrokerId | None
    replicas: Sequence[BrokerId]
    isr: Sequence[BrokerId]
    statuses: Sequence[ReplicaStatus]
    epochs: Sequence[LedEpoch]  # the newest first
    events: Sequence[PartitionEvent]
    blocked: BlockedPartition | None  # None: there is no leader
    has_history: bool  # at least one broker keeps a history


class PartitionReports(NamedTuple):
    """The reports of all brokers about one partition."""

    tp: TopicPartition
    leader: BrokerId | None
    replicas: Sequence[BrokerId]
    isr: Sequence[BrokerId]
    by_broker: Mapping[BrokerId, Explanation]  # of Leadline's brokers
    silent: Mapping[BrokerId, str]  # why a broker does not report
    statuses: Mapping[BrokerId, ReplicaStatus] = {}  # of brokers without a history
    epoch_starts: Sequence[tuple[LeaderEpoch, Offset]] = ()  # from the leader's log
    blocked: BlockedPartition | None = None


def explain_partition(reports: PartitionReports) -> PartitionExplanation:
    return PartitionExplanation(
        reports.tp,
        reports.leader,
        reports.replicas,
        reports.isr,
        [_replica(id, reports) for id in reports.replicas],
        _epochs(reports),
        _events(reports),
        reports.blocked,
        bool(reports.by_broker),
    )


# Replicas


def _replica(id: BrokerId, reports: PartitionReports) -> ReplicaStatus:
    is_leader, in_sync = id == reports.leader, id in reports.isr
    if (why := reports.silent.get(id)) is not None:
        return ReplicaStatus(id, is_leader, in_sync, state=why)
    if (report := reports.by_broker.get(id)) is None:
        return reports.statuses.get(id, ReplicaStatus(id, is_leader, in_sync, state="unknown"))
    leader_report = None if reports.leader is None else reports.by_broker.get(reports.leader)
    lag = None if leader_report is None else max(leader_report["log_end"] - report["log_end"], 0)
    return ReplicaStatus(
        id,
        is_leader,
        in_sync,
        report["log_start"],
        report["log_end"],
        report["high_watermark"],
        lag,
        report["size_bytes"],
        _state(report, leader_report),
    )


def _state(report: Explanation, leader_report: Explanation | None) -> str:
    """The role of a replica; of a follower, also its last fetch."""
    if (leads := report["leads"]) is not None:
        proposed_isr = leads["asked_isr"]
        return "leads" if proposed_isr is None else f"leads, has requested {ids_text(proposed_isr)} as in-sync replicas"
    if (follows := report["follows"]) is None:
        return "waits for a leader"
    if follows["state"] != "FETCHING" or follows["why"]:
        return f"{follows['state'].lower().replace('_', ' ')}: {follows['why']}".rstrip(": ")
    return (
        _fetched(report["broker"], leader_report)
        if leader_report is not None and leader_report["leads"] is not None
        else "follows"
    )


def _fetched(follower: BrokerId, leader_report: Explanation) -> str:
    (state,) = [candidate for candidate in leader_report["leads"]["followers"] if candidate["id"] == follower] or [
        {"fetched_ms": 0}
    ]
    if not state["fetched_ms"]:
        return "has not fetched yet"
    text = f"fetched {age_text(leader_report['now_ms'] - state['fetched_ms'])} ago"
    if state["caught_up_ms"] >= state["fetched_ms"]:
        return text
    if not state["caught_up_ms"]:
        return f"{text}, never caught up"
    return f"{text}, caught up {age_text(leader_report['now_ms'] - state['caught_up_ms'])} ago"


# Epochs and events


def _elections(reports: PartitionReports) -> dict[LeaderEpoch, Explanation]:
    """Each election, as the first broker that learned of it reports it."""
    elections: dict[LeaderEpoch, Explanation] = {}
    for report in reports.by_broker.values():
        for election in report["history"]["elections"]:
            before = elections.get(election["epoch"])
            if before is None or election["at_ms"] < before["at_ms"]:
                elections[election["epoch"]] = election
    return elections


def _epochs(reports: PartitionReports) -> list[LedEpoch]:
    elections = _elections(reports)
    leader_report = None if reports.leader is None else reports.by_broker.get(reports.leader)
    report = leader_report or next(iter(reports.by_broker.values()), None)
    starts = dict(reports.epoch_starts if report is None else report["epochs"])
    epochs = [
        LedEpoch(
            epoch,
            starts.get(epoch),
            elections[epoch]["leader"] if epoch in elections else None,
            elections[epoch]["at_ms"] if epoch in elections else None,
        )
        for epoch in {*starts, *elections}
    ]
    return sorted(epochs, reverse=True)


def _events(reports: PartitionReports) -> list[PartitionEvent]:
    events = [_elected(entry, reports.replicas) for entry in _elections(reports).values()]
    for broker, report in reports.by_broker.items():
        events += [_isr_changed(entry) for entry in report["history"]["isr_changes"]]
        events += [_truncated(broker, entry) for entry in report["history"]["truncations"]]
    return sorted(events, key=lambda event: event.at_ms, reverse=True)


def _elected(election: Explanation, replicas: Sequence[BrokerId]) -> PartitionEvent:
    without = [replica for replica in replicas if replica not in election["isr"]]
    in_sync = f"epoch {election['epoch']}, in sync {ids_text(election['isr']) or 'none'}"
    if without:
        in_sync += f", without {ids_text(without)}"
    if election["leader"] == NO_LEADER:
        return PartitionEvent(election["at_ms"], f"no leader: {in_sync}", is_bad=True)
    if election["unclean"]:
        in_sync += "; unclean: it was not in sync, and the records that it lacks are lost"
    return PartitionEvent(
        election["at_ms"], f"broker {election['leader']} leads: {in_sync}", is_bad=election["unclean"]
    )


def _isr_changed(change: Explanation) -> PartitionEvent:
    why = f": {change['why']}" if change["why"] else ""
    text = f"in sync {ids_text(change['after'])} instead of {ids_text(change['before'])}{why}"
    return PartitionEvent(change["at_ms"], text, is_bad=len(change["after"]) < len(change["before"]))


def _truncated(broker: BrokerId, truncation: Explanation) -> PartitionEvent:
    if truncation["to_offset"] > truncation["log_end"]:
        text = f"dropped all its records below {truncation['log_end']} and starts at {truncation['to_offset']}"
    else:
        count = truncation["log_end"] - truncation["to_offset"]
        records = "1 record" if count == 1 else f"{count:,} records"
        text = f"truncated {records}, from {truncation['log_end']} back to {truncation['to_offset']}"
    why = f", to follow broker {truncation['leader']} in epoch {truncation['epoch']}"
    warning = f": {truncation['warning']}" if truncation["warning"] else ""
    return PartitionEvent(
        truncation["at_ms"], f"broker {broker} {text}{why}{warning}", is_bad=truncation["warning"] is not None
    )


def lines_of(
    explanation: PartitionExplanation,
    transactions: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    paint: Paint,
    shown: int = SHOWN,
) -> list[str]:
    fields = _fields(explanation, transactions, now_ms, paint)
    width = max(map(len, fields))
    lines = [paint.bold(str(explanation.tp)), *(f"  {name:{width}}  {text}" for name, text in fields.items())]
    rows = [_row(item) for item in explanation.statuses]
    lines += ["", *table(REPLICA_HEADS, [[paint.escape(cell) for cell in row] for row in rows], paint.bold)]
    if explanation.epochs:
        lines += ["", *table(EPOCH_HEADS, [_epoch_row(item) for item in explanation.epochs[:shown]], paint.bold)]
        lines += _more(explanation.epochs, shown)
    if explanation.events:
        lines += ["", paint.bold("WHEN                 WHAT")]
        lines += [_event_line(item, paint) for item in explanation.events[:shown]]
        lines += _more(explanation.events, shown)
    if not explanation.has_history:
        lines += ["", NO_HISTORY]
    return lines


def _fields(
    explanation: PartitionExplanation,
    transactions: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    paint: Paint,
) -> dict[str, str]:
    newest = explanation.epochs[0] if explanation.epochs else None
    leader = paint.red("none") if explanation.leader is None else f"broker {explanation.leader}"
    if newest is not None:
        leader += f", epoch {newest.epoch}{_since(newest.since_ms, now_ms)}"
    missing = [id for id in explanation.replicas if id not in explanation.isr]
    fields = {
        "leader": leader,
        "replicas": ids_text(explanation.replicas),
        "in sync": ids_text(explanation.isr) or paint.red("none"),
    }
    if missing:
        fields["in sync"] += paint.red(f", without {ids_text(missing)}")
    if (blocked := explanation.blocked) is not None:
        fields["committed"] = f"up to {blocked.high_watermark}"
        if blocked.waiting > 0:
            fields["committed"] += paint.red(f", transactions only up to {blocked.last_stable}")
        if (holder := blocked.holder) is not None:
            texts = holder_texts(holder, transactions.get(holder.producer_id), now_ms)
            fields |= {name: paint.escape(text) for name, text in texts.items()}
    return fields


def _since(at_ms: int | None, now_ms: int) -> str:
    return "" if at_ms is None else f", since {moment_text(at_ms)} ({age_text(now_ms - at_ms)} ago)"


def _row(replica: ReplicaStatus) -> list[str]:
    numbers = (replica.log_start, replica.log_end, replica.high_watermark, replica.lag)
    size = "-" if replica.size_bytes is None else size_text(replica.size_bytes)
    return [
        str(replica.id),
        *("-" if number is None else str(number) for number in numbers),
        size,
        "yes" if replica.in_sync else "no",
        replica.state,
    ]


def _epoch_row(epoch: LedEpoch) -> list[str]:
    leader = "-" if epoch.leader is None else "none" if epoch.leader == NO_LEADER else str(epoch.leader)
    start = "-" if epoch.start_offset is None else str(epoch.start_offset)
    return [str(epoch.epoch), start, leader, "-" if epoch.since_ms is None else moment_text(epoch.since_ms)]


def _event_line(event: PartitionEvent, paint: Paint) -> str:
    text = paint.escape(event.what)
    return f"{moment_text(event.at_ms)}  {paint.red(text) if event.is_bad else text}"


def _more(rows: Sequence[object], shown: int) -> list[str]:
    return [f"and {len(rows) - shown} older ones: --json prints all"] if len(rows) > shown else []


def as_json(explanation: PartitionExplanation) -> Json:
    blocked = explanation.blocked
    return {
        "topic": explanation.tp.topic,
        "partition": explanation.tp.partition,
        "leader": explanation.leader,
        "replicas": list(explanation.replicas),
        "isr": list(explanation.isr),
        "highWatermark": None if blocked is None else blocked.high_watermark,
        "lastStableOffset": None if blocked is None else blocked.last_stable,
        "copies": [
            {
                "broker": item.id,
                "inSync": item.in_sync,
                "logStart": item.log_start,
                "logEnd": item.log_end,
                "highWatermark": item.high_watermark,
                "lag": item.lag,
                "sizeBytes": item.size_bytes,
                "state": item.state,
            }
            for item in explanation.statuses
        ],
        "epochs": [
            {"epoch": item.epoch, "startOffset": item.start_offset, "leader": item.leader, "sinceMs": item.since_ms}
            for item in explanation.epochs
        ],
        "events": [{"atMs": item.at_ms, "what": item.what} for item in explanation.events],
        "historyKept": explanation.has_history,
    }
