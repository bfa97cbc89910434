"""Bugs that a test plants into the product, to see that a simulation finds them. Each breaks one law on purpose.

`BUGS` is the registry. Each entry names the beginning of the violation that the bug causes. The scenario in
`scenarios/`, under the name of the bug, is known to find it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple
from unittest import mock

from leadline.api import partition_reader
from leadline.controller.tree_writer import Transactions
from leadline.coordinator.runtime import OnCommitted
from leadline.coordinator.transaction import COMPLETED, ProducerIdAndEpoch, TransactionalId, TransactionMetadata
from leadline.coordinator.transaction_coordinator import TransactionCoordinator
from leadline.coordinator.transaction_records import transaction_record
from leadline.coordinator.transaction_shard import TransactionShard
from leadline.log import local_log, recovery
from leadline.log.epochs import EpochEnd
from leadline.log.local_log import LocalLog
from leadline.log.producer_entry import ProducerEntry
from leadline.log.producer_snapshots import ProducerSnapshots
from leadline.log.producer_state import ProducerAppend, ProducerState
from leadline.log.segment_scan import SegmentScan, scan_segment
from leadline.model import BrokerId, Offset
from leadline.records.batch import Header
from leadline.replication import follower, replicas
from leadline.replication.follower import FollowerEffects, FollowerState, OwnLog
from leadline.replication.partition import NOTHING, FollowerProgress, LeaderEffects, LeaderState
from leadline.runtime.ports import Files

Plant = Callable[[], AbstractContextManager[None]]


class PlantedBug(NamedTuple):
    plant: Plant
    violation: str  # how it begins

    @property
    def name(self) -> str:
        return self.plant.__name__


def _patched(owner: object, name: str, value: object) -> Any:
    return mock.patch.object(owner, name, value)


@contextmanager
def acknowledged_by_the_leader_alone() -> Iterator[None]:
    """The high watermark is the end of the leader's log, whatever the followers have."""

    def advance(self: LeaderState, now_ms: int) -> Offset | None:
        if self.log_end <= self.high_watermark:
            return None
        self.high_watermark = self.log_end
        return self.log_end

    with _patched(LeaderState, "_advance", advance):
        yield


@contextmanager
def repeated_batches_are_appended() -> Iterator[None]:
    """No leader looks for the sequence numbers of a batch."""

    def no_duplicate(self: ProducerState, header: Header) -> None:
        """It is taken for new."""

    def check(self: ProducerAppend, epoch: int, first: int, offset: Offset) -> None:
        """Any sequence number will do."""

    with _patched(ProducerState, "duplicate_of", no_duplicate), _patched(ProducerAppend, "_check_sequence", check):
        yield


@contextmanager
def the_fast_path_skips_the_sequence_check() -> Iterator[None]:
    """A batch of a producer of the current epoch is appended at once, whatever its sequence number."""

    def next_of_producer(self: ProducerState, header: Header) -> ProducerEntry | None:
        entry = self.by_id.get(header.producer_id)
        return entry if entry is not None and header.producer_epoch == entry.epoch and entry.batches else None

    with _patched(ProducerState, "next_in_sequence", next_of_producer):
        yield


@contextmanager
def leaders_do_not_tell_where_logs_diverge() -> Iterator[None]:
    """Truncation by leader epoch is off: a follower keeps what its leader never had."""
    with _patched(partition_reader, "_divergence", lambda log, position: None):
        yield


@contextmanager
def followers_do_not_truncate_where_logs_diverge() -> Iterator[None]:
    """Truncation by leader epoch is off: a follower hears where the logs diverge, and does nothing."""

    def whole_log(end: EpochEnd, log: OwnLog) -> Offset:
        return log.log_end

    with _patched(follower, "_agreed", whole_log):
        yield


@contextmanager
def followers_truncate_to_the_high_watermark() -> Iterator[None]:
    """As Kafka before leader epochs: the high watermark of a follower is behind that of its leader."""
    follow = follower.follow

    def truncate_first(log: OwnLog, *args: Any, **kwargs: Any) -> tuple[FollowerState, FollowerEffects]:
        state, _ = follow(log, *args, **kwargs)
        return state, FollowerEffects(truncate_to=log.high_watermark)

    with _patched(replicas, "follow", truncate_first):
        yield


@contextmanager
def the_isr_is_not_checked_after_an_append() -> Iterator[None]:
    """What was appended with enough replicas in sync is acknowledged with too few of them."""

    def advance(self: LeaderState, now_ms: int) -> Offset | None:
        safe, in_sync = self.durable_end, self.maximal_isr
        for replica, progress in self.followers.items():
            if progress.log_end < safe and (replica in in_sync or self._is_joining(replica, progress, now_ms)):
                safe = progress.log_end
        if safe <= self.high_watermark:
            return None
        self.high_watermark = safe
        return safe

    with _patched(LeaderState, "_advance", advance), _patched(LeaderState, "too_few_in_sync", lambda self: None):
        yield


@contextmanager
def the_high_watermark_goes_by_a_proposed_isr() -> Iterator[None]:
    """A replica that is to leave the ISR is not waited for, though the controller has not agreed."""

    def proposed_isr(self: LeaderState) -> tuple[BrokerId, ...]:
        return self.isr if self.pending is None else self.pending.proposed.isr

    with _patched(LeaderState, "maximal_isr", property(proposed_isr)):
        yield


@contextmanager
def recovery_does_not_check_the_crc() -> Iterator[None]:
    """A batch of the right size is taken for whole."""

    def scan(files: Files, segment: Any, *args: Any, flushed: bool = False, **kwargs: Any) -> SegmentScan:
        return scan_segment(files, segment, *args, flushed=True, **kwargs)

    with _patched(recovery, "scan_segment", scan):
        yield


@contextmanager
def epochs_are_not_persisted() -> Iterator[None]:
    """A leader appends in a new epoch, and its file of epochs does not have it."""

    def keep_in_memory(self: LocalLog) -> None:
        """The file stays as it is."""

    with _patched(LocalLog, "write_epochs", keep_in_memory):
        yield


@contextmanager
def a_controller_writes_without_its_epoch() -> Iterator[None]:
    """A deposed controller can write."""

    async def end(self: Transactions) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting:
            await self._tree.multi(waiting)

    with _patched(Transactions, "end", end):
        yield


@contextmanager
def snapshots_are_not_synced() -> Iterator[None]:
    """The recovery point passes a producer snapshot that is not on disk."""
    take = ProducerSnapshots.take

    def take_unsynced(self: ProducerSnapshots, producers: ProducerState, *, sync: bool) -> str | None:
        return take(self, producers, sync=False)

    def no_sync(files: Files, path: str) -> None:
        """It stays in the page cache."""

    with _patched(ProducerSnapshots, "take", take_unsynced), _patched(local_log, "sync_file", no_sync):
        yield


@contextmanager
def a_departed_replica_counts_as_joining() -> Iterator[None]:
    """A leader keeps the last contact of a replica that has left, waits for it, and nothing makes it look again."""

    def epoch_began(self: FollowerProgress, leader_end: Offset, now_ms: int, *, in_sync: bool) -> None:
        self.leader_end, self.is_refused = leader_end, False
        self.fetched_ms = self.caught_up_ms = now_ms if in_sync else 0

    def brokers_left(self: LeaderState, gone: Collection[BrokerId], now_ms: int) -> LeaderEffects:
        return NOTHING

    with (
        _patched(FollowerProgress, "epoch_began", epoch_began),
        _patched(LeaderState, "brokers_left", brokers_left),
    ):
        yield


@contextmanager
def markers_are_written_before_prepare_is_committed() -> Iterator[None]:
    """A coordinator that crashes then leaves markers of a decision that nobody has."""
    write = TransactionCoordinator._write

    def write_markers_at_once(
        self: TransactionCoordinator,
        shard: TransactionShard,
        transactional_id: TransactionalId,
        metadata: TransactionMetadata,
        on_written: OnCommitted = lambda error: None,
    ) -> None:
        if metadata.state not in COMPLETED:
            write(self, shard, transactional_id, metadata, on_written)
            return
        end = self.runtime.write(shard.partition, [transaction_record(transactional_id.name, metadata)])
        transactional_id.pending = metadata
        self._committed(shard, transactional_id)
        self.runtime.when_committed(shard.partition, end, on_written)

    with _patched(TransactionCoordinator, "_write", write_markers_at_once):
        yield


@contextmanager
def a_commit_is_answered_before_it_is_replicated() -> Iterator[None]:
    """Another coordinator may abort what the producer was told is committed."""
    write_and_wait = TransactionCoordinator._write_and_wait

    async def answer_at_once(
        self: TransactionCoordinator,
        shard: TransactionShard,
        transactional_id: TransactionalId,
        metadata: TransactionMetadata,
    ) -> None:
        if metadata.state in COMPLETED:
            self._write(shard, transactional_id, metadata)
        else:
            await write_and_wait(self, shard, transactional_id, metadata)

    with _patched(TransactionCoordinator, "_write_and_wait", answer_at_once):
        yield


@contextmanager
def a_fenced_producer_is_accepted_once() -> Iterator[None]:
    """The instance before the last one of a transactional id goes on."""
    check_producer, check_epoch = TransactionalId._check_producer, ProducerAppend._check_epoch

    def check_at_coordinator(self: TransactionalId, producer: ProducerIdAndEpoch) -> None:
        if producer.epoch != self._epoch - 1:
            check_producer(self, producer)

    def check_at_leader(self: ProducerAppend, epoch: int, offset: Offset) -> None:
        if epoch != self.updated.epoch - 1:
            check_epoch(self, epoch, offset)

    with (
        _patched(TransactionalId, "_check_producer", check_at_coordinator),
        _patched(ProducerAppend, "_check_epoch", check_at_leader),
    ):
        yield


BUGS: Sequence[PlantedBug] = (
    PlantedBug(acknowledged_by_the_leader_alone, "too few replicas"),
    PlantedBug(repeated_batches_are_appended, "doubled write"),
    PlantedBug(the_fast_path_skips_the_sequence_check, "doubled write"),
    PlantedBug(leaders_do_not_tell_where_logs_diverge, "different replicas"),
    PlantedBug(followers_truncate_to_the_high_watermark, "in sync without"),
    PlantedBug(the_isr_is_not_checked_after_an_append, "too few replicas"),
    PlantedBug(the_high_watermark_goes_by_a_proposed_isr, "in sync without"),
    PlantedBug(recovery_does_not_check_the_crc, "unreadable records"),
    PlantedBug(epochs_are_not_persisted, "inconsistent epochs"),
    PlantedBug(a_controller_writes_without_its_epoch, "deposed controller"),
    PlantedBug(snapshots_are_not_synced, "damaged snapshot"),
    PlantedBug(a_departed_replica_counts_as_joining, "paused acknowledgements"),
    PlantedBug(a_fenced_producer_is_accepted_once, "not exactly once"),
)
SEARCHED_BUGS: Sequence[PlantedBug] = (  # without a scenario that is short enough: `--long` searches for seeds
    PlantedBug(followers_do_not_truncate_where_logs_diverge, "stalled"),
    PlantedBug(markers_are_written_before_prepare_is_committed, "not exactly once"),
    PlantedBug(a_commit_is_answered_before_it_is_replicated, "visible abort"),
)
BY_NAME = {bug.name: bug for bug in (*BUGS, *SEARCHED_BUGS)}
