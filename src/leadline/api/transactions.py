"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, WriteTxnMarkers, DescribeTransactions, ListTransactions.

ProducerFenced exists from version 2 of the requests on, 4 of InitProducerId. Older producers get InvalidProducerEpoch.
"""

from collections.abc import Collection, Container, Iterable

from leadline.api.context import ALL_NAMES, Context
from leadline.cluster.metadata_cache import MetadataCache
from leadline.controller.topics import INTERNAL
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.marker_writer import TransactionOutcome
from leadline.coordinator.transaction import ProducerIdAndEpoch, TransactionalId, TransactionState
from leadline.errors import (
    CoordinatorLoadInProgress,
    InvalidProducerEpoch,
    InvalidRequest,
    OperationNotAttempted,
    ProducerFenced,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NONE, TopicPartition
from leadline.wire.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

FENCED_FROM, INIT_FENCED_FROM = 2, 4
BROKERS_ONLY_FROM = 4  # AddPartitionsToTxn: many transactions, and to verify only
ANY_DURATION = -1

_Txn = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topics = list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
_Added = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_AddedPartition = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
_Marked = WriteTxnMarkersResponse.WritableTxnMarkerTopicResult
_MarkedPartition = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult
_Described = DescribeTransactionsResponse.TransactionState


async def init_producer_id(request: InitProducerIdRequest, ctx: Context) -> InitProducerIdResponse:
    """InitProducerId, v0-5.  v3 the current id and epoch of the producer, both or none · v4 ProducerFenced."""
    try:
        producer = await _init(request, ctx)
    except WireError as error:
        return InitProducerIdResponse(
            error_code=_code(error, ctx.version, INIT_FENCED_FROM), producer_epoch=NO_PRODUCER_EPOCH
        )
    return InitProducerIdResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch)


async def _init(request: InitProducerIdRequest, ctx: Context) -> ProducerIdAndEpoch:
    part = "no transactional id" if request.transactional_id is None else "transactional id"
    if (refusal := ctx.refused(part, request.transactional_id or "")) is not None:
        raise refusal
    has_id, has_epoch = request.producer_id != NO_PRODUCER_ID, request.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        raise InvalidRequest("producer id and producer epoch must both be set, or neither")
    if request.transactional_id is None:
        return ProducerIdAndEpoch(await ctx.services.cluster.next_producer_id(), 0)
    expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if has_id else None
    return await ctx.services.transactions.init(request.transactional_id, request.transaction_timeout_ms, expected)


async def add_partitions_to_txn(request: AddPartitionsToTxnRequest, ctx: Context) -> AddPartitionsToTxnResponse:
    """AddPartitionsToTxn, v0-5.  v2 ProducerFenced · v4 brokers only: many transactions, and to verify only.

    All partitions are added, or none.
    """
    if ctx.version < BROKERS_ONLY_FROM:
        if (refusal := ctx.refused("transactional id", request.v3_and_below_transactional_id)) is not None:
            results = _same_code(request.v3_and_below_topics, refusal.code)
        else:
            results = await _add(_single(request), ctx)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if (refusal := ctx.refused("transactions")) is not None:
        return AddPartitionsToTxnResponse(error_code=refusal.code)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResponse.AddPartitionsToTxnResult(
                transactional_id=txn.transactional_id, topic_results=await _add(txn, ctx)
            )
            for txn in request.transactions
        ]
    )


def _single(request: AddPartitionsToTxnRequest) -> _Txn:
    return _Txn(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def _add(txn: _Txn, ctx: Context) -> list[_Added]:
    partitions = [TopicPartition(topic.name, number) for topic in txn.topics for number in topic.partitions]
    permitted = _writable(partitions, ctx) if ctx.version < BROKERS_ONLY_FROM else ALL_NAMES
    metadata = ctx.services.metadata
    refused = {tp: error for tp in partitions if (error := _refusal(tp, permitted, metadata)) is not None}
    if refused:
        return _per_partition({tp: refused.get(tp, OperationNotAttempted.code) for tp in partitions})
    transactions, producer = ctx.services.transactions, ProducerIdAndEpoch(txn.producer_id, txn.producer_epoch)
    if txn.verify_only:
        verdicts = transactions.verify(txn.transactional_id, producer, partitions)
        return _per_partition({tp: NONE if error is None else error.code for tp, error in verdicts.items()})
    try:
        await transactions.add_partitions(txn.transactional_id, producer, partitions)
    except WireError as error:
        return _same_code(txn.topics, _code(error, ctx.version, FENCED_FROM))
    return _same_code(txn.topics, NONE)


def _writable(partitions: Iterable[TopicPartition], ctx: Context) -> Container[str]:
    """Internal topics are never authorized."""
    names = [tp.topic for tp in partitions if tp.topic not in INTERNAL]
    permitted = ctx.permitted("topics", names)
    return {name for name in names if name in permitted}


def _refusal(tp: TopicPartition, permitted: Container[str], metadata: MetadataCache) -> int | None:
    if tp.topic not in permitted:
        return TopicAuthorizationFailed.code
    return None if metadata.has_partition(tp) else UnknownTopicOrPartition.code


def _per_partition(codes: dict[TopicPartition, int]) -> list[_Added]:
    topics: dict[str, _Added] = {}
    for tp, code in codes.items():
        topic = topics.setdefault(tp.topic, _Added(name=tp.topic))
        topic.results_by_partition.append(_AddedPartition(partition_index=tp.partition, partition_error_code=code))
    return list(topics.values())


def _same_code(topics: _Topics, code: int) -> list[_Added]:
    """Keeps the order of the request."""
    return [
        _Added(
            name=topic.name,
            results_by_partition=[
                _AddedPartition(partition_index=number, partition_error_code=code) for number in topic.partitions
            ],
        )
        for topic in topics
    ]


async def add_offsets_to_txn(request: AddOffsetsToTxnRequest, ctx: Context) -> AddOffsetsToTxnResponse:
    """AddOffsetsToTxn, v0-4.  v2 ProducerFenced. Adds the partition that keeps the group's offsets."""
    refusal = ctx.refused("transactional id", request.transactional_id) or ctx.refused("group", request.group_id)
    if refusal is not None:
        return AddOffsetsToTxnResponse(error_code=refusal.code)
    tp = TopicPartition(OFFSETS_TOPIC, ctx.services.groups.partition_of(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        await ctx.services.transactions.add_partitions(request.transactional_id, producer, {tp})
    except WireError as error:
        return AddOffsetsToTxnResponse(error_code=_code(error, ctx.version, FENCED_FROM))
    return AddOffsetsToTxnResponse()


async def end_txn(request: EndTxnRequest, ctx: Context) -> EndTxnResponse:
    """EndTxn, v0-4.  v2 ProducerFenced. The response waits until the outcome is written; the markers follow."""
    if (refusal := ctx.refused("transactional id", request.transactional_id)) is not None:
        return EndTxnResponse(error_code=refusal.code)
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        await ctx.services.transactions.end(request.transactional_id, producer, commit=request.committed)
    except WireError as error:
        return EndTxnResponse(error_code=_code(error, ctx.version, FENCED_FROM))
    return EndTxnResponse()


def _code(error: WireError, version: int, fenced_from: int) -> int:
    if isinstance(error, ProducerFenced) and version < fenced_from:
        return InvalidProducerEpoch.code
    return error.code


async def write_txn_markers(request: WriteTxnMarkersRequest, ctx: Context) -> WriteTxnMarkersResponse:
    """WriteTxnMarkers, v0-1: from a coordinator, or from an administrator who ends a hanging transaction."""
    codes: dict[int, dict[TopicPartition, int]] = {}
    refusal = ctx.refused("cluster")
    if refusal is not None:
        ctx.note_no_broker()
    for marker in request.markers:
        producer = ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch)
        outcome = TransactionOutcome(producer, marker.coordinator_epoch, marker.transaction_result)
        partitions = [
            TopicPartition(topic.name, number) for topic in marker.topics for number in topic.partition_indexes
        ]
        if refusal is not None:
            codes[marker.producer_id] = dict.fromkeys(partitions, refusal.code)
            continue
        for tp, error in (await ctx.services.markers.write(outcome, dict.fromkeys(partitions))).items():
            codes.setdefault(marker.producer_id, {})[tp] = NONE if error is None else error.code
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id=producer_id, topics=_marked(by_partition))
            for producer_id, by_partition in codes.items()
        ]
    )


def _marked(codes: dict[TopicPartition, int]) -> list[_Marked]:
    topics: dict[str, _Marked] = {}
    for tp, code in codes.items():
        topic = topics.setdefault(tp.topic, _Marked(name=tp.topic))
        topic.partitions.append(_MarkedPartition(partition_index=tp.partition, error_code=code))
    return list(topics.values())


def describe_transactions(request: DescribeTransactionsRequest, ctx: Context) -> DescribeTransactionsResponse:
    """DescribeTransactions, v0. Topics that the client may not describe are left out."""
    states = [_describe(name, ctx) for name in request.transactional_ids]
    return DescribeTransactionsResponse(transaction_states=states)


def _describe(name: str, ctx: Context) -> _Described:
    try:
        if (refusal := ctx.refused("transactional ids", name)) is not None:
            raise refusal
        txn = ctx.services.transactions.describe(name)
    except WireError as error:
        return _Described(transactional_id=name, error_code=error.code)
    return _Described(
        transactional_id=name,
        transaction_state=txn.state.label,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.producer_epoch,
        topics=_by_topic(tp for tp in txn.partitions if ctx.permits("topics", tp.topic)),
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[DescribeTransactionsResponse.TopicData]:
    topics: dict[str, DescribeTransactionsResponse.TopicData] = {}
    for tp in sorted(partitions):
        topic = topics.setdefault(tp.topic, DescribeTransactionsResponse.TopicData(topic=tp.topic))
        topic.partitions.append(tp.partition)
    return list(topics.values())


def list_transactions(request: ListTransactionsRequest, ctx: Context) -> ListTransactionsResponse:
    """ListTransactions, v0-1.  v1 minimum duration. Filters by state and producer id; no filter: all.

    Transactional ids that the client may not describe are left out.
    """
    if ctx.services.transactions.is_loading:
        return ListTransactionsResponse(error_code=CoordinatorLoadInProgress.code)
    labels = dict.fromkeys(request.state_filters)
    states = {state for state in TransactionState if state.label in labels}
    valid = {state.label for state in states}
    oldest_ms = ctx.services.clock.now_ms() - request.duration_filter
    return ListTransactionsResponse(
        unknown_state_filters=[name for name in labels if name not in valid],
        transaction_states=[
            ListTransactionsResponse.TransactionState(
                transactional_id=txn.name,
                producer_id=txn.metadata.producer_id,
                transaction_state=txn.metadata.state.label,
            )
            for txn in ctx.services.transactions.all()
            if (not labels or txn.metadata.state in states)
            and _has_producer_id(txn, request.producer_id_filters)
            and (request.duration_filter <= ANY_DURATION or txn.metadata.start_ms < oldest_ms)
            and ctx.permits("transactional ids", txn.name)
        ],
    )


def _has_producer_id(txn: TransactionalId, producer_ids: Collection[int]) -> bool:
    return not producer_ids or txn.metadata.producer_id in producer_ids
