"""The group coordinator: members and their assignments, kept in `__consumer_offsets` together with offsets.

It is a shell around `ClassicGroup`: it finds the group, passes each event to it and carries out the effects. No request
is answered before the records that it caused are committed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

from leadline.config.live_settings import LiveSettings
from leadline.coordinator.classic_group import ClassicGroup
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
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_records import group_key, group_value
from leadline.coordinator.group_shard import OFFSETS_TOPIC, GroupShard
from leadline.coordinator.offset_coordinator import OffsetCoordinator
from leadline.coordinator.runtime import CoordinatorRecord, CoordinatorRuntime, InternalTopic
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
from leadline.model import NONE, ProducerId
from leadline.records.build import BatchFields
from leadline.records.compression import Codec
from leadline.replication.replicas import Replicas
from leadline.runtime.ports import Chance, Time

log = logging.getLogger(__name__)


class GroupCoordinator:
    """The groups whose coordinator this broker is, and their offsets."""

    def __init__(
        self,
        replicas: Replicas,
        clock: Time,
        settings: LiveSettings,
        partition_count: Callable[[], int | None],
        chance: Chance,
    ) -> None:
        """`partition_count`: of `__consumer_offsets`; None: the topic does not exist yet."""
        self.clock, self._settings, self._chance = clock, settings, chance
        topic = InternalTopic(
            OFFSETS_TOPIC,
            partition_count,
            lambda: settings.broker.offsets_topic_num_partitions,
            lambda: settings.broker.offsets_load_buffer_size,
            lambda: settings.broker.offsets_commit_timeout_ms,
        )
        self.runtime = CoordinatorRuntime(topic, replicas, clock, lambda partition, _: GroupShard(partition, self))
        self.offsets = OffsetCoordinator(self.runtime, self, settings)
        self._fields = BatchFields(codec=Codec(settings.broker.offsets_topic_compression_codec))
        self._pending_requests: dict[RequestId, asyncio.Future[JoinResult | SyncResult]] = {}
        self._request_ids = count()

    def start(self) -> None:
        self.offsets.start()

    async def stop(self) -> None:
        """Members that wait get NotCoordinator."""
        await self.offsets.stop()
        await self.runtime.stop()

    def loaded(self, shard: GroupShard) -> None:
        self.offsets.shard_loaded(shard)

    # Look-up

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that keeps a group. Its leader is the group's coordinator."""
        return self.runtime.partition_of(group_id)

    def shard(self, group_id: str, *, may_be_empty: bool = False) -> GroupShard:
        """The shard of a group. InvalidGroupId, NotCoordinator, CoordinatorLoadInProgress."""
        if not group_id and not may_be_empty:
            raise InvalidGroupId("a group's id must not be empty")
        if len(group_id) * 4 > MAX_STRING_BYTES and len(group_id.encode()) > MAX_STRING_BYTES:
            raise InvalidGroupId(f"a group's id must not be longer than {MAX_STRING_BYTES} bytes")
        return self.runtime.shard_of(group_id)

    def new_group(self, group_id: str) -> ClassicGroup:
        config = self._settings.broker
        limits = GroupLimits(config.group_max_size, config.group_initial_rebalance_delay_ms)
        return ClassicGroup(group_id, limits, self.clock.now_ms())

    @property
    def is_loading(self) -> bool:
        return self.runtime.is_loading

    def all(self) -> Iterator[ClassicGroup]:
        """All groups whose coordinator this broker is."""
        for shard in self.runtime.shards.values():
            yield from shard.groups.values()

    def find(self, group_id: str) -> ClassicGroup | None:
        """NotCoordinator, CoordinatorLoadInProgress."""
        return self.shard(group_id, may_be_empty=True).groups.get(group_id)

    # Requests of members

    async def join(self, group_id: str, request: JoinRequest) -> JoinResult:
        request_id, reply = self._new_request()
        try:
            shard = self.shard(group_id)
            self._check_session(request.session_timeout_ms)
            group = shard.get_or_create(group_id) if request.member_id == NO_MEMBER else shard.groups.get(group_id)
            if group is None:
                raise UnknownMemberId(f"there is no group {group_id}")
            name = request.client_id if request.instance_id is None else request.instance_id
            effects = group.join(request, f"{name}-{self._chance.new_uuid()}", request_id, self.clock.now_ms())
            self.carry_out(shard, group, effects)
            result = await reply
            assert isinstance(result, JoinResult)
            return result
        except UnknownServerError as error:
            return JoinResult(error.code)
        except WireError as error:
            return JoinResult(error.code, request.member_id)
        finally:
            self._pending_requests.pop(request_id, None)

    def _check_session(self, session_timeout_ms: int) -> None:
        config = self._settings.broker
        least, most = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
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
        """`protocol`: type and name; None where the request has none."""
        request_id, reply = self._new_request()
        try:
            shard = self.shard(group_id)
            group = shard.groups.get(group_id)
            if group is None:
                raise UnknownMemberId(f"there is no group {group_id}")
            effects = group.sync(member_id, instance_id, generation, *protocol, assignments, request_id)
            self.carry_out(shard, group, effects)
            result = await reply
            assert isinstance(result, SyncResult)
            return result
        except CoordinatorLoadInProgress:  # the member no longer waits for an assignment, so it must join again
            return SyncResult(RebalanceInProgress.code)
        except WireError as error:
            return SyncResult(error.code)
        finally:
            self._pending_requests.pop(request_id, None)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> int:
        """Returns an error code."""
        try:
            shard = self.shard(group_id)
            group = shard.groups.get(group_id)
            if group is None:
                raise UnknownMemberId(f"there is no group {group_id}")
            code, effects = group.heartbeat(member_id, instance_id, generation)
            self.carry_out(shard, group, effects)
            return code
        except CoordinatorLoadInProgress:
            return NONE  # sessions start once the shard is loaded
        except WireError as error:
            return error.code

    def leave(self, group_id: str, members: list[LeavingMember]) -> list[int]:
        """Returns an error code for each member. NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable."""
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return [UnknownMemberId.code] * len(members)
        codes, effects = group.leave(members, self.clock.now_ms())
        self.carry_out(shard, group, effects)
        return codes

    def _new_request(self) -> "tuple[RequestId, asyncio.Future[JoinResult | SyncResult]]":
        request_id, reply = next(self._request_ids), asyncio.get_running_loop().create_future()
        self._pending_requests[request_id] = reply
        return request_id, reply

    # Effects

    def carry_out(self, shard: GroupShard, group: ClassicGroup, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case SetTimer(timer, after_ms):
                    shard.timers.set((group.id, timer), after_ms)
                case CancelTimer(timer):
                    shard.timers.cancel((group.id, timer))
                case SendReply(request_id, result):
                    self._reply(request_id, result)
                case WriteGroup():
                    self._write_group(shard, group, effect)

    def _reply(self, request_id: RequestId, result: JoinResult | SyncResult) -> None:
        reply = self._pending_requests.pop(request_id, None)
        if reply is not None and not reply.done():  # done: the client has disconnected
            reply.set_result(result)

    def _write_group(self, shard: GroupShard, group: ClassicGroup, write: WriteGroup) -> None:
        def written(error: WireError | None) -> None:
            if error is not None:
                log.warning("group %s, generation %d could not be written: %s", group.id, write.generation, error)
            self.carry_out(shard, group, group.written(write, _error_for_members(error), self.clock.now_ms()))

        try:
            record = CoordinatorRecord(group_key(group.id), group_value(group, write.assignments))
            end = self.runtime.write(shard.partition, [record], self._fields)
        except ValueError as error:  # a request has room for longer strings than a record
            written(UnknownServerError(str(error)))
        except WireError as error:
            written(error)
        else:
            self.runtime.when_committed(shard.partition, end, written)

    # Transactions

    def transaction_ended(self, partition: int, producer_id: ProducerId, *, committed: bool) -> None:
        """A marker was appended to a partition of `__consumer_offsets`. A shard that is still loading will read it."""
        if (shard := self.runtime.shards.get(partition)) is not None:
            shard.end_transaction(producer_id, committed=committed)


def _error_for_members(error: WireError | None) -> WireError | None:
    """The error that members get if their assignment could not be written."""
    if isinstance(error, RequestTimedOut):
        return RebalanceInProgress(str(error))
    if isinstance(error, RecordTooLarge | RecordListTooLarge):
        return UnknownServerError(str(error))
    return error
