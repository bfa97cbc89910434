"""A partition explained: who leads it and since when, where each replica is, what happened lately and why.

Told by brokers of Leadline, each of what it saw itself (see `leadline.api.explanations`). Others tell less: then there
are gaps, and a line that says so.

Pure: puts together what was asked for.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leadline.cli.formatting import age_text, ids_text, moment_text, size_text, table
from leadline.cli.json_values import Json
from leadline.cli.terminal import Paint
from leadline.cli.transactions.open_transactions import BlockedPartition, TransactionDescription
from leadline.cli.transactions.transaction_text import holder_texts
from leadline.model import BrokerId, LeaderEpoch, Offset, ProducerId, TopicPartition

Explanation = Mapping[str, Any]  # what stands in the JSON

SHOWN = 12  # of epochs, and of what happened
NOBODY: BrokerId = -1
NOT_TOLD = "These brokers keep no history: who led earlier, what changed and why is not known."
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
    lag: int | None = None  # records that the leader has and it has not
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
    copies: Sequence[ReplicaStatus]
    epochs: Sequence[LedEpoch]  # the newest first, as events
    events: Sequence[PartitionEvent]
    blocked: BlockedPartition | None  # None: nobody leads it
    tells: bool  # there is a broker that keeps a history


class PartitionReports(NamedTuple):
    """What was asked for one partition."""

    tp: TopicPartition
    leader: BrokerId | None
    replicas: Sequence[BrokerId]
    isr: Sequence[BrokerId]
    told: Mapping[BrokerId, Explanation]  # by brokers of Leadline
    silent: Mapping[BrokerId, str]  # why a broker tells nothing
    copies: Mapping[BrokerId, ReplicaStatus] = {}  # as far as known without being told
    epoch_starts: Sequence[tuple[LeaderEpoch, Offset]] = ()  # as the leader knows them
    blocked: BlockedPartition | None = None


def explain_partition(seen: PartitionReports) -> PartitionExplanation:
    return PartitionExplanation(
        seen.tp,
        seen.leader,
        seen.replicas,
        seen.isr,
        [_replica(id, seen) for id in seen.replicas],
        _epochs(seen),
        _events(seen),
        seen.blocked,
        bool(seen.told),
    )


# Replicas


def _replica(id: BrokerId, seen: PartitionReports) -> ReplicaStatus:
    is_leader, in_sync = id == seen.leader, id in seen.isr
    if (why := seen.silent.get(id)) is not None:
        return ReplicaStatus(id, is_leader, in_sync, state=why)
    if (told := seen.told.get(id)) is None:
        return seen.copies.get(id, ReplicaStatus(id, is_leader, in_sync, state="nothing is known of it"))
    led = None if seen.leader is None else seen.told.get(seen.leader)
    lag = None if led is None else max(led["log_end"] - told["log_end"], 0)
    return ReplicaStatus(
        id,
        is_leader,
        in_sync,
        told["log_start"],
        told["log_end"],
        told["high_watermark"],
        lag,
        told["size_bytes"],
        _state(told, led),
    )


def _state(told: Explanation, led: Explanation | None) -> str:
    """What it is about to do; and of a follower, what its leader knows of it."""
    if (leads := told["leads"]) is not None:
        asked = leads["asked_isr"]
        return "leads" if asked is None else f"leads, and asks for {ids_text(asked)} to be in sync"
    if (follows := told["follows"]) is None:
        return "waits for a leader"
    if follows["state"] != "FETCHING" or follows["why"]:
        return f"{follows['state'].lower().replace('_', ' ')}: {follows['why']}".rstrip(": ")
    return _fetched(told["broker"], led) if led is not None and led["leads"] is not None else "follows"


def _fetched(follower: BrokerId, led: Explanation) -> str:
    (each,) = [known for known in led["leads"]["followers"] if known["id"] == follower] or [{"fetched_ms": 0}]
    if not each["fetched_ms"]:
        return "has not fetched yet"
    text = f"fetched {age_text(led['now_ms'] - each['fetched_ms'])} ago"
    if each["caught_up_ms"] >= each["fetched_ms"]:
        return text
    if not each["caught_up_ms"]:
        return f"{text}, never caught up"
    return f"{text}, caught up {age_text(led['now_ms'] - each['caught_up_ms'])} ago"


# Epochs and events


def _elections(seen: PartitionReports) -> dict[LeaderEpoch, Explanation]:
    """The first that anybody heard of each."""
    found: dict[LeaderEpoch, Explanation] = {}
    for told in seen.told.values():
        for each in told["history"]["elections"]:
            before = found.get(each["epoch"])
            if before is None or each["at_ms"] < before["at_ms"]:
                found[each["epoch"]] = each
    return found


def _epochs(seen: PartitionReports) -> list[LedEpoch]:
    elections = _elections(seen)
    led = None if seen.leader is None else seen.told.get(seen.leader)
    best = led or next(iter(seen.told.values()), None)
    starts = dict(seen.epoch_starts if best is None else best["epochs"])
    found = [
        LedEpoch(
            epoch,
            starts.get(epoch),
            elections[epoch]["leader"] if epoch in elections else None,
            elections[epoch]["at_ms"] if epoch in elections else None,
        )
        for epoch in {*starts, *elections}
    ]
    return sorted(found, reverse=True)


def _events(seen: PartitionReports) -> list[PartitionEvent]:
    found = [_elected(each, seen.replicas) for each in _elections(seen).values()]
    for broker, told in seen.told.items():
        found += [_isr_changed(each) for each in told["history"]["isr_changes"]]
        found += [_truncated(broker, each) for each in told["history"]["truncations"]]
    return sorted(found, key=lambda event: event.at_ms, reverse=True)


def _elected(each: Explanation, replicas: Sequence[BrokerId]) -> PartitionEvent:
    without = [replica for replica in replicas if replica not in each["isr"]]
    in_sync = f"epoch {each['epoch']}, in sync {ids_text(each['isr']) or 'nobody'}"
    if without:
        in_sync += f", without {ids_text(without)}"
    if each["leader"] == NOBODY:
        return PartitionEvent(each["at_ms"], f"nobody leads: {in_sync}", is_bad=True)
    if each["unclean"]:
        in_sync += "; unclean: it was not in sync, and what it lacks is lost"
    return PartitionEvent(each["at_ms"], f"broker {each['leader']} leads: {in_sync}", is_bad=each["unclean"])


def _isr_changed(each: Explanation) -> PartitionEvent:
    why = f": {each['why']}" if each["why"] else ""
    text = f"in sync {ids_text(each['after'])} instead of {ids_text(each['before'])}{why}"
    return PartitionEvent(each["at_ms"], text, is_bad=len(each["after"]) < len(each["before"]))


def _truncated(broker: BrokerId, each: Explanation) -> PartitionEvent:
    if each["to_offset"] > each["log_end"]:
        text = f"dropped all its records below {each['log_end']} and starts at {each['to_offset']}"
    else:
        count = each["log_end"] - each["to_offset"]
        records = "1 record" if count == 1 else f"{count:,} records"
        text = f"truncated {records}, from {each['log_end']} back to {each['to_offset']}"
    why = f", to follow broker {each['leader']} in epoch {each['epoch']}"
    warning = f": {each['warning']}" if each["warning"] else ""
    return PartitionEvent(each["at_ms"], f"broker {broker} {text}{why}{warning}", is_bad=each["warning"] is not None)


# For a person


def lines_of(
    found: PartitionExplanation,
    known: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    paint: Paint,
    shown: int = SHOWN,
) -> list[str]:
    about = _about(found, known, now_ms, paint)
    width = max(map(len, about))
    lines = [paint.bold(str(found.tp)), *(f"  {name:{width}}  {text}" for name, text in about.items())]
    rows = [_row(each) for each in found.copies]
    lines += ["", *table(REPLICA_HEADS, [[paint.harmless(cell) for cell in row] for row in rows], paint.bold)]
    if found.epochs:
        lines += ["", *table(EPOCH_HEADS, [_epoch_row(each) for each in found.epochs[:shown]], paint.bold)]
        lines += _more(found.epochs, shown)
    if found.events:
        lines += ["", paint.bold("WHEN                 WHAT")]
        lines += [_event_line(each, paint) for each in found.events[:shown]]
        lines += _more(found.events, shown)
    if not found.tells:
        lines += ["", NOT_TOLD]
    return lines


def _about(
    found: PartitionExplanation, known: Mapping[ProducerId, TransactionDescription], now_ms: int, paint: Paint
) -> dict[str, str]:
    newest = found.epochs[0] if found.epochs else None
    leader = paint.red("nobody") if found.leader is None else f"broker {found.leader}"
    if newest is not None:
        leader += f", epoch {newest.epoch}{_since(newest.since_ms, now_ms)}"
    missing = [id for id in found.replicas if id not in found.isr]
    about = {
        "leader": leader,
        "replicas": ids_text(found.replicas),
        "in sync": ids_text(found.isr) or paint.red("nobody"),
    }
    if missing:
        about["in sync"] += paint.red(f", without {ids_text(missing)}")
    if (blocked := found.blocked) is not None:
        about["committed"] = f"up to {blocked.high_watermark}"
        if blocked.waiting > 0:
            about["committed"] += paint.red(f", transactions only up to {blocked.last_stable}")
        if (holder := blocked.holder) is not None:
            texts = holder_texts(holder, known.get(holder.producer_id), now_ms)
            about |= {name: paint.harmless(text) for name, text in texts.items()}
    return about


def _since(at_ms: int | None, now_ms: int) -> str:
    return "" if at_ms is None else f", since {moment_text(at_ms)} ({age_text(now_ms - at_ms)} ago)"


def _row(each: ReplicaStatus) -> list[str]:
    numbers = (each.log_start, each.log_end, each.high_watermark, each.lag)
    size = "-" if each.size_bytes is None else size_text(each.size_bytes)
    return [
        str(each.id),
        *("-" if number is None else str(number) for number in numbers),
        size,
        "yes" if each.in_sync else "no",
        each.state,
    ]


def _epoch_row(each: LedEpoch) -> list[str]:
    leader = "-" if each.leader is None else "nobody" if each.leader == NOBODY else str(each.leader)
    start = "-" if each.start_offset is None else str(each.start_offset)
    return [str(each.epoch), start, leader, "-" if each.since_ms is None else moment_text(each.since_ms)]


def _event_line(each: PartitionEvent, paint: Paint) -> str:
    text = paint.harmless(each.what)
    return f"{moment_text(each.at_ms)}  {paint.red(text) if each.is_bad else text}"


def _more(all_of_them: Sequence[object], shown: int) -> list[str]:
    return [f"and {len(all_of_them) - shown} older ones: --json has them"] if len(all_of_them) > shown else []


def as_json(found: PartitionExplanation) -> Json:
    blocked = found.blocked
    return {
        "topic": found.tp.topic,
        "partition": found.tp.partition,
        "leader": found.leader,
        "replicas": list(found.replicas),
        "isr": list(found.isr),
        "highWatermark": None if blocked is None else blocked.high_watermark,
        "lastStableOffset": None if blocked is None else blocked.last_stable,
        "copies": [
            {
                "broker": each.id,
                "inSync": each.in_sync,
                "logStart": each.log_start,
                "logEnd": each.log_end,
                "highWatermark": each.high_watermark,
                "lag": each.lag,
                "sizeBytes": each.size_bytes,
                "state": each.state,
            }
            for each in found.copies
        ],
        "epochs": [
            {"epoch": each.epoch, "startOffset": each.start_offset, "leader": each.leader, "sinceMs": each.since_ms}
            for each in found.epochs
        ],
        "events": [{"atMs": each.at_ms, "what": each.what} for each in found.events],
        "historyKept": found.tells,
    }
