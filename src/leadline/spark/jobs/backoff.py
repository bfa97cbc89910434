"""The pauses between tries while something fails: each is twice as long as the one before, up to a limit.

Pure: counts only.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class BackOff:
    first_s: float
    longest_s: float
    failures: int = 0  # in a row

    def failed(self) -> float:
        """The seconds until the next try."""
        pause_s = self.first_s * 2.0 ** min(self.failures, 62)  # a higher power would not change the result
        self.failures += 1
        return min(pause_s, self.longest_s)

    def succeeded(self) -> None:
        self.failures = 0
