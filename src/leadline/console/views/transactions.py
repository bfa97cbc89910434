"""Transactions, and what they block."""

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from leadline.admin.formatting import age_text
from leadline.admin.kafka_python.transactions import abort_transaction, describe_transaction, list_transactions
from leadline.admin.leaders import partitions_with_leader
from leadline.admin.open_transactions import BlockedPartition, TransactionDescription, hangs
from leadline.admin.session import ClusterSession
from leadline.admin.transaction_text import UNDER_WAY, holder_texts
from leadline.admin.transactions import blocked_partitions, open_transactions
from leadline.console.page import BadRequest, Console, Form, now_ms, number
from leadline.model import TopicPartition

MOST_DESCRIBED = 200  # transactions whose coordinator is asked for more
MOST_PARTITIONS = 5000  # whose leaders are asked for open transactions


class BlockedView(NamedTuple):
    blocked: BlockedPartition
    texts: dict[str, str]  # about the transaction that holds the last stable offset
    may_be_aborted: bool  # it hangs: no coordinator will end it


def transaction_list(console: Console, request: Request) -> Response:
    with console.pool.session() as session:
        listings = list_transactions(session.client)
        under_way = [listing for listing in listings if listing.state in UNDER_WAY][:MOST_DESCRIBED]
        described = {
            listing.transactional_id: transaction
            for listing in under_way
            if (transaction := describe_transaction(session.client, listing.transactional_id)) is not None
        }
        partitions = _led_partitions(session)
        opened, _ = open_transactions(session.client, partitions) if len(partitions) <= MOST_PARTITIONS else ([], {})
        tps = sorted({transaction.tp for transaction in opened})
        blocked, producers = (
            blocked_partitions(session.connection, session.admin, session.client, tps) if tps else ([], {})
        )
    at_ms = now_ms()
    return console.page(
        request,
        "transactions.html",
        "Transactions",
        listings=listings,
        described=described,
        ages={name: _age(transaction, at_ms) for name, transaction in described.items()},
        blocked=[_view(item, producers, at_ms) for item in blocked if item.waiting > 0],
        unchecked=len(partitions) > MOST_PARTITIONS,
    )


def _led_partitions(session: ClusterSession) -> list[TopicPartition]:
    topics = session.connection.metadata(session.admin).topics
    partitions = [TopicPartition(name, id) for name, topic in topics.items() for id in topic.partitions]
    return partitions_with_leader(session.connection, session.admin, partitions)


def _age(transaction: TransactionDescription, at_ms: int) -> str:
    return "–" if transaction.started_ms is None else age_text(at_ms - transaction.started_ms)


def _view(blocked: BlockedPartition, producers: dict[int, TransactionDescription], at_ms: int) -> BlockedView:
    holder = blocked.holder
    if holder is None:
        return BlockedView(blocked, {"held by": "no open transaction; its marker is being replicated"}, False)
    transaction = producers.get(holder.producer_id)
    return BlockedView(blocked, holder_texts(holder, transaction, at_ms), hangs(holder, transaction))


def abort(console: Console, request: Request, form: Form) -> Response:
    """Write an abort marker, if the transaction hangs."""
    tp = TopicPartition(form.get("topic", ""), number(form.get("partition", ""), "The partition"))
    start = number(form.get("start_offset", ""), "The start offset")
    with console.pool.session() as session:
        if not partitions_with_leader(session.connection, session.admin, [tp]):
            raise BadRequest(f"{tp}: no such partition, or it has no leader that answers")
        opened, producers = open_transactions(session.client, [tp])
        chosen = next((transaction for transaction in opened if transaction.start_offset == start), None)
        if chosen is None:
            raise BadRequest(f"no open transaction of {tp} starts at {start}: it may have ended")
        transaction = producers.get(chosen.producer_id)
        if not hangs(chosen, transaction):
            raise BadRequest(
                f"it does not hang: its coordinator will end it. An abort in {tp} alone would split the transaction"
            )
        abort_transaction(session.client, tp, chosen.producer_id, chosen.epoch, chosen.marker_epoch)
    return console.done("/transactions", f"Aborted the transaction of {tp} that started at {start}.")
