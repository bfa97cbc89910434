"""Memory, descriptors and threads of brokers over time, and whether they stay flat.

The first quarter of a soak is warming up: caches fill, templates are learned. A quantity is flat if its median in the
last quarter is above its median in the second quarter by a share of it and a small constant at most. A leak grows for
as long as the soak lasts.

Memory is what only this process has (RssAnon): pages of log files belong to the page cache.
"""

import os
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

SHARE = 0.05
CONSTANTS = {"memory MB": 6.0, "descriptors": 12.0, "threads": 3.0}
FEWEST = 8  # samples, two in each quarter

_ANONYMOUS = re.compile(r"RssAnon:\s+(\d+) kB")
_THREADS = re.compile(r"Threads:\s+(\d+)")


def sample(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    memory, threads = _ANONYMOUS.search(status), _THREADS.search(status)
    assert memory is not None
    assert threads is not None
    return {
        "memory MB": int(memory[1]) / 1024,
        "descriptors": float(len(os.listdir(f"/proc/{pid}/fd"))),
        "threads": float(threads[1]),
    }


def is_flat(quantity: str, samples: list[float]) -> bool:
    quarter = len(samples) // 4
    before, after = median(samples[quarter : 2 * quarter]), median(samples[-quarter:])
    return after <= before * (1 + SHARE) + CONSTANTS[quantity]


@dataclass
class ResourceHistory:
    samples: dict[tuple[int, str], list[float]] = field(default_factory=lambda: defaultdict(list))

    def add(self, broker: int, quantities: dict[str, float]) -> None:
        for quantity, value in quantities.items():
            self.samples[broker, quantity].append(value)

    def rows(self) -> list[list[str]]:
        """Broker, quantity, the medians of the four quarters, and the verdict."""
        rows = []
        for (broker, quantity), samples in sorted(self.samples.items()):
            quarter = len(samples) // 4
            medians = [f"{median(samples[n * quarter : (n + 1) * quarter]):.1f}" for n in range(4)]
            rows.append([str(broker), quantity, *medians, "flat" if is_flat(quantity, samples) else "GROWS"])
        return rows

    def violations(self) -> list[str]:
        if any(len(samples) < FEWEST for samples in self.samples.values()):
            return ["too short to judge: the soak has too few samples"]
        return [
            f"{quantity} of broker {broker} grow: {samples[len(samples) // 4]:.1f} to {samples[-1]:.1f}"
            for (broker, quantity), samples in sorted(self.samples.items())
            if not is_flat(quantity, samples)
        ]
