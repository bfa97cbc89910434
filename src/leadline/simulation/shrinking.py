"""Makes a scenario that breaks a law as small as it can be while it still does: fewer faults, fewer clients, less time.

Each step plays a smaller scenario. Delta debugging: of a list, halves are left out first, then quarters, and at last
single elements. What is left out changes the delays of the rest, so a smaller scenario also gets a second variant of
them.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from leadline.simulation.scenario import Scenario

T = TypeVar("T")
IsBroken = Callable[[Scenario], bool]  # plays it: whether the law is broken

VARIANTS = 2
PLAYS = 60
REST_S = 1.0  # of the time with faults, after the last one


class _Search:
    def __init__(self, best: Scenario, is_broken: IsBroken, plays: int) -> None:
        self.best, self._is_broken, self.plays_left = best, is_broken, plays

    def takes(self, smaller: Scenario) -> bool:
        """Whether the smaller one breaks the law, too. Then it is the best."""
        for variant in range(self.best.variant, self.best.variant + VARIANTS):
            if self.plays_left == 0 or smaller == self.best:
                return False
            self.plays_left -= 1
            candidate = replace(smaller, variant=variant)
            if self._is_broken(candidate):
                self.best = candidate
                return True
        return False

    def reduce(self, items: Sequence[T], with_items: Callable[[tuple[T, ...]], Scenario], fewest: int) -> None:
        """Leave out as many items as possible."""
        kept, size = tuple(items), max(len(items) // 2, 1)
        while size:
            start = 0
            while start < len(kept):
                fewer = kept[:start] + kept[start + size :]
                if len(fewer) >= fewest and self.takes(with_items(fewer)):
                    kept = fewer
                else:
                    start += size
            size //= 2


def shrunk(scenario: Scenario, is_broken: IsBroken, broken_at_s: float | None = None, plays: int = PLAYS) -> Scenario:
    """`broken_at_s`: when the law was seen to be broken; None: at rest, after all faults."""
    search = _Search(scenario, is_broken, plays)
    if broken_at_s is not None:
        search.takes(replace(scenario, faults=tuple(f for f in scenario.faults if f.at_s <= broken_at_s)))
    search.reduce(search.best.faults, lambda faults: replace(search.best, faults=faults), fewest=0)
    search.reduce(search.best.clients, lambda clients: replace(search.best, clients=clients), fewest=1)
    last_s = max((fault.at_s for fault in search.best.faults), default=0.0)
    search.takes(replace(search.best, length_s=min(search.best.length_s, last_s + REST_S)))
    search.takes(replace(search.best, partitions=1))
    return search.best
