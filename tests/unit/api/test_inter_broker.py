"""What the controller tells a broker, and what it believes."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from leadline.api.authorization import AUTHORIZATION
from leadline.api.context import ClientConnection, Context, Services
from leadline.api.inter_broker import (
    allocate_producer_ids,
    alter_partition,
    among_brokers,
    leader_and_isr,
    refused_leader_and_isr,
    stop_replica,
)
from leadline.broker.broker import Broker
from leadline.coordination.tree import SessionExpired
from leadline.errors import (
    BrokerIdNotRegistered,
    ClusterAuthorizationFailed,
    FencedLeaderEpoch,
    InconsistentTopicId,
    LogDirFailed,
    NotController,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    StorageError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from leadline.model import TopicPartition
from leadline.replication.watchers import Watcher
from leadline.wire.messages import (
    AllocateProducerIdsRequest,
    AlterPartitionRequest,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
)
from tests.support import in_memory, in_memory_broker
from tests.support.in_memory_broker import InMemoryClient
from tests.support.in_process import broker_in_process
from tests.support.logs import batch

T0 = TopicPartition("t", 0)
PATIENCE_MS = 120_000


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Broker], Awaitable[None]], directories: int = 1) -> None:
    async def main() -> None:
        async with broker_in_process(*(path / f"data{n}" for n in range(directories))) as broker:
            await test(broker)

    asyncio.run(main())


def context_of(services: Services, version: int) -> Context:
    return Context(services, version, None, ClientConnection("", ""), AUTHORIZATION[4])


def lead(broker: Broker, **changed: object) -> LeaderAndIsrRequest:
    """The next epoch of t-0, led by this broker."""
    me, topic = broker.services.metadata.me.id, broker.services.metadata.topics["t"]
    state = LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        leader=me, leader_epoch=topic.partitions[0].leader_epoch + 1, isr=[me], replicas=[me]
    )
    for name in [name for name in changed if hasattr(state, name) and name != "controller_epoch"]:
        setattr(state, name, changed.pop(name))
    topic_state = LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name="t", topic_id=topic.id, partition_states=[state]
    )
    if "topic_id" in changed:
        topic_state.topic_id = changed.pop("topic_id")  # type: ignore[assignment]
    request = LeaderAndIsrRequest(
        controller_epoch=broker.services.metadata.controller_epoch,
        broker_epoch=broker.services.metadata.broker_epoch,
        topic_states=[topic_state],
    )
    for name, value in changed.items():
        setattr(request, name, value)
    return request


def test_what_is_old_or_does_not_fit_is_refused(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        services = broker.services
        await services.cluster.create_topic("t", ((services.metadata.me.id,),), {})
        ctx = context_of(services, 7)
        for changed, code in (
            ({"controller_epoch": 0}, StaleControllerEpoch.code),
            ({"broker_epoch": services.metadata.broker_epoch - 1}, StaleBrokerEpoch.code),
        ):
            assert (await leader_and_isr(lead(broker, **changed), ctx)).error_code == code
        for of_partition, code in (
            ({"leader_epoch": 0}, StaleControllerEpoch.code),
            ({"topic_id": uuid.UUID(int=9)}, InconsistentTopicId.code),
            ({"replicas": [7]}, UnknownTopicOrPartition.code),
            ({}, 0),
        ):
            answer = await leader_and_isr(lead(broker, **of_partition), ctx)
            assert [error.error_code for error in answer.topics[0].partition_errors] == [code], of_partition
        assert services.replicas.hosted[T0].leader.epoch == 1

    run(tmp_path, test)


def test_a_broker_whose_session_has_expired_answers_that_its_epoch_is_over(tmp_path: Path) -> None:
    """It cannot read the settings of a topic that is new to it. The controller sends all again to the next session."""

    async def test(broker: Broker) -> None:
        services = broker.services
        await services.cluster.create_topic("t", ((services.metadata.me.id,),), {})
        services.configs.forget("t")
        expired = SessionExpired("/config/topics/t", "the session has expired")
        with mock.patch.object(services.configs.tree, "get", side_effect=expired):
            answer = await leader_and_isr(lead(broker), context_of(services, 7))
        assert answer.error_code == StaleBrokerEpoch.code
        assert services.replicas.hosted[T0].leader.epoch == 0

    run(tmp_path, test)


def test_an_unclean_election_is_logged_and_kept_in_the_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(broker: Broker) -> None:
        services = broker.services
        await services.cluster.create_topic("t", ((services.metadata.me.id,),), {})
        ctx = context_of(services, 7)
        await leader_and_isr(lead(broker, leader_recovery_state=1), ctx)
        await leader_and_isr(lead(broker, leader=7, leader_epoch=2, leader_recovery_state=1), ctx)
        history = services.replicas.hosted[T0].history
        assert [(election.epoch, election.unclean) for election in history.elections] == [
            (0, False),
            (1, True),
            (2, True),
        ]

    run(tmp_path, test)
    (message,) = (record.getMessage() for record in caplog.records if "unclean" in record.getMessage())
    assert message == "t-0: unclean election: records from 0 on that only other replicas hold are lost"


class WaitingFetch:
    """Nothing but the wait."""

    def __init__(self) -> None:
        self.changed, self.fresh = asyncio.Event(), dict[object, None]()
        self.waiting: Callable[[], None] | None = self.changed.set


def test_a_waiting_fetch_is_served_across_epochs_of_the_same_leader(tmp_path: Path) -> None:
    """Another assignment begins a reassignment: the log and its waiting fetches stay."""

    async def test(broker: Broker) -> None:
        services = broker.services
        me = services.metadata.me.id
        await services.cluster.create_topic("t", ((me,),), {})
        services.replicas.append(T0, batch(3))
        hosted, waiting = services.replicas.hosted[T0], WaitingFetch()
        hosted.watchers(of_log_end=False).add(Watcher(waiting, T0))
        answer = await services.controller.do_in_steps(lambda decisions: decisions.reassignments.alter({T0: (me,)}))
        assert answer == {T0: None}
        await services.controller.settled()
        assert services.replicas.hosted[T0] is hosted
        assert hosted.leader.epoch == 1
        services.replicas.append(T0, batch(2))
        await waiting.changed.wait()
        assert (hosted.log.high_watermark, [entry.epoch for entry in hosted.log.epochs.entries]) == (5, [0, 1])

    run(tmp_path, test)


def test_a_replica_is_stopped_and_kept_or_deleted(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        services = broker.services
        await services.cluster.create_topic("t", ((services.metadata.me.id,),), {})
        ctx = context_of(services, 4)

        async def stop(epoch: int, *, delete: bool) -> int:
            state = StopReplicaRequest.StopReplicaPartitionState(leader_epoch=epoch, delete_partition=delete)
            topic = StopReplicaRequest.StopReplicaTopicState(topic_name="t", partition_states=[state])
            request = StopReplicaRequest(
                controller_epoch=services.metadata.controller_epoch,
                broker_epoch=services.metadata.broker_epoch,
                topic_states=[topic],
            )
            return (await stop_replica(request, ctx)).partition_errors[0].error_code

        await leader_and_isr(lead(broker), ctx._replace(version=7))
        assert await stop(0, delete=True) == FencedLeaderEpoch.code
        assert await stop(1, delete=False) == 0
        assert T0 not in services.replicas.hosted
        assert T0 in broker.dirs.logs
        assert await stop(-2, delete=True) == 0
        assert T0 not in broker.dirs.logs

    run(tmp_path, test)


def test_a_single_node_accepts_no_other_controller(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        serve = among_brokers(leader_and_isr, refused_leader_and_isr)
        answer = serve(LeaderAndIsrRequest(controller_epoch=99), context_of(broker.services, 7))
        assert isinstance(answer, LeaderAndIsrResponse)
        assert answer.error_code == ClusterAuthorizationFailed.code
        assert broker.services.metadata.controller_epoch == 1

    run(tmp_path, test)


def test_what_lies_in_a_failed_directory_has_no_leader_any_longer(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        services = broker.services
        await services.cluster.create_topic("t", ((services.metadata.me.id,),) * 2, {})
        lost, kept = sorted((T0, TopicPartition("t", 1)), key=lambda tp: broker.dirs.logs[tp].parent.endswith("data0"))
        directory = broker.dirs.logs[lost].parent
        broker.dirs.take_offline(LogDirFailed(directory, "a test", OSError()))
        await services.cluster.until_led(lost, lambda leader: leader == -1, PATIENCE_MS)
        assert services.metadata.topics["t"].partitions[lost.partition].offline == (services.metadata.me.id,)
        assert services.metadata.topics["t"].partitions[kept.partition].leader == services.metadata.me.id
        services.replicas.append(kept, batch())
        answer = await leader_and_isr(
            lead(broker, partition_index=lost.partition, leader_epoch=9),
            context_of(services, 7),
        )
        assert answer.topics[0].partition_errors[0].error_code == StorageError.code

    run(tmp_path, test, directories=2)


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"), [(0, 0, 0), (99, 0, BrokerIdNotRegistered.code), (0, 1, StaleBrokerEpoch.code)]
)
def test_only_a_registered_broker_gets_producer_ids(broker_id: int, epoch: int, code: int) -> None:
    """`broker_id` and `epoch` are relative to those of the broker."""

    async def test(client: InMemoryClient) -> None:
        services = client.broker.services
        request = AllocateProducerIdsRequest(
            broker_id=services.metadata.me.id + broker_id, broker_epoch=services.metadata.broker_epoch + epoch
        )
        response = await allocate_producer_ids(request, context_of(services, 0))
        assert (response.error_code, response.producer_id_len) == (code, 0 if code else 1000)

    in_memory_broker.run(test)


def test_a_broker_that_is_not_the_controller_has_no_producer_ids() -> None:
    async def test(client: InMemoryClient) -> None:
        client.broker.controller.decisions = None
        response = await allocate_producer_ids(AllocateProducerIdsRequest(), context_of(client.broker.services, 0))
        assert response.error_code == NotController.code

    in_memory_broker.run(test)


@pytest.mark.parametrize("version", range(4))
def test_an_isr_is_altered_by_name_or_by_id(version: int) -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        metadata = client.broker.services.metadata
        me, topic = metadata.me.id, metadata.topics["orders"]
        partition = AlterPartitionRequest.PartitionData(
            partition_index=0, leader_epoch=0, new_isr=[me], partition_epoch=0
        )
        if version >= 3:
            replica = AlterPartitionRequest.BrokerState(broker_id=me, broker_epoch=metadata.broker_epoch)
            partition.new_isr_with_epochs = [replica]
        requested = AlterPartitionRequest.TopicData(topic_name="orders", topic_id=topic.id, partitions=[partition])
        missing = AlterPartitionRequest.TopicData(topic_name="missing", topic_id=uuid.uuid4(), partitions=[partition])
        request = AlterPartitionRequest(broker_id=me, broker_epoch=metadata.broker_epoch, topics=[requested, missing])
        response = await alter_partition(request, context_of(client.broker.services, version))
        codes = {(topic.topic_name, topic.topic_id): topic.partitions[0].error_code for topic in response.topics}
        unknown = ("", missing.topic_id) if version >= 2 else ("missing", uuid.UUID(int=0))
        code = UnknownTopicId.code if version >= 2 else UnknownTopicOrPartition.code
        assert codes == {("orders", topic.id): 0, unknown: code}

    in_memory_broker.run(test)
