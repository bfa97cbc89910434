"""The records of `__transaction_state`, byte for byte and both ways."""

from dataclasses import replace

import pytest

from leadline.coordinator.record_serde import deserialize, serialize
from leadline.coordinator.transaction import TransactionMetadata, TransactionState
from leadline.coordinator.transaction_records import read_key, read_value, transaction_key, transaction_record
from leadline.errors import CorruptMessage
from leadline.model import TopicPartition
from leadline.wire.messages import TransactionLogValue

TXN = TransactionMetadata(
    producer_id=5,
    producer_epoch=2,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({TopicPartition("t", 1)}),
    start_ms=10,
    last_update_ms=11,
)
KEY = bytes.fromhex("0000 0002") + b"id"
VALUE = bytes.fromhex(
    "0000 0000000000000005 0002 0000ea60 01 00000001 0001 74 00000001 00000001 000000000000000b 000000000000000a"
)


def test_a_record_byte_for_byte() -> None:
    assert transaction_record("id", TXN) == (KEY, VALUE)
    assert transaction_key("id") == KEY


@pytest.mark.parametrize("state", list(TransactionState)[:6])
def test_what_is_written_is_read(state: TransactionState) -> None:
    empty = state is TransactionState.EMPTY
    txn = TXN.to(TransactionState.ONGOING)
    txn = TransactionMetadata(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        timeout_ms=1,
        state=state,
        partitions=frozenset() if empty else frozenset(TopicPartition(name, n) for name in "abc" for n in range(4)),
        start_ms=-1 if empty else 10,
        last_update_ms=12,
    )
    key, value = transaction_record("an id with ü", txn)
    assert value is not None
    assert read_key(key) == "an id with ü"
    assert read_value(value) == txn


def test_an_empty_transaction_has_no_partitions_and_no_start() -> None:
    txn = TransactionMetadata(producer_id=5, producer_epoch=0, timeout_ms=1, start_ms=99, last_update_ms=3)
    _, value = transaction_record("id", txn)
    assert value is not None
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert read_value(value).start_ms == -1


def test_partitions_stand_in_the_order_of_kafkas_hash_tables() -> None:
    """As Kafka wrote them."""
    many = {"journal-2-c": [0, 5, 2, 7, 4], "journal-2-a": [1, 4], "journal-2-b": [6, 3]}
    partitions = frozenset(TopicPartition(topic, number) for topic, numbers in many.items() for number in numbers)
    _, value = transaction_record("id", replace(TXN, partitions=partitions))
    schemas = deserialize(TransactionLogValue, value).transaction_partitions or []
    assert {schema.topic: schema.partition_ids for schema in schemas} == many
    assert [schema.topic for schema in schemas] == list(many)


def test_the_flexible_version_is_read() -> None:
    schema = TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[1])
    value = TransactionLogValue(
        producer_id=5, producer_epoch=2, transaction_timeout_ms=60_000, transaction_status=1,
        transaction_partitions=[schema], transaction_last_update_timestamp_ms=11, transaction_start_timestamp_ms=10,
    )  # fmt: skip
    assert read_value(serialize(value, 1)) == TXN


def test_a_key_of_a_newer_broker_is_not_for_us() -> None:
    assert read_key(b"\x00\x05whatever") is None


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0", b"\0\0\0\x09id"])
def test_a_key_that_is_none(key: bytes | None) -> None:
    with pytest.raises(CorruptMessage):
        read_key(key)


@pytest.mark.parametrize(
    "value", [b"", VALUE[:-1], VALUE[:9], b"\0\x07" + VALUE[2:], VALUE[:16] + b"\x09" + VALUE[17:]]
)
def test_a_value_that_is_none(value: bytes) -> None:
    with pytest.raises(CorruptMessage):
        read_value(value)
