"""The coordinator of transactions: what each transactional id is at, kept in the journal `__transaction_state`.

The law of a transaction that ends:

    Prepare is committed to the journal; from now on its outcome stands, and the producer is told
    a marker is committed to each of its partitions
    Complete is committed to the journal; from now on the next one may begin

A coordinator that finds a transaction prepared when it reads its journal goes on with the second step. One that runs
out of time is aborted under an epoch that its producer does not have.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from itertools import islice

from leadline.config.coordinators import CoordinatorConfig
from leadline.coordinator.markers import Markers, TransactionOutcome
from leadline.coordinator.runtime import CoordinatorRuntime, partition_for
from leadline.coordinator.transaction import (
    COMPLETED,
    ProducerIdAndEpoch,
    TransactionalId,
    TransactionMetadata,
    TransactionState,
)
from leadline.coordinator.transaction_records import read_key, read_value, transaction_record
from leadline.errors import (
    ConcurrentTransactions,
    CorruptMessage,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotCoordinator,
    RecordListTooLarge,
    RecordTooLarge,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnknownServerError,
    WireError,
)
from leadline.model import LeaderEpoch, ProducerId, TopicPartition
from leadline.records.batch import Header
from leadline.records.record import Record
from leadline.replication.replicas import Replicas
from leadline.runtime.periodic import every, spawn
from leadline.runtime.ports import Clock

log = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"
RETRY_SECONDS = 0.1
COMPLETION_SECONDS = 0.5  # a producer that goes on waits so long for its last transaction to be completed
ABORTS_AT_ONCE = 100
PER_TOMBSTONE = 32  # bytes of a record around its key, at most


class TransactionShard:
    """The transactional ids of one partition of the journal, for one leader epoch."""

    def __init__(self, partition: int, epoch: LeaderEpoch, complete: "Callable[[TransactionShard], None]") -> None:
        self.partition, self.epoch = partition, epoch
        self.transactional_ids: dict[str, TransactionalId] = {}
        self.completing: dict[str, asyncio.Task[None]] = {}  # by transactional id: done once Complete is committed
        self._complete = complete

    def replay(self, header: Header, records: Iterable[Record]) -> None:
        if header.is_control:
            return
        for record in records:
            try:
                self._replay(record)
            except CorruptMessage as error:
                log.error(
                    "%s-%d, offset %d is passed over: %s", TRANSACTIONS_TOPIC, self.partition, record.offset, error
                )

    def _replay(self, record: Record) -> None:
        name = read_key(record.key)
        if name is None:
            return  # of a newer broker
        if record.value is None:
            self.transactional_ids.pop(name, None)
        else:
            self.transactional_ids[name] = TransactionalId(name, read_value(record.value))

    def loaded(self) -> None:
        self._complete(self)

    def unloaded(self) -> None:
        for task in self.completing.values():
            task.cancel()


class TransactionCoordinator:
    def __init__(
        self,
        replicas: Replicas,
        clock: Clock,
        config: Callable[[], CoordinatorConfig],
        markers: Markers,
        partition_count: Callable[[], int | None],
        next_producer_id: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        self.clock, self.config, self.markers = clock, config, markers
        self._partition_count, self._next_producer_id = partition_count, next_producer_id
        self.runtime = CoordinatorRuntime(
            TRANSACTIONS_TOPIC,
            replicas,
            clock,
            self._new_shard,
            lambda: config().transaction_state_log_load_buffer_size,
        )
        self._partitions: int | None = None  # of the journal; does not follow it if it grows, as ids would move with it
        self._writing: set[asyncio.Task[None]] = set()
        self._periodic_tasks: list[asyncio.Task[None]] = []

    def _new_shard(self, partition: int, epoch: LeaderEpoch) -> TransactionShard:
        return TransactionShard(partition, epoch, self._complete_prepared)

    # What producers ask for

    async def init(self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch:
        """An epoch for a producer that begins; those before it are fenced, what they left open is aborted.

        ConcurrentTransactions until the abort is complete.
        """
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        most = self.config().transaction_max_timeout_ms
        if not 0 < timeout_ms <= most:
            raise InvalidTransactionTimeout(
                f"{name}: a timeout of {timeout_ms} ms is not within 1 and transaction.max.timeout.ms={most}"
            )
        new_id = None
        while (decided := self._decide_init(name, timeout_ms, expected, new_id)) is None:
            new_id = await self._next_producer_id()
        shard, held, txn = decided
        await asyncio.shield(self._write(shard, held, txn))
        if txn.state is not TransactionState.EMPTY:
            raise ConcurrentTransactions(f"{name}: the transaction that was left open is being aborted")
        return ProducerIdAndEpoch(txn.producer_id, txn.producer_epoch)

    def _decide_init(
        self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, new_id: ProducerId | None
    ) -> tuple[TransactionShard, TransactionalId, TransactionMetadata] | None:
        """None: it takes a new producer id."""
        shard, now_ms = self._shard(name), self.clock.now_ms()
        held = shard.transactional_ids.get(name)
        if new_id is None and (held is None or held.needs_producer_id(expected)):
            return None
        if held is None:
            assert new_id is not None
            fresh = TransactionMetadata(producer_id=new_id, timeout_ms=timeout_ms, last_update_ms=now_ms)
            held = TransactionalId(name, fresh)
        return shard, held, held.init(timeout_ms, expected, now_ms, new_id)

    async def add_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Waits a moment for the transaction before to be completed. ConcurrentTransactions if that takes longer.

        A producer that is refused at once would ask again later. If it aborts meanwhile, it aborts what never began.
        """
        shard, held = self._find(name)
        try:
            txn = held.add(producer, frozenset(partitions), self.clock.now_ms())
        except ConcurrentTransactions:
            if not await self._is_completed(shard, name):
                raise
            shard, held = self._find(name)
            txn = held.add(producer, frozenset(partitions), self.clock.now_ms())
        if txn is not None:
            await asyncio.shield(self._write(shard, held, txn))

    async def _is_completed(self, shard: TransactionShard, name: str) -> bool:
        """Whether what was being completed is so, after a moment at most."""
        task = shard.completing.get(name)
        if task is None:
            return False
        done, _ = await asyncio.wait([task], timeout=COMPLETION_SECONDS)
        return bool(done)

    async def end(self, name: str, producer: ProducerIdAndEpoch, *, commit: bool) -> None:
        """Back when the outcome stands; the markers are written behind it."""
        shard, held = self._find(name)
        txn = held.end(producer, commit=commit, now_ms=self.clock.now_ms())
        if txn is not None:
            await asyncio.shield(self._write(shard, held, txn))

    def verify(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, WireError | None]:
        """Whether partitions are part of a producer's transaction now; with each that is not, why."""
        try:
            _, held = self._find(name)
        except WireError as error:
            return dict.fromkeys(partitions, error)
        return {tp: held.verify(producer, tp) for tp in partitions}

    # What administrators ask for

    def describe(self, name: str) -> TransactionMetadata:
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        held = self._shard(name).transactional_ids.get(name)
        if held is None:
            raise TransactionalIdNotFound(f"there is no transactional id {name}")
        return held.metadata

    def all(self) -> Iterator[TransactionalId]:
        """Those whose coordinator this broker is."""
        for shard in self.runtime.shards.values():
            yield from shard.transactional_ids.values()

    @property
    def is_loading(self) -> bool:
        return self.runtime.is_loading

    # The journal

    def partition_of(self, name: str) -> int:
        """The partition of the journal that keeps an id: whoever leads it is the id's coordinator."""
        existing = self._partition_count()
        if existing is None:
            self._partitions = None
            return partition_for(name, self.config().transaction_state_log_num_partitions)
        if self._partitions is None:
            self._partitions = existing
        return partition_for(name, self._partitions)

    def _shard(self, name: str) -> TransactionShard:
        """NotCoordinator, CoordinatorLoadInProgress."""
        return self.runtime.shard(self.partition_of(name))

    def _find(self, name: str) -> tuple[TransactionShard, TransactionalId]:
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        shard = self._shard(name)
        held = shard.transactional_ids.get(name)
        if held is None:
            raise InvalidProducerIdMapping(f"no producer is known under the transactional id {name}")
        return shard, held

    def _write(self, shard: TransactionShard, held: TransactionalId, txn: TransactionMetadata) -> "asyncio.Task[None]":
        """Write what was decided: pending, until it is committed. Goes on if who asked for it goes away."""
        try:
            offset = self.runtime.write(shard.partition, [transaction_record(held.name, txn)])
        except (RecordTooLarge, RecordListTooLarge) as error:
            raise UnknownServerError(f"{held.name} has too many partitions: {error}") from error
        held.pending = txn
        shard.transactional_ids[held.name] = held
        return spawn(self._settle(shard, held, offset), self._writing)

    async def _settle(self, shard: TransactionShard, held: TransactionalId, offset: int) -> None:
        await self.runtime.committed(shard.partition, offset)
        if not self._is_ours(shard):
            raise NotCoordinator(f"{held.name} has another coordinator now")
        held.committed()
        if held.metadata.state in COMPLETED:
            self._complete(shard, held)

    # Markers

    def _complete_prepared(self, shard: TransactionShard) -> None:
        for held in shard.transactional_ids.values():
            if held.metadata.state in COMPLETED:
                log.info(
                    "%s was %s when its coordinator stopped: it is completed", held.name, held.metadata.state.label
                )
                self._complete(shard, held)

    def _complete(self, shard: TransactionShard, held: TransactionalId) -> None:
        held.pending = held.complete(self.clock.now_ms())
        task = asyncio.create_task(self._bring_markers(shard, held), name=f"completing {held.name}")
        shard.completing[held.name] = task
        task.add_done_callback(lambda _: shard.completing.pop(held.name))

    async def _bring_markers(self, shard: TransactionShard, held: TransactionalId) -> None:
        txn = held.metadata
        producer = ProducerIdAndEpoch(txn.producer_id, txn.producer_epoch)
        outcome = TransactionOutcome(producer, shard.epoch, txn.state is TransactionState.PREPARE_COMMIT)
        try:
            await self.markers.bring(outcome, txn.partitions, held.marked)
            await self._write_completion(shard, held)
        except TransactionCoordinatorFenced as error:
            log.warning("%s is left to a newer coordinator: %s", held.name, error)

    async def _write_completion(self, shard: TransactionShard, held: TransactionalId) -> None:
        txn, noted = held.complete(self.clock.now_ms()), False
        while self._is_ours(shard):
            try:
                await self._write(shard, held, txn)
                return
            except WireError as error:
                if not noted:
                    log.warning("%s is tried again until it is %s: %s", held.name, txn.state.label, error)
                    noted = True
            await asyncio.sleep(RETRY_SECONDS)

    def _is_ours(self, shard: TransactionShard) -> bool:
        return self.runtime.shards.get(shard.partition) is shard

    # Time

    def start(self) -> None:
        config = self.config()
        self._periodic_tasks = [
            asyncio.create_task(every(interval_ms, work), name=name)
            for interval_ms, work, name in (
                (
                    config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
                    self._abort_all_timed_out,
                    "transaction-abort",
                ),
                (
                    config.transaction_remove_expired_transaction_cleanup_interval_ms,
                    self._forget_all_expired,
                    "transactionalId-expiration",
                ),
            )
        ]

    async def stop(self) -> None:
        """What is prepared is completed after the next start."""
        completing = [task for shard in self.runtime.shards.values() for task in shard.completing.values()]
        await self.runtime.stop()
        for timer in self._periodic_tasks:
            timer.cancel()
        await asyncio.gather(*self._periodic_tasks, *completing, *self._writing, return_exceptions=True)

    async def _abort_all_timed_out(self) -> None:
        while self.abort_timed_out():  # noqa: ASYNC110 - others get their turn
            await asyncio.sleep(0)

    async def _forget_all_expired(self) -> None:
        self.forget_expired()

    def abort_timed_out(self) -> bool:
        """Some at a time, so that others get their turn. True: there may be more."""
        now_ms, failed = self.clock.now_ms(), False
        shards = self.runtime.shards.values()
        due = (
            (shard, held) for shard in shards for held in shard.transactional_ids.values() if held.is_timed_out(now_ms)
        )
        some = list(islice(due, ABORTS_AT_ONCE))
        for shard, held in some:
            log.info("%s is aborted: it is open for longer than its %d ms", held.name, held.metadata.timeout_ms)
            try:
                self._write(shard, held, held.fence(now_ms))
            except WireError as error:
                log.warning("%s cannot be aborted now: %s", held.name, error)
                failed = True
        return len(some) == ABORTS_AT_ONCE and not failed

    def forget_expired(self) -> None:
        now_ms, expiration_ms = self.clock.now_ms(), self.config().transactional_id_expiration_ms
        for shard in self.runtime.shards.values():
            expired = [held for held in shard.transactional_ids.values() if held.is_expired(now_ms, expiration_ms)]
            try:
                for some in self._batches(shard, expired):
                    self._forget(shard, some)
            except WireError as error:
                log.warning("transactional ids cannot be forgotten now: %s", error)

    def _batches(self, shard: TransactionShard, expired: Iterable[TransactionalId]) -> Iterator[list[TransactionalId]]:
        """As many as fit into one batch of records."""
        most = self.runtime.max_bytes(shard.partition)
        some: list[TransactionalId] = []
        size = 0
        for held in expired:
            one = len(held.name.encode()) + PER_TOMBSTONE
            if some and size + one > most:
                yield some
                some, size = [], 0
            some.append(held)
            size += one
        if some:
            yield some

    def _forget(self, shard: TransactionShard, expired: Collection[TransactionalId]) -> None:
        offset = self.runtime.write(shard.partition, [transaction_record(held.name, None) for held in expired])
        for held in expired:
            held.pending = held.expire()
        spawn(self._forgotten(shard, expired, offset), self._writing)

    async def _forgotten(self, shard: TransactionShard, expired: Collection[TransactionalId], offset: int) -> None:
        await self.runtime.committed(shard.partition, offset)
        for held in expired:
            del shard.transactional_ids[held.name]
        log.info("%d transactional ids were idle for long and are forgotten", len(expired))
