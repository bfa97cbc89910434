"""The log lines of a broker. Similar lines about many partitions are condensed, so that other lines stay visible.

Lines are similar if one statement writes them. In each period the first MAX_SIMILAR of them are written. At the end of
the period one line has the number of the others, and the text of the last one. The audit log limits itself.
"""

import logging
import sys
from collections import Counter

from leadline.security.audit import AUDIT_LOGGER

MAX_SIMILAR = 10
PERIOD_S = 5.0
FORMAT = "%(asctime)s %(levelname)s %(message)s"

Statement = tuple[str, int]  # a file and a line in it


class CondensedLines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error. Call `end_period` every PERIOD_S, and at the end."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(logging.Formatter(FORMAT))
        self._counts: Counter[Statement] = Counter()
        self._last: dict[Statement, logging.LogRecord] = {}  # the last line of each statement that was not written

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == AUDIT_LOGGER:  # it limits itself, and counts what it leaves out
            super().emit(record)
            return
        statement = (record.pathname, record.lineno)
        self._counts[statement] += 1
        if self._counts[statement] > MAX_SIMILAR:
            self._last[statement] = record
        else:
            super().emit(record)

    def end_period(self) -> None:
        self.acquire()  # the lock that `handle` holds around `emit`
        try:
            for statement, record in self._last.items():
                more = self._counts[statement] - MAX_SIMILAR
                text = (
                    f"{more} more similar lines, the last: {record.getMessage()}" if more > 1 else record.getMessage()
                )
                super().emit(logging.makeLogRecord(record.__dict__ | {"msg": text, "args": ()}))
            self._counts.clear()
            self._last.clear()
        finally:
            self.release()
