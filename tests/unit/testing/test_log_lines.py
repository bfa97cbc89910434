"""The last log lines of brokers: kept, while the logging of the test stays as it was."""

import logging
from collections.abc import Iterator
from itertools import count

import pytest

from leadline.testing import log_lines
from leadline.testing.log_lines import KEPT, BrokerLogLines
from tests.support.logs import ManualClock

NAMES = (f"leadline.lines_of_a_test_{number}" for number in count())  # no cluster of another test touches them


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger(next(NAMES))


@pytest.fixture
def lines(logger: logging.Logger, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerLogLines]:
    monkeypatch.setattr(log_lines, "_FILTER", log_lines._Filter())
    package = logging.getLogger(log_lines.PACKAGE)
    before = package.level
    package.setLevel(logging.WARNING)
    lines = BrokerLogLines(ManualClock(1_700_000_000_000))
    lines.start()
    yield lines
    lines.stop()
    package.setLevel(before)


def test_lines_are_kept_with_the_time_of_the_cluster(lines: BrokerLogLines, logger: logging.Logger) -> None:
    logger.info("moved %s", "orders-0")
    assert lines.last() == ["2023-11-14 22:13:20.000  MainThread  info  moved orders-0"]


def test_only_the_last_ones_are_kept(lines: BrokerLogLines, logger: logging.Logger) -> None:
    for number in range(KEPT + 5):
        logger.info("%d", number)
    assert len(lines.last(10 * KEPT)) == KEPT
    assert lines.last(1)[0].endswith(f"  {KEPT + 4}")


@pytest.fixture
def logged(logger: logging.Logger) -> Iterator[list[str]]:
    """The lines that a handler of the test gets."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    messages: list[str] = []
    handler = Handler()
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def test_a_line_that_would_not_have_been_logged_is_still_not_logged(
    lines: BrokerLogLines, logger: logging.Logger, logged: list[str]
) -> None:
    logger.info("quiet")
    logger.warning("loud")
    assert logged == ["loud"]
    assert [line.rpartition("  ")[2] for line in lines.last()] == ["quiet", "loud"]


def test_a_test_that_asks_for_more_gets_more(lines: BrokerLogLines, logger: logging.Logger, logged: list[str]) -> None:
    logging.getLogger(log_lines.PACKAGE).setLevel(logging.DEBUG)
    logger.debug("detail")
    logger.info("fact")
    assert logged == ["detail", "fact"]
    assert [line.rpartition("  ")[2] for line in lines.last()] == ["fact"]


def test_the_last_listener_restores_the_levels(lines: BrokerLogLines, logger: logging.Logger) -> None:
    other = BrokerLogLines(ManualClock())
    other.start()
    lines.stop()
    assert logger.getEffectiveLevel() == logging.DEBUG
    other.stop()
    assert (logger.getEffectiveLevel(), logger.filters) == (logging.WARNING, [])
