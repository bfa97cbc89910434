"""Proposals of an ISR to the controller: AlterPartition, one request at a time.

A proposal that comes while a request is under way goes with the next one. No caller waits for it: a leader uses its
maximal ISR until the answer comes. After an error there is a pause, which spares a controller in trouble.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from leadline.cluster.broker_client import PeerLost
from leadline.errors import UnknownServerError, WireError
from leadline.model import BrokerId, TopicId, TopicPartition
from leadline.replication.partition import LeaderAndIsr, LeaderState, Proposal
from leadline.runtime.ended_tasks import all_ended
from leadline.wire.messages import AlterPartitionRequest, AlterPartitionResponse

BY_ID, BY_NAME = 3, 1  # versions of AlterPartition
BACKOFF_S = 0.05

SendAlterPartition = Callable[
    [AlterPartitionRequest, int], Awaitable[AlterPartitionResponse]
]  # of the controller, in a version


class Proposed(NamedTuple):
    leader: LeaderState
    topic_id: TopicId | None
    proposal: Proposal


Decision = LeaderAndIsr | int  # the committed state, or an error code
Answered = Callable[[TopicPartition, Proposed, Decision], None]


async def no_controller(request: AlterPartitionRequest, version: int) -> AlterPartitionResponse:
    raise PeerLost("no controller is known")


class Alterations:
    """`answered` is called for each proposal. It may propose again."""

    def __init__(self, me: BrokerId, ask: SendAlterPartition, answered: Answered) -> None:
        self.me, self.ask, self._answered = me, ask, answered
        self.broker_epoch = -1
        self._waiting: dict[TopicPartition, Proposed] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def propose(self, tp: TopicPartition, proposed: Proposed) -> None:
        self._waiting[tp] = proposed
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._run(), name="altering ISRs")

    async def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()
            await all_ended(self._task)

    async def _run(self) -> None:
        try:
            while self._waiting:
                proposals, self._waiting = self._waiting, {}
                decisions = await self._ask(proposals)
                for tp, proposed in proposals.items():
                    self._answered(tp, proposed, decisions.get(tp, UnknownServerError.code))
                if any(isinstance(decisions.get(tp), int | None) for tp in proposals):
                    await asyncio.sleep(BACKOFF_S)
        finally:
            self._task = None

    async def _ask(self, proposals: Mapping[TopicPartition, Proposed]) -> dict[TopicPartition, Decision]:
        by_id = all(proposed.topic_id is not None for proposed in proposals.values())
        try:
            request = AlterPartitionRequest(broker_id=self.me, broker_epoch=self.broker_epoch)
            request.topics = _topics(proposals, by_id=by_id)
            response = await self.ask(request, BY_ID if by_id else BY_NAME)
        except (PeerLost, WireError):
            return {}
        if response.error_code:
            return {}
        names = {proposed.topic_id: tp.topic for tp, proposed in proposals.items()} if by_id else {}
        return {
            TopicPartition(names.get(topic.topic_id, topic.topic_name), part.partition_index): _decision(part)
            for topic in response.topics
            for part in topic.partitions
        }


def _topics(proposals: Mapping[TopicPartition, Proposed], *, by_id: bool) -> list[AlterPartitionRequest.TopicData]:
    topics: dict[str, AlterPartitionRequest.TopicData] = {}
    for tp, proposed in proposals.items():
        topic = topics.setdefault(tp.topic, AlterPartitionRequest.TopicData(topic_name=tp.topic))
        if proposed.topic_id is not None:
            topic.topic_id = proposed.topic_id
        topic.partitions.append(_part(tp.partition, proposed.proposal, by_id=by_id))
    return list(topics.values())


def _part(partition: int, proposal: Proposal, *, by_id: bool) -> AlterPartitionRequest.PartitionData:
    proposed, epochs = proposal
    part = AlterPartitionRequest.PartitionData(
        partition_index=partition,
        leader_epoch=proposed.leader_epoch,
        leader_recovery_state=int(proposed.recovering),
        partition_epoch=proposed.partition_epoch,
    )
    if by_id:  # and with the epochs of the brokers
        part.new_isr_with_epochs = [
            AlterPartitionRequest.BrokerState(broker_id=broker, broker_epoch=epoch)
            for broker, epoch in zip(proposed.isr, epochs, strict=True)
        ]
    else:
        part.new_isr = list(proposed.isr)
    return part


def _decision(part: AlterPartitionResponse.PartitionData) -> Decision:
    if part.error_code:
        return part.error_code
    return LeaderAndIsr(
        part.leader_id, part.leader_epoch, tuple(part.isr), part.partition_epoch, part.leader_recovery_state == 1
    )
