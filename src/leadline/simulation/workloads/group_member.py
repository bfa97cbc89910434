"""A member of a consumer group: it joins, reads, commits its offsets, leaves or vanishes, and comes again.

It keeps to the rules of Kafka's client: it commits only offsets up to which it has read, under the generation in which
it was assigned the partition.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeVar

from leadline.errors import MemberIdRequired, OffsetOutOfRange, RebalanceInProgress, UnknownMemberId
from leadline.model import Offset, TopicPartition
from leadline.simulation.client import GROUP, NoAnswer, NotServed, SimulatedClient, name_of
from leadline.simulation.client_history import GroupAssignment, OffsetCommitAttempt, Poll
from leadline.simulation.group_offsets import committed_offsets
from leadline.simulation.workloads.workload import Workload, WorkloadContext
from leadline.wire.classes import Message
from leadline.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

M = TypeVar("M", bound=Message)
SESSION_MS, REBALANCE_MS = 6000, 4000
JOIN_S = 12.0  # a join waits for the others
ROUND_S = 0.5  # between heartbeats
STAY_S, AWAY_S = 12.0, 4.0


class RejoinNeeded(Exception):
    """The generation is over, or the coordinator is another one."""


class Member(Workload):
    """Its name is that of its group, and a letter."""

    prefix = "group"

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        super().__init__(client, world)
        self._world = world
        self.group = client.name[:-1]
        self.member_id = ""
        self.generation = -1
        self.assigned: list[TopicPartition] | None = None  # None: it is not a member of a generation
        self._positions: dict[TopicPartition, Offset] = {}

    async def run(self) -> None:
        await self.pause(AWAY_S)
        while not self.is_stopping:
            leaves_s = self.clock.monotonic_s() + self.chance.uniform(0, 2 * STAY_S)
            while not self.is_stopping and (self._world.is_calm or self.clock.monotonic_s() < leaves_s):
                try:
                    await self._join()
                    await self._take_part(leaves_s)
                except RejoinNeeded:
                    self.assigned = None
                    await self.client.back_off()
            await self._go()
            await self.pause(AWAY_S)

    async def _go(self) -> None:
        """It leaves, or is silent until its session is over."""
        self.assigned = None
        if self.is_stopping or self.chance.random() < 0.5:
            identity = LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
            with suppress(RejoinNeeded):
                await self._ask(LeaveGroupRequest(group_id=self.group, members=[identity]), LeaveGroupResponse, 4)
        self.member_id = ""

    # The protocol

    async def _ask(self, request: Message, kind: type[M], version: int, timeout_s: float = 5.0) -> M:
        """Raises RejoinNeeded."""
        coordinator, name = (GROUP, self.group), type(request).__name__.removesuffix("Request")
        try:
            response = await self.client.ask_coordinator(coordinator, request, kind, version, timeout_s)
        except (NoAnswer, NotServed) as error:
            self.history.count(f"{name}: {type(error).__name__}")
            raise RejoinNeeded from error
        code: int = getattr(response, "error_code", 0)
        if code:
            self.history.count(f"{name}: {name_of(code)}")
            if code == MemberIdRequired.code and isinstance(response, JoinGroupResponse):
                self.member_id = response.member_id
            elif code == UnknownMemberId.code:
                self.member_id = ""
            elif code != RebalanceInProgress.code:
                self.client.forget_coordinator(coordinator)
            raise RejoinNeeded(name_of(code))
        return response

    async def _join(self) -> None:
        began_s = self.clock.monotonic_s()
        join = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="simulation",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="any", metadata=b"")],
        )
        joined = await self._ask(join, JoinGroupResponse, 6, JOIN_S)
        self.member_id = joined.member_id
        sync = SyncGroupRequest(group_id=self.group, generation_id=joined.generation_id, member_id=self.member_id)
        if joined.leader == self.member_id:
            sync.assignments = self._assignments([member.member_id for member in joined.members])
        synced = await self._ask(sync, SyncGroupResponse, 3, JOIN_S)
        self.generation = joined.generation_id
        self.assigned = [TopicPartition(*item) for item in json.loads(synced.assignment or b"[]")]
        self.history.assignments.append(
            GroupAssignment(
                self.group, self.member_id, self.generation, self.assigned, began_s, self.clock.monotonic_s()
            )
        )
        self._positions = await committed_offsets(self.client, self.history, self.group, self.assigned)

    def _assignments(self, members: Sequence[str]) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member, assignment=json.dumps(list(self.partitions[n :: len(members)])).encode()
            )
            for n, member in enumerate(sorted(members))
        ]

    async def _take_part(self, leaves_s: float) -> None:
        """Raises RejoinNeeded."""
        while not self.is_stopping and (self._world.is_calm or self.clock.monotonic_s() < leaves_s):
            beat = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
            await self._ask(beat, HeartbeatResponse, 3)
            if self.assigned:
                tp = self.chance.choice(self.assigned)
                await self._poll(tp)
                if self.chance.random() < 0.5:
                    await self._commit(tp)
            await self.pause(ROUND_S)

    # Records and offsets

    async def _poll(self, tp: TopicPartition) -> None:
        start = max(self._positions[tp], 0)
        try:
            part = await self.client.fetch(tp, start, is_committed=True, max_wait_ms=0)
        except (NoAnswer, NotServed) as error:
            self.history.count(f"Fetch: {type(error).__name__}")
            return
        if part.error_code:
            self.history.count(f"Fetch: {name_of(part.error_code)}")
            if part.error_code == OffsetOutOfRange.code:
                with suppress(NoAnswer, NotServed):
                    self._positions[tp] = max(start, await self.client.log_start(tp))
            self.client.forget_leader(tp)
            return
        values, end = self.client.records_of(part, start, is_committed=True)
        self._positions[tp] = end
        self.history.group_polls.append(Poll(self.group, tp, True, start, end, values))

    async def _commit(self, tp: TopicPartition) -> None:
        """Raises RejoinNeeded."""
        offset = max(self._positions[tp], 0)
        attempt = OffsetCommitAttempt(self.group, tp, offset, self.clock.monotonic_s())
        self.history.commits.append(attempt)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=offset
        )
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=tp.topic, partitions=[partition])],
        )
        response = await self._ask(request, OffsetCommitResponse, 7)
        code = response.topics[0].partitions[0].error_code
        attempt.answered_s = self.clock.monotonic_s()
        attempt.is_committed = not code
        if code:
            self.history.count(f"OffsetCommit: {name_of(code)}")
            if code == UnknownMemberId.code:
                self.member_id = ""
            self.client.forget_coordinator((GROUP, self.group))
            raise RejoinNeeded(name_of(code))
