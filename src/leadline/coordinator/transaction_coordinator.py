"""The transaction coordinator: producers and transactions by transactional id, kept in `__transaction_state`.

How a transaction ends:

    Prepare is committed to `__transaction_state`: the outcome is final, and the producer gets its reply
    a marker is committed to each partition of the transaction
    Complete is committed to `__transaction_state`: the next transaction may begin

A coordinator that loads a prepared transaction continues with the second step. A transaction that times out is aborted
under an epoch that its producer does not have.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from functools import partial
from itertools import islice

from leadline.config.live_settings import LiveSettings
from leadline.coordinator.marker_channel import MarkerChannel
from leadline.coordinator.marker_writer import AppendedMarkers, TransactionOutcome
from leadline.coordinator.runtime import CoordinatorRuntime, InternalTopic, OnCommitted
from leadline.coordinator.transaction import (
    COMPLETED,
    ProducerIdAndEpoch,
    TransactionalId,
    TransactionMetadata,
    TransactionState,
)
from leadline.coordinator.transaction_records import transaction_key, transaction_record
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC, TransactionShard
from leadline.errors import (
    ConcurrentTransactions,
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
from leadline.replication.replicas import Replicas
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.periodic import every
from leadline.runtime.ports import Time

log = logging.getLogger(__name__)

RETRY_S = 0.1
COMPLETION_WAIT_S = 0.5  # how long a producer that continues waits for its last transaction to be completed
ABORTS_PER_STEP = 100  # before other tasks run


class TransactionCoordinator:
    """The transactional ids whose coordinator this broker is."""

    def __init__(
        self,
        replicas: Replicas,
        clock: Time,
        settings: LiveSettings,
        markers: MarkerChannel,
        partition_count: Callable[[], int | None],
        next_producer_id: Callable[[], Awaitable[ProducerId]],
    ) -> None:
        """`partition_count`: of `__transaction_state`; None: the topic does not exist yet."""
        self._clock, self._settings, self._markers = clock, settings, markers
        self._next_producer_id = next_producer_id
        topic = InternalTopic(
            TRANSACTIONS_TOPIC,
            partition_count,
            lambda: settings.broker.transaction_state_log_num_partitions,
            lambda: settings.broker.transaction_state_log_load_buffer_size,
        )
        self.runtime = CoordinatorRuntime(topic, replicas, clock, self._new_shard)
        self._periodic_tasks: list[asyncio.Task[None]] = []

    def _new_shard(self, partition: int, epoch: LeaderEpoch) -> TransactionShard:
        return TransactionShard(partition, epoch, self._complete_prepared)

    def start(self) -> None:
        config = self._settings.broker
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
                    self._delete_all_expired,
                    "transactionalId-expiration",
                ),
            )
        ]

    async def stop(self) -> None:
        """Prepared transactions are completed after the next start."""
        completing = [task for shard in self.runtime.shards.values() for task in shard.completing.values()]
        await self.runtime.stop()
        for task in self._periodic_tasks:
            task.cancel()
        await all_ended(*self._periodic_tasks, *completing)

    # Requests of producers

    async def init(self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None) -> ProducerIdAndEpoch:
        """A producer begins: it gets an epoch, earlier producers are fenced, their open transaction is aborted.

        ConcurrentTransactions until the abort is complete.
        """
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        max_ms = self._settings.broker.transaction_max_timeout_ms
        if not 0 < timeout_ms <= max_ms:
            raise InvalidTransactionTimeout(
                f"{name}: a timeout of {timeout_ms} ms is not within 1 and transaction.max.timeout.ms={max_ms}"
            )
        new_id = None
        while (decision := self._decide_init(name, timeout_ms, expected, new_id)) is None:
            new_id = await self._next_producer_id()
        shard, transactional_id, metadata = decision
        await self._write_and_wait(shard, transactional_id, metadata)
        if metadata.state is not TransactionState.EMPTY:
            raise ConcurrentTransactions(f"{name}: the transaction that was left open is being aborted")
        return ProducerIdAndEpoch(metadata.producer_id, metadata.producer_epoch)

    def _decide_init(
        self, name: str, timeout_ms: int, expected: ProducerIdAndEpoch | None, new_id: ProducerId | None
    ) -> tuple[TransactionShard, TransactionalId, TransactionMetadata] | None:
        """None: a new producer id is needed."""
        shard, now_ms = self.runtime.shard_of(name), self._clock.now_ms()
        transactional_id = shard.transactional_ids.get(name)
        if new_id is None and (transactional_id is None or transactional_id.needs_producer_id(expected)):
            return None
        if transactional_id is None:
            assert new_id is not None
            fresh = TransactionMetadata(producer_id=new_id, timeout_ms=timeout_ms, last_update_ms=now_ms)
            transactional_id = TransactionalId(name, fresh)
        return shard, transactional_id, transactional_id.init(timeout_ms, expected, now_ms, new_id)

    async def add_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Waits a moment until the last transaction is completed. ConcurrentTransactions if that takes longer.

        A producer that is refused at once would retry later. If it aborted meanwhile, it would abort a transaction that
        never began.
        """
        shard, transactional_id = self._find(name)
        try:
            metadata = transactional_id.add(producer, frozenset(partitions), self._clock.now_ms())
        except ConcurrentTransactions:
            if not await self._is_completed(shard, name):
                raise
            shard, transactional_id = self._find(name)
            metadata = transactional_id.add(producer, frozenset(partitions), self._clock.now_ms())
        if metadata is not None:
            await self._write_and_wait(shard, transactional_id, metadata)

    async def _is_completed(self, shard: TransactionShard, name: str) -> bool:
        """Whether a transaction that is being completed is complete after a moment."""
        task = shard.completing.get(name)
        if task is None:
            return False
        done, _ = await asyncio.wait([task], timeout=COMPLETION_WAIT_S)
        return bool(done)

    async def end(self, name: str, producer: ProducerIdAndEpoch, *, commit: bool) -> None:
        """Commit or abort. Returns once the outcome is final; the markers are written afterwards."""
        shard, transactional_id = self._find(name)
        metadata = transactional_id.end(producer, commit=commit, now_ms=self._clock.now_ms())
        if metadata is not None:
            await self._write_and_wait(shard, transactional_id, metadata)

    def verify(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, WireError | None]:
        """Whether partitions belong to a producer's open transaction. Returns an error for each that does not."""
        try:
            _, transactional_id = self._find(name)
        except WireError as error:
            return dict.fromkeys(partitions, error)
        return {tp: transactional_id.verify(producer, tp) for tp in partitions}

    # Requests of administrators

    def describe(self, name: str) -> TransactionMetadata:
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        transactional_id = self.runtime.shard_of(name).transactional_ids.get(name)
        if transactional_id is None:
            raise TransactionalIdNotFound(f"there is no transactional id {name}")
        return transactional_id.metadata

    def all(self) -> Iterator[TransactionalId]:
        """All transactional ids whose coordinator this broker is."""
        for shard in self.runtime.shards.values():
            yield from shard.transactional_ids.values()

    @property
    def is_loading(self) -> bool:
        return self.runtime.is_loading

    def partition_of(self, name: str) -> int:
        """The partition of `__transaction_state` that keeps an id. Its leader is the id's coordinator."""
        return self.runtime.partition_of(name)

    def _find(self, name: str) -> tuple[TransactionShard, TransactionalId]:
        """NotCoordinator, CoordinatorLoadInProgress, InvalidRequest, InvalidProducerIdMapping."""
        if not name:
            raise InvalidRequest("a transactional id must not be empty")
        shard = self.runtime.shard_of(name)
        transactional_id = shard.transactional_ids.get(name)
        if transactional_id is None:
            raise InvalidProducerIdMapping(f"the transactional id {name} has no producer")
        return shard, transactional_id

    # Writing a decision

    def _write(
        self,
        shard: TransactionShard,
        transactional_id: TransactionalId,
        metadata: TransactionMetadata,
        on_written: OnCommitted = lambda error: None,
    ) -> None:
        """Write a decision. It is pending until it is committed; then it applies, and `on_written` is called."""
        try:
            end = self.runtime.write(shard.partition, [transaction_record(transactional_id.name, metadata)])
        except (RecordTooLarge, RecordListTooLarge) as error:
            raise UnknownServerError(f"{transactional_id.name} has too many partitions: {error}") from error
        transactional_id.pending = metadata
        shard.transactional_ids[transactional_id.name] = transactional_id

        def on_committed(error: WireError | None) -> None:
            if error is None and not self.runtime.is_active(shard.partition, shard):
                error = NotCoordinator(f"{transactional_id.name} has another coordinator now")
            if error is None:
                self._committed(shard, transactional_id)
            on_written(error)

        self.runtime.when_committed(shard.partition, end, on_committed)

    async def _write_and_wait(
        self, shard: TransactionShard, transactional_id: TransactionalId, metadata: TransactionMetadata
    ) -> None:
        """As `_write`. The decision applies even if the caller is cancelled."""
        result: asyncio.Future[WireError | None] = asyncio.get_running_loop().create_future()

        def on_committed(error: WireError | None) -> None:
            if not result.cancelled():
                result.set_result(error)

        self._write(shard, transactional_id, metadata, on_committed)
        if (error := await result) is not None:
            raise error

    def _committed(self, shard: TransactionShard, transactional_id: TransactionalId) -> None:
        transactional_id.committed()
        if transactional_id.metadata.state in COMPLETED:
            self._complete(shard, transactional_id)

    # Completing a prepared transaction

    def _complete_prepared(self, shard: TransactionShard) -> None:
        for transactional_id in shard.transactional_ids.values():
            state = transactional_id.metadata.state
            if state in COMPLETED:
                log.info("%s was %s when its coordinator stopped: completing it", transactional_id.name, state.label)
                self._complete(shard, transactional_id)

    def _complete(self, shard: TransactionShard, transactional_id: TransactionalId) -> None:
        """Decide the completion now, so that nothing else is decided meanwhile. It is written after the markers.

        The markers of our own partitions are appended before the producer gets its reply. So its next records are never
        part of the transaction that ended, even if it breaks the protocol.
        """
        name = transactional_id.name
        transactional_id.pending = completion = transactional_id.complete(self._clock.now_ms())
        prepared = transactional_id.metadata
        producer = ProducerIdAndEpoch(prepared.producer_id, prepared.producer_epoch)
        outcome = TransactionOutcome(producer, shard.epoch, prepared.state is TransactionState.PREPARE_COMMIT)
        own = self._markers.append_own(outcome, prepared.partitions)
        work = self._write_markers(own, shard, transactional_id, completion)
        task = shard.completing[name] = asyncio.create_task(work, name=f"completing {name}")
        task.add_done_callback(lambda _: shard.completing.pop(name))

    async def _write_markers(
        self,
        own: AppendedMarkers,
        shard: TransactionShard,
        transactional_id: TransactionalId,
        completion: TransactionMetadata,
    ) -> None:
        try:
            await self._markers.send(own, transactional_id.metadata.partitions, transactional_id.marked)
            await self._write_completion(shard, transactional_id, completion)
        except TransactionCoordinatorFenced as error:
            log.warning("%s is left to a newer coordinator: %s", transactional_id.name, error)

    async def _write_completion(
        self, shard: TransactionShard, transactional_id: TransactionalId, completion: TransactionMetadata
    ) -> None:
        logged = False
        while self.runtime.is_active(shard.partition, shard):
            try:
                await self._write_and_wait(shard, transactional_id, completion)
                return
            except WireError as error:
                if not logged:
                    label = completion.state.label
                    log.warning("%s is retried until it is %s: %s", transactional_id.name, label, error)
                    logged = True
            await asyncio.sleep(RETRY_S)

    # Time-outs and expiration

    async def _abort_all_timed_out(self) -> None:
        while self.abort_timed_out():  # noqa: ASYNC110 - other tasks run in between
            await asyncio.sleep(0)

    def abort_timed_out(self) -> bool:
        """Abort some of the transactions that timed out. Returns True if there may be more."""
        now_ms, failed = self._clock.now_ms(), False
        timed_out = (
            (shard, transactional_id)
            for shard in self.runtime.shards.values()
            for transactional_id in shard.transactional_ids.values()
            if transactional_id.is_timed_out(now_ms)
        )
        batch = list(islice(timed_out, ABORTS_PER_STEP))
        for shard, transactional_id in batch:
            name, timeout_ms = transactional_id.name, transactional_id.metadata.timeout_ms
            log.info("aborting %s: it was open for longer than its %d ms", name, timeout_ms)
            try:
                self._write(shard, transactional_id, transactional_id.fence(now_ms))
            except WireError as error:
                log.warning("%s cannot be aborted now: %s", name, error)
                failed = True
        return len(batch) == ABORTS_PER_STEP and not failed

    async def _delete_all_expired(self) -> None:
        self.delete_expired()

    def delete_expired(self) -> None:
        now_ms, expiration_ms = self._clock.now_ms(), self._settings.broker.transactional_id_expiration_ms
        for shard in self.runtime.shards.values():
            expired = [id for id in shard.transactional_ids.values() if id.is_expired(now_ms, expiration_ms)]
            try:
                self._delete(shard, expired)
            except WireError as error:
                log.warning("transactional ids cannot be deleted now: %s", error)

    def _delete(self, shard: TransactionShard, expired: Collection[TransactionalId]) -> None:
        keys = [transaction_key(transactional_id.name) for transactional_id in expired]
        end = self.runtime.write_tombstones(shard.partition, keys)
        if end is None:
            return
        for transactional_id in expired:
            transactional_id.pending = transactional_id.expire()
        self.runtime.when_committed(shard.partition, end, partial(_deleted, shard, expired))


def _deleted(shard: TransactionShard, expired: Collection[TransactionalId], error: WireError | None) -> None:
    if error is not None:
        return  # another broker coordinates them now
    for transactional_id in expired:
        del shard.transactional_ids[transactional_id.name]
    log.info("deleted %d transactional ids that were idle for too long", len(expired))
