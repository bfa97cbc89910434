"""The log lines of a broker: one of many partitions must not bury what else there is to read.

Lines that one statement writes are similar. In each period the first MOST of them are written. When the period ends,
one line tells how many more there were, and the last of them.
"""

import logging
import sys
from collections import Counter

MAX_SIMILAR = 10
PERIOD_S = 5.0
FORMAT = "%(asctime)s %(levelname)s %(message)s"

Statement = tuple[str, int]  # a file and a line in it


class CondensedLines(logging.StreamHandler):  # type: ignore[type-arg]
    """To standard error. `end_period` is to be called every PERIOD_S, and at the end."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(FORMAT))
        self._counts: Counter[Statement] = Counter()
        self._last: dict[Statement, logging.LogRecord] = {}  # of those that were not written

    def emit(self, record: logging.LogRecord) -> None:
        statement = (record.pathname, record.lineno)
        self._counts[statement] += 1
        if self._counts[statement] > MAX_SIMILAR:
            self._last[statement] = record
        else:
            super().emit(record)

    def end_period(self) -> None:
        self.acquire()  # as whoever calls `emit` does
        try:
            for statement, record in self._last.items():
                more = self._counts[statement] - MAX_SIMILAR
                text = f"{more} more such lines, the last: {record.getMessage()}" if more > 1 else record.getMessage()
                super().emit(logging.makeLogRecord(record.__dict__ | {"msg": text, "args": ()}))
            self._counts.clear()
            self._last.clear()
        finally:
            self.release()
