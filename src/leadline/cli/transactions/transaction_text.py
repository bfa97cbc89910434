"""How transactions are told: to a person in lines, to a program in JSON."""

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


# One that its coordinator knows


def transaction_lines(found: TransactionDescription, now_ms: int, paint: Paint) -> list[str]:
    return [
        f"{paint.bold(paint.harmless(found.transactional_id))}: {found.state}",
        f"  producer     {found.producer_id}, epoch {found.epoch}",
        f"  coordinator  broker {found.coordinator}",
        f"  time-out     {age_text(found.timeout_ms)}",
        f"  started      {started_text(found, now_ms)}",
        f"  partitions   {partitions_text(found.partitions) or 'none'}",
    ]


def started_text(found: TransactionDescription, now_ms: int) -> str:
    if found.started_ms is None:
        return "none yet"
    when = since_text(found.started_ms, now_ms)
    return when if found.state in UNDER_WAY else f"none under way; the last one {when}"


def since_text(at_ms: int, now_ms: int) -> str:
    return f"{moment_text(at_ms)}, {age_text(now_ms - at_ms)} ago"


def transaction_json(found: TransactionDescription) -> Json:
    return {
        "transactionalId": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producerId": found.producer_id,
        "producerEpoch": found.epoch,
        "timeoutMs": found.timeout_ms,
        "startedMs": found.started_ms,
        "partitions": [_partition_json(tp) for tp in sorted(found.partitions)],
    }


def _partition_json(tp: TopicPartition) -> dict[str, Json]:
    return {"topic": tp.topic, "partition": tp.partition}


# What waits, and for what


def blocked_lines(
    blocked: BlockedPartition, known: Mapping[ProducerId, TransactionDescription], now_ms: int, paint: Paint
) -> list[str]:
    head = paint.bold(str(blocked.tp))
    if blocked.waiting <= 0:
        return [f"{head}: nothing waits, the last stable offset is the high watermark, {blocked.high_watermark}"]
    about = {"last stable offset": str(blocked.last_stable), "high watermark": str(blocked.high_watermark)}
    if (holder := blocked.holder) is None:
        about["held by"] = "no open transaction; the end of one has yet to be replicated: ask again"
    else:
        about |= holder_texts(holder, known.get(holder.producer_id), now_ms)
    behind = [f"producer {each.producer_id} from {each.start_offset} on" for each in blocked.open if each != holder]
    about |= {"behind it": ", ".join(behind)} if behind else {}
    records = "record waits" if blocked.waiting == 1 else "records wait"
    lines = [f"  {name:18}  {paint.harmless(text)}" for name, text in about.items()]
    return [f"{head}: {paint.red(f'{blocked.waiting:,} {records}')}", *lines]


def holder_texts(holder: OpenTransaction, known: TransactionDescription | None, now_ms: int) -> dict[str, str]:
    """Who holds the last stable offset, and how that will end."""
    who = f"producer {holder.producer_id}, epoch {holder.epoch}, with a transaction from {holder.start_offset} on"
    about = {"held by": who, "its last record": since_text(holder.last_ms, now_ms)}
    if known is not None:
        about["transactional id"] = f"{known.transactional_id}, {known.state}"
        about["started"] = started_text(known, now_ms)
    return about | {"how it ends": ending_text(holder, known)}


def ending_text(found: OpenTransaction, known: TransactionDescription | None) -> str:
    if known is None or hangs(found, known):
        return f"not by itself, it hangs: {abort_call(found)}"
    if known.state == "Ongoing":
        return f"by its producer, or by broker {known.coordinator} after its time-out of {age_text(known.timeout_ms)}"
    return f"broker {known.coordinator} is about to write its marker"


def abort_call(found: OpenTransaction) -> str:
    return f"leadline transactions abort {found.tp.topic}:{found.tp.partition} --start-offset {found.start_offset}"


def blocked_json(blocked: BlockedPartition, known: Mapping[ProducerId, TransactionDescription]) -> Json:
    return {
        **_partition_json(blocked.tp),
        "lastStableOffset": blocked.last_stable,
        "highWatermark": blocked.high_watermark,
        "waiting": blocked.waiting,
        "transactions": [open_json(each, known.get(each.producer_id)) for each in blocked.open],
    }


def open_json(found: OpenTransaction, known: TransactionDescription | None) -> Json:
    return {
        **_partition_json(found.tp),
        "producerId": found.producer_id,
        "producerEpoch": found.epoch,
        "coordinatorEpoch": found.coordinator_epoch,
        "startOffset": found.start_offset,
        "lastTimestamp": found.last_ms,
        "transactionalId": known.transactional_id if known is not None else None,
        "startedMs": known.started_ms if known is not None else None,
        "hangs": hangs(found, known),
    }


# What hangs


def open_text(found: Sequence[OpenTransaction]) -> str:
    return f"; {len(found)} open, which coordinators will end or which are too young to tell" if found else ""


def hanging_row(found: OpenTransaction, now_ms: int) -> list[str]:
    numbers = [found.tp.partition, found.producer_id, found.epoch, found.coordinator_epoch, found.start_offset]
    return [found.tp.topic, *map(str, numbers), moment_text(found.last_ms), age_text(now_ms - found.last_ms)]


def marker_text(chosen: OpenTransaction) -> str:
    """What an abort would write, and what that ends."""
    whose = f"producer {chosen.producer_id}, epoch {chosen.epoch}, coordinator epoch {chosen.marker_epoch}"
    if chosen.start_offset == NOT_OPEN:
        ends = "its leader knows no open transaction of this producer"
    else:
        ends = f"it aborts the transaction that begins at {chosen.start_offset}"
    return f"An abort marker in {chosen.tp} for {whose}: {ends}"
