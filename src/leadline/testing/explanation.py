"""A partition explained in text, from the reports of its brokers (see `api.explanations`).

Pure: reports in, text out.
"""

from collections.abc import Mapping
from typing import Any

from leadline.model import TopicPartition
from leadline.testing.clock import moment_text

SHOWN = 12  # events


def explanation_of(tp: TopicPartition, reports: Mapping[int, Mapping[str, Any]], absent: Mapping[int, str]) -> str:
    """`absent`: brokers that do not run, with their state."""
    newest = max(reports.values(), key=lambda report: report["leader_epoch"])
    leader = newest["leader"]
    leading = reports.get(leader, {}).get("leads")
    lines = [str(tp)]
    lines.append(f"  leader     {'none' if leader < 0 else f'broker {leader}'}, epoch {newest['leader_epoch']}")
    if leading is not None:
        lines.append(f"  replicas   {_ids(leading['replicas'])}")
        lines.append(f"  in sync    {_ids(leading['isr'])} (min.insync.replicas={leading['min_isr']})")
        if leading["asked_isr"] is not None:
            lines.append(f"  requested  {_ids(leading['asked_isr'])} in sync; the controller has not answered yet")
    for id, report in sorted(reports.items()):
        lines.append(f"  broker {id}   {_replica(report)}")
    lines += [f"  broker {id}   {state}" for id, state in sorted(absent.items()) if id not in reports]
    events = sorted({event for id, report in reports.items() for event in _events(id, report["history"])})
    events = sorted([*_elections(reports), *events])
    lines += [f"  {moment_text(at_ms)}  {what}" for at_ms, what in events[-SHOWN:]]
    return "\n".join(lines)


def _replica(report: Mapping[str, Any]) -> str:
    role, follows = "leads" if report["leads"] is not None else "", report["follows"]
    if follows is not None:
        role = f"follows ({follows['state']}{', ' if follows['why'] else ''}{follows['why']})"
    return (
        f"{role or 'neither leads nor follows'}, offsets {report['log_start']} to {report['log_end']}, "
        f"high watermark {report['high_watermark']}, last stable offset {report['last_stable_offset']}"
    )


def _elections(reports: Mapping[int, Mapping[str, Any]]) -> "list[tuple[int, str]]":
    """Each election once: every broker reports it."""
    first: dict[int, Mapping[str, Any]] = {}
    elections = [election for report in reports.values() for election in report["history"]["elections"]]
    for election in sorted(elections, key=lambda election: election["at_ms"]):
        first.setdefault(election["epoch"], election)
    return [(election["at_ms"], _election(election)) for election in first.values()]


def _election(election: Mapping[str, Any]) -> str:
    leader = "no broker leads" if election["leader"] < 0 else f"broker {election['leader']} leads"
    unclean = ", and may lack records that were acknowledged" if election["unclean"] else ""
    return f"{leader}: epoch {election['epoch']}, in sync {_ids(election['isr'])}{unclean}"


def _events(broker: int, history: Mapping[str, Any]) -> "list[tuple[int, str]]":
    events = [
        (change["at_ms"], f"in sync {_ids(change['after'])} instead of {_ids(change['before'])}: {change['why']}")
        for change in history["isr_changes"]
    ]
    for cut in history["truncations"]:
        leader = f"its leader, broker {cut['leader']}, lacks them"
        events.append((cut["at_ms"], f"broker {broker} removed offsets from {cut['to_offset']} on: {leader}"))
    return events


def _ids(ids: Any) -> str:
    return ",".join(map(str, ids)) or "none"
