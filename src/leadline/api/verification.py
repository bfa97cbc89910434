"""Before a transaction first writes to a partition, the coordinator verifies that the partition is part of it.

A partition that the coordinator does not know gets no marker: the transaction would stay open there forever. During the
verification the log keeps a `Verification`; if a marker comes before the write, the write is rejected.
transaction.partition.verification.enable=false disables the verification.
"""

from collections.abc import Awaitable, Callable, Collection, Container, Mapping
from typing import TypeAlias, TypeVar

from leadline.api.context import Context
from leadline.cluster.broker_client import PeerLost
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC
from leadline.errors import (
    ClusterAuthorizationFailed,
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotCoordinator,
    NotEnoughReplicas,
    ProducerFenced,
    TransactionAbortable,
    WireError,
    by_code,
)
from leadline.log.producer_state import TRUSTED, Verification
from leadline.model import NO_LEADER, NO_SEQUENCE, BrokerId, Buffer, TopicPartition
from leadline.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT, Header, header_at, walk
from leadline.wire.messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ProduceRequest

ABORTABLE_FROM = 11  # the first version of Produce with an error code of its own for this; TxnOffsetCommit: the next
OFFSETS_ABORTABLE_FROM = 4
REQUEST_VERSION = 5

# Producers do not retry after these errors, but they retry after NotEnoughReplicas.
_RETRIABLE = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)

Verdict = Verification | WireError | None  # None: the transaction has written there already
Verdicts = dict[TopicPartition, Verdict]
Refusals = dict[TopicPartition, WireError | None]
T = TypeVar("T")
U = TypeVar("U")
Eventually: TypeAlias = T | Awaitable[T]  # an immediate value if the coordinator is this broker


def verify_records(request: ProduceRequest, permitted: Container[str], ctx: Context) -> Eventually[Verdicts]:
    """Verifies each partition with transactional records, of topics that the client may write.

    InvalidProducerIdMapping if there are two producers.
    """
    headers = _transactional(request, permitted, ctx)
    producers = {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in headers.values()}
    if len(producers) > 1:
        raise InvalidProducerIdMapping(f"records of {len(producers)} transactional producers in one request")
    if not producers:
        return {}
    sequences = {tp: header.base_sequence for tp, header in headers.items()}
    abortable = ctx.version >= ABORTABLE_FROM

    def for_producers(verdicts: Verdicts) -> Verdicts:
        return {
            tp: _for_producers(_for_clients(verdict, abortable)) if isinstance(verdict, WireError) else verdict
            for tp, verdict in verdicts.items()
        }

    return _apply(_verify(request.transactional_id or "", producers.pop(), sequences, ctx), for_producers)


def verify_offsets(
    tp: TopicPartition, transactional_id: str, producer: ProducerIdAndEpoch, ctx: Context
) -> Eventually[Verification | None]:
    """Verifies the partition that keeps the offsets of the group. The write of the offsets needs the result."""

    def for_offsets(verdicts: Verdicts) -> Verification | None:
        verdict = verdicts[tp]
        if isinstance(verdict, NotCoordinator):
            # The client would take NotCoordinator for the group coordinator's.
            raise CoordinatorNotAvailable(f"the transaction coordinator moved: {verdict}")
        if isinstance(verdict, WireError):
            raise _for_clients(verdict, ctx.version >= OFFSETS_ABORTABLE_FROM)
        return verdict

    return _apply(_verify(transactional_id, producer, {tp: NO_SEQUENCE}, ctx), for_offsets)


def _apply(value: Eventually[T], function: Callable[[T], U]) -> Eventually[U]:
    async def later(pending: Awaitable[T]) -> U:
        return function(await pending)

    return later(value) if isinstance(value, Awaitable) else function(value)


def _verify(
    transactional_id: str, producer: ProducerIdAndEpoch, sequences: Mapping[TopicPartition, int], ctx: Context
) -> Eventually[Verdicts]:
    if not ctx.services.config.transaction_partition_verification_enable:
        return dict.fromkeys(sequences, TRUSTED)
    verdicts: Verdicts = {}
    for tp, sequence in sequences.items():
        try:
            log = ctx.services.replicas.leading(tp).log
            now_ms = ctx.services.clock.now_ms()
            verdicts[tp] = log.producer_state.begin_verification(producer.producer_id, producer.epoch, sequence, now_ms)
        except WireError as error:
            verdicts[tp] = error
    unverified = [tp for tp, verdict in verdicts.items() if isinstance(verdict, Verification)]
    if not unverified:
        return verdicts

    def with_refusals(refusals: Refusals) -> Verdicts:
        return verdicts | {tp: refusal for tp, refusal in refusals.items() if refusal is not None}

    return _apply(_verify_with_coordinator(transactional_id, producer, unverified, ctx), with_refusals)


def _verify_with_coordinator(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], ctx: Context
) -> Eventually[Refusals]:
    """If this broker is the coordinator, nothing happens between the verification and the write."""
    services = ctx.services
    tp = TopicPartition(TRANSACTIONS_TOPIC, services.transactions.partition_of(transactional_id))
    coordinator = services.metadata.leader_of(tp)
    if coordinator in (services.metadata.me.id, NO_LEADER):
        return services.transactions.verify(transactional_id, producer, partitions)
    return _verify_remotely(coordinator, transactional_id, producer, partitions, ctx)


async def _verify_remotely(
    coordinator: BrokerId,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    ctx: Context,
) -> Refusals:
    request = AddPartitionsToTxnRequest(transactions=[_transaction(transactional_id, producer, partitions)])
    try:
        timeout_s = ctx.services.config.request_timeout_ms / 1000
        response = await ctx.services.peers.ask(
            coordinator, request, AddPartitionsToTxnResponse, REQUEST_VERSION, timeout_s
        )
    except PeerLost as error:
        return dict.fromkeys(partitions, CoordinatorNotAvailable(f"broker {coordinator}: {error}"))
    refusals: Refusals = dict.fromkeys(partitions, _unverified(coordinator, response.error_code))
    for txn in response.results_by_transaction:
        for topic in txn.topic_results:
            for partition in topic.results_by_partition:
                tp, code = TopicPartition(topic.name, partition.partition_index), partition.partition_error_code
                refusals[tp] = (
                    by_code(code, f"error {code} from the coordinator of {transactional_id}") if code else None
                )
    return refusals


def _unverified(coordinator: BrokerId, code: int) -> WireError:
    """As in Kafka, a client never learns that this broker itself lacks the right to ask."""
    message = f"broker {coordinator} did not verify it (error {code})"
    is_refused = code == ClusterAuthorizationFailed.code
    return InvalidTxnState(message) if is_refused else CoordinatorNotAvailable(message)


def _transaction(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
) -> AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
    for tp in partitions:
        topic = topics.setdefault(tp.topic, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=tp.topic))
        topic.partitions.append(tp.partition)
    return AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=True,
        topics=list(topics.values()),
    )


def _transactional(request: ProduceRequest, permitted: Container[str], ctx: Context) -> dict[TopicPartition, Header]:
    """Partitions that are not hosted here are rejected later."""
    headers = {}
    for topic in request.topic_data:
        if topic.name not in permitted:
            continue
        for data in topic.partition_data:
            tp, header = TopicPartition(topic.name, data.index), _header(data.records)
            if header is not None and header.is_transactional and header.has_producer_id:
                headers[tp] = header
    return {tp: header for tp, header in headers.items() if tp in ctx.services.replicas.hosted}


def _header(records: object) -> Header | None:
    """None unless the records are exactly one batch: others are rejected without a verification."""
    if not isinstance(records, Buffer) or len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return None
    header = header_at(records)
    if not HEADER_BYTES <= header.size <= len(records):
        return None
    try:
        return header if next(walk(records, header.size), None) is None else None
    except WireError:  # the bytes after the batch are not a batch
        return None


def _for_clients(error: WireError, abortable: bool) -> WireError:
    """Translates an error of the coordinator into one that the client knows."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, TransactionAbortable) and not abortable:
        return InvalidTxnState(str(error))
    return error


def _for_producers(error: WireError) -> WireError:
    if isinstance(error, _RETRIABLE):
        return NotEnoughReplicas(f"the partition is not verified as part of the transaction yet: {error}")
    return error
