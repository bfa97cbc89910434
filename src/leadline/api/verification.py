"""Before a transaction writes to a partition for the first time, its coordinator is asked whether it knows of it.

A partition that the coordinator does not know of gets no marker: what was written there would be open forever. While
the coordinator is asked, the log keeps a `Verification`; if a marker comes before the write, the write is refused.
transaction.partition.verification.enable=false asks nobody.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeAlias, TypeVar

from leadline.api.context import Context
from leadline.cluster.broker_client import PeerLost
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC
from leadline.errors import (
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

ABORTABLE_FROM = 11  # Produce has an error of its own for it from this version on; TxnOffsetCommit from the next
OFFSETS_ABORTABLE_FROM = 4
ASK_VERSION = 5

# Older producers do not try again when they are told these, but do when replicas are missing.
_TRY_AGAIN = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)

Verdict = Verification | WireError | None  # None: the transaction has written there already
Verdicts = dict[TopicPartition, Verdict]
Refusals = dict[TopicPartition, WireError | None]
T = TypeVar("T")
U = TypeVar("U")
Later: TypeAlias = T | Awaitable[T]  # at once, if the coordinator is this broker


def verify_records(request: ProduceRequest, ctx: Context) -> Later[Verdicts]:
    """For each partition that transactional records are for. InvalidProducerIdMapping if they are of two producers."""
    found = _transactional(request, ctx)
    producers = {ProducerIdAndEpoch(header.producer_id, header.producer_epoch) for header in found.values()}
    if len(producers) > 1:
        raise InvalidProducerIdMapping(f"records of {len(producers)} transactional producers in one request")
    if not producers:
        return {}
    sequences = {tp: header.base_sequence for tp, header in found.items()}
    abortable = ctx.version >= ABORTABLE_FROM

    def for_producers(verdicts: Verdicts) -> Verdicts:
        return {
            tp: _for_producers(_known_to_clients(verdict, abortable)) if isinstance(verdict, WireError) else verdict
            for tp, verdict in verdicts.items()
        }

    return _then(_verify(request.transactional_id or "", producers.pop(), sequences, ctx), for_producers)


def verify_offsets(
    tp: TopicPartition, transactional_id: str, producer: ProducerIdAndEpoch, ctx: Context
) -> Later[Verification | None]:
    """For the partition that keeps the offsets which a transaction commits: to be handed in when they are written."""

    def for_offsets(verdicts: Verdicts) -> Verification | None:
        verdict = verdicts[tp]
        if isinstance(verdict, NotCoordinator):
            raise CoordinatorNotAvailable(f"the transaction's: {verdict}")  # the group's is this one
        if isinstance(verdict, WireError):
            raise _known_to_clients(verdict, ctx.version >= OFFSETS_ABORTABLE_FROM)
        return verdict

    return _then(_verify(transactional_id, producer, {tp: NO_SEQUENCE}, ctx), for_offsets)


def _then(found: Later[T], go_on: Callable[[T], U]) -> Later[U]:
    async def later(waited_for: Awaitable[T]) -> U:
        return go_on(await waited_for)

    return later(found) if isinstance(found, Awaitable) else go_on(found)


def _verify(
    transactional_id: str, producer: ProducerIdAndEpoch, sequences: Mapping[TopicPartition, int], ctx: Context
) -> Later[Verdicts]:
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
    unknown = [tp for tp, verdict in verdicts.items() if isinstance(verdict, Verification)]
    if not unknown:
        return verdicts

    def with_refusals(answers: Refusals) -> Verdicts:
        return verdicts | {tp: refused for tp, refused in answers.items() if refused is not None}

    return _then(_ask(transactional_id, producer, unknown, ctx), with_refusals)


def _ask(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], ctx: Context
) -> Later[Refusals]:
    """The coordinator, wherever it is. If it is this broker, nothing happens between its answer and the write."""
    services = ctx.services
    journal = TopicPartition(TRANSACTIONS_TOPIC, services.transactions.partition_of(transactional_id))
    coordinator = services.metadata.leader_of(journal)
    if coordinator in (services.metadata.me.id, NO_LEADER):
        return services.transactions.verify(transactional_id, producer, partitions)
    return _ask_another(coordinator, transactional_id, producer, partitions, ctx)


async def _ask_another(
    coordinator: BrokerId,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Collection[TopicPartition],
    ctx: Context,
) -> Refusals:
    request = AddPartitionsToTxnRequest(transactions=[_question(transactional_id, producer, partitions)])
    try:
        timeout_s = ctx.services.config.request_timeout_ms / 1000
        answer = await ctx.services.peers.ask(coordinator, request, AddPartitionsToTxnResponse, ASK_VERSION, timeout_s)
    except PeerLost as error:
        return dict.fromkeys(partitions, CoordinatorNotAvailable(f"broker {coordinator}: {error}"))
    silent = CoordinatorNotAvailable(f"broker {coordinator} said nothing of it (error {answer.error_code})")
    refusals: Refusals = dict.fromkeys(partitions, silent)
    for txn in answer.results_by_transaction:
        for topic in txn.topic_results:
            for each in topic.results_by_partition:
                tp, code = TopicPartition(topic.name, each.partition_index), each.partition_error_code
                refusals[tp] = (
                    by_code(code, f"error {code} from the coordinator of {transactional_id}") if code else None
                )
    return refusals


def _question(
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


def _transactional(request: ProduceRequest, ctx: Context) -> dict[TopicPartition, Header]:
    """For partitions that are here: the others are refused anyway."""
    found = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            tp, header = TopicPartition(topic.name, data.index), _header(data.records)
            if header is not None and header.is_transactional and header.has_producer_id:
                found[tp] = header
    return {tp: header for tp, header in found.items() if tp in ctx.services.replicas.hosted}


def _header(records: object) -> Header | None:
    """Of one batch. What is not just that is refused before anybody is asked about it."""
    if not isinstance(records, Buffer) or len(records) < HEADER_BYTES or records[MAGIC_AT] != MAGIC:
        return None
    header = header_at(records)
    if not HEADER_BYTES <= header.size <= len(records):
        return None
    try:
        return header if next(walk(records, header.size), None) is None else None
    except WireError:  # no batch lies behind it, and nothing else should
        return None


def _known_to_clients(error: WireError, abortable: bool) -> WireError:
    """What the coordinator said, in an error that the client knows."""
    if isinstance(error, ProducerFenced):
        return InvalidProducerEpoch(str(error))
    if isinstance(error, TransactionAbortable) and not abortable:
        return InvalidTxnState(str(error))
    return error


def _for_producers(error: WireError) -> WireError:
    if isinstance(error, _TRY_AGAIN):
        return NotEnoughReplicas(f"whether the partition is part of the transaction is not known yet: {error}")
    return error
