"""The file of `leadline pipeline run`: which topics become which tables, in TOML.

    [cluster]               bootstrap-server, command-config, properties
    [spark]                 master, conf
    [run]                   parallel, refresh, drain
    [defaults]              of all tables: any key of a table
    [[tables]]              topics or pattern, table, and the options of `leadline pipeline table` by their names

Every key is checked, and an unknown one is refused with the nearest one that exists.

Pure: text in, values out.
"""

import argparse
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from leadline.admin.errors import Failure
from leadline.admin.times import duration_ms
from leadline.cli.pipeline.table_options import (
    FORMATS,
    HISTORY_COLUMNS,
    MODES,
    NEED_REGISTRY,
    ON_VIOLATION,
    SAFE_HOURS,
    history_columns,
)

TOPIC = "{topic}"
_SIZE = re.compile(r"(\d+)\s*(B|KB|MB|GB|TB|KiB|MiB|GiB)?")
_CATALOG, _PLAIN = re.compile(r"[\w-]+:(?!/)"), re.compile(r"[\w-]+")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

Check = Callable[[object], Any]


class _Invalid(Exception):
    """A value has the wrong type or form for its key. The text names the expected one."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Invalid("a text")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Invalid("true or false")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise _Invalid("a number of at least 1")
    return value


def _size(value: object) -> int:
    """A number of bytes, or a text such as 64MB."""
    match = _SIZE.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None or not (size := int(match[1]) * _UNITS[match[2] or "B"]):
        raise _Invalid('a number of bytes, as in 1000000 or "256MB"')
    return size


def _duration_ms(value: object) -> int:
    try:
        return duration_ms(_text(value))
    except (argparse.ArgumentTypeError, _Invalid):
        raise _Invalid('a duration, as in "90s", "15m", "2h" or "7d"') from None


def _period_s(value: object) -> float:
    if value == "never":
        return inf
    try:
        period_s = _duration_ms(value) / 1000
    except _Invalid as error:
        raise _Invalid(f'{error}, or "never"') from None
    if not period_s:
        raise _Invalid("a duration above 0")
    return period_s


def _keep_hours(value: object) -> int:
    hours = _duration_ms(value) // 3_600_000
    if hours < SAFE_HOURS:
        raise _Invalid(f"{SAFE_HOURS}h or more: files of a batch that is under way are not committed yet")
    return hours


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) and text for text in value):
        raise _Invalid('a list of names, as in ["orders", "users"]')
    return value


def _rules(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _Invalid('a list of rules, as in ["price: range 0..100", "id: not null"]')
    return value


def _mapping(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str | int | float) for text in value.values()):
        raise _Invalid('a table of texts, as in { "s3.region" = "eu-central-1" }')
    return {name: str(text).lower() if isinstance(text, bool) else str(text) for name, text in value.items()}


def _pattern(value: object) -> str:
    try:
        re.compile(_text(value))
    except re.error as error:
        raise _Invalid(f"a regular expression ({error})") from None
    return _text(value)


def _history_columns(value: object) -> str:
    try:
        return history_columns(_text(value))
    except argparse.ArgumentTypeError:
        raise _Invalid(f'three names, as in "{HISTORY_COLUMNS}"') from None


def _choice(*choices: str) -> Check:
    def check(value: object) -> str:
        if value not in choices:
            raise _Invalid(f"one of {', '.join(choices)}")
        return str(value)

    return check


CLUSTER: dict[str, Check] = {"bootstrap-server": _text, "command-config": _text, "properties": _mapping}
SPARK: dict[str, Check] = {"master": _text, "conf": _mapping}
RUN: dict[str, Check] = {"parallel": _count, "refresh": _period_s, "drain": _period_s}
OPTIONS: dict[str, Check] = {  # of `leadline pipeline table`, by the same names
    "table-format": _choice("delta", "iceberg"),
    "table-options": _mapping,
    "format": _choice(*FORMATS),
    "mode": _choice(*MODES),
    "history-columns": _history_columns,
    "partition-by": _choice("day", "hour", "none"),
    "registry": _text,
    "registry-options": _mapping,
    "columns": _mapping,
    "schema": _text,
    "rules": _rules,
    "on-violation": _choice(*ON_VIOLATION),
    "masks": _mapping,
    "mask-key-file": _text,
    "interval": _duration_ms,
    "batch-bytes": _size,
    "isolation": _choice("read_committed", "read_uncommitted"),
    "allow-data-loss": _flag,
    "group": _text,
}
UPKEEP: dict[str, Check] = {
    "target-file-size": _size,
    "compact-every": _period_s,
    "vacuum-every": _period_s,
    "keep": _keep_hours,
}
DEFAULTS = {**OPTIONS, **UPKEEP, "table": _text}
TABLE = {**DEFAULTS, "topics": _texts, "pattern": _pattern}
SECTIONS = ("cluster", "spark", "run", "defaults", "tables")
INTERVAL_MS = 30_000
NEAR = 0.6  # how alike a key must be to be proposed


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One of [[tables]], with the defaults filled in. Keys are those of the file."""

    where: str  # in the file, for messages
    values: Mapping[str, Any]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self.values.get("topics", ()))

    @property
    def pattern(self) -> str | None:
        return self.values.get("pattern")

    def table_of(self, topic: str) -> str:
        """In the name of a catalog's table, a topic with dots is one part, in backticks."""
        table: str = self.values["table"]
        if _CATALOG.match(table) and not _PLAIN.fullmatch(topic) and f"`{TOPIC}`" not in table:
            topic = f"`{topic}`"
        return table.replace(TOPIC, topic)


@dataclass(frozen=True, slots=True)
class JobFile:
    tables: list[TableEntry]
    cluster: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)


def parse_job_file(text: str, name: str) -> JobFile:
    """Failure, with the place in the file, if something is wrong with it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Failure(f"{name}: {error}") from None
    for section in document:
        if section not in SECTIONS:
            raise Failure(f"{name}: there is no section {section}{_nearest(section, SECTIONS)}")
    tables = document.get("tables", [])
    if not isinstance(tables, list) or not tables:
        raise Failure(f"{name}: it has no [[tables]]: each says which topics become which table")
    defaults = _checked(document.get("defaults", {}), DEFAULTS, f"{name}: [defaults]")
    entries = [_entry(table, defaults, f"{name}: tables[{number}]") for number, table in enumerate(tables, start=1)]
    _check_apart(entries)
    sections = {"cluster": CLUSTER, "spark": SPARK, "run": RUN}
    values = {
        section: _checked(document.get(section, {}), keys, f"{name}: [{section}]") for section, keys in sections.items()
    }
    return JobFile(entries, **values)


def _checked(values: object, keys: Mapping[str, Check], where: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise Failure(f"{where}: expected keys and values")
    checked = {}
    for key, value in values.items():
        if key not in keys:
            raise Failure(f"{where}: there is no key {key}{_nearest(key, keys)}")
        try:
            checked[key] = keys[key](value)
        except _Invalid as error:
            raise Failure(f"{where}: {key} = {value!r}: expected {error}") from None
    return checked


def _nearest(key: str, keys: Mapping[str, Check] | tuple[str, ...]) -> str:
    from leadline.config.settings import nearest

    return nearest(key, keys, NEAR) or f": expected one of {', '.join(keys)}"


def _entry(table: object, defaults: Mapping[str, Any], where: str) -> TableEntry:
    entry = TableEntry(where, {**defaults, **_checked(table, TABLE, where)})
    values = entry.values
    if ("topics" in values) == ("pattern" in values):
        raise Failure(f"{where}: exactly one is needed: topics, or pattern")
    if "table" not in values:
        raise Failure(f"{where}: table is missing: a directory, a URL, or for Iceberg CATALOG:NAMESPACE.NAME")
    if (entry.pattern is not None or len(entry.topics) > 1) and TOPIC not in values["table"]:
        raise Failure(f"{where}: table = {values['table']!r} is one table for several topics: it must contain {TOPIC}")
    if values.get("format") in NEED_REGISTRY and not values.get("registry"):
        raise Failure(f"{where}: format = {values['format']!r} needs registry: a URL, or a directory with schema files")
    if values.get("format", "raw") == "raw" and (values.get("columns") or values.get("schema")):
        raise Failure(f"{where}: columns and schema are for values with fields: choose format json, avro or protobuf")
    return entry


def _check_apart(entries: list[TableEntry]) -> None:
    """No two topics that are named may have the same table."""
    places: dict[str, str] = {}
    for entry in entries:
        for topic in entry.topics:
            place = entry.table_of(topic).rstrip("/")
            if place in places:
                raise Failure(f"{entry.where}: {place} is the table of {places[place]} already")
            places[place] = topic


def options_of(entry: TableEntry, topic: str, common: argparse.Namespace) -> argparse.Namespace:
    """The options of `leadline pipeline table` for one topic. `common` has those of the cluster."""
    values = entry.values
    return argparse.Namespace(
        **vars(common)
        | {
            "topic": topic,
            "table": entry.table_of(topic),
            "table_format": values.get("table-format", "delta"),
            "table_option": list(values.get("table-options", {}).items()),
            "format": values.get("format", "raw"),
            "mode": values.get("mode", "append"),
            "history_columns": values.get("history-columns", HISTORY_COLUMNS),
            "partition_by": values.get("partition-by", "none"),
            "registry": values.get("registry", ""),
            "registry_option": list(values.get("registry-options", {}).items()),
            "column": list(values.get("columns", {}).items()),
            "schema": values.get("schema", ""),
            "rule": values.get("rules", []),
            "on_violation": values.get("on-violation", ON_VIOLATION[0]),
            "mask": list(values.get("masks", {}).items()),
            "mask_key_file": values.get("mask-key-file", ""),
            "interval": values.get("interval", INTERVAL_MS),
            "batch_bytes": values.get("batch-bytes", 512 << 20),
            "isolation": values.get("isolation", "read_committed"),
            "allow_data_loss": values.get("allow-data-loss", False),
            "group": values.get("group"),
        }
    )
