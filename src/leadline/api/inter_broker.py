"""Requests between the controller and the brokers: LeaderAndIsr, StopReplica and UpdateMetadata from the controller;
ControlledShutdown, AlterPartition and AllocateProducerIds to it.

A request of an older controller, or one for an earlier run of this broker, is rejected.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

from leadline.api.authorization import OWN_REQUEST
from leadline.api.context import ClientConnection, Context, Services
from leadline.coordination.tree import SessionExpired
from leadline.errors import (
    ClusterAuthorizationFailed,
    FencedLeaderEpoch,
    InconsistentTopicId,
    IneligibleReplica,
    LogDirFailed,
    OperationNotAttempted,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    StorageError,
    UnknownTopicId,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.model import DURING_DELETE, NO_EPOCH, NO_ID, NONE, BrokerId, TopicId, TopicPartition
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal
from leadline.replication.replicas import Replicas
from leadline.runtime.turns import over_turns
from leadline.wire.classes import Message
from leadline.wire.messages import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ApiVersionsRequest,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

BY_TOPIC_FROM, IDS_FROM = 2, 5  # LeaderAndIsr
EPOCHS_FROM, DELETES_FROM = 3, 3  # StopReplica has leader epochs, and a deletion flag for each partition
IDS_TO_ALTER_FROM, STATES_FROM = 2, 3  # AlterPartition

M = TypeVar("M", bound=Message)
log = logging.getLogger(__name__)

Q = TypeVar("Q", bound=Message)
E = TypeVar("E", bound="ErrorResponse")
_State = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_PartitionError = LeaderAndIsrResponse.LeaderAndIsrPartitionError
_StoppedPartition = StopReplicaResponse.StopReplicaPartitionError
_AlteredPartition = AlterPartitionResponse.PartitionData


class ErrorResponse(Protocol):
    """A response with an error code for the whole request."""

    error_code: int


def among_brokers(
    handler: Callable[[Q, Context], E | Awaitable[E]], refusal: Callable[[Q, int], E]
) -> Callable[[Q, Context], E | Awaitable[E]]:
    """Wraps a handler of requests from other brokers, for which ClusterAction is needed.

    A single node has no other brokers, and rejects them. This broker's own requests do not come this way.
    """

    def serve(request: Q, ctx: Context) -> E | Awaitable[E]:
        if ctx.permits("cluster") and not ctx.services.is_alone:
            return handler(request, ctx)
        ctx.note_no_broker()
        response = refusal(request, ctx.version)
        response.error_code = ClusterAuthorizationFailed.code
        return response

    return serve


def refused_with(kind: type[E]) -> Callable[[Message, int], E]:
    """A response that has nothing but the error."""
    return lambda request, version: kind()


def refused_leader_and_isr(request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse:
    return _failed_leader_and_isr(request, version, ClusterAuthorizationFailed.code)


def _failed_leader_and_isr(request: LeaderAndIsrRequest, version: int, code: int) -> LeaderAndIsrResponse:
    """Each partition carries the error as well."""
    response = LeaderAndIsrResponse(error_code=code)
    for topic in request.topic_states:
        name = topic.topic_name if version < IDS_FROM else ""
        errors = [
            _PartitionError(topic_name=name, partition_index=state.partition_index, error_code=code)
            for state in topic.partition_states
        ]
        if version < IDS_FROM:
            response.partition_errors += errors
        else:
            response.topics.append(
                LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
    response.partition_errors += [
        _PartitionError(topic_name=state.topic_name, partition_index=state.partition_index, error_code=code)
        for state in request.ungrouped_partition_states
    ]
    return response


async def leader_and_isr(request: LeaderAndIsrRequest, ctx: Context) -> LeaderAndIsrResponse:
    """LeaderAndIsr, v0-7.  v2 by topic, broker epoch · v3 reassignments · v5 topic ids · v6 recovery."""
    services = ctx.services
    try:
        services.metadata.check(request.controller_epoch, request.broker_epoch)
    except WireError as error:
        return _failed_leader_and_isr(request, ctx.version, error.code)
    topics = [(topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states]
    if ctx.version < BY_TOPIC_FROM:
        topics = [(state.topic_name, NO_ID, [state]) for state in request.ungrouped_partition_states]
    try:
        await services.configs.of_topics(list({name for name, _, _ in topics}))
    except SessionExpired:  # with the next session this broker has another epoch, and is sent everything again
        return _failed_leader_and_isr(request, ctx.version, StaleBrokerEpoch.code)
    placed = [(n, state) for n, (_, _, states) in enumerate(topics) for state in states]
    missing: dict[TopicPartition, TopicId | None] = {}
    async for n, state in over_turns(placed):
        name, topic_id, _ = topics[n]
        if _must_be_created(tp := TopicPartition(name, state.partition_index), state, services):
            missing[tp] = None if topic_id == NO_ID else topic_id
    with suppress(LogDirFailed, StorageError):  # each partition gets its error below
        await services.dirs.create_all(missing)
    if services.dirs.uncreated:
        services.cluster.retry_creation_later()
    errors: list[list[_PartitionError]] = [[] for _ in topics]
    async for n, state in over_turns(placed):
        name, topic_id, _ = topics[n]
        tp = TopicPartition(name, state.partition_index)
        code = await _become_leader_or_follower(tp, topic_id, state, services)
        errors[n].append(_PartitionError(topic_name=name, partition_index=state.partition_index, error_code=code))
    response = LeaderAndIsrResponse()
    for (_, topic_id, _), of_topic in zip(topics, errors, strict=True):
        if ctx.version < IDS_FROM:
            response.partition_errors += of_topic
        else:
            topic_errors = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=of_topic)
            response.topics.append(topic_errors)
    return response


def _must_be_created(tp: TopicPartition, state: _State, services: Services) -> bool:
    dirs = services.dirs
    return tp not in dirs.logs and services.metadata.me.id in state.replicas and not (dirs.offline and not state.is_new)


async def _become_leader_or_follower(tp: TopicPartition, topic_id: TopicId, state: _State, services: Services) -> int:
    try:
        _check_state(tp, topic_id, state, services)
        recovering, isr = state.leader_recovery_state == 1, tuple(state.isr)
        decision = LeaderAndIsr(state.leader, state.leader_epoch, isr, state.partition_epoch, recovering)
        log_id = None if topic_id == NO_ID else topic_id
        if state.leader == services.metadata.me.id:
            await services.replicas.lead(tp, log_id, decision, state.replicas)
        else:
            await services.replicas.follow(tp, log_id, decision)
    except WireError as error:
        return error.code
    except LogDirFailed:
        return StorageError.code
    return NONE


def _check_state(tp: TopicPartition, topic_id: TopicId, state: _State, services: Services) -> None:
    """Kafka's order: the disk, the id, the epoch, the assignment."""
    hosted, dirs = services.replicas.hosted.get(tp), services.dirs
    if hosted is not None and hosted.log.offline:
        hosted.log.refuse()
    if tp in dirs.uncreated:
        raise StorageError(dirs.uncreated[tp])
    if hosted is None and tp not in dirs.logs and dirs.offline and not state.is_new:
        raise StorageError(f"{tp} may be in a log directory that failed: {', '.join(dirs.offline)}")
    if hosted is not None:
        if topic_id != NO_ID and hosted.log.topic_id is not None and topic_id != hosted.log.topic_id:
            raise InconsistentTopicId(f"{tp} has topic id {hosted.log.topic_id} here, not {topic_id}")
        if state.leader_epoch <= hosted.epoch:
            raise StaleControllerEpoch(f"{tp} has leader epoch {hosted.epoch}, the request {state.leader_epoch}")
    if services.metadata.me.id not in state.replicas:
        raise UnknownTopicOrPartition(f"{tp} is assigned to {state.replicas}, not to this broker")


def refused_stop_replica(request: StopReplicaRequest, version: int) -> StopReplicaResponse:
    """Each partition carries the error as well."""
    code = ClusterAuthorizationFailed.code
    return StopReplicaResponse(
        partition_errors=[
            _StoppedPartition(topic_name=tp.topic, partition_index=tp.partition, error_code=code)
            for tp, _, _ in _stops(request, version)
        ]
    )


async def stop_replica(request: StopReplicaRequest, ctx: Context) -> StopReplicaResponse:
    """StopReplica, v0-4.  v1 by topic, broker epoch · v3 leader epochs, and deletions one by one."""
    try:
        ctx.services.metadata.check(request.controller_epoch, request.broker_epoch)
    except WireError as error:
        return StopReplicaResponse(error_code=error.code)
    stops, replicas = _stops(request, ctx.version), ctx.services.replicas
    codes = {tp: _stop_error(tp, leader_epoch, ctx.services) for tp, leader_epoch, _ in stops}
    admitted = {tp: delete for tp, _, delete in stops if codes[tp] == NONE}
    failed = await replicas.release(*(tp for tp, delete in admitted.items() if not delete))
    failed |= await replicas.drop(*(tp for tp, delete in admitted.items() if delete))
    codes |= dict.fromkeys(failed, StorageError.code)
    return StopReplicaResponse(
        partition_errors=[
            _StoppedPartition(topic_name=tp.topic, partition_index=tp.partition, error_code=codes[tp])
            for tp, _, _ in stops
        ]
    )


def _stops(request: StopReplicaRequest, version: int) -> list[tuple[TopicPartition, int, bool]]:
    if version >= DELETES_FROM:
        return [
            (TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    flat = [
        TopicPartition(partition.topic_name, partition.partition_index) for partition in request.ungrouped_partitions
    ]
    grouped = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    return [(tp, NO_EPOCH, request.delete_partitions) for tp in (*flat, *grouped)]


def _stop_error(tp: TopicPartition, leader_epoch: int, services: Services) -> int:
    """Why a partition is not stopped.

    A log that is not hosted is: the topic was deleted while this broker was down. So is one that went offline alone.
    """
    hosted = services.replicas.hosted.get(tp)
    if hosted is None:
        return NONE
    if hosted.log.offline and services.dirs.offline_log(tp) is None:
        return StorageError.code
    if leader_epoch not in (DURING_DELETE, NO_EPOCH) and leader_epoch < hosted.epoch:
        return FencedLeaderEpoch.code
    return NONE


async def update_metadata(request: UpdateMetadataRequest, ctx: Context) -> UpdateMetadataResponse:
    """UpdateMetadata, v0-8: live brokers, and leaders of partitions.  v5 by topic, broker epoch · v7 topic ids.

    A partition that moved to other brokers is given up now. If the controller could not reach this broker then, no
    StopReplica comes, and its log stays on disk, as with Kafka.
    """
    try:
        deleted = ctx.services.metadata.update(request)
    except WireError as error:
        return UpdateMetadataResponse(error_code=error.code)
    for name in deleted:
        ctx.services.configs.forget(name)
        ctx.services.offsets.topic_deleted(name)
    metadata = ctx.services.metadata
    ctx.services.replicas.alive(dict.fromkeys(metadata.brokers, ANY_EPOCH), metadata.broker_epoch)
    await _give_up_moved(request, ctx.services.replicas)
    return UpdateMetadataResponse()


async def _give_up_moved(request: UpdateMetadataRequest, replicas: Replicas) -> None:
    """Partitions that this broker holds, and that others replicate in a later epoch."""
    states = [(topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states]
    states += [(state.topic_name, state) for state in request.ungrouped_partition_states]
    async for name, state in over_turns(states):
        hosted = replicas.hosted.get(tp := TopicPartition(name, state.partition_index))
        if hosted is not None and replicas.me not in state.replicas and hosted.epoch < state.leader_epoch:
            log.info("releasing %s: other brokers replicate it now", tp)
            await replicas.release(tp)


async def controlled_shutdown(request: ControlledShutdownRequest, ctx: Context) -> ControlledShutdownResponse:
    """ControlledShutdown, v0-3: returns the partitions that the broker still leads.  v2 broker epoch."""
    try:
        remaining = await ctx.services.controller.do_in_steps(
            lambda decisions: decisions.shut_down(request.broker_id, request.broker_epoch)
        )
    except WireError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            ControlledShutdownResponse.RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
            for tp in remaining
        ]
    )


async def alter_partition(request: AlterPartitionRequest, ctx: Context) -> AlterPartitionResponse:
    """AlterPartition, v0-3: a new ISR.  v1 recovery · v2 topic ids · v3 broker epochs of the ISR."""
    controller, names = ctx.services.controller, ctx.services.controller.topic_names
    by_id = ctx.version >= IDS_TO_ALTER_FROM
    proposals: dict[TopicPartition, Proposal] = {}
    response = AlterPartitionResponse()
    for topic in request.topics:
        name = names.get(topic.topic_id) if by_id else topic.topic_name
        if name is None:
            response.topics.append(_unknown_topic(topic))
        else:
            proposals |= _proposals(name, topic, request.broker_id, ctx.version)
    try:
        decided = await controller.do(
            lambda decisions: decisions.alter_partition(request.broker_id, request.broker_epoch, proposals)
        )
    except WireError as error:
        return AlterPartitionResponse(error_code=error.code)
    response.topics += _altered_topics(decided, controller.topic_id, ctx.version)
    return response


def _unknown_topic(topic: AlterPartitionRequest.TopicData) -> AlterPartitionResponse.TopicData:
    return AlterPartitionResponse.TopicData(
        topic_id=topic.topic_id,
        partitions=[
            _AlteredPartition(partition_index=partition.partition_index, error_code=UnknownTopicId.code)
            for partition in topic.partitions
        ],
    )


def _altered_topics(
    decided: Mapping[TopicPartition, LeaderAndIsr | WireError], topic_id: Callable[[str], TopicId], version: int
) -> Iterable[AlterPartitionResponse.TopicData]:
    topics: dict[str, AlterPartitionResponse.TopicData] = {}
    for tp, decision in decided.items():
        if tp.topic not in topics:
            topics[tp.topic] = AlterPartitionResponse.TopicData(topic_name=tp.topic, topic_id=topic_id(tp.topic))
        topics[tp.topic].partitions.append(_altered(tp.partition, decision, version))
    return topics.values()


def _proposals(
    name: str, topic: AlterPartitionRequest.TopicData, leader: BrokerId, version: int
) -> dict[TopicPartition, Proposal]:
    return {
        TopicPartition(name, partition.partition_index): _proposal(leader, partition, version)
        for partition in topic.partitions
    }


def _proposal(leader: int, requested: AlterPartitionRequest.PartitionData, version: int) -> Proposal:
    isr, epochs = tuple(requested.new_isr), (ANY_EPOCH,) * len(requested.new_isr)
    if version >= STATES_FROM:
        isr = tuple(replica.broker_id for replica in requested.new_isr_with_epochs)
        epochs = tuple(replica.broker_epoch for replica in requested.new_isr_with_epochs)
    recovering = requested.leader_recovery_state == 1
    return Proposal(LeaderAndIsr(leader, requested.leader_epoch, isr, requested.partition_epoch, recovering), epochs)


def _altered(partition: int, decision: LeaderAndIsr | WireError, version: int) -> _AlteredPartition:
    if isinstance(decision, IneligibleReplica) and version < IDS_TO_ALTER_FROM:
        decision = OperationNotAttempted(str(decision))  # the error code of older versions
    if isinstance(decision, WireError):
        return _AlteredPartition(partition_index=partition, error_code=decision.code)
    return _AlteredPartition(
        partition_index=partition,
        leader_id=decision.leader,
        leader_epoch=decision.leader_epoch,
        isr=list(decision.isr),
        leader_recovery_state=int(decision.recovering),
        partition_epoch=decision.partition_epoch,
    )


async def allocate_producer_ids(request: AllocateProducerIdsRequest, ctx: Context) -> AllocateProducerIdsResponse:
    """AllocateProducerIds, v0: a block of producer ids for a broker to assign."""
    controller = ctx.services.controller
    try:
        controller.check_broker_epoch(request.broker_id, request.broker_epoch)
        block = await controller.producer_ids(request.broker_id)
    except WireError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))


class LoopbackPeer:
    """The connection of the controller to the broker in the same process, without a socket."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        ctx = Context(self._services, version, None, ClientConnection("", ""), OWN_REQUEST)
        response: Message
        if isinstance(request, LeaderAndIsrRequest):
            response = await leader_and_isr(request, ctx)
        elif isinstance(request, UpdateMetadataRequest):
            response = await update_metadata(request, ctx)
        elif isinstance(request, StopReplicaRequest):
            response = await stop_replica(request, ctx)
        else:
            assert isinstance(request, ApiVersionsRequest)
            response = kind()
        assert isinstance(response, kind)
        return response

    def close(self) -> None:
        """There is nothing to close."""
