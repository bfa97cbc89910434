"""Topic states that many requests share: the same bytes as those of a list, encoded once."""

import pytest

from leadline.wire.classes import Message, SharedArray
from leadline.wire.codec import to_bytes
from leadline.wire.frames import encode_shared
from leadline.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest


def update(states: list[UpdateMetadataRequest.UpdateMetadataTopicState], epoch: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=3, broker_epoch=epoch, topic_states=states)


def states() -> list[UpdateMetadataRequest.UpdateMetadataTopicState]:
    return [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name,
            partition_states=[
                UpdateMetadataRequest.UpdateMetadataPartitionState(partition_index=n, isr=[1, 2]) for n in range(200)
            ],
        )
        for name in ("a", "b")
    ]


@pytest.mark.parametrize("version", range(5, 9))
def test_a_shared_array_has_the_bytes_of_a_list(version: int) -> None:
    plain, shared = states(), SharedArray(states())
    assert shared == plain
    for epoch in (1, 2):
        assert to_bytes(update(shared, epoch), version) == to_bytes(update(plain, epoch), version)
    assert to_bytes(update(SharedArray(), 1), version) == to_bytes(update([], 1), version)


def test_a_shared_array_is_encoded_once_for_each_version() -> None:
    shared = SharedArray(states())
    before = to_bytes(update(shared, 1), 8)
    shared.clear()  # which nobody must do: the bytes are those of the first time
    assert to_bytes(update(shared, 1), 8) == before
    assert to_bytes(update(shared, 1), 7) == to_bytes(update([], 1), 7)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (
            LeaderAndIsrRequest(topic_states=SharedArray([LeaderAndIsrRequest.LeaderAndIsrTopicState(topic_name="t")])),
            7,
        ),
        (update(SharedArray(states()), 1), 8),
    ],
)
def test_shared_states_can_be_encoded_ahead(
    request_: LeaderAndIsrRequest | UpdateMetadataRequest, version: int
) -> None:
    encode_shared(request_, version)
    shared = request_.topic_states
    assert isinstance(shared, SharedArray)
    assert shared.encoded_version == version
    assert shared.encoded in to_bytes(request_, version)


@pytest.mark.parametrize("request_", [StopReplicaRequest(), UpdateMetadataRequest()])
def test_nothing_happens_to_states_that_are_not_shared(request_: Message) -> None:
    encode_shared(request_, 4)
