"""The loggers of this process and their levels, by the names that Kafka uses: TRACE, DEBUG, INFO, WARN, ERROR, FATAL.

A logger without a level of its own has that of the nearest logger above it. The one above all is `root`.
"""

import logging

ROOT = "root"
TRACE = 5  # finer than DEBUG
logging.addLevelName(TRACE, "TRACE")
LEVELS = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def level_name(level: int) -> str:
    """The name of a level, or of the nearest one below it."""
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "TRACE")


def loggers() -> dict[str, str]:
    """All loggers by name, with the level that holds for each."""
    existing = {
        name: logger for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)
    }
    return {name: level_name(logger.getEffectiveLevel()) for name, logger in {**existing, ROOT: logging.root}.items()}


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """It has that of the logger above it from now on. Not for root."""
    assert name != ROOT
    _logger(name).setLevel(logging.NOTSET)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)
