"""A partition explained, as lines of text."""

from collections.abc import Mapping, Sequence

from leadline.admin.explanation import NO_LEADER, LedEpoch, PartitionEvent, PartitionExplanation, ReplicaStatus
from leadline.admin.formatting import age_text, ids_text, moment_text, size_text, table
from leadline.admin.open_transactions import TransactionDescription
from leadline.admin.transaction_text import holder_texts
from leadline.cli.terminal import TextStyles
from leadline.model import ProducerId

SHOWN = 12  # epochs and events at most
NO_HISTORY = "These brokers keep no history: earlier leaders and past events are not known."
REPLICA_HEADS = ("REPLICA", "LOG START", "LOG END", "HIGH WATERMARK", "LAG", "SIZE", "IN SYNC", "STATE")
EPOCH_HEADS = ("EPOCH", "STARTS AT", "LED BY", "SINCE")


def lines_of(
    explanation: PartitionExplanation,
    transactions: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    paint: TextStyles,
    shown: int = SHOWN,
) -> list[str]:
    fields = _fields(explanation, transactions, now_ms, paint)
    width = max(map(len, fields))
    lines = [paint.bold(str(explanation.tp)), *(f"  {name:{width}}  {text}" for name, text in fields.items())]
    rows = [_row(item) for item in explanation.statuses]
    lines += ["", *table(REPLICA_HEADS, [[paint.escape(cell) for cell in row] for row in rows], paint.bold)]
    if explanation.epochs:
        lines += ["", *table(EPOCH_HEADS, [_epoch_row(item) for item in explanation.epochs[:shown]], paint.bold)]
        lines += _more(explanation.epochs, shown)
    if explanation.events:
        lines += ["", paint.bold("WHEN                 WHAT")]
        lines += [_event_line(item, paint) for item in explanation.events[:shown]]
        lines += _more(explanation.events, shown)
    if not explanation.has_history:
        lines += ["", NO_HISTORY]
    return lines


def _fields(
    explanation: PartitionExplanation,
    transactions: Mapping[ProducerId, TransactionDescription],
    now_ms: int,
    paint: TextStyles,
) -> dict[str, str]:
    newest = explanation.epochs[0] if explanation.epochs else None
    leader = paint.red("none") if explanation.leader is None else f"broker {explanation.leader}"
    if newest is not None:
        leader += f", epoch {newest.epoch}{_since(newest.since_ms, now_ms)}"
    missing = [id for id in explanation.replicas if id not in explanation.isr]
    fields = {
        "leader": leader,
        "replicas": ids_text(explanation.replicas),
        "in sync": ids_text(explanation.isr) or paint.red("none"),
    }
    if missing:
        fields["in sync"] += paint.red(f", without {ids_text(missing)}")
    if (blocked := explanation.blocked) is not None:
        fields["committed"] = f"up to {blocked.high_watermark}"
        if blocked.waiting > 0:
            fields["committed"] += paint.red(f", transactions only up to {blocked.last_stable}")
        if (holder := blocked.holder) is not None:
            texts = holder_texts(holder, transactions.get(holder.producer_id), now_ms)
            fields |= {name: paint.escape(text) for name, text in texts.items()}
    return fields


def _since(at_ms: int | None, now_ms: int) -> str:
    return "" if at_ms is None else f", since {moment_text(at_ms)} ({age_text(now_ms - at_ms)} ago)"


def _row(replica: ReplicaStatus) -> list[str]:
    numbers = (replica.log_start, replica.log_end, replica.high_watermark, replica.lag)
    size = "-" if replica.size_bytes is None else size_text(replica.size_bytes)
    return [
        str(replica.id),
        *("-" if number is None else str(number) for number in numbers),
        size,
        "yes" if replica.in_sync else "no",
        replica.state,
    ]


def _epoch_row(epoch: LedEpoch) -> list[str]:
    leader = "-" if epoch.leader is None else "none" if epoch.leader == NO_LEADER else str(epoch.leader)
    start = "-" if epoch.start_offset is None else str(epoch.start_offset)
    return [str(epoch.epoch), start, leader, "-" if epoch.since_ms is None else moment_text(epoch.since_ms)]


def _event_line(event: PartitionEvent, paint: TextStyles) -> str:
    text = paint.escape(event.what)
    return f"{moment_text(event.at_ms)}  {paint.red(text) if event.is_bad else text}"


def _more(rows: Sequence[object], shown: int) -> list[str]:
    return [f"and {len(rows) - shown} older ones: --json prints all"] if len(rows) > shown else []
