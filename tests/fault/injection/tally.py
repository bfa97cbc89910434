"""What faults of one kind came to, the table of all kinds, and what a reader is told at the end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leadline.admin.formatting import table

HEADS = "fault", "faults", "acknowledged", "lost", "doubled", "reordered", "unavailable"
APACHE_HEADS = "Apache: faults", "acknowledged", "lost", "doubled", "reordered", "unavailable"


@dataclass(slots=True)
class Tally:
    faults: int = 0
    acknowledged: int = 0  # records, while it lasted and until the cluster had settled
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    unavailable_s: float = 0.0  # longest time without an acknowledgement in a partition
    violations: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        self.faults += other.faults
        self.acknowledged += other.acknowledged
        self.lost += other.lost
        self.doubled += other.doubled
        self.reordered += other.reordered
        self.unavailable_s = max(self.unavailable_s, other.unavailable_s)
        self.violations += other.violations

    def cells(self) -> list[str]:
        counts = (self.faults, self.acknowledged, self.lost, self.doubled, self.reordered)
        return [*(f"{count:,}" for count in counts), f"{self.unavailable_s:.1f} s"]


def total(tallies: Iterable[Tally]) -> Tally:
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    return whole


def results(leadline: Mapping[str, Tally], apache: Mapping[str, Tally]) -> list[str]:
    """Lines. A kind that Apache's brokers were spared has no figures of theirs."""
    rows: list[Sequence[str]] = []
    for name, tally in [*sorted(leadline.items()), ("all", total(leadline.values()))]:
        rows.append([name, *tally.cells(), *_apache_cells(name, apache)])
    return table((*HEADS, *(APACHE_HEADS if apache else ())), rows)


def _apache_cells(name: str, apache: Mapping[str, Tally]) -> list[str]:
    if not apache:
        return []
    tally = total(apache.values()) if name == "all" else apache.get(name)
    return [""] * len(APACHE_HEADS) if tally is None else tally.cells()
