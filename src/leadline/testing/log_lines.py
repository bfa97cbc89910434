"""The last log lines of the brokers, kept for a test that fails. The logging of the test itself is unchanged.

All clusters of a process share one filter, on each logger of Leadline that exists when the first of them starts. It
lets those lines through that would have been logged without it, and nothing more: a test may change levels meanwhile.
A line belongs to the broker whose thread logged it.
"""

import logging
import threading
from collections import deque

from leadline.runtime.ports import Time
from leadline.testing.clock import moment_text

KEPT = 400
PACKAGE = "leadline"


class _Filter(logging.Filter):
    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[BrokerLogLines] = []
        self._levels: dict[str, int] = {}  # of the loggers, before

    def install(self) -> None:
        for name in sorted(name for name in logging.root.manager.loggerDict if name.startswith(f"{PACKAGE}.")):
            logger = logging.getLogger(name)
            self._levels[name] = logger.level
            if logger.getEffectiveLevel() > logging.DEBUG:
                logger.setLevel(logging.DEBUG)  # the test may ask for these lines later
            logger.addFilter(self)

    def remove(self) -> None:
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)
            logging.getLogger(name).removeFilter(self)
        self._levels.clear()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.INFO:
            for lines in list(self.listeners):
                lines.add(record)
        level = self._levels.get(record.name) or logging.getLogger(PACKAGE).getEffectiveLevel()
        return record.levelno >= level


_FILTER, _LOCK = _Filter(), threading.Lock()


class BrokerLogLines:
    """The log lines of brokers, with the time of the cluster's clock."""

    def __init__(self, clock: Time) -> None:
        self._clock = clock
        self._lines: deque[str] = deque(maxlen=KEPT)

    def start(self) -> None:
        with _LOCK:
            if not _FILTER.listeners:
                _FILTER.install()
            _FILTER.listeners.append(self)

    def stop(self) -> None:
        with _LOCK:
            if self in _FILTER.listeners:
                _FILTER.listeners.remove(self)
                if not _FILTER.listeners:
                    _FILTER.remove()

    def add(self, record: logging.LogRecord) -> None:
        at = moment_text(self._clock.now_ms())
        self._lines.append(f"{at}  {record.threadName}  {record.levelname.lower()}  {record.getMessage()}")

    def last(self, most: int = 40) -> list[str]:
        return list(self._lines)[-most:]
