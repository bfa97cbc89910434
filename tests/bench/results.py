"""What was measured, what it says, and how a person reads it.

A row is one quantity, measured on both sides several times in turns. Its ratio tells how many times better Leadline is:
faster, or with less; where Kafka does nothing of the kind there is none. The median decides whether a goal is met; the
best shows what a quiet machine would say.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

Unit = Literal["s", "/s", "MB/s", "us", "ms", "ms/MB", "MB", "KB", "cores", "x"]

MORE_IS_BETTER = frozenset({"/s", "MB/s", "cores"})
FORMATS: dict[Unit, str] = {
    "s": "{:.3f} s",
    "/s": "{:,.0f} /s",
    "MB/s": "{:,.0f} MB/s",
    "us": "{:.1f} us",
    "ms": "{:,.0f} ms",
    "ms/MB": "{:.3f} ms/MB",
    "MB": "{:,.0f} MB",
    "cores": "{:.2f} cores",
    "x": "{:.2f} x",
    "KB": "{:.2f} KB",
}


@dataclass(frozen=True, slots=True)
class Goal:
    """At least so many times as good as Kafka, or below or above so much in the row's own unit."""

    times: float | None = None
    below: float | None = None
    above: float | None = None


@dataclass(slots=True)
class Row:
    what: str
    unit: Unit
    goal: Goal | None = None
    leadline: list[float] = field(default_factory=list)
    kafka: list[float] = field(default_factory=list)
    is_compared: bool = field(default=True, kw_only=True)  # False: neither more nor less of it is better

    def add(self, leadline: float, kafka: float) -> None:
        self.leadline.append(leadline)
        self.kafka.append(kafka)

    def best(self, samples: Sequence[float]) -> float:
        return max(samples) if self.unit in MORE_IS_BETTER else min(samples)

    def _better(self, leadline: float, kafka: float) -> float:
        return leadline / kafka if self.unit in MORE_IS_BETTER else kafka / leadline

    @property
    def ratio(self) -> float:
        return self._better(median(self.leadline), median(self.kafka))

    @property
    def best_ratio(self) -> float:
        return self._better(self.best(self.leadline), self.best(self.kafka))

    @property
    def met(self) -> bool | None:
        """None if there is no goal."""
        if self.goal is None:
            return None
        if self.goal.times is not None:
            return self.ratio >= self.goal.times
        if self.goal.above is not None:
            return median(self.leadline) > self.goal.above
        return self.goal.below is not None and median(self.leadline) < self.goal.below

    @property
    def goal_text(self) -> str:
        if self.goal is None:
            return ""
        if self.goal.times is not None:
            return f">= {self.goal.times:g}x"
        if self.goal.above is not None:
            return "> " + FORMATS[self.unit].format(self.goal.above)
        return "< " + FORMATS[self.unit].format(self.goal.below or 0).replace(".000", "")

    def to_json(self) -> dict[str, object]:
        sides = {"leadline": self.leadline} | ({"kafka": self.kafka} if self.kafka else {})
        ratios = {"ratio": self.ratio, "best_ratio": self.best_ratio} if self.kafka and self.is_compared else {}
        return {
            "what": self.what,
            "unit": self.unit,
            **{name: {"median": median(all), "best": self.best(all), "all": all} for name, all in sides.items()},
            **ratios,
            "goal": self.goal_text or None,
            "met": self.met,
        }


WIDTHS = 46, 26, 26, 15
TITLES = "", "Leadline  median (best)", "Kafka 3.8  median (best)", "times better"


def heading() -> str:
    return _line(TITLES) + "  goal"


def table(name: str, rows: Sequence[Row], *, judged: bool) -> str:
    """A benchmark's rows, under its name."""
    return "\n".join([name, *(_row(row, judged=judged) for row in rows)])


def _row(row: Row, *, judged: bool) -> str:
    ratio = f"{row.ratio:.2f} ({row.best_ratio:.2f})" if row.kafka and row.is_compared else ""
    line = _line((f"  {row.what}", _samples(row, row.leadline), _samples(row, row.kafka), ratio))
    if row.met is None:
        return line
    verdict = ("met" if row.met else "MISSED") if judged else "not judged: too small a run"
    return f"{line}  {row.goal_text}: {verdict}"


def _samples(row: Row, samples: Sequence[float]) -> str:
    if not samples:
        return ""
    text = FORMATS[row.unit]
    best = text.format(row.best(samples)).split()[0]
    return f"{text.format(median(samples))} ({best})"


def _line(cells: Sequence[str]) -> str:
    first, *others = zip(cells, WIDTHS, strict=True)
    return first[0].ljust(first[1]) + "".join(cell.rjust(width) for cell, width in others)
