"""What a broker knows of the cluster, request by request."""

import uuid

import pytest

from leadline.cluster.metadata_cache import BrokerInfo, CachedPartition, Endpoint, LeaderAndReplicas, MetadataCache
from leadline.errors import StaleBrokerEpoch, StaleControllerEpoch, UnknownTopicOrPartition
from leadline.model import TopicPartition
from leadline.wire.codec import decode, to_bytes
from leadline.wire.messages import UpdateMetadataRequest

ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)
_State = UpdateMetadataRequest.UpdateMetadataPartitionState


def cache() -> MetadataCache:
    metadata = MetadataCache(BrokerInfo(1, {}), "cluster")
    metadata.broker_epoch = 10
    return metadata


def update(
    *states: _State, topic_id: uuid.UUID = ID, epoch: int = 1, broker_epoch: int = 10, live: tuple[int, ...] = (1, 2)
) -> UpdateMetadataRequest:
    topic = UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name="t", topic_id=topic_id, partition_states=list(states)
    )
    brokers = [
        UpdateMetadataRequest.UpdateMetadataBroker(
            id=id,
            rack=f"rack{id}",
            endpoints=[UpdateMetadataRequest.UpdateMetadataEndpoint(port=9000 + id, host="h", listener="L")],
        )
        for id in live
    ]
    return UpdateMetadataRequest(
        controller_id=2,
        controller_epoch=epoch,
        broker_epoch=broker_epoch,
        topic_states=[topic] if states else [],
        live_brokers=brokers,
    )


def state(number: int, leader: int = 1, leader_epoch: int = 0) -> _State:
    return _State(
        partition_index=number, leader=leader, leader_epoch=leader_epoch, isr=[1, 2], replicas=[1, 2, 3],
        offline_replicas=[3],
    )  # fmt: skip


def test_an_update_changes_single_partitions_and_replaces_all_brokers() -> None:
    metadata = cache()
    metadata.update(update(state(1), state(0)))
    metadata.update(update(state(1, leader=2, leader_epoch=4), live=(2,)))
    assert metadata.topics["t"].partitions == {
        0: CachedPartition(1, 0, (1, 2, 3), (1, 2), (3,)),
        1: CachedPartition(2, 4, (1, 2, 3), (1, 2), (3,)),
    }
    assert list(metadata.topics["t"].partitions) == [0, 1]
    assert metadata.brokers == {2: BrokerInfo(2, {"L": Endpoint("h", 9002)}, "rack2")}
    assert (metadata.controller, metadata.racks) == (2, {2: "rack2"})


def test_a_topic_is_gone_with_its_last_partition() -> None:
    metadata = cache()
    metadata.update(update(state(0), state(1)))
    assert metadata.update(update(state(0, leader=-2))) == []
    assert metadata.topic("t").partitions.keys() == {1}
    assert metadata.update(update(state(1, leader=-2))) == ["t"]
    assert metadata.by_id == {}
    with pytest.raises(UnknownTopicOrPartition):
        metadata.topic("t")


def test_a_topic_with_another_id_is_another_topic() -> None:
    metadata = cache()
    metadata.update(update(state(0), state(1)))
    metadata.update(update(state(0), topic_id=OTHER_ID))
    assert metadata.by_id.keys() == {OTHER_ID}
    assert metadata.topics["t"].partitions.keys() == {0}


def test_an_older_controller_is_not_believed_nor_one_that_means_an_earlier_run() -> None:
    metadata = cache()
    metadata.update(update(state(0), epoch=5))
    with pytest.raises(StaleControllerEpoch):
        metadata.update(update(state(0, leader=2), epoch=4))
    with pytest.raises(StaleBrokerEpoch):
        metadata.update(update(state(0, leader=2), epoch=6, broker_epoch=9))
    assert (metadata.topics["t"].partitions[0].leader, metadata.controller_epoch) == (1, 5)
    metadata.update(update(state(0, leader=2), epoch=6, broker_epoch=-1))
    assert metadata.topics["t"].partitions[0].leader == 2


@pytest.mark.parametrize("version", UpdateMetadataRequest.VERSIONS)
def test_older_controllers_are_understood(version: int) -> None:
    """They know less: no ids, no racks, one listener for each protocol."""
    request = update(state(0), state(1), epoch=3)
    for broker in request.live_brokers:
        broker.endpoints[0].listener = "PLAINTEXT"
        broker.v0_host, broker.v0_port = "h", broker.endpoints[0].port
    for partition in request.topic_states[0].partition_states:
        partition.topic_name = "t"
        request.ungrouped_partition_states += [partition] if version < 5 else []
    if version < 5:
        request.topic_states = []
    metadata = cache()
    metadata.update(decode(UpdateMetadataRequest, to_bytes(request, version), version))
    assert metadata.topics["t"].partitions.keys() == {0, 1}
    assert metadata.topics["t"].id == (ID if version >= 7 else uuid.UUID(int=0))
    assert metadata.brokers[2].endpoints == {"PLAINTEXT": Endpoint("h", 9002)}


def test_listeners_are_called_after_a_change() -> None:
    metadata, calls = cache(), list[int]()
    metadata.on_change.append(lambda: calls.append(len(metadata.topics)))
    metadata.update(update(state(0)))
    assert calls == [1]


def test_clients_are_not_sent_to_a_broker_that_may_have_ended() -> None:
    metadata = cache()
    metadata.update(update())
    assert metadata.reachable(2, "L") == Endpoint("h", 9002)
    assert metadata.reachable(2, "another listener") is None
    assert metadata.reachable(3, "L") is None
    metadata.suspected.add(2)
    assert metadata.reachable(2, "L") is None


def test_a_broker_that_is_missing_in_an_update_has_departed_until_it_returns() -> None:
    metadata = cache()
    metadata.update(update(live=(1, 2, 3)))
    metadata.update(update(live=(1, 2)))
    metadata.update(update(live=(1,)))
    assert metadata.departed.keys() == {2, 3}
    assert metadata.reachable(2, "L") is None
    metadata.update(update(live=(1, 2)))
    assert metadata.departed.keys() == {3}


def test_metadata_of_another_broker_counts_if_its_epoch_is_later() -> None:
    metadata, calls = cache(), list[None]()
    metadata.update(update(state(0), state(1)))
    before = metadata.topics["t"].partitions
    epoch = before[0].leader_epoch
    metadata.on_change.append(lambda: calls.append(None))
    leaders = {
        TopicPartition("t", 0): LeaderAndReplicas(3, epoch + 1, (3, 1)),
        TopicPartition("t", 1): LeaderAndReplicas(3, before[1].leader_epoch, (3,)),  # no later than what we know
        TopicPartition("t", 9): LeaderAndReplicas(3, 1, (3,)),
        TopicPartition("nowhere", 0): LeaderAndReplicas(3, 1, (3,)),
    }
    assert metadata.learn(leaders) == [TopicPartition("t", 0)]
    partitions = metadata.topics["t"].partitions
    assert partitions[0][:2] == (3, epoch + 1)
    assert partitions[0].isr == (3, 1)
    assert partitions[0].replicas == before[0].replicas
    assert calls == [None]
    assert metadata.learn(leaders) == []
    assert calls == [None]


def test_what_an_isolated_broker_leads_with_others_may_have_moved() -> None:
    metadata = cache()
    shared, alone = CachedPartition(metadata.me.id, 0, (1, 2), (1, 2)), CachedPartition(metadata.me.id, 0, (1,), (1,))
    others = shared._replace(leader=2)
    assert not metadata.may_have_moved(shared)
    metadata.is_isolated = True
    assert [metadata.may_have_moved(tp) for tp in (shared, alone, others)] == [True, False, False]
