"""Types of values and of columns, compared and merged."""

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline.spark.table.evolution import NOTHING, Conflict, additions, inferred, merged, signature, storable
from leadline.spark.table.field_values import fit

LONG, DOUBLE, TEXT, FLAG = pa.int64(), pa.float64(), pa.string(), pa.bool_()

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def type_of(text: str) -> pa.DataType:
    return inferred(signature(json.loads(text)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("null", pa.null()),
        ("true", FLAG),
        ("1", LONG),
        ("1.5", DOUBLE),
        ('"a"', TEXT),
        ("[1, 2.5, null]", pa.list_(DOUBLE)),
        ("[]", pa.list_(pa.null())),
        ('{"a": {"b": 1}}', pa.struct([("a", pa.struct([("b", LONG)]))])),
    ],
)
def test_what_a_value_of_json_is(text: str, kind: pa.DataType) -> None:
    assert type_of(text) == kind


def test_an_empty_array_is_no_empty_object() -> None:
    assert type_of("[]") != type_of("{}")


@pytest.mark.parametrize(
    ("table_type", "record_type", "both"),
    [
        (LONG, LONG, LONG),
        (LONG, pa.null(), LONG),
        (pa.null(), TEXT, TEXT),
        (DOUBLE, LONG, DOUBLE),
        (pa.list_(pa.null()), pa.list_(TEXT), pa.list_(TEXT)),
        (pa.struct([("a", LONG)]), pa.struct([("b", TEXT)]), pa.struct([("a", LONG), ("b", TEXT)])),
    ],
)
def test_types_that_agree_are_merged(table_type: pa.DataType, record_type: pa.DataType, both: pa.DataType) -> None:
    assert merged(table_type, record_type) == both


@pytest.mark.parametrize(
    ("table_type", "record_type", "message"),
    [
        (pa.struct([("a", LONG)]), pa.struct([("a", TEXT)]), "a is string, where the table has int64"),
        (pa.struct([("a", LONG)]), pa.struct([("a", DOUBLE)]), "a is double, where the table has int64"),
        (pa.struct([("a", pa.list_(LONG))]), pa.struct([("a", pa.list_(FLAG))]), r"a\[\] is bool"),
        (NOTHING, pa.struct([("a b", LONG)]), "cannot name a column"),
        (NOTHING, pa.struct([("", LONG)]), "cannot name a column"),
        (pa.struct([("id", LONG)]), pa.struct([("ID", LONG)]), "ID differs from id by upper and lower case only"),
    ],
)
def test_types_that_contradict_are_refused(table_type: pa.DataType, record_type: pa.DataType, message: str) -> None:
    with pytest.raises(Conflict, match=message):
        merged(table_type, record_type)


def test_whole_numbers_become_others_only_while_a_column_is_new() -> None:
    assert merged(LONG, DOUBLE, widen=True) == DOUBLE
    with pytest.raises(Conflict):
        merged(LONG, DOUBLE)


@given(VALUES)
@example([9007199254740993, 0.0])
def test_a_value_fits_into_its_own_type(value: object) -> None:
    try:
        kind = inferred(signature(value))
    except Conflict:
        return  # an array of things that have no common type
    assert merged(kind, kind) is kind
    if (kept := storable(kind)) is not None:
        assert merged(kind, kept).equals(kind)
        assert pa.array([fit(value, kind, None)[0]], kind).cast(kind).type == kind


def test_what_is_always_null_is_no_column() -> None:
    assert storable(pa.struct([("a", pa.null()), ("b", pa.list_(pa.null()))])) is None
    assert storable(pa.struct([("a", pa.null()), ("b", LONG)])) == pa.struct([("b", LONG)])


def test_of_contradicting_types_the_first_stays() -> None:
    record_types = [pa.struct([("x", LONG)]), pa.struct([("x", TEXT), ("y", TEXT)]), pa.struct([("x", DOUBLE)])]
    assert additions(pa.schema([("k", TEXT)]), record_types) == pa.struct([("k", TEXT), ("x", DOUBLE), ("y", TEXT)])
