"""Rules that rows of a table obey.

    PATH: not null
    PATH: range LOW..HIGH        both belong to it; one of them may be missing: 0..
    PATH: in A,B,C               'a text' in quotes may have a comma
    expr: EXPRESSION             expressions.py has the language

As with CHECK in SQL, a row breaks a rule for which the answer is false. Null breaks `not null` alone. The name of a
rule is its text.

Pure: texts in, functions of columns out.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.table.expressions import (
    PATH,
    TEXT,
    BadExpression,
    Evaluate,
    Path,
    column_at,
    compare,
    is_one_of,
    literal,
    parse_expression,
    parse_path,
    truth_of,
)
from leadline.spark.table.table import TableError

_RULE = re.compile(rf"\s*({PATH})\s*:\s*(.*?)\s*", re.DOTALL)
_RANGE = re.compile(r"range\s+(\S*?)\s*\.\.\s*(\S*)", re.IGNORECASE)
_IN = re.compile(r"in\s+(.+)", re.IGNORECASE | re.DOTALL)
_MEMBER = re.compile(rf"\s*(?:({TEXT})|([^,']+?))\s*(?:,|$)")
EXPRESSION = "expr"
FORMS = "'PATH: not null', 'PATH: range 0..100', 'PATH: in a,b' or 'expr: EXPRESSION'"


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    paths: tuple[Path, ...]  # of the columns that it reads
    _evaluate: Evaluate

    def broken(self, rows: pa.RecordBatch) -> pa.Array:
        """Whether a row breaks it."""
        try:
            return pc.invert(pc.fill_null(truth_of(self._evaluate, rows), True))
        except BadExpression as error:
            raise TableError(f"the rule {self.name!r}: {error}") from None


@lru_cache(maxsize=256)
def parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise TableError(f"the rule {text!r} is not one of {FORMS}")
    column, body = match.groups()
    try:
        if column.lower() == EXPRESSION:
            evaluate, paths = parse_expression(body)
            return Rule(text.strip(), paths, evaluate)
        path = parse_path(column)
        return Rule(text.strip(), (path,), _of_column(path, body))
    except BadExpression as error:
        raise TableError(f"the rule {text!r}: {error}") from None


def _of_column(path: Path, body: str) -> Evaluate:
    if re.fullmatch(r"not\s+null", body, re.IGNORECASE):
        return lambda rows: pc.is_valid(column_at(rows, path))
    if (match := _RANGE.fullmatch(body)) and any(match.groups()):
        bounds = [(sign, literal(bound)) for sign, bound in zip((">=", "<="), match.groups(), strict=True) if bound]
        return lambda rows: _within(column_at(rows, path), bounds)
    if match := _IN.fullmatch(body):
        members = [pa.scalar(member) for member in _members(match[1])]
        return lambda rows: is_one_of(column_at(rows, path), members)
    raise BadExpression(f"{body!r} is not one of {FORMS}")


def _within(column: pa.Array, bounds: list[tuple[str, pa.Scalar]]) -> pa.Array | pa.Scalar:
    first, *others = [compare(sign, column, bound) for sign, bound in bounds]
    return pc.and_kleene(first, others[0]) if others else first


def _members(text: str) -> list[str]:
    members, at = [], 0
    while at < len(text):
        match = _MEMBER.match(text, at)
        if match is None:
            raise BadExpression(f"{text!r} is not a list, as in new,paid,'a, b'")
        quoted, plain = match.groups()
        members.append(quoted[1:-1].replace("''", "'") if quoted else plain)
        at = match.end()
    return members
