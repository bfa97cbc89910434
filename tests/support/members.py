"""Members of groups over plain sockets, hundreds of them in one process, and the same towards any broker.

A group is settled once all its members have the assignment of one generation. Its leader gives each partition to one
member; what a partition is only the members know: a number.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from struct import Struct
from typing import TypeVar

from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
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
PATIENCE_S = 120.0
HEARTBEAT_S = 0.02
VERSIONS = {JoinGroupRequest: 9, SyncGroupRequest: 5, HeartbeatRequest: 4, LeaveGroupRequest: 5, OffsetCommitRequest: 8}
NOT_READY = frozenset({14, 15, 16})  # the coordinator loads, is not there yet, is not the one
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 25, 27, 79
REJOIN = frozenset({ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS})
_SIZE = Struct(">i")


class Refused(Exception):
    """An answer that a member in good standing should not get."""


class Wire:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, host: str, port: int) -> "Wire":
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, kind: type[M], request: Message, version: int) -> M:
        pieces = request_frame(request, version, 0, "member")
        self._writer.write(b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview)))
        (size,) = _SIZE.unpack(await self._reader.readexactly(4))
        return parse_response(kind, await self._reader.readexactly(size), version)[1]

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


class Member:
    def __init__(self, group: "Group", wire: Wire) -> None:
        self.group, self.wire = group, wire
        self.id = ""
        self.generation = -1  # of the assignment that it holds
        self.assignment: tuple[int, ...] = ()
        self.task: asyncio.Task[None] | None = None

    async def _ask(self, kind: type[M], request: Message) -> M:
        return await self.wire.ask(kind, request, VERSIONS[type(request)])

    async def live(self) -> None:
        """Join, take the assignment, send heartbeats, and join again at a rebalance."""
        while True:
            joined = await self._join()
            if await self._sync(joined):
                self.group.took_part(self)
                await self._beat()

    async def _join(self) -> JoinGroupResponse:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="numbers", metadata=b"")
        while True:
            request = JoinGroupRequest(
                group_id=self.group.name,
                session_timeout_ms=self.group.session_ms,
                rebalance_timeout_ms=60_000,
                member_id=self.id,
                protocol_type="test",
                protocols=[protocol],
            )
            joined = await self._ask(JoinGroupResponse, request)
            if joined.error_code == 0:
                self.id = joined.member_id
                return joined
            if joined.error_code == MEMBER_ID_REQUIRED:
                self.id = joined.member_id
            elif joined.error_code == UNKNOWN_MEMBER:
                self.id = ""
            elif joined.error_code not in NOT_READY:
                raise Refused(f"joining {self.group.name} was answered with {joined.error_code}")
            else:
                await asyncio.sleep(HEARTBEAT_S)

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        """Whether the generation it joined came about."""
        request = SyncGroupRequest(
            group_id=self.group.name,
            generation_id=joined.generation_id,
            member_id=self.id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
        )
        if joined.leader == self.id:
            request.assignments = self.group.assign([member.member_id for member in joined.members])
        synced = await self._ask(SyncGroupResponse, request)
        if synced.error_code:
            _must_rejoin(synced.error_code, "sync")
            return False
        assert joined.generation_id > self.generation, "a generation only grows"
        self.generation = joined.generation_id
        self.assignment = tuple(bytes(synced.assignment))
        return True

    async def _beat(self) -> None:
        """Until a rebalance begins."""
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            request = HeartbeatRequest(group_id=self.group.name, generation_id=self.generation, member_id=self.id)
            code = (await self._ask(HeartbeatResponse, request)).error_code
            if code:
                _must_rejoin(code, "heartbeat")
                return

    async def commit(self, topic: str, partition: int, offset: int, generation: int | None = None) -> int:
        """The error code. On a connection of its own, as heartbeats are under way on the other."""
        part = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.group.name,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.id,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )
        wire = await Wire.open(self.group.host, self.group.port)
        answer = await wire.ask(OffsetCommitResponse, request, VERSIONS[OffsetCommitRequest])
        await wire.close()
        return answer.topics[0].partitions[0].error_code

    async def vanish(self) -> None:
        """Without a word."""
        assert self.task is not None
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task
        await self.wire.close()

    async def leave(self) -> None:
        await self.vanish()
        wire = await Wire.open(self.group.host, self.group.port)
        request = LeaveGroupRequest(
            group_id=self.group.name, members=[LeaveGroupRequest.MemberIdentity(member_id=self.id)]
        )
        answer = await wire.ask(LeaveGroupResponse, request, VERSIONS[LeaveGroupRequest])
        await wire.close()
        if answer.error_code or answer.members[0].error_code:
            raise Refused(f"leaving {self.group.name} was answered with {answer}")


def _must_rejoin(code: int, what: str) -> None:
    if code not in REJOIN:
        raise Refused(f"a {what} was answered with {code}")


class Group:
    """A group as all its members together see it."""

    def __init__(self, name: str, host: str, port: int, session_ms: int, partitions: int = 8) -> None:
        self.name, self.host, self.port = name, host, port
        self.session_ms, self.partitions = session_ms, partitions
        self.members: list[Member] = []
        self._settled = asyncio.Event()

    async def enter(self, count: int) -> None:
        """Opens connections for this many further members, which are not in the group yet."""
        self.members += [Member(self, await Wire.open(self.host, self.port)) for _ in range(count)]

    def start(self) -> None:
        """The new members join."""
        self._settled.clear()
        for member in self.members:
            if member.task is None:
                member.task = asyncio.create_task(member.live())

    async def lose(self, member: Member, *, politely: bool) -> None:
        self._settled.clear()
        self.members.remove(member)
        for other in self.members:
            other.assignment = ()  # what they hold now says nothing about what comes
        await (member.leave() if politely else member.vanish())

    def assign(self, ids: Sequence[str]) -> list[SyncGroupRequest.SyncGroupRequestAssignment]:
        shares = [bytes(range(n, self.partitions, len(ids))) for n in range(len(ids))]
        return [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=id, assignment=share)
            for id, share in zip(ids, shares, strict=True)
        ]

    def took_part(self, member: Member) -> None:
        if len({other.generation for other in self.members}) == 1 and self.owned == list(range(self.partitions)):
            self._settled.set()

    @property
    def owned(self) -> list[int]:
        return sorted(number for member in self.members for number in member.assignment)

    async def settled(self) -> None:
        """Until all members hold the assignment of one generation; or one of them gave up."""
        waiting = asyncio.create_task(self._settled.wait())
        tasks = [waiting, *(member.task for member in self.members if member.task is not None)]
        done, _ = await asyncio.wait(tasks, timeout=PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for task in done:
            task.result()
        if not done:
            raise TimeoutError(f"{self.name} did not settle in {PATIENCE_S} s; it owns {self.owned}")


@asynccontextmanager
async def groups(
    host: str, port: int, names: Iterable[str], size: int, session_ms: int = 30_000
) -> AsyncIterator[list[Group]]:
    """Groups whose members are connected, and have not joined yet. The coordinator is ready for them."""
    made = [Group(name, host, port, session_ms) for name in names]
    wire = await Wire.open(host, port)
    for group in made:
        await _coordinated(wire, group.name)
        await group.enter(size)
    await wire.close()
    try:
        yield made
    finally:
        for group in made:
            for member in group.members:
                if member.task is not None:
                    await member.vanish()
                else:
                    await member.wire.close()


async def _coordinated(wire: Wire, name: str) -> None:
    while True:
        answer = await wire.ask(FindCoordinatorResponse, FindCoordinatorRequest(key=name), 3)
        if answer.error_code not in NOT_READY:
            return
        await asyncio.sleep(HEARTBEAT_S)


async def settle_all(all_groups: Iterable[Group]) -> None:
    await asyncio.gather(*(group.settled() for group in all_groups))
