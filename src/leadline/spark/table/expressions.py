"""Expressions over columns: the language of rules. A text becomes a function of a batch of rows.

    or          and { OR and }
    and         not { AND not }
    not         NOT not | comparison
    comparison  sum [ = != < <= > >= sum | IS [NOT] NULL | [NOT] IN ( sum, ... ) ]
    sum         product { + - product }
    product     unary { * / unary }
    unary       - unary | number | 'text' | TRUE | FALSE | path | ( or )
    path        name { . name }; `a name` in backticks may have any character

Nulls are those of SQL: a comparison with null is null. A column that is not there is null. Names and words are the same
in upper and lower case. Whole numbers are compared exactly; all else is computed with doubles. A text beside a number
is the number that it spells, or else NaN; beside a time, a boolean or bytes it is one of those.

Pure: columns in, columns out.
"""

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leadline.spark.table.column_types import type_name

Value = Any  # a pa.Array, or a pa.Scalar of a literal
Evaluate = Callable[[pa.RecordBatch], Value]
Path = tuple[str, ...]

NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
TEXT = r"'(?:[^']|'')*'"
PATH = r"(?:`[^`]+`|[^\W\d]\w*)(?:\.(?:`[^`]+`|[^\W\d]\w*))*"
_TOKEN = re.compile(rf"\s*(?:({NUMBER})|({TEXT})|({PATH})|(<=|>=|!=|<>|==|[=<>+\-*/(),]))")
_NAME = re.compile(r"`([^`]+)`|([^.`]+)")
_SIGNED = rf"^\s*[+-]?{NUMBER}\s*$"
WORDS = frozenset({"and", "or", "not", "is", "in", "null", "true", "false"})
COMPARE = {
    "=": pc.equal,
    "==": pc.equal,
    "!=": pc.not_equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
COMPUTE = {"+": pc.add, "-": pc.subtract, "*": pc.multiply, "/": pc.divide}
MOST_CHARS = 4000


class BadExpression(Exception):
    """The text is no expression, or the columns have types that it cannot be computed with."""


def parse_path(text: str) -> Path:
    if not re.fullmatch(PATH, text):
        raise BadExpression(f"{text!r} is not the path of a column, as in customer.id; other characters need backticks")
    return tuple(quoted or plain for quoted, plain in _NAME.findall(text))


def column_at(rows: pa.RecordBatch, path: Path) -> pa.Array:
    """The column, or the field of a struct in it; nulls if there is none."""
    index = index_of(rows.schema, path[0])
    if index is None:
        return pa.nulls(rows.num_rows)
    column = rows.column(index)
    for name in path[1:]:
        index = index_of(column.type, name) if pa.types.is_struct(column.type) else None
        if index is None:
            return pa.nulls(rows.num_rows)
        column = pc.struct_field(column, [index])
    return column


def index_of(fields: pa.Schema | pa.DataType, name: str) -> int | None:
    return next((at for at, field in enumerate(fields) if field.name.lower() == name.lower()), None)


def literal(text: str) -> pa.Scalar:
    """The number that a text spells, or the text."""
    if not re.match(_SIGNED, text):
        return pa.scalar(text)
    number = float(text)
    is_long = re.fullmatch(r"[+-]?\d+", text) and -(1 << 63) <= int(text) < 1 << 63
    return pa.scalar(int(text), pa.int64()) if is_long else pa.scalar(number)


def compare(sign: str, left: Value, right: Value) -> Value:
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        return pa.scalar(None, pa.bool_())
    return COMPARE[sign](*_alike(left, right))


def is_one_of(value: Value, members: Sequence[Value]) -> Value:
    return reduce(pc.or_kleene, [compare("=", value, member) for member in members])


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Both as values of one type."""
    for one, other in ((left, right), (right, left)):
        if pa.types.is_string(one.type) and isinstance(one, pa.Scalar) and pa.types.is_integer(other.type):
            one = literal(one.as_py())
            if pa.types.is_integer(one.type):
                return (one, other) if other is right else (other, one)
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        return left, right
    if _is_number(left.type) or _is_number(right.type):
        return _number(left), _number(right)
    if pa.types.is_string(left.type) and not pa.types.is_string(right.type):
        return left.cast(right.type), right
    if pa.types.is_string(right.type) and not pa.types.is_string(left.type):
        return left, right.cast(left.type)
    return left, right


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _number(value: Value) -> Value:
    if pa.types.is_null(value.type) or _is_number(value.type):
        return value.cast(pa.float64(), safe=False)
    if not pa.types.is_string(value.type):
        raise BadExpression(f"a value of type {type_name(value.type)} is not a number")
    is_number = pc.match_substring_regex(value, _SIGNED)
    return pc.if_else(is_number, pc.utf8_trim_whitespace(value), "nan").cast(pa.float64())


def _computed(sign: str, left: Value, right: Value) -> Value:
    return COMPUTE[sign](_number(left), _number(right))


def _truth(value: Value) -> Value:
    if pa.types.is_null(value.type):
        return value.cast(pa.bool_())
    if not pa.types.is_boolean(value.type):
        raise BadExpression(f"a value of type {type_name(value.type)} is neither true nor false")
    return value


class _Parser:
    """Recursive descent. Each method returns the function of what it read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.tokens: list[tuple[str, str, str, str]] = []
        end = 0
        while text[end:].strip():
            match = _TOKEN.match(text, end)
            if match is None:
                raise BadExpression(f"{text!r}: nothing starts with {text[end:].strip()[:10]!r}")
            self.tokens.append(tuple(part or "" for part in match.groups()))  # type: ignore[arg-type]
            end = match.end()
        self.paths: list[Path] = []

    def whole(self) -> Evaluate:
        evaluate = self._or()
        if self.at < len(self.tokens):
            raise self._wrong()
        return evaluate

    def _wrong(self) -> BadExpression:
        token = "".join(self.tokens[self.at]) if self.at < len(self.tokens) else "the end"
        return BadExpression(f"{self.text!r}: {token!r} is in the wrong place")

    def _take(self, *options: str) -> str | None:
        """The next token, a word or a sign, if it is one of these."""
        if self.at < len(self.tokens):
            _, _, path, sign = self.tokens[self.at]
            if (sign or path.lower()) in options:
                self.at += 1
                return sign or path.lower()
        return None

    def _need(self, option: str) -> None:
        if self._take(option) is None:
            raise self._wrong()

    def _or(self) -> Evaluate:
        return self._chain("or", self._and, pc.or_kleene)

    def _and(self) -> Evaluate:
        return self._chain("and", self._not, pc.and_kleene)

    def _chain(self, word: str, part: Callable[[], Evaluate], join: Callable[[Value, Value], Value]) -> Evaluate:
        parts = [part()]
        while self._take(word):
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        return lambda rows: reduce(join, [_truth(evaluate(rows)) for evaluate in parts])

    def _not(self) -> Evaluate:
        if self._take("not"):
            inner = self._not()
            return lambda rows: pc.invert(_truth(inner(rows)))
        return self._comparison()

    def _comparison(self) -> Evaluate:
        left = self._sum()
        if sign := self._take(*COMPARE):
            right = self._sum()
            return lambda rows: compare(sign, left(rows), right(rows))
        if self._take("is"):
            function = pc.is_valid if self._take("not") else pc.is_null
            self._need("null")
            return lambda rows: function(left(rows))
        is_not = self._take("not")
        if self._take("in"):
            members = self._members()
            one_of: Evaluate = lambda rows: is_one_of(left(rows), [member(rows) for member in members])  # noqa: E731
            return (lambda rows: pc.invert(one_of(rows))) if is_not else one_of
        if is_not:
            raise self._wrong()
        return left

    def _members(self) -> list[Evaluate]:
        self._need("(")
        members = [self._sum()]
        while self._take(","):
            members.append(self._sum())
        self._need(")")
        return members

    def _sum(self) -> Evaluate:
        return self._arithmetic(("+", "-"), self._product)

    def _product(self) -> Evaluate:
        return self._arithmetic(("*", "/"), self._unary)

    def _arithmetic(self, signs: tuple[str, str], part: Callable[[], Evaluate]) -> Evaluate:
        evaluate = part()
        while sign := self._take(*signs):
            evaluate = self._applied(sign, evaluate, part())
        return evaluate

    def _applied(self, sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
        return lambda rows: _computed(sign, left(rows), right(rows))

    def _unary(self) -> Evaluate:
        if self._take("-"):
            inner = self._unary()
            return lambda rows: pc.negate(_number(inner(rows)))
        if self._take("("):
            inner = self._or()
            self._need(")")
            return inner
        return self._operand()

    def _operand(self) -> Evaluate:
        if word := self._take("true", "false"):
            return self._constant(pa.scalar(word == "true"))
        if self.at == len(self.tokens):
            raise self._wrong()
        number, text, path, _ = self.tokens[self.at]
        if not (number or text or path) or path.lower() in WORDS:
            raise self._wrong()
        self.at += 1
        if path:
            names = parse_path(path)
            self.paths.append(names)
            return lambda rows: column_at(rows, names)
        return self._constant(literal(number) if number else pa.scalar(text[1:-1].replace("''", "'")))

    def _constant(self, value: pa.Scalar) -> Evaluate:
        return lambda _: value


def parse_expression(text: str) -> tuple[Evaluate, tuple[Path, ...]]:
    """The function, and the columns that it reads."""
    if len(text) > MOST_CHARS:
        raise BadExpression(f"an expression of {len(text)} characters: {MOST_CHARS} are the most")
    try:
        parser = _Parser(text)
        return parser.whole(), tuple(dict.fromkeys(parser.paths))
    except RecursionError:
        raise BadExpression("an expression that is nested too deep") from None


def truth_of(evaluate: Evaluate, rows: pa.RecordBatch) -> pa.Array:
    """For each row true, false or null. BadExpression, without values of rows, if the types do not fit."""
    try:
        value = _truth(evaluate(rows))
    except (pa.ArrowException, RecursionError):
        raise BadExpression("the columns have types that it cannot be computed with") from None
    return pa.repeat(value, rows.num_rows) if isinstance(value, pa.Scalar) else value
