"""Goals that a quantity sets itself: how much of its quiet value it may lose when something else goes on."""

from dataclasses import dataclass
from statistics import median

from tests.bench.results import FORMATS, MORE_IS_BETTER, Row


@dataclass(slots=True)
class Kept(Row):
    """Met if Leadline keeps at least this share of what it does when it is left alone."""

    quiet: Row | None = None
    share: float = 1.0

    @property
    def met(self) -> bool | None:
        if self.quiet is None:
            return None
        now, quiet = median(self.leadline), median(self.quiet.leadline)
        return (now / quiet if self.unit in MORE_IS_BETTER else quiet / now) >= self.share

    @property
    def goal_text(self) -> str:
        if self.quiet is None:
            return ""
        quiet = FORMATS[self.unit].format(median(self.quiet.leadline))
        if self.unit in MORE_IS_BETTER:
            return f">= {self.share:g} of its quiet {quiet}"
        return f"<= {1 / self.share:g} times its quiet {quiet}"
