"""Retries of a request, up to a deadline."""

import time
from dataclasses import dataclass, field

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


@dataclass(slots=True)
class Retries:
    """Retries up to a deadline, with growing pauses."""

    timeout_s: float
    pause_s: float = FIRST_PAUSE_S
    deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline_s = time.monotonic() + self.timeout_s

    def wait(self, error: Exception) -> None:
        """Pauses before the next try. Raises the error if the deadline would pass."""
        if time.monotonic() + self.pause_s > self.deadline_s:
            raise error
        time.sleep(self.pause_s)
        self.pause_s = min(2 * self.pause_s, LONGEST_PAUSE_S)
