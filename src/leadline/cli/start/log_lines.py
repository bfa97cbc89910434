"""The log lines of a broker, as text or as JSON. Similar lines are condensed, so that other lines stay visible.

Lines are similar if one statement writes them. In each period the first MAX_SIMILAR of them are written. At the end of
the period one line has the number of the others, and the text of the last one. The audit log limits itself.

A line of JSON is one object:

    time       when, in ISO 8601 with milliseconds and the offset from UTC
    level      DEBUG, INFO, WARN, ERROR or FATAL, as Kafka has them
    logger     what wrote it: the name by which its level is changed
    message    the text, on one line
    exception  the stack trace of an unexpected error
    similar    of a condensed line: how many similar lines it stands for
"""

import json
import logging
import sys
from collections import Counter
from datetime import UTC, datetime

from leadline.runtime.log_levels import level_name
from leadline.security.audit import AUDIT_LOGGER

MAX_SIMILAR = 10
PERIOD_S = 5.0
TEXT, JSON = "text", "json"  # values of --log-format
FORMAT = "%(asctime)s %(levelname)s %(message)s"

Statement = tuple[str, int]  # a file and a line in it


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).astimezone().isoformat(timespec="milliseconds"),
            "level": level_name(record.levelno),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if (similar := getattr(record, "similar", None)) is not None:
            line["similar"] = similar
        return json.dumps(line, ensure_ascii=False)


FORMATTERS: dict[str, logging.Formatter] = {TEXT: logging.Formatter(FORMAT), JSON: JsonFormatter()}


class CondensedLines(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes to standard error. Call `end_period` every PERIOD_S, and at the end."""

    def __init__(self, log_format: str = TEXT) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(FORMATTERS[log_format])
        self._counts: Counter[Statement] = Counter()
        self._last: dict[Statement, logging.LogRecord] = {}  # the last line of each statement that was not written

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == AUDIT_LOGGER:  # it limits its own rate, and counts the lines that it drops
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
                condensed = record.__dict__ | {"msg": text, "args": ()}
                super().emit(logging.makeLogRecord(condensed | ({"similar": more} if more > 1 else {})))
            self._counts.clear()
            self._last.clear()
        finally:
            self.release()
