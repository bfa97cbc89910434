"""Rules and masks for random rows: expressions answer as a model in Python does, and no masked value gets out."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from leadline.spark.table.expressions import parse_expression, truth_of
from leadline.spark.table.payload import BESIDE
from leadline.spark.table.quality import Quality, shape_with
from tests.support.decoded import decoded

KEY = b"0123456789abcdef"
COLUMNS = pa.schema([("a", pa.int64()), ("b", pa.int64())])
SIGNS: dict[str, Any] = {
    "=": lambda left, right: left == right,
    "<": lambda left, right: left < right,
    ">=": lambda left, right: left >= right,
}
numbers = st.one_of(st.none(), st.integers(-9, 9))
rows = st.lists(st.fixed_dictionaries({"a": numbers, "b": numbers}), min_size=1, max_size=5)


def computed(sign: str, left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return None
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


@st.composite
def terms(draw: st.DrawFn, depth: int = 2) -> tuple[str, Any]:
    if not depth or draw(st.booleans()):
        name = draw(st.sampled_from(["a", "b", "number"]))
        number = draw(st.integers(0, 9))
        return (str(number), lambda row: number) if name == "number" else (name, lambda row: row[name])
    (left, of_left), (right, of_right) = draw(terms(depth - 1)), draw(terms(depth - 1))
    sign = draw(st.sampled_from("+-*"))
    return f"({left} {sign} {right})", lambda row: computed(sign, of_left(row), of_right(row))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> tuple[str, Any]:
    form = draw(st.sampled_from(["compare", "null", "and", "or", "not"])) if depth else "compare"
    if form == "null":
        text, of = draw(terms())
        return f"{text} is null", lambda row: of(row) is None
    if form == "compare":
        (left, of_left), (right, of_right) = draw(terms()), draw(terms())
        sign = draw(st.sampled_from(sorted(SIGNS)))

        def compared(row: Any) -> bool | None:
            values = of_left(row), of_right(row)
            return None if None in values else SIGNS[sign](*values)

        return f"{left} {sign} {right}", compared
    left, of_left = draw(conditions(depth - 1))
    if form == "not":
        return f"not ({left})", lambda row: None if of_left(row) is None else not of_left(row)
    right, of_right = draw(conditions(depth - 1))
    decisive = form == "or"

    def joined(row: Any) -> bool | None:
        values = of_left(row), of_right(row)
        return decisive if decisive in values else None if None in values else not decisive

    return f"({left}) {form} ({right})", joined


@given(conditions(), rows)
def test_expressions_answer_as_the_model_does(condition: tuple[str, Any], some: list[dict[str, Any]]) -> None:
    text, of = condition
    batch = pa.RecordBatch.from_pylist(some, schema=COLUMNS)
    assert truth_of(parse_expression(text)[0], batch).to_pylist() == [of(row) for row in some]


SECRET = "s3cr3t"
leaves = st.one_of(st.just(SECRET), st.none(), st.integers(), st.booleans(), st.just("other"))
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner))
documents = st.fixed_dictionaries(
    {"id": st.integers(-5, 5)},
    optional={
        "email": st.just(SECRET) | values,
        "Email": values,
        "customer": st.fixed_dictionaries({"x": st.just(SECRET) | values}) | values,
    },
)
kinds = st.sampled_from(["hash", "last4", "redact", "null"])
SCHEMA = pa.schema([*BESIDE, ("id", pa.int64()), ("customer", pa.struct([("x", pa.string())]))])


def without_unmasked(value: Any, path: tuple[str, ...]) -> Any:
    """The document, with the secret only below the masked path."""
    if path and isinstance(value, dict):
        return {
            name: without_unmasked(member, path[1:] if name.lower() == path[0] else ("",))
            for name, member in value.items()
        }
    if path and isinstance(value, list):
        return [without_unmasked(member, path) for member in value]
    return "other" if path and value == SECRET else value


@given(documents, kinds, st.sampled_from([("email",), ("customer", "x")]))
def test_a_masked_value_is_neither_in_rows_nor_in_dead_letters(
    document: dict[str, Any], kind: str, path: tuple[str, ...]
) -> None:
    value = json.dumps(without_unmasked(document, path)).encode()
    quality = Quality(("id: range 0..",), masks=((".".join(path), kind),), key=KEY)
    shape = shape_with(quality, "json", "", by_key=False)
    columns = pa.schema([*SCHEMA, ("email", pa.string())])
    shaped = shape(decoded(value), "t", 0, columns)
    assert SECRET not in str(shaped.bad and shaped.bad.to_pylist())
    if not shaped.unknown.num_fields:
        assert SECRET not in str(shaped.rows.to_pylist())
