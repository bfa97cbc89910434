"""Transactions as lines of text and as JSON."""

from collections.abc import Mapping, Sequence

from leadline.admin.formatting import age_text, moment_text
from leadline.admin.open_transactions import (
    NOT_OPEN,
    BlockedPartition,
    OpenTransaction,
    TransactionDescription,
)
from leadline.admin.partitions import partitions_text
from leadline.admin.transaction_text import holder_texts, started_text
from leadline.cli.terminal import TextStyles
from leadline.model import ProducerId

HANGING_HEADS = (
    "TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "START OFFSET", "LAST RECORD", "AGE"
)  # fmt: skip


def transaction_lines(transaction: TransactionDescription, now_ms: int, paint: TextStyles) -> list[str]:
    return [
        f"{paint.bold(paint.escape(transaction.transactional_id))}: {transaction.state}",
        f"  producer     {transaction.producer_id}, epoch {transaction.epoch}",
        f"  coordinator  broker {transaction.coordinator}",
        f"  time-out     {age_text(transaction.timeout_ms)}",
        f"  started      {started_text(transaction, now_ms)}",
        f"  partitions   {partitions_text(transaction.partitions) or 'none'}",
    ]


def blocked_lines(
    blocked: BlockedPartition, transactions: Mapping[ProducerId, TransactionDescription], now_ms: int, paint: TextStyles
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
