"""The clock of the system, set ahead by a test: what takes minutes is over at once."""

import time

from leadline.runtime.ports import SystemTime


class AheadClock(SystemTime):
    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms

    def monotonic_s(self) -> float:
        return time.monotonic() + self.ahead_ms / 1000
