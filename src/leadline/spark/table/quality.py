"""The quality of a table's rows: rules are checked and columns are masked before anything of a record is written.

Rules see values as the record has them, before masks. A row that breaks a rule is, as the user chooses,

    dead-letter    no row: a dead letter, whose cause names the rules
    refuse         the end of the batch: TableError, before its commit
    mark           a row that names the rules in kafka_broken_rules

Tombstones and deletes are not checked. A dead letter of a table with masks has no value, and its key and headers are
masked as those of rows are. The record itself is in the topic, at the offset that the dead letter names. A replay
leaves such dead letters where they are: it would take them for tombstones.

Pure: columns in, columns out.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.table.change_events import CHANGE_COLUMNS
from leadline.spark.table.column_types import type_name
from leadline.spark.table.expressions import Path, column_at
from leadline.spark.table.masks import HASH, NULL, SHORTEST_KEY, Mask, key_id, masked_rows, parse_mask
from leadline.spark.table.payload import BROKEN_RULES, DEAD_LETTERS, Shape, ShapedRecords, shape_of
from leadline.spark.table.rules import Rule, parse_rule
from leadline.spark.table.table import BY_KEY, PREFIX, OriginColumns, TableError, TableOrigin

DEAD_LETTER, REFUSE, MARK = ON_VIOLATION = ("dead-letter", "refuse", "mark")
NO_RULES = "none"
WITHHELD = " (the value is withheld: the table masks columns)"  # the end of a cause


@dataclass(frozen=True, slots=True)
class Quality:
    """What a user requests of rows. Values only: it goes to tasks."""

    rules: tuple[str, ...] = ()
    on_violation: str = DEAD_LETTER
    masks: tuple[tuple[str, str], ...] = ()  # path and kind
    key: bytes = field(default=b"", repr=False)  # of hashes

    @property
    def marks(self) -> bool:
        return bool(self.rules) and self.on_violation == MARK

    @property
    def columns(self) -> list[pa.Field]:
        """The columns that the table must have for it."""
        return [BROKEN_RULES] if self.marks else []

    @property
    def masks_text(self) -> str:
        """The masks, and which key they have, as a table remembers them."""
        marked = [
            f"{path}={kind}@{key_id(self.key)}" if kind == HASH else f"{path}={kind}" for path, kind in self.masks
        ]
        return ",".join(sorted(marked))

    @property
    def rules_text(self) -> str:
        return json.dumps([self.on_violation, *self.rules]) if self.rules else NO_RULES

    @property
    def texts(self) -> tuple[Path, ...]:
        """The fields that masks take as texts."""
        return tuple(mask.path for mask in self.parsed_masks if mask.kind != NULL)

    @property
    def parsed_masks(self) -> list[Mask]:
        return [parse_mask(path, kind) for path, kind in self.masks]


def check_quality(quality: Quality, format: str, mode: str) -> None:
    """TableError if a rule or mask is not one, or if the table cannot have it."""
    for text in quality.rules:
        parse_rule(text)
    columns, masks = OriginColumns.of(format), quality.parsed_masks
    needed = {columns.partition, columns.offset, columns.timestamp, *CHANGE_COLUMNS.names, BROKEN_RULES.name}
    for mask in masks:
        if mask.path[0].lower() in needed:
            raise TableError(f"{mask.name} cannot be masked: the table needs it to follow its topic")
        if mask.path[0].lower() == columns.key and mode in BY_KEY and mask.kind != HASH:
            raise TableError(f"{mask.name} can be masked by hash alone: with --mode {mode}, it identifies the rows")
    names = [mask.name.lower() for mask in masks]
    for mask in masks:
        name = mask.name.lower()
        if names.count(name) > 1 or any(name.startswith(f"{other}.") for other in names):
            raise TableError(f"{mask.name} is masked twice")
    if any(mask.kind == HASH for mask in masks) and len(quality.key) < SHORTEST_KEY:
        raise TableError(f"a mask by hash needs a key of {SHORTEST_KEY} bytes or more: --mask-key-file FILE")


@lru_cache(maxsize=8)
def shape_with(quality: Quality, format: str, registry: str, *, by_key: bool) -> Shape:
    """How a task makes rows of records, with the rules and masks of the table."""
    masks = bool(quality.masks)
    shape = shape_of(format, registry, by_key=by_key, texts=quality.texts, hides_values=masks)
    if not quality.rules and not masks:
        return shape
    rules, columns = [parse_rule(text) for text in quality.rules], OriginColumns.of(format)

    def checked(batch: pa.RecordBatch, topic: str, partition: int, schema: pa.Schema) -> ShapedRecords:
        shaped = shape(batch, topic, partition, schema)
        if shaped.unknown.num_fields:  # the table gets columns first, and the records come again
            return shaped
        if rules:
            broken = broken_rules(rules, shaped)
            shaped = _with_violations(shaped, broken, quality.on_violation, batch, topic, partition, columns)
        return _masked(shaped, quality, "" if format == "raw" else PREFIX) if masks else shaped

    return checked


def broken_rules(rules: Sequence[Rule], shaped: ShapedRecords) -> list[list[Rule]]:
    """The rules that each row breaks."""
    broken: list[list[Rule]] = [[] for _ in range(shaped.rows.num_rows)]
    is_checked = pc.invert(shaped.deleted)
    for rule in rules:
        for at in pc.indices_nonzero(pc.and_(rule.broken(shaped.rows), is_checked)).to_pylist():
            broken[at].append(rule)
    return broken


def _with_violations(
    shaped: ShapedRecords,
    broken: list[list[Rule]],
    on_violation: str,
    batch: pa.RecordBatch,
    topic: str,
    partition: int,
    columns: OriginColumns,
) -> ShapedRecords:
    if on_violation == MARK:
        names = [[rule.name for rule in rules] or None for rules in broken]
        return replace(shaped, rows=shaped.rows.append_column(BROKEN_RULES, pa.array(names, BROKEN_RULES.type)))
    if not any(broken):
        return shaped
    if on_violation == REFUSE:
        raise TableError(_refusal(shaped.rows, broken, topic, partition, columns))
    is_broken = pa.array([bool(rules) for rules in broken], pa.bool_())
    offsets = shaped.rows.column(columns.offset).filter(is_broken)
    causes = ["the record breaks " + ", ".join(repr(rule.name) for rule in rules) for rules in broken if rules]
    stays = pc.invert(is_broken)
    kept = replace(shaped, rows=shaped.rows.filter(stays), deleted=shaped.deleted.filter(stays))
    return kept.with_bad(batch.filter(pc.is_in(batch.column("offset"), offsets)), topic, partition, causes)


def _refusal(rows: pa.RecordBatch, broken: list[list[Rule]], topic: str, partition: int, columns: OriginColumns) -> str:
    """One line about the first violation. It shows what kind of value there is, and no value."""
    at = next(at for at, rules in enumerate(broken) if rules)
    rule, offset = broken[at][0], rows.column(columns.offset)[at].as_py()
    kinds = [f"{'.'.join(path)} is {value_kind(column_at(rows, path)[at])}" for path in rule.paths]
    others = sum(map(bool, broken)) - 1
    more = f"; so do {others:,} more that were read with it" if others else ""
    return f"{topic}-{partition} breaks the rule {rule.name!r} at offset {offset}: {', '.join(kinds)}{more}"


def value_kind(scalar: pa.Scalar) -> str:
    value: Any = scalar.as_py()
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"a text of length {len(value)}"
    return f"of type {type_name(scalar.type)}"


def _masked(shaped: ShapedRecords, quality: Quality, prefix: str) -> ShapedRecords:
    """`prefix`: of the columns for key and headers, which a dead letter has without it."""
    masks = quality.parsed_masks
    rows = masked_rows(shaped.rows, masks, quality.key)
    if shaped.bad is None:
        return replace(shaped, rows=rows)
    names = {f"{prefix}{name}": name for name in ("key", "headers")}
    own = [
        replace(mask, path=(names[mask.path[0].lower()], *mask.path[1:]))
        for mask in masks
        if mask.path[0].lower() in names
    ]
    bad = masked_rows(shaped.bad, own, quality.key)
    causes = [cause + WITHHELD for cause in bad.column("cause").to_pylist()]
    values = {"value": pa.nulls(bad.num_rows, DEAD_LETTERS.field("value").type), "cause": pa.array(causes, pa.string())}
    columns = [values.get(name, bad.column(name)) for name in bad.schema.names]
    return replace(shaped, rows=rows, bad=pa.record_batch(columns, schema=bad.schema))


def check_interrupted(before: TableOrigin, rules: str, uri: str) -> None:
    """An interrupted batch has committed its dead letters: other rules would make rows of them as well."""
    if (before.rules or NO_RULES) != rules:
        raise TableError(
            f"a batch of {uri} is incomplete, and began with other rules: {before.rules or NO_RULES}. Start once with "
            "these, which completes it"
        )


def is_withheld(letters: pa.Table) -> pa.ChunkedArray:
    """Whether a dead letter lacks its value."""
    return pc.ends_with(letters["cause"], WITHHELD)
