"""The runtime under the group coordinator and the transaction coordinator.

A coordinator keeps its state in an internal topic. Each partition of the topic is a shard. The broker that leads the
partition coordinates all keys that hash to it, for one leader epoch. A shard is in one of three states:

    loading     the records of the partition are replayed, and are committed; requests get CoordinatorLoadInProgress
    active      requests are served
    unloading   another broker leads the partition, or it is deleted or offline: timers end, waiting requests get
                NotCoordinator

A partition whose log is damaged goes offline when it is loaded. In a cluster, another replica takes over.

A coordinator handles a request in four steps:

    decide over the state of the shard; append records; apply them to the state; reply once they are committed

Nothing is awaited between deciding and applying: the loop's one thread is the only lock.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from leadline.coordinator.shard_loader import replay_log
from leadline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptFile,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RequestTimedOut,
    StorageError,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.hash_order import string_hash
from leadline.log.log import Log
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.model import LeaderEpoch, Offset, TopicPartition
from leadline.records.batch import Header
from leadline.records.build import BatchFields, build_at
from leadline.records.record import Record
from leadline.replication.hosted_partition import HostedPartition
from leadline.replication.replicas import Replicas
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.periodic import spawn
from leadline.runtime.ports import Time, shortage

log = logging.getLogger(__name__)

RETRY_S = 1.0  # before a shard is loaded again after a resource was short
RECORD_OVERHEAD_BYTES = 32  # of a record without a value, beside its key; an upper bound
DEFAULT_FIELDS = BatchFields()
INT_MIN = 1 << 31  # as an unsigned word: the one integer without an absolute value in Java

OnCommitted = Callable[[WireError | None], None]  # called with None once records are committed, else with the error


class CoordinatorRecord(NamedTuple):
    key: bytes
    value: bytes | None  # None: a tombstone


class CoordinatorShard(Protocol):
    """The state that a coordinator keeps for one partition."""

    def replay(self, header: Header, records: Iterable[Record]) -> None: ...

    def loaded(self) -> None:
        """The shard becomes active: timers start, and work that was under way continues."""

    def unloaded(self) -> None:
        """The shard is no longer active: timers end, and waiting requests get NotCoordinator."""


class InternalTopic(NamedTuple):
    """The topic of a coordinator. Its settings are read at use."""

    name: str
    partition_count: Callable[[], int | None]  # None: the topic does not exist yet
    configured_partition_count: Callable[[], int]  # with which it will be created
    load_buffer_bytes: Callable[[], int]
    commit_timeout_ms: Callable[[], int] | None = None  # None: a write may wait for its replicas without limit


S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorRuntime(Generic[S]):
    """The shards of an internal topic that this broker leads."""

    def __init__(
        self, topic: InternalTopic, replicas: Replicas, clock: Time, new_shard: Callable[[int, LeaderEpoch], S]
    ) -> None:
        self.topic, self.clock = topic, clock
        self.shards: dict[int, S] = {}  # the active ones, by partition
        self._replicas, self._new_shard = replicas, new_shard
        self._partitions = _TopicPartitions(topic.name)
        self._partition_count: int | None = None  # of the topic when it was first seen
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._commit_waits: OrderedSet[asyncio.Task[Any]] = OrderedSet()
        replicas.on_lead.append(self._became_leader)
        replicas.on_drop.append(self._resigned)

    async def stop(self) -> None:
        for partition in {*self._loading, *self.shards}:
            self._unload(partition)
        for task in self._commit_waits:
            task.cancel()
        await all_ended(*self._commit_waits)

    # Shards

    def partition_of(self, key: str) -> int:
        """The partition that keeps a group or a transactional id. Its leader is the coordinator.

        If the topic grows, keys stay where they are.
        """
        existing = self.topic.partition_count()
        if existing is None:
            self._partition_count = None
            return partition_for(key, self.topic.configured_partition_count())
        if self._partition_count is None:
            self._partition_count = existing
        return partition_for(key, self._partition_count)

    def shard_of(self, key: str) -> S:
        """NotCoordinator, CoordinatorLoadInProgress."""
        partition = self.partition_of(key)
        shard = self.shards.get(partition)
        if shard is not None:
            return shard
        tp = self._partitions[partition]
        if partition in self._loading:
            raise CoordinatorLoadInProgress(f"{tp} is still being read")
        raise NotCoordinator(f"this broker does not lead {tp}")

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def is_active(self, partition: int, shard: S) -> bool:
        return self.shards.get(partition) is shard

    # Records

    def write(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        fields: BatchFields = DEFAULT_FIELDS,
        verified: Verification | None = TRUSTED,
    ) -> Offset:
        """Append keys and values in one batch, with the current time. Returns the end offset of the batch.

        Nothing is written if it raises: CoordinatorNotAvailable, NotCoordinator, or an error of the log.
        """
        return self.append(partition, build_at(self.clock.now_ms(), records, fields), verified)

    def append(self, partition: int, batch: bytearray, verified: Verification | None = TRUSTED) -> Offset:
        """As `write`, for a batch that is already built."""
        tp = self._partitions[partition]
        try:
            return self._replicas.append(tp, batch, AppendOrigin.COORDINATOR, verified).last_offset + 1
        except (UnknownTopicOrPartition, StorageError, NotEnoughReplicas) as error:
            raise CoordinatorNotAvailable(f"{tp} cannot be written: {error}") from error
        except NotLeaderOrFollower as error:
            raise NotCoordinator(f"{tp} cannot be written here: {error}") from error

    def write_tombstones(
        self, partition: int, keys: Iterable[bytes], fields: BatchFields = DEFAULT_FIELDS
    ) -> Offset | None:
        """Delete keys, in as many batches as needed. Returns the end offset of the last one; None: no keys."""
        hosted = self._replicas.hosted.get(self._partitions[partition])
        max_bytes = 0 if hosted is None else hosted.log.config.max_message_bytes // 2
        end: Offset | None = None
        for batch in tombstone_batches(keys, max_bytes):
            end = self.write(partition, [CoordinatorRecord(key, None) for key in batch], fields)
        return end

    # Commitment

    def is_committed(self, partition: int, offset: Offset) -> bool:
        """Whether all records below the offset are on every in-sync replica."""
        hosted = self._replicas.hosted.get(self._partitions[partition])
        return hosted is not None and hosted.leader_state is not None and hosted.leader_state.is_safe(offset)

    def when_committed(self, partition: int, offset: Offset, on_committed: OnCommitted) -> None:
        """Calls `on_committed` once all records below the offset are committed, or with the error if they cannot be.

        Without other replicas, it is called at once. It is called even if the client has disconnected.
        """
        if self.is_committed(partition, offset):
            on_committed(None)
        else:
            spawn(self._wait_until_committed(partition, offset, on_committed), self._commit_waits)

    async def _wait_until_committed(self, partition: int, offset: Offset, on_committed: OnCommitted) -> None:
        timeout_ms = None if self.topic.commit_timeout_ms is None else self.topic.commit_timeout_ms()
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self.committed(partition, offset)
        except TimeoutError:
            tp = self._partitions[partition]
            on_committed(RequestTimedOut(f"{tp} has too few replicas: {timeout_ms} ms were not enough"))
        except WireError as error:
            on_committed(error)
        else:
            on_committed(None)

    async def committed(self, partition: int, offset: Offset) -> None:
        """Wait until all records below the offset are committed. NotCoordinator once another broker leads."""
        try:
            await self._replicas.committed(self._partitions[partition], offset)
        except WireError as error:
            raise NotCoordinator(str(error)) from error

    # Loading and unloading

    def _became_leader(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        if tp.topic == self.topic.name:
            self._unload(tp.partition)
            self._loading[tp.partition] = asyncio.create_task(self._load(tp, hosted), name=f"loading {tp}")

    def _resigned(self, tp: TopicPartition) -> None:
        if tp.topic == self.topic.name:
            self._unload(tp.partition)

    def _unload(self, partition: int) -> None:
        if (task := self._loading.pop(partition, None)) is not None:
            task.cancel()
        if (shard := self.shards.pop(partition, None)) is not None:
            shard.unloaded()

    async def _load(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        while True:
            shard, partition_log = self._new_shard(tp.partition, hosted.leader.epoch), hosted.log
            try:
                replayed = await self._replay(tp, partition_log, shard)
                break
            except WireError:  # another broker leads, or the partition is offline: the shard is unloaded
                return
            except (CorruptFile, OSError, MemoryError, RuntimeError) as error:
                if (lacking := shortage(error)) is not None:
                    log.warning("%s cannot be read yet; retrying: %s", tp, lacking)
                    await asyncio.sleep(RETRY_S)
                elif isinstance(error, (MemoryError, RuntimeError)):
                    raise
                elif partition_log is hosted.log:  # otherwise it was moved to another directory in the meantime
                    partition_log.failed("reading", error)  # which takes it offline and unloads the shard
                    return
        if replayed:
            log.info("read %s: %d records", tp, replayed)
        del self._loading[tp.partition]
        self.shards[tp.partition] = shard
        shard.loaded()

    async def _replay(self, tp: TopicPartition, partition_log: Log, shard: S) -> int:
        """Replay all records. Returns their number, once those of earlier epochs are committed.

        The next leader may lack the others. It would decide anew, and contradict what was answered from them.
        """
        buffer_bytes = self.topic.load_buffer_bytes()
        replayed = await replay_log(partition_log, shard, buffer_bytes)
        end = partition_log.log_end
        await self._replicas.committed(tp, end)
        return replayed + await replay_log(partition_log, shard, buffer_bytes, end)


class _TopicPartitions(dict[int, TopicPartition]):
    """The partitions of one topic, each created once."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, partition: int) -> TopicPartition:
        tp = self[partition] = TopicPartition(self._topic, partition)
        return tp


@lru_cache(maxsize=10_000)
def partition_for(key: str, count: int) -> int:
    """The partition, out of `count`, of a group or a transactional id: by Java's hash of its name."""
    value = string_hash(key)
    if value == INT_MIN:
        return 0
    return (value if value < INT_MIN else (1 << 32) - value) % count


def tombstone_batches(keys: Iterable[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Keys in groups whose tombstones fit into `max_bytes`. A single key is never too large."""
    batch: list[bytes] = []
    size = 0
    for key in keys:
        record_bytes = len(key) + RECORD_OVERHEAD_BYTES
        if batch and size + record_bytes > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += record_bytes
    if batch:
        yield batch
