"""Settings under Kafka's own names, as tables: name, type, default, validity, mode and meaning of each.

A table is a frozen dataclass. Each field is a setting that is obeyed; its name has underscores instead of dots.
Settings that are not obeyed have rows without a field. Values are texts, as in server.properties. An unknown name is
refused with the nearest name of the table, and an invalid value with its limit.

Pure: text in, values out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, NamedTuple, Self, TypedDict, TypeVar, Unpack

from leadline.config.checks import ValueCheck
from leadline.config.values import ConfigType, InvalidSetting, Value, read, write

T = TypeVar("T")


class Importance(Enum):
    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Mode(Enum):
    """Whether a broker's setting may change dynamically. Settings of topics always may."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"  # for one broker at a time
    CLUSTER_WIDE = "cluster-wide"  # for one broker, or for all


class Support(Enum):
    OBEYED = "obeyed"
    ACCEPTED = "accepted"  # has no effect here, and a warning names it
    REFUSED = "refused"  # this broker lacks the feature: any value but the default is an error


class FromBroker(NamedTuple):
    """The broker's settings with the default of a topic's setting, in order of precedence."""

    names: tuple[str, ...]
    importance: Importance


class SettingRow(NamedTuple):
    """One row of a table."""

    name: str
    kind: ConfigType
    default: Value
    meaning: str
    check: ValueCheck | None = None
    importance: Importance = Importance.MEDIUM
    mode: Mode = Mode.READ_ONLY
    support: Support = Support.OBEYED
    supported_values: tuple[str, ...] | None = None  # values, or parts of a list, that are obeyed besides the default
    why: str = ""  # what to do instead of a refused value; why an accepted one has no effect
    internal: bool = False  # Kafka does not document it, and DescribeConfigs omits it
    not_in_kafka: bool = False  # not in Kafka's own table: Kafka passes it to a plugin
    from_broker: FromBroker | None = None  # of a topic's setting
    field: str = ""  # of the table's class; empty: not obeyed
    into: Callable[[Any], Value] | None = None  # converts the value for the field

    @property
    def sensitive(self) -> bool:
        return self.kind is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        return write(self.default)

    def read(self, text: str) -> Value:
        """The value of a text. InvalidSetting if it has the wrong type, is invalid or is refused."""
        value = self.parse(text)
        if not self._is_obeyed(value):
            raise InvalidSetting(f"{self.name}={self._hidden(text.strip())}: not supported: {self.why}")
        return value

    def parse(self, text: str) -> Value:
        """The value of a text, also if it would be refused."""
        try:
            value = read(self.kind, text)
        except ValueError as error:
            raise self._invalid(text, str(error)) from None
        if self.check is not None and (wrong := self.check(value)) is not None:
            raise self._invalid(self.check.shown(value), wrong.replace("{name}", self.name))
        return value

    def _is_obeyed(self, value: Value) -> bool:
        if value == self.default or (self.default is None and value in ("", ())):
            return True
        if self.supported_values is not None:
            return set(value if isinstance(value, tuple) else [str(write(value))]) <= set(self.supported_values)
        return self.support is not Support.REFUSED

    def _invalid(self, text: str, wrong: str) -> InvalidSetting:
        """The error for an invalid value, in Kafka's words."""
        return InvalidSetting(f"Invalid value {self._hidden(text)} for configuration {self.name}: {wrong}")

    def _hidden(self, text: str) -> str:
        return "[hidden]" if self.sensitive else text


class OptionalColumns(TypedDict, total=False):
    """The columns of a row that have a default."""

    importance: Importance
    mode: Mode
    supported_values: tuple[str, ...]
    internal: bool
    not_in_kafka: bool
    from_broker: FromBroker


class SettingColumns(OptionalColumns, total=False):
    """The same for a setting that has a field."""

    why: str
    declared: Value  # Kafka's documented default, if the field's default is derived from it
    into: Callable[[Any], Value]


@dataclass(frozen=True, slots=True)
class UnsupportedRow:
    """Makes rows of settings that have no effect here or keep their default, for one reason."""

    support: Support
    why: str

    def __call__(
        self,
        name: str,
        kind: ConfigType,
        default: Value,
        meaning: str,
        check: ValueCheck | None = None,
        **columns: Unpack[OptionalColumns],
    ) -> SettingRow:
        return SettingRow(name, kind, default, meaning, check, support=self.support, why=self.why, **columns)


def accepted(why: str) -> UnsupportedRow:
    """Settings without effect; `why` is the reason."""
    return UnsupportedRow(Support.ACCEPTED, why)


def refused(why: str) -> UnsupportedRow:
    """Settings that keep their default; `why` has the alternative."""
    return UnsupportedRow(Support.REFUSED, why)


def setting(
    default: T, kind: ConfigType, meaning: str, check: ValueCheck | None = None, **columns: Unpack[SettingColumns]
) -> T:
    """A row of a table, as a field of its class."""
    row_field: T = field(default=default, metadata={"kind": kind, "meaning": meaning, "check": check, **columns})
    return row_field


def from_broker(*names: str, importance: Importance = Importance.MEDIUM) -> FromBroker:
    return FromBroker(names, importance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The base class of all tables."""

    @classmethod
    def rows(cls) -> Mapping[str, SettingRow]:
        """The rows of settings that are obeyed. They have a field."""
        if cls not in _ROWS:
            _ROWS[cls] = dict(_rows(cls))
        return _ROWS[cls]

    @classmethod
    def unsupported_rows(cls) -> Iterable[SettingRow]:
        """The rows without a field."""
        return ()

    @classmethod
    def table(cls) -> Mapping[str, SettingRow]:
        """All rows, by the name of the setting."""
        if cls not in _TABLES:
            _TABLES[cls] = {**cls.rows(), **{row.name: row for row in cls.unsupported_rows()}}
        return _TABLES[cls]

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Self:
        return cls().with_values(values)

    def with_values(self, values: Mapping[str, str], rows: Mapping[str, SettingRow] | None = None) -> Self:
        """These settings with some overridden, all checked. `rows`: the settings under other names."""
        rows = self.table() if rows is None else rows
        changes: dict[str, Any] = {}
        for name, text in values.items():
            if (row := rows.get(name)) is None:
                raise InvalidSetting(f"Unknown topic config name: {name}{nearest(name, rows)}")
            value = row.read(text)
            if row.field:
                changes[row.field] = row.into(value) if row.into else value
        return replace(self, **changes)


_ROWS: dict[type[Settings], dict[str, SettingRow]] = {}
_TABLES: dict[type[Settings], dict[str, SettingRow]] = {}


def _rows(table: type[Settings]) -> Iterator[tuple[str, SettingRow]]:
    for column in fields(table):
        columns: dict[str, Any] = dict(column.metadata)
        name, default = column.name.replace("_", "."), columns.pop("declared", column.default)
        yield name, SettingRow(name, default=default, field=column.name, **columns)


def nearest(name: str, candidates: Iterable[str], likeness: float = 0.85) -> str:
    import difflib

    close = difflib.get_close_matches(name, list(candidates), n=1, cutoff=likeness)
    return f" (did you mean {close[0]}?)" if close else ""
