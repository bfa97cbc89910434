"""An internal topic as the journal of a coordinator.

What a coordinator knows is what a replay of its journal gives. Each partition of the topic is a shard: whoever leads
the partition is the coordinator of all that hashes to it, for one leader epoch. It first replays the shard from the
log's start to its end, then serves; it ends when the partition is led by another, or is deleted.

    decide over the shard's state; write; apply to the state what was written; answer once it is committed

Between deciding and applying nothing may be awaited: the loop's one thread is all the locking there is.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, Protocol, TypeVar

from leadline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    LogDirFailed,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StorageError,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.hash_order import string_hash
from leadline.log.log import Isolation
from leadline.log.producer_state import TRUSTED, AppendOrigin, Verification
from leadline.model import LeaderEpoch, Offset, TopicPartition
from leadline.records.batch import Header, walk
from leadline.records.build import BatchFields, build_at
from leadline.records.record import Record, records_of
from leadline.replication.replicas import HostedPartition, Replicas
from leadline.runtime.ports import Clock, shortage

log = logging.getLogger(__name__)

RETRY_S = 1.0  # after which a log is read again for which a resource was short
TURN_BYTES = 64 * 1024  # replayed between two turns of the others; a larger batch is replayed whole
PLAIN = BatchFields()
INT_MIN = 1 << 31  # as an unsigned word: the one number whose absolute value Java cannot tell


class CoordinatorRecord(NamedTuple):
    """A record to be written; no value: its key is forgotten."""

    key: bytes
    value: bytes | None


class CoordinatorShard(Protocol):
    """What a coordinator keeps of one partition. Made empty, filled by the replay, then in use until it resigns."""

    def replay(self, header: Header, records: Iterable[Record]) -> None: ...

    def loaded(self) -> None:
        """All of the journal was replayed. What was under way goes on, timers start."""

    def unloaded(self) -> None:
        """Another coordinator is responsible. Timers end; who waits is told NotCoordinator."""


S = TypeVar("S", bound=CoordinatorShard)


class CoordinatorRuntime(Generic[S]):
    """The shards of an internal topic that this broker leads."""

    def __init__(
        self,
        topic: str,
        replicas: Replicas,
        clock: Clock,
        new_shard: Callable[[int, LeaderEpoch], S],
        load_bytes: Callable[[], int],
    ) -> None:
        """`load_bytes`: to be read at a time when a shard is loaded."""
        self.topic, self.replicas, self.clock = topic, replicas, clock
        self._load_bytes = load_bytes
        self._tps = _TopicPartitions(topic)
        self.shards: dict[int, S] = {}  # those in use
        self._new_shard = new_shard
        self._loading: dict[int, asyncio.Task[None]] = {}
        replicas.on_lead.append(self._lead)
        replicas.on_drop.append(self._drop)

    def shard(self, partition: int) -> S:
        """NotCoordinator, CoordinatorLoadInProgress."""
        found = self.shards.get(partition)
        if found is not None:
            return found
        tp = self._tps[partition]
        if partition in self._loading:
            raise CoordinatorLoadInProgress(f"{tp} is still being read")
        raise NotCoordinator(f"this broker does not lead {tp}")

    @property
    def is_loading(self) -> bool:
        return bool(self._loading)

    def write(
        self,
        partition: int,
        entries: Sequence[tuple[bytes, bytes | None]],
        fields: BatchFields | None = None,
        verified: Verification | None = TRUSTED,
    ) -> Offset:
        """Append entries in one batch, with the time of now. The offset behind them: see `committed`.

        Nothing is written if it raises: CoordinatorNotAvailable, NotCoordinator, or what the log has against it.
        """
        return self.append(partition, build_at(self.clock.now_ms(), entries, fields or PLAIN), verified)

    def append(self, partition: int, batch: bytearray, verified: Verification | None = TRUSTED) -> Offset:
        """As `write`, for a batch that is there already: the marker of a transaction."""
        tp = self._tps[partition]
        try:
            return self.replicas.append(tp, batch, AppendOrigin.COORDINATOR, verified).last_offset + 1
        except (UnknownTopicOrPartition, StorageError, NotEnoughReplicas) as error:
            raise CoordinatorNotAvailable(f"{tp} cannot be written: {error}") from error
        except NotLeaderOrFollower as error:
            raise NotCoordinator(f"{tp} cannot be written here: {error}") from error

    def is_committed(self, partition: int, offset: Offset) -> bool:
        hosted = self.replicas.hosted.get(self._tps[partition])
        return hosted is not None and hosted.leads is not None and hosted.leads.is_safe(offset)

    def max_bytes(self, partition: int) -> int:
        """Of entries that surely fit into one batch."""
        return self.replicas.leading(self._tps[partition]).log.config.max_message_bytes // 2

    async def committed(self, partition: int, offset: Offset) -> None:
        """Wait until all below an offset is on every in-sync replica. NotCoordinator once another leads."""
        try:
            await self.replicas.committed(self._tps[partition], offset)
        except WireError as error:
            raise NotCoordinator(str(error)) from error

    async def stop(self) -> None:
        for partition in list(self._loading):
            self._loading.pop(partition).cancel()
        for shard in self.shards.values():
            shard.unloaded()
        self.shards.clear()

    def _lead(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        if tp.topic == self.topic:
            self._resign(tp.partition)
            task = asyncio.create_task(self._load(tp, hosted), name=f"loading {tp}")
            self._loading[tp.partition] = task

    def _drop(self, tp: TopicPartition) -> None:
        if tp.topic == self.topic:
            self._resign(tp.partition)

    def _resign(self, partition: int) -> None:
        if (task := self._loading.pop(partition, None)) is not None:
            task.cancel()
        if (shard := self.shards.pop(partition, None)) is not None:
            shard.unloaded()

    async def _load(self, tp: TopicPartition, hosted: HostedPartition) -> None:
        while True:
            shard = self._new_shard(tp.partition, hosted.leader.epoch)
            try:
                replayed = await self._replay(hosted, shard)
                break
            except (WireError, LogDirFailed, OSError, MemoryError, RuntimeError) as error:
                if (lacking := shortage(error)) is not None:
                    log.warning("%s cannot be read yet and is tried again: %s", tp, lacking)
                    await asyncio.sleep(RETRY_S)
                elif isinstance(error, RuntimeError):
                    raise
                else:
                    log.error("%s cannot be read, nobody is served from it: %s", tp, error)
                    return  # and stays in _loading: asked for it, we say that it is not read yet
        if replayed:
            log.info("read %s: %d records", tp, replayed)
        del self._loading[tp.partition]
        self.shards[tp.partition] = shard
        shard.loaded()

    async def _replay(self, hosted: HostedPartition, shard: S) -> int:
        """From the log's start to its end; nothing is written meanwhile, as nobody is served."""
        offset, replayed = hosted.log.log_start, 0
        while offset < hosted.log.log_end:
            at = hosted.log.read(offset, self._load_bytes(), Isolation.LOG_END).slice
            if at is None:
                break  # compaction left nothing behind it
            data, turn_ends_at = await asyncio.to_thread(at.file.pread, at.length, at.position), TURN_BYTES
            for position, header in walk(data):
                if header.last_offset >= offset:
                    shard.replay(header, records_of(data, position, header))
                    replayed += header.record_count
                    offset = header.last_offset + 1
                if position >= turn_ends_at:
                    turn_ends_at = position + TURN_BYTES
                    await asyncio.sleep(0)
        return replayed


class _TopicPartitions(dict[int, TopicPartition]):
    """Of one topic, each made once."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, partition: int) -> TopicPartition:
        found = self[partition] = TopicPartition(self._topic, partition)
        return found


@lru_cache(maxsize=10_000)
def partition_for(key: str, count: int) -> int:
    """The partition, of so many, in which a group or a transactional id is kept: by Java's hash of its name."""
    value = string_hash(key)
    if value == INT_MIN:
        return 0
    return (value if value < INT_MIN else (1 << 32) - value) % count
