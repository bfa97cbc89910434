"""Before a transaction writes to a partition for the first time, its coordinator is asked whether it knows of it.

A partition that the coordinator does not know of gets no marker: what was written there would be open forever. While
the coordinator is asked, the log keeps a `Verification`; if a marker comes before the write, the write is refused.
transaction.partition.verification.enable=false asks nobody.
"""

from collections.abc import Collection, Mapping

from leadline.api.context import Context
from leadline.coordinator.transaction import Identity
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
)
from leadline.log.producers import TRUSTED, Verification
from leadline.model import NO_SEQUENCE, TopicPartition
from leadline.ports import Buffer
from leadline.records.batch import HEADER_BYTES, MAGIC, MAGIC_AT, Header, header_at, walk
from leadline.wire.messages import ProduceRequest

ABORTABLE_FROM = 11  # Produce has an error of its own for it from this version on; TxnOffsetCommit from the next
OFFSETS_ABORTABLE_FROM = 4

# Older producers do not try again when they are told these, but do when replicas are missing.
_TRY_AGAIN = (ConcurrentTransactions, CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator)

Verdict = Verification | WireError | None  # None: the transaction has written there already


def verify_records(request: ProduceRequest, ctx: Context) -> dict[TopicPartition, Verdict]:
    """For each partition that transactional records are for. InvalidProducerIdMapping if they are of two producers."""
    found = _transactional(request, ctx)
    producers = {Identity(header.producer_id, header.producer_epoch) for header in found.values()}
    if len(producers) > 1:
        raise InvalidProducerIdMapping(f"records of {len(producers)} transactional producers in one request")
    if not producers:
        return {}
    sequences = {tp: header.base_sequence for tp, header in found.items()}
    verdicts = _verify(request.transactional_id or "", producers.pop(), sequences, ctx)
    abortable = ctx.version >= ABORTABLE_FROM
    return {
        tp: _for_producers(_known_to_clients(verdict, abortable)) if isinstance(verdict, WireError) else verdict
        for tp, verdict in verdicts.items()
    }


def verify_offsets(tp: TopicPartition, transactional_id: str, producer: Identity, ctx: Context) -> Verification | None:
    """For the partition that keeps the offsets which a transaction commits: to be handed in when they are written."""
    verdict = _verify(transactional_id, producer, {tp: NO_SEQUENCE}, ctx)[tp]
    if isinstance(verdict, WireError):
        raise _known_to_clients(verdict, ctx.version >= OFFSETS_ABORTABLE_FROM)
    return verdict


def _verify(
    transactional_id: str, producer: Identity, sequences: Mapping[TopicPartition, int], ctx: Context
) -> dict[TopicPartition, Verdict]:
    if not ctx.services.config.transaction_partition_verification_enable:
        return dict.fromkeys(sequences, TRUSTED)
    verdicts: dict[TopicPartition, Verdict] = {}
    for tp, sequence in sequences.items():
        try:
            log = ctx.services.replicas.leading(tp).log
            now_ms = ctx.services.clock.now_ms()
            verdicts[tp] = log.producers.begin_verification(producer.producer_id, producer.epoch, sequence, now_ms)
        except WireError as error:
            verdicts[tp] = error
    unknown = [tp for tp, verdict in verdicts.items() if isinstance(verdict, Verification)]
    if not unknown:
        return verdicts
    answers = _ask(transactional_id, producer, unknown, ctx)
    return verdicts | {tp: refused for tp, refused in answers.items() if refused is not None}


def _ask(
    transactional_id: str, producer: Identity, partitions: Collection[TopicPartition], ctx: Context
) -> dict[TopicPartition, WireError | None]:
    """The coordinator. On a single node it is at hand, so that nothing happens between its answer and the write."""
    return ctx.services.transactions.verify(transactional_id, producer, partitions)


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
