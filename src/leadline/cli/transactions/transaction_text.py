"""Transactions as lines of text and as JSON."""

from collections.abc import Mapping, Sequence

from leadline.cli.formatting import age_text, moment_text
from leadline.cli.json_values import Json
from leadline.cli.partitions import partitions_text
from leadline.cli.terminal import Paint
from leadline.cli.transactions.open_transactions import (
    NOT_OPEN,
    BlockedPartition,
    OpenTransaction,
    TransactionDescription,
    hangs,
)
from leadline.model import ProducerId, TopicPartition

HANGING_HEADS = (
    "TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "START OFFSET", "LAST RECORD", "AGE"
)  # fmt: skip


UNDER_WAY = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def transaction_lines(transaction: TransactionDescription, now_ms: int, paint: Paint) -> list[str]:
    return [
        f"{paint.bold(paint.escape(transaction.transactional_id))}: {transaction.state}",
        f"  producer     {transaction.producer_id}, epoch {transaction.epoch}",
        f"  coordinator  broker {transaction.coordinator}",
        f"  time-out     {age_text(transaction.timeout_ms)}",
        f"  started      {started_text(transaction, now_ms)}",
        f"  partitions   {partitions_text(transaction.partitions) or 'none'}",
    ]


def started_text(transaction: TransactionDescription, now_ms: int) -> str:
    if transaction.started_ms is None:
        return "none yet"
    when = since_text(transaction.started_ms, now_ms)
    return when if transaction.state in UNDER_WAY else f"none under way; the last one {when}"


def since_text(at_ms: int, now_ms: int) -> str:
    return f"{moment_text(at_ms)}, {age_text(now_ms - at_ms)} ago"


def transaction_json(transaction: TransactionDescription) -> Json:
    return {
        "transactionalId": transaction.transactional_id,
        "state": transaction.state,
        "coordinator": transaction.coordinator,
        "producerId": transaction.producer_id,
        "producerEpoch": transaction.epoch,
        "timeoutMs": transaction.timeout_ms,
        "startedMs": transaction.started_ms,
        "partitions": [_partition_json(tp) for tp in sorted(transaction.partitions)],
    }


def _partition_json(tp: TopicPartition) -> dict[str, Json]:
    return {"topic": tp.topic, "partition": tp.partition}


def blocked_lines(
    blocked: BlockedPartition, transactions: Mapping[ProducerId, TransactionDescription], now_ms: int, paint: Paint
) -> list[str]:
    head = paint.bold(str(blocked.tp))
    if blocked.waiting <= 0:
        return [f"{head}: no record waits; the last stable offset is the high watermark, {blocked.high_watermark}"]
    fields = {"last stable offset": str(blocked.last_stable), "high watermark": str(blocked.high_watermark)}
    if (holder := blocked.holder) is None:
        fields["held by"] = "no open transaction; the marker of one is being replicated: try again"
    else:
        fields |= holder_texts(holder, transactions.get(holder.producer_id), now_ms)
    others = [
        f"producer {transaction.producer_id} from {transaction.start_offset} on"
        for transaction in blocked.open
        if transaction != holder
    ]
    fields |= {"also open": ", ".join(others)} if others else {}
    records = "record waits" if blocked.waiting == 1 else "records wait"
    lines = [f"  {name:18}  {paint.escape(text)}" for name, text in fields.items()]
    return [f"{head}: {paint.red(f'{blocked.waiting:,} {records}')}", *lines]


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
        "lastStableOffset": blocked.last_stable,
        "highWatermark": blocked.high_watermark,
        "waiting": blocked.waiting,
        "transactions": [
            open_json(transaction, transactions.get(transaction.producer_id)) for transaction in blocked.open
        ],
    }


def open_json(opened: OpenTransaction, transaction: TransactionDescription | None) -> Json:
    return {
        **_partition_json(opened.tp),
        "producerId": opened.producer_id,
        "producerEpoch": opened.epoch,
        "coordinatorEpoch": opened.coordinator_epoch,
        "startOffset": opened.start_offset,
        "lastTimestamp": opened.last_ms,
        "transactionalId": transaction.transactional_id if transaction is not None else None,
        "startedMs": transaction.started_ms if transaction is not None else None,
        "hangs": hangs(opened, transaction),
    }


def open_text(opened: Sequence[OpenTransaction]) -> str:
    return f"; {len(opened)} open, which coordinators will end or which are too young to decide" if opened else ""


def hanging_row(opened: OpenTransaction, now_ms: int) -> list[str]:
    numbers = [opened.tp.partition, opened.producer_id, opened.epoch, opened.coordinator_epoch, opened.start_offset]
    return [opened.tp.topic, *map(str, numbers), moment_text(opened.last_ms), age_text(now_ms - opened.last_ms)]


def marker_text(chosen: OpenTransaction) -> str:
    """The abort marker, and the transaction that it ends."""
    producer = f"producer {chosen.producer_id}, epoch {chosen.epoch}, coordinator epoch {chosen.marker_epoch}"
    if chosen.start_offset == NOT_OPEN:
        ends = "the leader has no open transaction of this producer"
    else:
        ends = f"it aborts the transaction that starts at {chosen.start_offset}"
    return f"An abort marker in {chosen.tp} for {producer}: {ends}"
