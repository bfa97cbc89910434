"""The loggers of this broker as a resource of settings, BROKER_LOGGER: a level each, which can be changed at run time.

A level lasts until the process ends. A logger without a level inherits that of the logger above it; `root` has none
above.
"""

from collections.abc import Iterable

from leadline.config.alter import AlterConfigOp, ConfigChange
from leadline.config.describe import ConfigEntry, ConfigSource
from leadline.errors import InvalidConfig, InvalidRequest
from leadline.runtime.log_levels import LEVELS, ROOT, loggers, set_level, unset_level


def describe_loggers(names: list[str] | None) -> list[ConfigEntry]:
    """The loggers with these names; all of them if there are no names. As in Kafka, an empty list leaves root out."""
    levels = loggers()
    if names == []:
        levels.pop(ROOT)
    shown = levels if not names else {name: levels[name] for name in names if name in levels}
    return [
        ConfigEntry(
            name=name,
            value=level,
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            read_only=False,
            sensitive=False,
            synonyms=(),
            kind=None,
            documentation="",
        )
        for name, level in shown.items()
    ]


def check_levels(changes: Iterable[ConfigChange]) -> None:
    """InvalidConfig, InvalidRequest: as Kafka refuses them."""
    existing = loggers()
    for change in changes:
        name, op, value = change.name, change.op, change.value
        if op is AlterConfigOp.SET:
            _check_exists(name, existing)
            if value not in LEVELS:
                raise InvalidConfig(
                    f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
                    f"Valid log levels are {', '.join(sorted(LEVELS))}"
                )
        elif op is AlterConfigOp.DELETE:
            _check_exists(name, existing)
            if name == ROOT:
                raise InvalidRequest("Removing the log level of the root logger is not allowed")
        else:
            raise InvalidRequest(f"{op.name} operation is not allowed for the BROKER_LOGGER resource")


def _check_exists(name: str, existing: dict[str, str]) -> None:
    if name not in existing:
        raise InvalidConfig(f"Logger {name} does not exist!")


def alter_levels(changes: Iterable[ConfigChange]) -> None:
    for change in changes:
        if change.op is AlterConfigOp.DELETE:
            unset_level(change.name)
        else:
            assert change.value is not None
            set_level(change.name, change.value)
