"""Columns whose values are not written as they are."""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from leadline.spark.table.evolution import Conflict
from leadline.spark.table.field_values import JsonNumber
from leadline.spark.table.masks import (
    check_schema,
    key_id,
    masked_rows,
    parse_mask,
    with_text_types,
    with_texts,
)
from leadline.spark.table.table import TableError

KEY = b"0123456789abcdef"


def masked(rows: Sequence[Any], path: str, kind: str) -> list[Any]:
    return list(masked_rows(pa.RecordBatch.from_pylist(rows), [parse_mask(path, kind)], KEY).to_pylist())


def digest(text: bytes) -> str:
    return hmac.new(KEY, text, hashlib.sha256).hexdigest()


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("hash", [digest(b"4111222233334444"), None, digest(b"1234")]),
        ("last4", ["****4444", None, "****"]),
        ("redact", ["[redacted]", None, "[redacted]"]),
        ("null", [None, None, None]),
    ],
)
def test_a_text_is_masked_and_null_stays_null(kind: str, values: list[str | None]) -> None:
    rows = [{"card": "4111222233334444", "n": 1}, {"card": None, "n": 2}, {"card": "1234", "n": 3}]
    assert masked(rows, "Card", kind) == [{"card": value, "n": n} for n, value in enumerate(values, 1)]


def test_bytes_have_the_hash_of_the_text_that_they_are() -> None:
    assert masked([{"key": b"anna"}], "key", "hash") == [{"key": digest(b"anna").encode()}]
    assert masked([{"key": b"\xff12345"}], "key", "last4") == [{"key": b"****2345"}]


def test_a_path_leads_through_structs_and_arrays() -> None:
    rows = [
        {"people": [{"name": "Anna", "n": 1}, None], "tags": ["a", None]},
        {"people": None, "tags": []},
        {"people": [], "tags": None},
        {"people": [{"name": None, "n": 2}, {"name": "Bert", "n": 3}], "tags": ["b"]},
    ]
    assert masked(rows, "people.name", "redact") == [
        {"people": [{"name": "[redacted]", "n": 1}, None], "tags": ["a", None]},
        {"people": None, "tags": []},
        {"people": [], "tags": None},
        {"people": [{"name": None, "n": 2}, {"name": "[redacted]", "n": 3}], "tags": ["b"]},
    ]
    assert [row["tags"] for row in masked(rows, "tags", "redact")] == [["[redacted]", None], [], None, ["[redacted]"]]
    assert masked([{"a": {"b": "x"}}, {"a": None}], "a.b", "last4") == [{"a": {"b": "****"}}, {"a": None}]


def test_null_masks_a_column_of_any_type() -> None:
    assert masked([{"age": 41}], "age", "null") == [{"age": None}]


@pytest.mark.parametrize(
    ("path", "kind", "column"),
    [
        ("age", "hash", pa.int64()),
        ("age.x", "hash", pa.string()),
        ("age.x", "redact", pa.map_(pa.string(), pa.string())),
        ("age.x", "null", pa.string()),
        ("age.x", "last4", pa.list_(pa.struct([("x", pa.float64())]))),
    ],
)
def test_a_column_that_cannot_be_masked_is_refused(path: str, kind: str, column: pa.DataType) -> None:
    mask = parse_mask(path, kind)
    with pytest.raises(TableError, match=f"{path} cannot be masked"):
        check_schema(pa.schema([("age", column)]), [mask])
    with pytest.raises(TableError, match=f"{path} cannot be masked"):
        masked_rows(pa.record_batch([pa.nulls(1, column)], ["age"]), [mask], KEY)


def test_columns_that_can_be_masked_or_do_not_exist_yet_pass() -> None:
    people = pa.list_(pa.struct([("name", pa.string()), ("n", pa.int64())]))
    masks = [parse_mask(*mask) for mask in (("p.Name", "hash"), ("p.n", "null"), ("p.later", "hash"), ("q.r", "hash"))]
    check_schema(pa.schema([("p", people)]), masks)


@pytest.mark.parametrize(("path", "kind"), [("email", "md5"), ("a b", "hash"), ("", "null")])
def test_what_is_no_mask_is_refused(path: str, kind: str) -> None:
    with pytest.raises(TableError, match="the mask"):
        parse_mask(path, kind)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "a"),
        (None, None),
        (41, "41"),
        (JsonNumber("4.10"), "4.10"),
        (True, "true"),
        ({"b": 1, "a": None}, '{"a": null, "b": 1}'),
        ([1, "x", None], ["1", "x", None]),
        (b"bytes", b"bytes"),
    ],
)
def test_values_become_texts_where_a_mask_is(value: object, text: object) -> None:
    document = {"Card": value, "other": 1}
    assert with_texts(document, [("card",)]) == {"Card": text, "other": 1}
    assert with_texts({"p": [{"card": value}]}, [("p", "card")]) == {"p": [{"card": text}]}


def test_a_mask_below_a_value_without_fields_is_a_conflict_that_does_not_show_it() -> None:
    with pytest.raises(Conflict) as error:
        with_texts({"customer": "anna@example.org"}, [("customer", "email")])
    assert "anna" not in str(error.value)
    assert "anna" not in error.value.without_values


def test_the_types_of_documents_follow_their_texts() -> None:
    kind = pa.struct([("p", pa.list_(pa.struct([("Card", pa.int64()), ("n", pa.int64())]))), ("x", pa.null())])
    paths = (("p", "card"), ("x",), ("absent", "y"))
    texts = with_text_types(kind, paths)
    assert texts == pa.struct(
        [("p", pa.list_(pa.struct([("Card", pa.string()), ("n", pa.int64())]))), ("x", pa.null())]
    )
    assert with_text_types(kind, paths) is texts


def test_keys_are_told_apart_by_an_id_that_is_no_part_of_them() -> None:
    assert key_id(KEY) == key_id(KEY) != key_id(KEY + b"x")
    assert len(key_id(KEY)) == 16
