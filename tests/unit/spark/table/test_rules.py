"""Rules that rows of a table obey."""

import pyarrow as pa
import pytest

from leadline.spark.table.rules import parse_rule
from leadline.spark.table.table import TableError

ROWS = pa.RecordBatch.from_pylist(
    [
        {"price": 0.0, "status": "new", "on": "2026-01-01", "id": 1, "customer": {"id": 1}},
        {"price": 10000.0, "status": "a, b", "on": "2026-12-31", "id": 2, "customer": {"id": None}},
        {"price": -0.5, "status": "lost", "on": "2027-01-01", "id": 3, "customer": None},
        {"price": None, "status": None, "on": None, "id": None, "customer": None},
    ]
)


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("price: range 0..10000", [2]),
        ("price: range 0.5..", [0, 2]),
        ("price: RANGE ..-0.1", [0, 1]),
        ("on: range 2026-01-01..2026-12-31", [2]),
        ("status: in new,'a, b', paid", [2]),
        ("id: in 1,3", [1]),
        ("price: not null", [3]),
        (" customer.id : not  null ", [1, 2, 3]),
        ("`price`: not null", [3]),
        ("missing: not null", [0, 1, 2, 3]),
        ("missing: range 0..1", []),
        ("expr: price >= 0 and status != 'new'", [0, 2]),
        ("expr: true", []),
        ("expr: 1 > 2", [0, 1, 2, 3]),
    ],
)
def test_rows_break_a_rule_whose_answer_is_false(text: str, broken: list[int]) -> None:
    rule = parse_rule(text)
    assert [at for at, is_broken in enumerate(rule.broken(ROWS).to_pylist()) if is_broken] == broken
    assert rule.name == text.strip()


def test_null_breaks_not_null_alone() -> None:
    rules = ["price: range 0..1", "price: in 1", "expr: price > 0", "expr: not price > 0"]
    assert not any(parse_rule(text).broken(ROWS).to_pylist()[3] for text in rules)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "price",
        "price: ",
        "price: positive",
        "price: range",
        "price: range ..",
        "price: in",
        "a b: not null",
        "expr:",
        "expr: price >",
        "price: in 'open",
        ": not null",
    ],
)
def test_what_is_no_rule_is_refused_with_the_forms_of_rules(text: str) -> None:
    with pytest.raises(TableError, match="the rule"):
        parse_rule(text)


def test_a_rule_on_a_column_of_another_type_is_named() -> None:
    with pytest.raises(TableError, match="the rule 'expr: customer > 1'"):
        parse_rule("expr: customer > 1").broken(ROWS)
