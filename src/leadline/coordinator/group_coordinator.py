"""The coordinator of groups: their members, kept in the journal `__consumer_offsets` together with their offsets.

A shell around `Group`: it finds the group, tells it what happened and carries out the effects. Nobody is
answered before what was decided is on every in-sync replica of the journal.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from leadline.config.coordinators import CoordinatorConfig
from leadline.coordinator.classic_group import ClassicGroup, GroupLimits
from leadline.coordinator.group_effects import (
    CancelTimer,
    Effect,
    JoinResult,
    LeavingMember,
    RequestId,
    SendReply,
    SetTimer,
    SyncResult,
    WriteGroup,
)
from leadline.coordinator.group_member import NO_MEMBER, JoinRequest
from leadline.coordinator.group_offsets import MAX_STRING_BYTES
from leadline.coordinator.group_records import group_key, group_value
from leadline.coordinator.group_shard import OFFSETS_TOPIC, GroupShard
from leadline.coordinator.runtime import CoordinatorRecord, CoordinatorRuntime, partition_for
from leadline.errors import (
    CoordinatorLoadInProgress,
    InvalidGroupId,
    InvalidSessionTimeout,
    RebalanceInProgress,
    RecordListTooLarge,
    RecordTooLarge,
    RequestTimedOut,
    UnknownMemberId,
    UnknownServerError,
    WireError,
)
from leadline.model import Offset, ProducerId
from leadline.records.build import BatchFields
from leadline.records.compression import Codec
from leadline.replication.replicas import Replicas
from leadline.runtime.ports import Chance, Clock

log = logging.getLogger(__name__)

NONE = 0


class GroupCoordinator:
    """The groups whose coordinator this broker is."""

    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        config: CoordinatorConfig,
        partition_count: Callable[[], int | None],
        chance: Chance,
    ) -> None:
        """`partition_count`: how many partitions the journal has; None: it does not exist yet."""
        self.clock, self.config, self._chance = clock, config, chance
        self.runtime = CoordinatorRuntime(
            OFFSETS_TOPIC,
            replicas,
            clock,
            lambda partition, _: GroupShard(partition, self),
            lambda: self.config.offsets_load_buffer_size,
        )
        self._limits = GroupLimits(config.group_max_size, config.group_initial_rebalance_delay_ms)
        self.fields = BatchFields(codec=Codec(config.offsets_topic_compression_codec))
        self._partition_count = partition_count
        self._partitions: int | None = None  # once known it stays: a group is not looked for elsewhere
        self._pending_requests: dict[RequestId, asyncio.Future[JoinResult | SyncResult]] = {}
        self._request_ids = count()
        self._commit_waits: set[asyncio.Task[None]] = set()
        self.on_loaded: list[Callable[[GroupShard], None]] = []  # a shard is in use from now on

    async def stop(self) -> None:
        """Members that wait are told to look for another coordinator."""
        await self.runtime.stop()
        for task in self._commit_waits:
            task.cancel()
        await asyncio.gather(*self._commit_waits, return_exceptions=True)

    def loaded(self, shard: GroupShard) -> None:
        for told in self.on_loaded:
            told(shard)

    # Finding a group

    def partition_of(self, group_id: str) -> int:
        """The partition of the journal that keeps a group: whoever leads it is the group's coordinator."""
        existing = self._partition_count()
        if existing is None:
            self._partitions = None
            return partition_for(group_id, self.config.offsets_topic_num_partitions)
        if self._partitions is None:
            self._partitions = existing
        return partition_for(group_id, self._partitions)

    def shard(self, group_id: str, *, may_be_nameless: bool = False) -> GroupShard:
        """InvalidGroupId, NotCoordinator, CoordinatorLoadInProgress."""
        if not group_id and not may_be_nameless:
            raise InvalidGroupId("a group's id must not be empty")
        if len(group_id) * 4 > MAX_STRING_BYTES and len(group_id.encode()) > MAX_STRING_BYTES:
            raise InvalidGroupId(f"a group's id must not be longer than {MAX_STRING_BYTES} bytes")
        return self.runtime.shard(self.partition_of(group_id))

    def new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._limits, self.clock.now_ms())

    @property
    def is_loading(self) -> bool:
        return self.runtime.is_loading

    def all(self) -> Iterator[ClassicGroup]:
        """Those whose coordinator this broker is."""
        for shard in self.runtime.shards.values():
            yield from shard.groups.values()

    def find(self, group_id: str) -> ClassicGroup | None:
        """NotCoordinator, CoordinatorLoadInProgress."""
        return self.shard(group_id, may_be_nameless=True).groups.get(group_id)

    # What members ask for

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        ticket, waiting = self._new_request()
        try:
            shard = self.shard(group_id)
            self._check_session(request.session_timeout_ms)
            group = shard.get_or_create(group_id) if request.member_id == NO_MEMBER else shard.groups.get(group_id)
            if group is None:
                raise UnknownMemberId(f"there is no group {group_id}")
            name = request.client_id if request.instance_id is None else request.instance_id
            effects = group.join(request, f"{name}-{self._chance.new_uuid()}", ticket, self.clock.now_ms())
            self.carry_out(shard, group, effects)
            joined = await waiting
            assert isinstance(joined, JoinResult)
            return joined
        except UnknownServerError as error:
            return JoinResult(error.code)
        except WireError as error:
            return JoinResult(error.code, request.member_id)
        finally:
            self._pending_requests.pop(ticket, None)

    def _check_session(self, session_timeout_ms: int) -> None:
        least, most = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        if not least <= session_timeout_ms <= most:
            raise InvalidSessionTimeout(
                f"a session of {session_timeout_ms} ms is not between group.min.session.timeout.ms={least} and "
                f"group.max.session.timeout.ms={most}"
            )

    async def sync(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> SyncResult:
        """`protocol`: type and name, where the member tells them."""
        ticket, waiting = self._new_request()
        try:
            shard = self.shard(group_id)
            group = shard.groups.get(group_id)
            if group is None:
                raise UnknownMemberId(f"there is no group {group_id}")
            effects = group.sync(member_id, instance_id, generation, *protocol, assignments, ticket)
            self.carry_out(shard, group, effects)
            synced = await waiting
            assert isinstance(synced, SyncResult)
            return synced
        except CoordinatorLoadInProgress:  # it has lost its place in the line: it must join again
            return SyncResult(RebalanceInProgress.code)
        except WireError as error:
            return SyncResult(error.code)
        finally:
            self._pending_requests.pop(ticket, None)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """An error code."""
        try:
            shard = self.shard(group_id)
            group = shard.groups.get(group_id)
            if group is None:
                raise UnknownMemberId(f"there is no group {group_id}")
            code, effects = group.heartbeat(member_id, instance_id, generation)
            self.carry_out(shard, group, effects)
            return code
        except CoordinatorLoadInProgress:
            return NONE  # sessions begin once it is loaded
        except WireError as error:
            return error.code

    def leave(self, group_id: str, leavers: list[LeavingMember]) -> list[int]:
        """An error code for each. NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable."""
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return [UnknownMemberId.code] * len(leavers)
        codes, effects = group.leave(leavers, self.clock.now_ms())
        self.carry_out(shard, group, effects)
        return codes

    def _new_request(self) -> "tuple[RequestId, asyncio.Future[JoinResult | SyncResult]]":
        ticket, waiting = next(self._request_ids), asyncio.get_running_loop().create_future()
        self._pending_requests[ticket] = waiting
        return ticket, waiting

    # Effects

    def carry_out(self, shard: GroupShard, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(timer, after_ms):
                    shard.timers.set((group.id, timer), after_ms)
                case CancelTimer(timer):
                    shard.timers.cancel((group.id, timer))
                case SendReply(ticket, answer):
                    self._reply(ticket, answer)
                case WriteGroup():
                    self._store(shard, group, effect)

    def _reply(self, ticket: RequestId, answer: JoinResult | SyncResult) -> None:
        waiting = self._pending_requests.pop(ticket, None)
        if waiting is not None and not waiting.done():  # not if its connection is gone
            waiting.set_result(answer)

    def _store(self, shard: GroupShard, group: ClassicGroup, store: WriteGroup) -> None:
        def stored(error: WireError | None) -> None:
            if error is not None:
                log.warning("group %s, generation %d could not be written: %s", group.id, store.generation, error)
            self.carry_out(shard, group, group.written(store, _error_for_members(error), self.clock.now_ms()))

        try:
            entry = CoordinatorRecord(group_key(group.id), group_value(group, store.assignments))
            offset = self.runtime.write(shard.partition, [entry], self.fields)
        except ValueError as error:  # newer requests have room for longer names than the record
            stored(UnknownServerError(str(error)))
        except WireError as error:
            stored(error)
        else:
            self.when_committed(shard.partition, offset, stored)

    def when_committed(self, partition: int, offset: Offset, then: Callable[[WireError | None], None]) -> None:
        """At once where there are no other replicas; else later, also if who asked for it has gone away."""
        if self.runtime.is_committed(partition, offset):
            then(None)
            return
        task = asyncio.create_task(self._wait_until_committed(partition, offset, then))
        self._commit_waits.add(task)
        task.add_done_callback(self._commit_waits.discard)

    async def _wait_until_committed(
        self, partition: int, offset: Offset, then: Callable[[WireError | None], None]
    ) -> None:
        timeout_ms = self.config.offsets_commit_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.runtime.committed(partition, offset)
        except TimeoutError:
            then(RequestTimedOut(f"{OFFSETS_TOPIC}-{partition} has too few replicas: {timeout_ms} ms were not enough"))
        except WireError as error:
            then(error)
        else:
            then(None)

    # Transactions

    def transaction_ended(self, partition: int, producer_id: ProducerId, *, committed: bool) -> None:
        """A marker was appended to a partition of the journal. If that is still being loaded, it is read there."""
        if (shard := self.runtime.shards.get(partition)) is not None:
            shard.end_transaction(producer_id, committed=committed)


def _error_for_members(error: WireError | None) -> WireError | None:
    """Why an assignment could not be stored, in the words that members know."""
    if isinstance(error, RequestTimedOut):
        return RebalanceInProgress(str(error))
    if isinstance(error, RecordTooLarge | RecordListTooLarge):
        return UnknownServerError(str(error))
    return error
