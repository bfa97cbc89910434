"""Members of groups on both brokers at once: whatever one does, it does to Kafka and to Leadline."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TypeVar

from leadline.wire.classes import Message
from leadline.wire.codec import to_bytes
from leadline.wire.frames import parse_response
from leadline.wire.messages import (
    ConsumerProtocolSubscription,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conformance.both import Both, Connection, Side
from tests.support.waiting import until

M = TypeVar("M", bound=Message)

MEMBER_ID_REQUIRED, TRANSACTIONAL_ID_NOT_FOUND = 79, 105
GROUP, TRANSACTION = 0, 1  # types of keys that have a coordinator
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 9, 5, 4, 5, 9  # the newest versions


def subscription(*topics: str) -> bytes:
    return b"\0\0" + to_bytes(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Member:
    """One of a group, with a connection to each broker and the id that each has given to it."""

    def __init__(self, both: Both, connections: list[Connection], group: str, instance: str | None) -> None:
        self.both, self.connections, self.group, self.instance = both, connections, group, instance
        self.ids = ["" for _ in connections]
        self.generation = -1
        self.protocols: Mapping[str, bytes] = {"range": subscription("orders")}
        self.protocol_type = "consumer"
        self.session_timeout_ms = self.rebalance_timeout_ms = 60_000

    def send(self, request: Callable[[str], Message], version: int) -> None:
        """`request`: from the member's id."""
        for connection, member_id in zip(self.connections, self.ids, strict=True):
            connection.send(request(member_id), version)

    def receive_and_compare(self, kind: type[M], version: int) -> M:
        answers = []
        for connection in self.connections:
            frame = connection.receive()
            assert frame is not None, f"{connection.client_id}: closed instead of a {kind.__name__}"
            answers.append(parse_response(kind, frame, version)[1])
        if kind is JoinGroupResponse:
            self._joined(answers)
        return self.both.compare(answers, version)

    def ask_and_compare(self, kind: type[M], request: Callable[[str], Message], version: int) -> M:
        self.send(request, version)
        return self.receive_and_compare(kind, version)

    def _joined(self, answers: list[M]) -> None:
        for n, answer in enumerate(answers):
            assert isinstance(answer, JoinGroupResponse)
            if answer.error_code in (0, MEMBER_ID_REQUIRED):
                self.ids[n] = answer.member_id
            if answer.error_code == 0:
                self.generation = answer.generation_id

    # Joining

    def send_join(self, version: int = JOIN, reason: str | None = None) -> None:
        protocols = [
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
            for name, metadata in self.protocols.items()
        ]

        def request(member_id: str) -> JoinGroupRequest:
            join = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=self.session_timeout_ms,
                member_id=member_id,
                protocol_type=self.protocol_type,
                protocols=protocols,
            )
            if version >= 1:
                join.rebalance_timeout_ms = self.rebalance_timeout_ms
            if version >= 5:
                join.group_instance_id = self.instance
            if version >= 8:
                join.reason = reason
            return join

        self.send(request, version)

    def joined(self, version: int = JOIN) -> JoinGroupResponse:
        return self.receive_and_compare(JoinGroupResponse, version)

    def join(self, version: int = JOIN) -> JoinGroupResponse:
        self.send_join(version)
        return self.joined(version)

    def become_known(self, version: int = JOIN) -> None:
        """The first of two steps, where there are two."""
        if version >= 4 and self.instance is None:
            assert self.join(version).error_code == MEMBER_ID_REQUIRED

    # In a generation

    def send_sync(self, assignments: Mapping["Member", bytes] | None = None, version: int = SYNC) -> None:
        sides = iter(range(len(self.ids)))

        def request(member_id: str) -> SyncGroupRequest:
            side = next(sides)
            sync = SyncGroupRequest(
                group_id=self.group,
                generation_id=self.generation,
                member_id=member_id,
                assignments=[
                    SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.ids[side], assignment=assignment)
                    for member, assignment in (assignments or {}).items()
                ],
            )
            if version >= 3:
                sync.group_instance_id = self.instance
            if version >= 5:
                sync.protocol_type, sync.protocol_name = self.protocol_type, next(iter(self.protocols))
            return sync

        self.send(request, version)

    def synced(self, version: int = SYNC) -> SyncGroupResponse:
        return self.receive_and_compare(SyncGroupResponse, version)

    def sync(self, assignments: Mapping["Member", bytes] | None = None, version: int = SYNC) -> SyncGroupResponse:
        self.send_sync(assignments, version)
        return self.synced(version)

    def heartbeat(self, version: int = HEARTBEAT, generation: int | None = None) -> int:
        def request(member_id: str) -> HeartbeatRequest:
            beat = HeartbeatRequest(
                group_id=self.group,
                generation_id=self.generation if generation is None else generation,
                member_id=member_id,
            )
            if version >= 3:
                beat.group_instance_id = self.instance
            return beat

        return self.ask_and_compare(HeartbeatResponse, request, version).error_code

    def commit(self, topic: str, *offsets: int, version: int = COMMIT, generation: int | None = None) -> list[int]:
        """Of partitions 0 and on. Error codes."""

        def request(member_id: str) -> OffsetCommitRequest:
            commit = OffsetCommitRequest(group_id=self.group, topics=[committed_topic(topic, *offsets)])
            if version >= 1:
                commit.member_id = member_id
                commit.generation_id_or_member_epoch = self.generation if generation is None else generation
            if version >= 7:
                commit.group_instance_id = self.instance
            return commit

        answer = self.ask_and_compare(OffsetCommitResponse, request, version)
        return [partition.error_code for committed in answer.topics for partition in committed.partitions]

    def leave(self, version: int = LEAVE) -> LeaveGroupResponse:
        def request(member_id: str) -> LeaveGroupRequest:
            if version < 3:
                return LeaveGroupRequest(group_id=self.group, member_id=member_id)
            identity = LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=self.instance)
            return LeaveGroupRequest(group_id=self.group, members=[identity])

        return self.ask_and_compare(LeaveGroupResponse, request, version)


def committed_topic(topic: str, *offsets: int) -> OffsetCommitRequest.OffsetCommitRequestTopic:
    partitions = [
        OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=n, committed_offset=offset)
        for n, offset in enumerate(offsets)
    ]
    return OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=partitions)


def coordinators(both: Both, transactional_id: str | None = None) -> None:
    """Until both have created the topic of the groups and serve from it; for an id, also that of the transactions."""
    for side in both.sides:
        until(lambda side=side: _coordinates_groups(side))  # type: ignore[misc]
        if transactional_id is not None:
            until(lambda side=side: _coordinates_id(side, transactional_id))  # type: ignore[misc]


def _coordinates_groups(side: Side) -> bool:
    request = FindCoordinatorRequest(coordinator_keys=["any"], key_type=GROUP)
    is_there = side.ask(FindCoordinatorResponse, request, 4).coordinators[0].error_code == 0
    return is_there and side.ask(ListGroupsResponse, ListGroupsRequest(), 4).error_code == 0


def _coordinates_id(side: Side, id: str) -> bool:
    """A coordinator is named once its partition of the journal has a leader, which reads it before it serves."""
    request = FindCoordinatorRequest(coordinator_keys=[id], key_type=TRANSACTION)
    is_there = side.ask(FindCoordinatorResponse, request, 4).coordinators[0].error_code == 0
    described = DescribeTransactionsRequest(transactional_ids=[id])
    answer = side.ask(DescribeTransactionsResponse, described, 0).transaction_states[0]
    return is_there and answer.error_code in (0, TRANSACTIONAL_ID_NOT_FOUND)


class MirroredGroup:
    """The members of one group."""

    def __init__(self, both: Both, group: str, stack: ExitStack) -> None:
        self.both, self.group, self._stack = both, group, stack

    def member(self, name: str, instance: str | None = None) -> Member:
        connections = [self._stack.enter_context(closing(side.connect(name))) for side in self.both.sides]
        return Member(self.both, connections, self.group, instance)

    def until(self, state: str) -> None:
        for side in self.both.sides:
            until(lambda side=side: described(side, self.group).group_state == state)  # type: ignore[misc]

    def describe(self, version: int = 5) -> DescribeGroupsResponse:
        request = DescribeGroupsRequest(groups=[self.group])
        if version >= 3:
            request.include_authorized_operations = True
        return self.both.ask_and_compare(DescribeGroupsResponse, request, version)

    def alone(self, name: str = "alone", version: int = JOIN, instance: str | None = None) -> Member:
        """A member that is the whole group, stable, with the assignment b"all"."""
        member = self.member(name, instance)
        member.become_known(version)
        assert member.join(version).error_code == 0
        assert member.sync({member: b"all"}).assignment == b"all"
        return member

    def settled(self, *names: str) -> list[Member]:
        """Members of one generation, the first of them its leader; each is assigned its name."""
        first, *others = [self.member(name) for name in names]
        first.become_known()
        first.join()
        first.sync({first: b""})
        for other in others:
            other.become_known()
            other.send_join()
        if others:
            self.until("PreparingRebalance")
            self.wait_for(len(names))
            first.send_join()
            for member in (first, *others):
                member.joined()
        everybody = [first, *others]
        for member in others:
            member.send_sync()
        first.send_sync({member: name.encode() for member, name in zip(everybody, names, strict=True)})
        for member, name in zip(everybody, names, strict=True):
            assert member.synced().assignment == name.encode()
        return everybody

    def wait_for(self, members: int) -> None:
        for side in self.both.sides:
            until(lambda side=side: len(described(side, self.group).members) == members)  # type: ignore[misc]


def described(side: Side, group: str) -> DescribeGroupsResponse.DescribedGroup:
    return side.ask(DescribeGroupsResponse, DescribeGroupsRequest(groups=[group]), 5).groups[0]


@contextmanager
def mirrored_group(both: Both, group: str) -> Iterator[MirroredGroup]:
    with ExitStack() as stack:
        yield MirroredGroup(both, group, stack)
