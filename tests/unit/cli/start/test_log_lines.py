"""Log lines of many partitions: the first ones, and how many more there were."""

import json
import logging
from datetime import datetime

import pytest

from leadline.cli.start.log_lines import JSON, MAX_SIMILAR, CondensedLines
from leadline.security.audit import AUDIT_LOGGER


def condensed() -> tuple[logging.Logger, CondensedLines]:
    handler, logger = CondensedLines(), logging.Logger("test")
    logger.addHandler(handler)
    return logger, handler


def written(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Without their times."""
    return [line.split(" ", 2)[2] for line in capsys.readouterr().err.splitlines()]


def test_the_first_of_many_similar_lines_are_written_and_the_others_counted(capsys: pytest.CaptureFixture[str]) -> None:
    logger, handler = condensed()
    for n in range(MAX_SIMILAR + 500):
        logger.info("orders-%d is here", n)
    logger.warning("something else")
    handler.end_period()
    assert written(capsys) == [
        *(f"INFO orders-{n} is here" for n in range(MAX_SIMILAR)),
        "WARNING something else",
        f"INFO 500 more similar lines, the last: orders-{MAX_SIMILAR + 499} is here",
    ]


def test_each_period_begins_anew_and_a_few_lines_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    logger, handler = condensed()
    for period in range(3):
        for n in range(MAX_SIMILAR + 1):
            logger.info("orders-%d is here", n)
        handler.end_period()
        assert written(capsys) == [f"INFO orders-{n} is here" for n in range(MAX_SIMILAR + 1)], f"period {period}"
    handler.end_period()
    assert written(capsys) == []


def test_the_audit_log_limits_itself(capsys: pytest.CaptureFixture[str]) -> None:
    handler, logger = CondensedLines(), logging.Logger(AUDIT_LOGGER)
    logger.addHandler(handler)
    for n in range(MAX_SIMILAR + 5):
        logger.info("%s", f"denied {n}")
    assert written(capsys) == [f"INFO denied {n}" for n in range(MAX_SIMILAR + 5)]


def test_a_line_of_json_is_one_object_with_kafkas_level(capsys: pytest.CaptureFixture[str]) -> None:
    handler, logger = CondensedLines(JSON), logging.Logger("leadline.test")
    logger.addHandler(handler)
    logger.warning("a line\nand %s", "a \N{BOX DRAWINGS LIGHT HORIZONTAL}")
    try:
        raise ValueError("broken")
    except ValueError:
        logger.critical("it failed", exc_info=True)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["logger"], line["message"]) for line in lines] == [
        ("WARN", "leadline.test", "a line\nand a \N{BOX DRAWINGS LIGHT HORIZONTAL}"),
        ("FATAL", "leadline.test", "it failed"),
    ]
    assert datetime.fromisoformat(lines[0]["time"]).tzinfo is not None
    assert lines[1]["exception"].endswith("ValueError: broken")


def test_condensed_lines_of_json_say_how_many_they_stand_for(capsys: pytest.CaptureFixture[str]) -> None:
    handler, logger = CondensedLines(JSON), logging.Logger("leadline.test")
    logger.addHandler(handler)
    for n in range(MAX_SIMILAR + 7):
        logger.info("orders-%d is here", n)
    handler.end_period()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line.get("similar") for line in lines] == [None] * MAX_SIMILAR + [7]
