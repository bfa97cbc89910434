"""Findings of `leadline migrate check`: what prevents a migration to Leadline's brokers, where, and the cure.

    blocks   a broker would not start, would not replicate, or something would be lost
    warns    it works, but clients notice something: a pause, or a request that is gone
    notes    no reason to wait

Pure: values in, values out.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from leadline.admin.formatting import count_text
from leadline.admin.json_values import Json
from leadline.model import BrokerId

READY, IN_THE_WAY = 0, 1  # exit codes
WHERE_SHOWN = 3  # places of one finding at most


class Severity(Enum):
    BLOCKS = "blocks"
    WARNS = "warns"
    NOTES = "notes"


class Area(Enum):
    MODE = "mode"  # ZooKeeper or KRaft
    VERSION = "version"
    SETTING = "setting"
    SECURITY = "security"
    PLUGIN = "plugin"
    STORAGE = "storage"
    PARTITION = "partition"


class MigrationFinding(NamedTuple):
    severity: Severity
    area: Area
    what: str
    cure: str
    where: tuple[str, ...]  # brokers, topics, partitions or files


def merged(findings: Iterable[MigrationFinding]) -> list[MigrationFinding]:
    """The worst first. One finding in several places is one."""
    places: dict[tuple[Severity, Area, str, str], list[str]] = {}
    for severity, area, what, cure, where in findings:
        same = places.setdefault((severity, area, what, cure), [])
        same += [place for place in where if place not in same]
    rank = {member: number for number, member in enumerate((*Severity, *Area))}
    keys = sorted(places, key=lambda key: (rank[key[0]], rank[key[1]]))
    return [MigrationFinding(*key, where=tuple(places[key])) for key in keys]


def exit_code(findings: Iterable[MigrationFinding]) -> int:
    return IN_THE_WAY if any(finding.severity is Severity.BLOCKS for finding in findings) else READY


FINDING_HEADS = ("SEVERITY", "AREA", "WHERE", "WHAT")


def finding_row(finding: MigrationFinding) -> list[str]:
    return [finding.severity.value, finding.area.value, where_text(finding.where), finding.what]


def where_text(where: Sequence[str]) -> str:
    shown = ", ".join(where[:WHERE_SHOWN])
    return shown if len(where) <= WHERE_SHOWN else f"{shown} and {len(where) - WHERE_SHOWN:,} more"


def finding_json(finding: MigrationFinding) -> dict[str, Json]:
    return {
        "severity": finding.severity.value,
        "area": finding.area.value,
        "where": list(finding.where),
        "what": finding.what,
        "cure": finding.cure,
    }


def summary(findings: Sequence[MigrationFinding], checked: Sequence[str]) -> str:
    """The verdict in a line. `checked`: the sources that were checked."""
    looked_at = f"Checked {', '.join(checked)}."
    blocking = sum(finding.severity is Severity.BLOCKS for finding in findings)
    if blocking:
        verb = "blocks" if blocking == 1 else "block"
        return f"{looked_at} Not ready: {count_text(blocking, 'finding')} {verb} the migration."
    warnings = sum(finding.severity is Severity.WARNS for finding in findings)
    caveat = f", with {count_text(warnings, 'warning')}" if warnings else ""
    return f"{looked_at} Ready{caveat}."


def order_text(order: Sequence[BrokerId]) -> str:
    """The order in which brokers are replaced, as text."""
    *others, controller = map(str, order)
    if not others:
        return f"There is one broker: {controller}."
    return f"Replace the brokers in this order: {', '.join(others)}, and last {controller}, the controller."
