"""A partition explained: its leader and since when, the position of each replica, the last events and their reasons.

Each broker of Leadline reports its own events (see `leadline.api.explanations`). Other brokers report less. Then
there are gaps, and a line says so.

Pure: reports in, values and JSON out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leadline.admin.formatting import age_text, ids_text
from leadline.admin.json_values import Json
from leadline.admin.open_transactions import BlockedPartition
from leadline.model import BrokerId, LeaderEpoch, Offset, TopicPartition

Explanation = Mapping[str, Any]  # the JSON object of a broker's report

NO_LEADER: BrokerId = -1


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
    if (offline := report.get("offline")) is not None:  # missing: an older broker
        return str(offline)
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


def as_json(explanation: PartitionExplanation) -> Json:
    blocked = explanation.blocked
    return {
        "topic": explanation.tp.topic,
        "partition": explanation.tp.partition,
        "leader": explanation.leader,
        "replicas": list(explanation.replicas),
        "isr": list(explanation.isr),
        "high_watermark": None if blocked is None else blocked.high_watermark,
        "last_stable_offset": None if blocked is None else blocked.last_stable,
        "replica_states": [
            {
                "broker": item.id,
                "in_sync": item.in_sync,
                "log_start": item.log_start,
                "log_end": item.log_end,
                "high_watermark": item.high_watermark,
                "lag": item.lag,
                "size_bytes": item.size_bytes,
                "state": item.state,
            }
            for item in explanation.statuses
        ],
        "epochs": [
            {"epoch": item.epoch, "start_offset": item.start_offset, "leader": item.leader, "since_ms": item.since_ms}
            for item in explanation.epochs
        ],
        "events": [{"at_ms": item.at_ms, "what": item.what} for item in explanation.events],
        "history_kept": explanation.has_history,
    }
