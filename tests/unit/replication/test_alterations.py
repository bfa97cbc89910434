"""Proposals on their way to the controller: one request at a time, repeated until there is an answer."""

import asyncio
import uuid

import pytest

from leadline.cluster.broker_client import PeerLost
from leadline.errors import NotController, StaleBrokerEpoch, WireError
from leadline.model import TopicPartition
from leadline.replication.alterations import Alterations, Decision, Proposed
from leadline.replication.partition import IsrLimits, LeaderAndIsr, LeaderState, LogOffsets, Proposal
from leadline.wire.messages import AlterPartitionRequest, AlterPartitionResponse

TOPIC_ID = uuid.UUID(int=5)
PATIENCE_S = 120


def proposed(*isr: int, topic_id: uuid.UUID | None = TOPIC_ID) -> Proposed:
    decision = LeaderAndIsr(1, 3, (1,), 7)
    leader = LeaderState(decision, (1, 2, 3), LogOffsets(0, 0, 0), 0, {}, IsrLimits(1))
    return Proposed(leader, topic_id, Proposal(decision._replace(isr=isr), (-1,) * len(isr)))


class AgreeingController:
    """A controller that fails as listed and then agrees, and the leader that proposes again."""

    def __init__(self, *failures: Exception | int) -> None:
        self.failures = list(failures)
        self.requests: list[tuple[AlterPartitionRequest, int]] = []
        self.may_answer = asyncio.Event()
        self.answers: dict[TopicPartition, Decision] = {}
        self.done = asyncio.Event()
        self.alterations = Alterations(1, self.ask, self.answered)

    async def ask(self, request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
        self.requests.append((request, version))
        await self.may_answer.wait()
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return AlterPartitionResponse(error_code=failure)
        return AlterPartitionResponse(topics=[_agreed(topic, request.broker_id) for topic in request.topics])

    def answered(self, tp: TopicPartition, proposal: Proposed, decision: Decision) -> None:
        if isinstance(decision, int):
            self.alterations.propose(tp, proposal)
        else:
            self.answers[tp] = decision
            self.done.set()


def _agreed(topic: AlterPartitionRequest.TopicData, leader: int) -> AlterPartitionResponse.TopicData:
    topic_data = AlterPartitionResponse.TopicData(topic_id=topic.topic_id, topic_name=topic.topic_name)
    for part in topic.partitions:
        isr = part.new_isr or [member.broker_id for member in part.new_isr_with_epochs]
        topic_data.partitions.append(
            AlterPartitionResponse.PartitionData(
                partition_index=part.partition_index,
                leader_id=leader,
                leader_epoch=part.leader_epoch,
                isr=isr,
                partition_epoch=part.partition_epoch + 1,
            )
        )
    return topic_data


def test_what_is_proposed_meanwhile_goes_with_the_next_request() -> None:
    async def main() -> None:
        controller = AgreeingController()
        for number in range(3):
            controller.alterations.propose(TopicPartition("t", number), proposed(1, 2))
            await asyncio.sleep(0)
        assert len(controller.requests) == 1
        controller.may_answer.set()
        async with asyncio.timeout(PATIENCE_S):
            while len(controller.answers) < 3:
                controller.done.clear()
                await controller.done.wait()
        assert [len(request.topics[0].partitions) for request, _ in controller.requests] == [1, 2]
        assert set(controller.answers.values()) == {LeaderAndIsr(1, 3, (1, 2), 8)}

    asyncio.run(main())


@pytest.mark.parametrize("failure", [PeerLost("gone"), NotController("moved"), StaleBrokerEpoch.code])
def test_a_proposal_is_sent_again_until_it_is_answered(failure: PeerLost | WireError | int) -> None:
    async def main() -> None:
        controller = AgreeingController(failure, failure)
        controller.may_answer.set()
        controller.alterations.propose(TopicPartition("t", 0), proposed(1, 2, 3))
        async with asyncio.timeout(PATIENCE_S):
            await controller.done.wait()
        assert len(controller.requests) == 3

    asyncio.run(main())


def test_a_topic_without_an_id_is_altered_by_its_name() -> None:
    async def main() -> None:
        controller = AgreeingController()
        controller.may_answer.set()
        controller.alterations.propose(TopicPartition("t", 0), proposed(1, 3, topic_id=None))
        async with asyncio.timeout(PATIENCE_S):
            await controller.done.wait()
        ((request, version),) = controller.requests
        assert (version, request.topics[0].partitions[0].new_isr) == (1, [1, 3])
        assert controller.answers == {TopicPartition("t", 0): LeaderAndIsr(1, 3, (1, 3), 8)}

    asyncio.run(main())
