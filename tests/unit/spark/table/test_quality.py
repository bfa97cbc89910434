"""Rules and masks of a table, from records to rows and dead letters."""

import hashlib
import hmac
import json

import pyarrow as pa
import pytest

from leadline.spark.table.payload import BESIDE, ShapedRecords
from leadline.spark.table.quality import (
    WITHHELD,
    Quality,
    broken_rules,
    check_interrupted,
    check_quality,
    is_withheld,
    shape_with,
)
from leadline.spark.table.rules import parse_rule
from leadline.spark.table.table import TableError, TableOrigin
from tests.support.decoded import decoded

KEY = b"0123456789abcdef"
FIELDS = pa.schema([*BESIDE, ("id", pa.int64()), ("price", pa.float64()), ("email", pa.string())])
RULES = ("price: range 0..100", "email: not null")


def shaped(quality: Quality, *documents: object, by_key: bool = False, format: str = "json") -> ShapedRecords:
    values = [
        document if isinstance(document, bytes | None) else json.dumps(document).encode() for document in documents
    ]
    return shape_with(quality, format, "", by_key=by_key)(decoded(*values), "orders", 3, FIELDS)


def causes(records: ShapedRecords) -> list[str]:
    return [] if records.bad is None else records.bad.column("cause").to_pylist()


GOOD, DEAR, BOTH = {"id": 1, "price": 1.5, "email": "a@b.c"}, {"id": 2, "price": 101.5, "email": "x"}, {"price": -1.5}


def test_a_row_that_breaks_rules_is_a_dead_letter_that_names_them() -> None:
    records = shaped(Quality(RULES), GOOD, DEAR, b"no json", BOTH, None)
    assert records.rows.column("id").to_pylist() == [1, None]  # and the tombstone, which is not checked
    assert records.deleted.to_pylist() == [False, True]
    assert records.bad is not None
    assert records.bad.column("offset").to_pylist() == [102, 101, 103]
    assert causes(records)[1:] == [
        "the record breaks 'price: range 0..100'",
        "the record breaks 'price: range 0..100', 'email: not null'",
    ]
    assert json.loads(records.bad.column("value")[1].as_py()) == DEAR


def test_a_marked_row_names_the_rules_that_it_breaks() -> None:
    records = shaped(Quality(RULES, "mark"), GOOD, DEAR, BOTH, None)
    assert records.rows.column("kafka_broken_rules").to_pylist() == [None, [RULES[0]], list(RULES), None]
    assert records.bad is None


def test_a_refusal_names_rule_partition_offset_and_kind_but_no_value() -> None:
    quality = Quality(("expr: price < 100 and email != 'x'",), "refuse", (("email", "redact"),))
    with pytest.raises(TableError) as error:
        shaped(quality, GOOD, DEAR, DEAR)
    assert str(error.value) == (
        "orders-3 breaks the rule \"expr: price < 100 and email != 'x'\" at offset 101: price is of type double, "
        "email is a text of length 1; so do 1 more that were read with it"
    )
    assert shaped(quality, GOOD).rows.num_rows == 1


def test_rules_see_values_that_masks_hide() -> None:
    quality = Quality(("email: in a@b.c",), masks=(("email", "redact"), ("price", "null")))
    records = shaped(quality, GOOD, DEAR)
    assert records.rows.select(["price", "email"]).to_pylist() == [{"price": None, "email": "[redacted]"}]
    assert causes(records) == [f"the record breaks 'email: in a@b.c'{WITHHELD}"]


def test_key_and_headers_of_a_dead_letter_are_masked_under_any_spelling_but_not_by_a_field_of_that_name() -> None:
    records = shaped(Quality(masks=(("Kafka_Key", "redact"), ("kafka_headers.value", "null"))), b"no json")
    assert records.bad is not None
    assert records.bad.column("key").to_pylist() == [b"[redacted]"]
    records = shaped(Quality(masks=(("key", "redact"), ("headers", "redact"))), b"no json")
    assert records.bad is not None
    assert records.bad.column("key").to_pylist() == [b"k"]


@pytest.mark.parametrize("by_key", [False, True])
def test_dead_letters_of_a_table_with_masks_have_no_value_and_a_masked_key(by_key: bool) -> None:
    quality = Quality(masks=(("email", "hash"), ("kafka_key", "hash")), key=KEY)
    records = shaped(quality, b"secret", {"id": "secret"}, {"price": {"email": "secret"}}, GOOD, by_key=by_key)
    key = hmac.new(KEY, b"k", hashlib.sha256).hexdigest().encode()
    assert records.bad is not None
    assert records.bad.column("value").to_pylist() == [None] * 3
    assert records.bad.column("key").to_pylist() == [key] * 3
    assert records.rows.column("kafka_key").to_pylist() == [key]
    assert causes(records) == [
        f"no JSON{WITHHELD}",
        f"id: the value is not a long{WITHHELD}",
        f"price: the value is not a double{WITHHELD}",
    ]
    assert is_withheld(pa.Table.from_batches([records.bad])).to_pylist() == [True] * 3


def test_a_number_under_a_mask_is_a_text_in_every_batch() -> None:
    quality = Quality(("email: range 1..50",), masks=(("email", "last4"),))
    assert shaped(quality, {"email": 41}).rows.column("email").to_pylist() == ["****"]
    assert causes(shaped(quality, {"email": 4111}, {"email": "12345"}, {"email": "x"})) != []
    unknown = shaped(Quality(masks=(("card", "hash"),), key=KEY), {"card": 4111222233334444}).unknown
    assert unknown == pa.struct([("card", pa.string())])


def test_raw_records_are_checked_and_masked_by_their_columns() -> None:
    quality = Quality(("value: in good",), masks=(("key", "redact"),))
    records = shaped(quality, b"good", b"bad", format="raw")
    assert records.rows.select(["key", "value"]).to_pylist() == [{"key": b"[redacted]", "value": b"good"}]
    assert records.bad is not None
    assert records.bad.select(["key", "value"]).to_pylist() == [{"key": b"[redacted]", "value": None}]


def test_the_rules_of_each_row_are_in_the_order_of_the_user() -> None:
    records = shaped(Quality(), GOOD, BOTH)
    rules = [parse_rule(text) for text in RULES]
    assert [[rule.name for rule in row] for row in broken_rules(rules, records)] == [[], list(RULES)]


@pytest.mark.parametrize(
    ("quality", "mode", "complaint"),
    [
        (Quality(("price",)), "append", "the rule 'price'"),
        (Quality(masks=(("email", "md5"),)), "append", "the mask email=md5"),
        (Quality(masks=(("email", "hash"),)), "append", "needs a key of 16 bytes"),
        (Quality(masks=(("kafka_offset", "null"),)), "append", "kafka_offset cannot be masked"),
        (Quality(masks=(("cdc_op", "null"),)), "append", "cdc_op cannot be masked"),
        (Quality(masks=(("kafka_key", "last4"),)), "upsert", "kafka_key can be masked by hash alone"),
        (Quality(masks=(("a", "null"), ("A", "redact"))), "append", "a is masked twice"),
        (Quality(masks=(("a.b", "redact"), ("a", "null"))), "append", "a.b is masked twice"),
    ],
)
def test_what_a_table_cannot_have_is_refused(quality: Quality, mode: str, complaint: str) -> None:
    with pytest.raises(TableError, match=complaint):
        check_quality(quality, "json", mode)


def test_a_key_may_be_hashed_in_a_table_by_key_and_hidden_elsewhere() -> None:
    check_quality(Quality(masks=(("kafka_key", "hash"),), key=KEY), "json", "upsert")
    check_quality(Quality(masks=(("kafka_key", "null"),)), "json", "append")


def test_a_table_remembers_its_masks_and_which_key_they_have_but_no_key() -> None:
    masks = (("email", "hash"), ("card", "last4"))
    text = Quality(masks=masks, key=KEY).masks_text
    assert text == Quality(masks=masks[::-1], key=KEY).masks_text != Quality(masks=masks, key=KEY * 2).masks_text
    assert text.startswith("card=last4,email=hash@")
    assert KEY.decode() not in text + repr(Quality(key=KEY))


def test_an_interrupted_batch_is_completed_with_the_rules_that_it_began_with() -> None:
    origin = TableOrigin("orders", "id", "raw", "append", "none", "read_committed", rules=Quality(RULES).rules_text)
    check_interrupted(origin, Quality(RULES).rules_text, "/data")
    with pytest.raises(TableError, match="price: range"):
        check_interrupted(origin, Quality().rules_text, "/data")
