"""The records of `__transaction_state`. Each describes one transactional id; the last one counts.

Format: the key is version 0 (2) and the transactional id. The value is version 0 (2), then producer id and epoch,
timeout, state, partitions by topic, last update and start. No value: the id is deleted. In state Empty the partition
list is null (not empty) and there is no start time.

Pure: values in, bytes out, and back.
"""

from leadline import hash_order
from leadline.coordinator.record_serde import deserialize, serialize, version_of
from leadline.coordinator.runtime import CoordinatorRecord
from leadline.coordinator.transaction import TransactionMetadata, TransactionState
from leadline.errors import CorruptMessage
from leadline.hash_order import string_hash
from leadline.model import NO_TIMESTAMP, TopicPartition
from leadline.wire.messages import TransactionLogKey, TransactionLogValue

FEWEST_SLOTS = 8  # of a hash table that is made for up to five elements
KEY_VERSION = VALUE_VERSION = 0  # what Kafka writes; it reads version 1 of the value too
_WRITTEN = {
    int(state): state
    for state in TransactionState
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}


def transaction_key(transactional_id: str) -> bytes:
    return serialize(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def transaction_record(transactional_id: str, metadata: TransactionMetadata) -> CoordinatorRecord:
    return CoordinatorRecord(transaction_key(transactional_id), serialize(_value(metadata), VALUE_VERSION))


def read_key(key: bytes | None) -> str | None:
    """The transactional id. None: a record of another kind, from a newer broker."""
    if version_of(key) not in TransactionLogKey.VERSIONS:
        return None
    return deserialize(TransactionLogKey, key).transactional_id


def read_value(value: bytes) -> TransactionMetadata:
    stored = deserialize(TransactionLogValue, value)
    state = _WRITTEN.get(stored.transaction_status)
    if state is None:
        raise CorruptMessage(f"a transaction in state {stored.transaction_status}; supported are {list(_WRITTEN)}")
    return TransactionMetadata(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in stored.transaction_partitions or ()
            for number in topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        last_update_ms=stored.transaction_last_update_timestamp_ms,
    )


def _value(txn: TransactionMetadata) -> TransactionLogValue:
    empty = txn.state is TransactionState.EMPTY
    return TransactionLogValue(
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None if empty else _by_topic(txn),
        transaction_last_update_timestamp_ms=txn.last_update_ms,
        transaction_start_timestamp_ms=NO_TIMESTAMP if empty else txn.start_ms,
    )


def _by_topic(txn: TransactionMetadata) -> list[TransactionLogValue.PartitionsSchema]:
    """In the order of Kafka's hash tables.

    Up to four partitions are ordered by the hash of a partition, in a table that is smaller while partitions are being
    added. From five on they are ordered by number alone.
    """
    few = len(txn.partitions) <= hash_order.IN_ORDER
    slots = FEWEST_SLOTS if txn.state is TransactionState.ONGOING else hash_order.LEAST_SLOTS
    numbers_by_topic: dict[str, list[int]] = {}
    for tp in hash_order.mutable(txn.partitions, _hash, slots) if few else txn.partitions:
        numbers_by_topic.setdefault(tp.topic, []).append(tp.partition)
    return [
        TransactionLogValue.PartitionsSchema(
            topic=topic,
            partition_ids=numbers_by_topic[topic] if few else hash_order.trie(sorted(numbers_by_topic[topic]), int),
        )
        for topic in hash_order.trie(sorted(numbers_by_topic), string_hash)
    ]


def _hash(tp: TopicPartition) -> int:
    """TopicPartition.hashCode, as an unsigned word."""
    return (31 * (31 + tp.partition) + string_hash(tp.topic)) & hash_order.WORD
