"""Open transactions of partitions, with what their coordinators know of them."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.kafka_python.admin import KafkaPythonAdmin
from leadline.admin.kafka_python.transactions import describe_producers, describe_transaction, list_transactions
from leadline.admin.offsets import stable_and_end_offsets
from leadline.admin.open_transactions import BlockedPartition, OpenTransaction, TransactionDescription
from leadline.model import ProducerId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TransactionsByProducer = dict[ProducerId, TransactionDescription]


def open_transactions(
    client: KafkaPythonAdmin, partitions: Sequence[TopicPartition]
) -> tuple[list[OpenTransaction], TransactionsByProducer]:
    """The open transactions of partitions, and what coordinators know of their producers.

    Leaders are asked before and after the coordinators. A transaction that ends in between is left out, so it is never
    taken for a hanging one: a coordinator forgets a partition only after the leader has its marker.
    """
    before = describe_producers(client, partitions)
    if not before:
        return [], {}
    described = transactions_of(client, {transaction.producer_id for transaction in before})
    after = {
        transaction.key
        for transaction in describe_producers(client, sorted({transaction.tp for transaction in before}))
    }
    return [transaction for transaction in before if transaction.key in after], described


def transactions_of(client: KafkaPythonAdmin, producers: Collection[ProducerId]) -> TransactionsByProducer:
    names = [listing.transactional_id for listing in list_transactions(client, producer_ids=producers)]
    described = [transaction for name in names if (transaction := describe_transaction(client, name)) is not None]
    return {transaction.producer_id: transaction for transaction in described}


def blocked_partitions(
    connection: ClusterConnection, admin: "AdminClient", client: KafkaPythonAdmin, partitions: Sequence[TopicPartition]
) -> tuple[list[BlockedPartition], TransactionsByProducer]:
    """What read_committed consumers of partitions wait for, and what coordinators know of the producers."""
    stable, ends = stable_and_end_offsets(connection, admin, partitions)
    opened, transactions = open_transactions(client, partitions)
    blocked = [
        BlockedPartition(tp, stable[tp], ends[tp], tuple(transaction for transaction in opened if transaction.tp == tp))
        for tp in partitions
    ]
    return blocked, transactions
