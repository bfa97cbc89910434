"""What the controller tells brokers, and what brokers ask of it: LeaderAndIsr, StopReplica, UpdateMetadata,
ControlledShutdown, AlterPartition and AllocateProducerIds.

What an older controller says, or what was meant for an earlier run of this broker, does not count.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from leadline.api.context import ClientConnection, Context, Services
from leadline.errors import (
    BrokerIdNotRegistered,
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
from leadline.model import DURING_DELETE, NO_EPOCH, NO_ID, NONE, TopicId, TopicPartition
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal
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
EPOCHS_FROM, DELETES_FROM = 3, 3  # StopReplica has epochs, and tells for each partition whether to delete it
IDS_TO_ALTER_FROM, STATES_FROM = 2, 3  # AlterPartition

M = TypeVar("M", bound=Message)
Q = TypeVar("Q", bound=Message)
E = TypeVar("E", bound="ErrorResponse")
_State = LeaderAndIsrRequest.LeaderAndIsrPartitionState
_Led = LeaderAndIsrResponse.LeaderAndIsrPartitionError
_Stopped = StopReplicaResponse.StopReplicaPartitionError
_Altered = AlterPartitionResponse.PartitionData


class ErrorResponse(Protocol):
    """A response that can say why the request as a whole is refused."""

    error_code: int


def among_brokers(
    handler: Callable[[Q, Context], E | Awaitable[E]], kind: type[E]
) -> Callable[[Q, Context], E | Awaitable[E]]:
    """The handler for requests of other brokers. A single node has none: it refuses whoever sends one."""

    def serve(request: Q, ctx: Context) -> E | Awaitable[E]:
        if ctx.services.is_alone:
            response = kind()
            response.error_code = ClusterAuthorizationFailed.code
            return response
        return handler(request, ctx)

    return serve


async def leader_and_isr(request: LeaderAndIsrRequest, ctx: Context) -> LeaderAndIsrResponse:
    """LeaderAndIsr, v0-7.  v2 by topic, broker epoch · v3 reassignments · v5 topic ids · v6 recovery."""
    services = ctx.services
    try:
        services.metadata.check(request.controller_epoch, request.broker_epoch)
    except WireError as error:
        return LeaderAndIsrResponse(error_code=error.code)
    topics = [(topic.topic_name, topic.topic_id, topic.partition_states) for topic in request.topic_states]
    if ctx.version < BY_TOPIC_FROM:
        topics = [(state.topic_name, NO_ID, [state]) for state in request.ungrouped_partition_states]
    await services.configs.of_topics(list({name for name, _, _ in topics}))
    with suppress(LogDirFailed, StorageError):  # told of each of them below
        await services.dirs.create_all(
            {
                tp: None if topic_id == NO_ID else topic_id
                for name, topic_id, states in topics
                for state in states
                if _is_to_be_made(tp := TopicPartition(name, state.partition_index), state, services)
            }
        )
    if services.dirs.uncreated:
        services.cluster.ask_again()
    response = LeaderAndIsrResponse()
    for name, topic_id, states in topics:
        errors = [
            _Led(
                topic_name=name,
                partition_index=state.partition_index,
                error_code=await _hold(TopicPartition(name, state.partition_index), topic_id, state, services),
            )
            for state in states
        ]
        if ctx.version < IDS_FROM:
            response.partition_errors += errors
        else:
            told = LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors)
            response.topics.append(told)
    return response


def _is_to_be_made(tp: TopicPartition, state: _State, services: Services) -> bool:
    dirs = services.dirs
    return tp not in dirs.logs and services.metadata.me.id in state.replicas and not (dirs.offline and not state.is_new)


async def _hold(tp: TopicPartition, topic_id: TopicId, state: _State, services: Services) -> int:
    try:
        _check_state(tp, topic_id, state, services)
        known_id, recovering = None if topic_id == NO_ID else topic_id, state.leader_recovery_state == 1
        isr = tuple(state.isr)
        decision = LeaderAndIsr(state.leader, state.leader_epoch, isr, state.partition_epoch, recovering)
        if state.leader == services.metadata.me.id:
            await services.replicas.lead(tp, known_id, decision, state.replicas)
        else:
            await services.replicas.follow(tp, known_id, decision)
    except WireError as error:
        return error.code
    except LogDirFailed:
        return StorageError.code
    return NONE


def _check_state(tp: TopicPartition, topic_id: TopicId, state: _State, services: Services) -> None:
    """Kafka's order: the disk, the id, the epoch, the assignment."""
    hosted, dirs = services.replicas.hosted.get(tp), services.dirs
    if hosted is not None and hosted.log.offline:
        raise StorageError(f"{tp} is offline here: its log directory failed")
    if tp in dirs.uncreated:
        raise StorageError(dirs.uncreated[tp])
    if hosted is None and tp not in dirs.logs and dirs.offline and not state.is_new:
        raise StorageError(f"{tp} may lie in a log directory that failed: {', '.join(dirs.offline)}")
    if hosted is not None:
        if NO_ID != topic_id != hosted.log.topic_id is not None:
            raise InconsistentTopicId(f"{tp} has topic id {hosted.log.topic_id} here, not {topic_id}")
        if state.leader_epoch <= hosted.epoch:
            raise StaleControllerEpoch(f"leader epoch {state.leader_epoch} of {tp}: it is {hosted.epoch}")
    if services.metadata.me.id not in state.replicas:
        raise UnknownTopicOrPartition(f"{tp} is assigned to {state.replicas}, not to this broker")


async def stop_replica(request: StopReplicaRequest, ctx: Context) -> StopReplicaResponse:
    """StopReplica, v0-4.  v1 by topic, broker epoch · v3 leader epochs, and deletions one by one."""
    try:
        ctx.services.metadata.check(request.controller_epoch, request.broker_epoch)
    except WireError as error:
        return StopReplicaResponse(error_code=error.code)
    return StopReplicaResponse(
        partition_errors=[
            _Stopped(
                topic_name=tp.topic,
                partition_index=tp.partition,
                error_code=await _stop(tp, leader_epoch, ctx.services, delete=delete),
            )
            for tp, leader_epoch, delete in _stops(request, ctx.version)
        ]
    )


def _stops(request: StopReplicaRequest, version: int) -> list[tuple[TopicPartition, int, bool]]:
    if version >= DELETES_FROM:
        return [
            (TopicPartition(topic.topic_name, state.partition_index), state.leader_epoch, state.delete_partition)
            for topic in request.topic_states
            for state in topic.partition_states
        ]
    flat = [TopicPartition(each.topic_name, each.partition_index) for each in request.ungrouped_partitions]
    grouped = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    return [(tp, NO_EPOCH, request.delete_partitions) for tp in (*flat, *grouped)]


async def _stop(tp: TopicPartition, leader_epoch: int, services: Services, *, delete: bool) -> int:
    """A log that nobody leads or follows here is deleted, too: the broker was away when its topic was."""
    hosted = services.replicas.hosted.get(tp)
    try:
        if hosted is not None and hosted.log.offline:
            raise StorageError(f"{tp} is offline here: its log directory failed")
        if hosted is not None and leader_epoch not in (DURING_DELETE, NO_EPOCH) and leader_epoch < hosted.epoch:
            raise FencedLeaderEpoch(f"leader epoch {leader_epoch} of {tp}: it is {hosted.epoch}")
        if delete:
            await services.replicas.drop(tp)
        else:
            await services.replicas.release(tp)
    except WireError as error:
        return error.code
    except LogDirFailed:
        return StorageError.code
    return NONE


def update_metadata(request: UpdateMetadataRequest, ctx: Context) -> UpdateMetadataResponse:
    """UpdateMetadata, v0-8: who is there, and who leads what.  v5 by topic, broker epoch · v7 topic ids."""
    try:
        gone = ctx.services.metadata.update(request)
    except WireError as error:
        return UpdateMetadataResponse(error_code=error.code)
    for name in gone:
        ctx.services.configs.forget(name)
        ctx.services.offsets.topic_deleted(name)
    metadata = ctx.services.metadata
    ctx.services.replicas.alive(dict.fromkeys(metadata.brokers, ANY_EPOCH), metadata.broker_epoch)
    return UpdateMetadataResponse()


async def controlled_shutdown(request: ControlledShutdownRequest, ctx: Context) -> ControlledShutdownResponse:
    """ControlledShutdown, v0-3: what the broker still leads, and others could.  v2 broker epoch."""
    try:
        left = await ctx.services.controller.do(
            lambda decisions: decisions.shut_down(request.broker_id, request.broker_epoch)
        )
    except WireError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            ControlledShutdownResponse.RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
            for tp in left
        ]
    )


async def alter_partition(request: AlterPartitionRequest, ctx: Context) -> AlterPartitionResponse:
    """AlterPartition, v0-3: another ISR.  v1 recovery · v2 topic ids · v3 broker epochs of the ISR."""
    controller = ctx.services.controller
    names = {} if controller.decisions is None else controller.decisions.state.names
    asked: dict[TopicPartition, Proposal] = {}
    response = AlterPartitionResponse()
    by_id = ctx.version >= IDS_TO_ALTER_FROM
    for topic in request.topics:
        name = names.get(topic.topic_id) if by_id else topic.topic_name
        if name is None:
            unknown = [
                _Altered(partition_index=each.partition_index, error_code=UnknownTopicId.code)
                for each in topic.partitions
            ]
            response.topics.append(AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=unknown))
            continue
        for each in topic.partitions:
            asked[TopicPartition(name, each.partition_index)] = _proposal(request.broker_id, each, ctx.version)
    try:
        answers = await controller.do(
            lambda decisions: decisions.alter_partition(request.broker_id, request.broker_epoch, asked)
        )
    except WireError as error:
        return AlterPartitionResponse(error_code=error.code)
    ids = {name: topic_id for topic_id, name in names.items()}
    told: dict[str, AlterPartitionResponse.TopicData] = {}
    for tp, answer in answers.items():
        if tp.topic not in told:
            told[tp.topic] = AlterPartitionResponse.TopicData(topic_name=tp.topic, topic_id=ids.get(tp.topic, NO_ID))
        told[tp.topic].partitions.append(_altered(tp.partition, answer, ctx.version))
    response.topics += told.values()
    return response


def _proposal(leader: int, asked: AlterPartitionRequest.PartitionData, version: int) -> Proposal:
    isr, epochs = tuple(asked.new_isr), (ANY_EPOCH,) * len(asked.new_isr)
    if version >= STATES_FROM:
        isr = tuple(each.broker_id for each in asked.new_isr_with_epochs)
        epochs = tuple(each.broker_epoch for each in asked.new_isr_with_epochs)
    recovering = asked.leader_recovery_state == 1
    return Proposal(LeaderAndIsr(leader, asked.leader_epoch, isr, asked.partition_epoch, recovering), epochs)


def _altered(partition: int, answer: LeaderAndIsr | WireError, version: int) -> _Altered:
    if isinstance(answer, IneligibleReplica) and version < IDS_TO_ALTER_FROM:
        answer = OperationNotAttempted(str(answer))  # the older error for it
    if isinstance(answer, WireError):
        return _Altered(partition_index=partition, error_code=answer.code)
    return _Altered(
        partition_index=partition,
        leader_id=answer.leader,
        leader_epoch=answer.leader_epoch,
        isr=list(answer.isr),
        leader_recovery_state=int(answer.recovering),
        partition_epoch=answer.partition_epoch,
    )


async def allocate_producer_ids(request: AllocateProducerIdsRequest, ctx: Context) -> AllocateProducerIdsResponse:
    """AllocateProducerIds, v0: a block of producer ids that a broker hands out."""
    controller = ctx.services.controller
    try:
        ctx.services.cluster.check_controller()
        assert controller.decisions is not None
        broker = controller.decisions.state.brokers.get(request.broker_id)
        if broker is None:
            raise BrokerIdNotRegistered(f"there is no broker {request.broker_id}")
        if broker.epoch != request.broker_epoch:
            raise StaleBrokerEpoch(f"broker {broker.id} asks with epoch {request.broker_epoch}; it is {broker.epoch}")
        block = await controller.producer_ids(request.broker_id)
    except WireError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))


class LoopbackPeer:
    """This broker, as the controller in the same process sees it: a peer without a socket between."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        ctx = Context(self._services, version, None, ClientConnection("", ""))
        answer: Message
        if isinstance(request, LeaderAndIsrRequest):
            answer = await leader_and_isr(request, ctx)
        elif isinstance(request, UpdateMetadataRequest):
            answer = update_metadata(request, ctx)
        elif isinstance(request, StopReplicaRequest):
            answer = await stop_replica(request, ctx)
        else:
            assert isinstance(request, ApiVersionsRequest)
            answer = kind()
        assert isinstance(answer, kind)
        return answer

    def close(self) -> None:
        """There is nothing to close."""
