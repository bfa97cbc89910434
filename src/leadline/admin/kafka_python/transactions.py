"""Requests about transactions and their producers."""
# mypy: disable-error-code="import-untyped"

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from leadline.admin.kafka_python.admin import KafkaPythonAdmin
from leadline.admin.open_transactions import OpenTransaction, TransactionDescription
from leadline.model import TopicPartition

MAX_REQUEST_PARTITIONS = 500


COORDINATOR_TYPE = 1  # of transactions


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


def list_transactions(
    admin: KafkaPythonAdmin,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    longer_than_ms: int | None = None,
) -> list[TransactionListing]:
    """The transactions of all coordinators. Empty filters match everything."""
    answers = admin.request_each(
        "transactions",
        lambda broker: admin.client.list_transactions(
            broker_ids=[broker],
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter_ms=longer_than_ms,
        ),
        admin.answering,
    )
    transactions = [
        TransactionListing(listing.transactional_id, broker, listing.producer_id, listing.state.value)
        for answer in answers.values()
        for broker, listings in answer.items()
        for listing in listings
    ]
    return sorted(transactions, key=lambda listing: listing.transactional_id)


def describe_transaction(admin: KafkaPythonAdmin, transactional_id: str) -> TransactionDescription | None:
    """The description by the coordinator; None if it does not know the id."""
    from kafka.errors import TransactionalIdNotFoundError

    def ask() -> TransactionDescription | None:
        try:
            answer = admin.client.describe_transactions([transactional_id])[transactional_id]
        except TransactionalIdNotFoundError:
            return None
        return TransactionDescription(
            transactional_id=transactional_id,
            coordinator=answer.coordinator_id,
            state=answer.state.value,
            producer_id=answer.producer_id,
            epoch=answer.producer_epoch,
            timeout_ms=answer.transaction_timeout_ms,
            started_ms=answer.transaction_start_time_ms if answer.transaction_start_time_ms >= 0 else None,
            partitions=frozenset(TopicPartition(tp.topic, tp.partition) for tp in answer.topic_partitions),
        )

    what = f"transactional id {transactional_id}"
    coordinator = admin.coordinator(what, transactional_id, COORDINATOR_TYPE)
    return admin.request(what, ask, coordinator)


def describe_producers(admin: KafkaPythonAdmin, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
    """The open transactions of these partitions, as their leaders report them."""
    transactions: list[OpenTransaction] = []
    for n in range(0, len(partitions), MAX_REQUEST_PARTITIONS):
        transactions += _describe_producers(admin, partitions[n : n + MAX_REQUEST_PARTITIONS])
    return sorted(transactions, key=lambda transaction: (transaction.tp, transaction.start_offset))


def _describe_producers(admin: KafkaPythonAdmin, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
    from kafka import TopicPartition as Theirs

    requested = [Theirs(*tp) for tp in partitions]
    answers = admin.request("producers", lambda: admin.client.describe_producers(requested))
    return [
        OpenTransaction(
            tp=TopicPartition(theirs.topic, theirs.partition),
            producer_id=producer.producer_id,
            epoch=producer.producer_epoch,
            coordinator_epoch=producer.coordinator_epoch,
            start_offset=producer.current_transaction_start_offset,
            last_ms=producer.last_timestamp,
        )
        for theirs, state in answers.items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0
    ]


def abort_transaction(
    admin: KafkaPythonAdmin, tp: TopicPartition, producer_id: int, epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker into a partition."""
    from kafka import TopicPartition as Theirs
    from kafka.admin import AbortTransactionSpec

    marker = AbortTransactionSpec(Theirs(*tp), producer_id, epoch, coordinator_epoch)
    admin.request(f"{tp}", lambda: admin.client.abort_transaction(marker))
