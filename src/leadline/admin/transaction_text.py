"""Transactions as text for a person, and as JSON.

Pure: descriptions in, text and JSON out.
"""

from collections.abc import Mapping

from leadline.admin.formatting import age_text, moment_text
from leadline.admin.json_values import Json
from leadline.admin.open_transactions import BlockedPartition, OpenTransaction, TransactionDescription, hangs
from leadline.model import ProducerId, TopicPartition

UNDER_WAY = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def started_text(transaction: TransactionDescription, now_ms: int) -> str:
    if transaction.started_ms is None:
        return "none yet"
    when = since_text(transaction.started_ms, now_ms)
    return when if transaction.state in UNDER_WAY else f"none under way; the last one {when}"


def since_text(at_ms: int, now_ms: int) -> str:
    return f"{moment_text(at_ms)}, {age_text(now_ms - at_ms)} ago"


def transaction_json(transaction: TransactionDescription) -> Json:
    return {
        "transactional_id": transaction.transactional_id,
        "state": transaction.state,
        "coordinator": transaction.coordinator,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.epoch,
        "timeout_ms": transaction.timeout_ms,
        "started_ms": transaction.started_ms,
        "partitions": [_partition_json(tp) for tp in sorted(transaction.partitions)],
    }


def _partition_json(tp: TopicPartition) -> dict[str, Json]:
    return {"topic": tp.topic, "partition": tp.partition}


def holder_texts(holder: OpenTransaction, transaction: TransactionDescription | None, now_ms: int) -> dict[str, str]:
    """The producer that holds the last stable offset, and how its transaction will end."""
    producer = f"producer {holder.producer_id}, epoch {holder.epoch}, with a transaction from {holder.start_offset} on"
    fields = {"held by": producer, "its last record": since_text(holder.last_ms, now_ms)}
    if transaction is not None:
        fields["transactional id"] = f"{transaction.transactional_id}, {transaction.state}"
        fields["started"] = started_text(transaction, now_ms)
    return fields | {"how it ends": ending_text(holder, transaction)}


def ending_text(opened: OpenTransaction, transaction: TransactionDescription | None) -> str:
    if transaction is None or hangs(opened, transaction):
        return f"it hangs and does not end by itself: {abort_call(opened)}"
    if transaction.state == "Ongoing":
        timeout = age_text(transaction.timeout_ms)
        return f"by its producer, or by broker {transaction.coordinator} after its time-out of {timeout}"
    return f"broker {transaction.coordinator} is about to write its marker"


def abort_call(opened: OpenTransaction) -> str:
    return f"leadline transactions abort {opened.tp.topic}:{opened.tp.partition} --start-offset {opened.start_offset}"


def blocked_json(blocked: BlockedPartition, transactions: Mapping[ProducerId, TransactionDescription]) -> Json:
    return {
        **_partition_json(blocked.tp),
        "last_stable_offset": blocked.last_stable,
        "high_watermark": blocked.high_watermark,
        "waiting": blocked.waiting,
        "transactions": [
            open_json(transaction, transactions.get(transaction.producer_id)) for transaction in blocked.open
        ],
    }


def open_json(opened: OpenTransaction, transaction: TransactionDescription | None) -> dict[str, Json]:
    return {
        **_partition_json(opened.tp),
        "producer_id": opened.producer_id,
        "producer_epoch": opened.epoch,
        "coordinator_epoch": opened.coordinator_epoch,
        "start_offset": opened.start_offset,
        "last_timestamp": opened.last_ms,
        "transactional_id": transaction.transactional_id if transaction is not None else None,
        "started_ms": transaction.started_ms if transaction is not None else None,
        "hangs": hangs(opened, transaction),
    }
