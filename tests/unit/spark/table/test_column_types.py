"""The names of types, and the changes of types that keep every value."""

import pyarrow as pa
import pytest

from leadline.spark.table.column_types import cast_rows, parse_type, type_changes, type_name, widened
from leadline.spark.table.evolution import Conflict

TYPES = (
    "boolean int long float double string binary date timestamp timestamp_ntz decimal(18,2) array<array<int>> "
    "map<string,array<long>> struct<a:int,b:struct<c:map<string,decimal(5,0)>>>"
).split()


@pytest.mark.parametrize("text", TYPES)
def test_a_type_has_the_name_that_it_is_declared_by(text: str) -> None:
    assert type_name(parse_type(text)) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("BIGINT", "long"),
        ("decimal(9)", "decimal(9,0)"),
        (" struct< a : integer , `b-c` : Bool > ", "struct<a:int,b-c:boolean>"),
    ],
)
def test_other_spellings_name_the_same_type(text: str, name: str) -> None:
    assert type_name(parse_type(text)) == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("number", "there is no type 'number'"),
        ("", "there is no type ''"),
        ("decimal", "in the wrong place"),
        ("decimal(39,2)", "from 1 to 38"),
        ("decimal(2,3)", "the scale is not more than the precision"),
        ("decimal(x,2)", "from 1 to 38"),
        ("array<int", "its end"),
        ("array<int>>", "in the wrong place"),
        ("map<int,int>", "in the wrong place"),
        ("struct<a:int,A:int>", "A differs from a by upper and lower case only"),
        ("struct<a b:int>", "in the wrong place"),
        ("int`", "is not the name of a type|in the wrong place"),
    ],
)
def test_what_names_no_type_is_refused(text: str, message: str) -> None:
    with pytest.raises(Conflict, match=message):
        parse_type(text)


@pytest.mark.parametrize(
    ("column", "declared", "after"),
    [
        ("int", "long", "long"),
        ("float", "double", "double"),
        ("decimal(10,2)", "decimal(18,2)", "decimal(18,2)"),
        ("long", "double", "double"),
        ("long", "decimal(18,2)", "decimal(18,2)"),
        ("array<int>", "array<long>", "array<long>"),
        ("map<string,float>", "map<string,double>", "map<string,double>"),
        ("long", "int", "long"),
        ("double", "long", "double"),
        ("decimal(18,2)", "decimal(10,2)", "decimal(18,2)"),
        ("struct<a:int,b:string>", "struct<a:long,c:date>", "struct<a:long,b:string,c:date>"),
    ],
)
def test_a_column_becomes_wider_or_stays_if_it_is(column: str, declared: str, after: str) -> None:
    assert type_name(widened(parse_type(column), parse_type(declared), "x")) == after


@pytest.mark.parametrize(
    ("column", "declared"),
    [
        ("double", "decimal(18,2)"),
        ("decimal(18,2)", "decimal(18,3)"),
        ("string", "long"),
        ("long", "string"),
        ("timestamp", "timestamp_ntz"),
        ("array<long>", "long"),
        ("map<string,long>", "struct<a:long>"),
    ],
)
def test_a_change_that_would_lose_values_is_refused(column: str, declared: str) -> None:
    with pytest.raises(Conflict, match=r"x is .* in the table and cannot become"):
        widened(parse_type(column), parse_type(declared), "x")


def test_changes_have_the_paths_that_iceberg_uses() -> None:
    before = parse_type("struct<a:array<struct<n:int>>,m:map<string,float>,s:string>")
    after = parse_type("struct<a:array<struct<n:long,new:int>>,m:map<string,double>,s:string>")
    assert [(change.path, type_name(change.after)) for change in type_changes(before, after)] == [
        (("a", "element", "n"), "long"),
        (("m", "value"), "double"),
    ]


def test_rows_are_cast_at_any_depth_unless_a_value_does_not_fit() -> None:
    schema = pa.schema([("n", parse_type("struct<a:array<decimal(6,2)>>"))])
    rows = pa.RecordBatch.from_pylist([{"n": {"a": [1, None]}}, {"n": None}])
    assert str(cast_rows(rows, schema).column("n")[0]["a"][0]) == "1.00"
    with pytest.raises(Conflict, match="does not fit"):
        cast_rows(pa.RecordBatch.from_pylist([{"n": {"a": [10_000]}}]), schema)
