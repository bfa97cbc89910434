"""Expressions over columns."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from leadline.spark.table.expressions import BadExpression, parse_expression, parse_path, truth_of

ROWS = pa.RecordBatch.from_pylist(
    [
        {
            "price": 2.5,
            "amount": 4,
            "id": (1 << 53) + 1,
            "cost": Decimal("1.10"),
            "status": "paid",
            "age": "41",
            "paid": True,
            "on": date(2026, 1, 31),
            "at": datetime(2026, 1, 31, 12, tzinfo=UTC),
            "raw": b"x",
            "customer": {"name": "it's", "Id": 7, "none": None},
            "odd name": 1,
            "empty": None,
        }
    ],
    schema=pa.schema(
        [
            ("price", pa.float64()),
            ("amount", pa.int32()),
            ("id", pa.int64()),
            ("cost", pa.decimal128(9, 2)),
            ("status", pa.string()),
            ("age", pa.string()),
            ("paid", pa.bool_()),
            ("on", pa.date32()),
            ("at", pa.timestamp("us", "UTC")),
            ("raw", pa.binary()),
            ("customer", pa.struct([("name", pa.string()), ("Id", pa.int64()), ("none", pa.int64())])),
            ("odd name", pa.int64()),
            ("empty", pa.int64()),
        ]
    ),
)


def answer(text: str) -> bool | None:
    evaluate, _ = parse_expression(text)
    (value,) = truth_of(evaluate, ROWS).to_pylist()
    return value  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("price * amount < 1e6", True),
        ("price * amount = 10", True),
        ("-price + 1 <= -1.5 and 2 - 1 - 1 = 0", True),
        ("amount / 8 = 0.5", True),
        ("2 + 3 * 2 = 8 and (2 + 3) * 2 = 10", True),
        ("cost = 1.1", True),
        ("id = 9007199254740993 and id != 9007199254740992", True),
        ("status = 'paid' or 1 > 2 and 1 > 2", True),
        ("NOT status == 'paid'", False),
        ("not not paid", True),
        ("paid = true and paid <> false", True),
        ("status in ('new', 'paid')", True),
        ("status not in ('new', 'paid')", False),
        ("amount in (1, 2 + 2)", True),
        ("customer.name = 'it''s' and CUSTOMER.id = 7", True),
        ("`odd name` = 1", True),
        ("on >= '2026-01-31' and at < '2026-01-31T12:00:01Z'", True),
        ("raw = 'x'", True),
        ("age > 40 and age < 42", True),
        ("status > 0 or status < 0 or status = 0", False),
        ("empty is null and status is not null", True),
        ("no_such_column is null and customer.none is null and status.x is null", True),
        ("empty > 1", None),
        ("no_such_column > 1", None),
        ("no_such_column + 1 > 1", None),
        ("empty > 1 or paid", True),
        ("empty > 1 and paid", None),
        ("empty > 1 and not paid", False),
        ("1 / 0 > 5", True),
    ],
)
def test_an_expression_is_true_false_or_null_as_in_sql(text: str, value: bool | None) -> None:
    assert answer(text) is value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "price >",
        "price > > 1",
        "(price",
        "price)",
        "a ; b",
        "1 2",
        "not",
        "price is 1",
        "x in 1",
        "x in ()",
        "and",
        "'open",
        "__import__('os')",
        "a.b.",
        "x not 1",
        "a == null",
        "(" * 1500 + "1" + ")" * 1500,
    ],
)
def test_what_is_no_expression_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        parse_expression(text)


@pytest.mark.parametrize("text", ["price", "paid > 1", "customer = 1", "on > 'secret'", "paid and 1"])
def test_types_that_do_not_fit_are_refused_without_their_values(text: str) -> None:
    evaluate, _ = parse_expression(text)
    with pytest.raises(BadExpression) as error:
        truth_of(evaluate, ROWS)
    assert "secret" not in str(error.value)


def test_the_columns_of_an_expression_are_those_that_it_names() -> None:
    assert parse_expression("a.b > 1 and `c d` = 'x' or a.b < 0")[1] == (("a", "b"), ("c d",))


def test_a_path_has_names_and_backticks() -> None:
    assert parse_path("a.`b.c`.d") == ("a", "b.c", "d")
    with pytest.raises(BadExpression, match="backticks"):
        parse_path("a b")
