"""Values of documents in columns of declared types, and the path of what does not fit."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from leadline.spark.table.column_types import parse_type, type_name
from leadline.spark.table.evolution import Conflict
from leadline.spark.table.field_values import fit
from leadline.spark.table.payload import parse_json


def stored(kind: str, text: str) -> object:
    """What a column `x` has of a value that is written in JSON."""
    columns = pa.struct([("x", parse_type(kind))])
    document, _ = fit(parse_json(b'{"x": %s}' % text.encode())[0], columns, None)
    return pa.array([document], columns).to_pylist()[0]["x"]


NOON = datetime.datetime(2026, 1, 31, 11, 0, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "-2147483648", -(2**31)),
        ("float", "1", 1.0),
        ("double", "9007199254740993", 9007199254740992.0),
        ("decimal(18,2)", "12.5", Decimal("12.50")),
        ("decimal(18,2)", '"12.50"', Decimal("12.50")),
        ("decimal(38,18)", "0.123456789012345678", Decimal("0.123456789012345678")),
        ("decimal(38,0)", "12345678901234567890123456789012345678", Decimal("12345678901234567890123456789012345678")),
        ("decimal(3,0)", "1e2", Decimal("100")),
        ("timestamp", '"2026-01-31T12:00:00+01:00"', NOON),
        ("timestamp", '"2026-01-31 11:00:00Z"', NOON),
        ("timestamp_ntz", '"2026-01-31T11:00:00.5"', NOON.replace(tzinfo=None, microsecond=500_000)),
        ("date", '"2026-01-31"', datetime.date(2026, 1, 31)),
        ("binary", '"AAE="', b"\0\1"),
        ("map<string,long>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("map<string,struct<n:decimal(4,1)>>", '{"a": {"n": 1}}', [("a", {"n": Decimal("1.0")})]),
        ("array<array<double>>", "[[1], [], null]", [[1.0], [], None]),
        ("array<decimal(4,1)>", '[1, "2.5", 3.5]', [Decimal("1.0"), Decimal("2.5"), Decimal("3.5")]),
        ("long", "null", None),
    ],
)
def test_a_value_fits_a_column_of_a_declared_type(kind: str, text: str, value: object) -> None:
    assert stored(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("array<struct<price:decimal(18,2)>>", '[{}, {"price": "abc"}]', "x[1].price: 'abc' is not a decimal(18,2)"),
        ("map<string,array<int>>", '{"a": [1, true]}', "x['a'][1]: True is not an int"),
        ("int", "2147483648", "x: 2147483648 is not an int"),
        ("long", "9223372036854775808", "x: 9223372036854775808 is not a long"),
        ("long", '"1"', "x: '1' is not a long"),
        ("float", "1e39", "x: 1e39 is not a float"),
        ("decimal(4,2)", "1.234", "x: 1.234 is not a decimal(4,2)"),
        ("decimal(4,2)", "100", "x: 100 is not a decimal(4,2)"),
        ("decimal(4,2)", '"NaN"', "x: 'NaN' is not a decimal(4,2)"),
        ("decimal(4,2)", "true", "x: True is not a decimal(4,2)"),
        ("decimal(4,2)", "1e999999999", "x: 1e999999999 is not a decimal(4,2)"),
        ("string", "1", "x: 1 is not a string"),
        ("boolean", "0", "x: 0 is not a boolean"),
        ("timestamp", '"2026-01-31T12:00:00"', "x: '2026-01-31T12:00:00' is not a timestamp: its text is like"),
        ("timestamp", "1700000000000", "x: 1700000000000 is not a timestamp"),
        ("timestamp_ntz", '"2026-01-31T12:00:00Z"', "x: '2026-01-31T12:00:00Z' is not a timestamp_ntz"),
        ("date", '"0000-01-01"', "x: '0000-01-01' is not a date"),
        ("timestamp", '"9999-12-31T23:59:59-01:00"', "x: '9999-12-31T23:59:59-01:00' is not a timestamp"),
        ("date", '"31.1.2026"', "x: '31.1.2026' is not a date"),
        ("binary", '"!"', "x: '!' is not a binary"),
        ("array<int>", "{}", "x: {} is not an array<int>"),
        ("map<string,int>", "[1]", "x: [1] is not a map<string,int>"),
        ("struct<a:int>", '"a long text, of which only the start is shown"', "... is not a struct<a:int>"),
        ("struct<a:int>", '{"new": [{"b": 1}, {"b": "t"}]}', "x.new[1].b is string, where the table has int64"),
    ],
)
def test_what_does_not_fit_is_reported_with_its_path(kind: str, text: str, message: str) -> None:
    with pytest.raises(Conflict) as raised:
        stored(kind, text)
    assert message in str(raised.value)


def test_new_fields_at_any_depth_are_added_to_the_type() -> None:
    column = parse_type("struct<a:array<struct<n:decimal(9,2)>>,m:map<string,struct<x:int>>>")
    document = {"a": [{"n": 1}, {"n": 2, "note": "t"}], "m": {"k": {"y": True}}, "more": [1, 2.5]}
    _, kind = fit(document, column, None)
    assert type_name(kind) == (
        "struct<a:array<struct<n:decimal(9,2),note:string>>,m:map<string,struct<x:int,y:boolean>>,more:array<double>>"
    )
