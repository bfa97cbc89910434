"""A shard of the transaction coordinator: the transactional ids of one partition of `__transaction_state`."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from leadline.coordinator.transaction import TransactionalId
from leadline.coordinator.transaction_records import read_key, read_value
from leadline.errors import CorruptMessage
from leadline.model import LeaderEpoch
from leadline.records.batch import Header
from leadline.records.record import Record

log = logging.getLogger(__name__)

TRANSACTIONS_TOPIC = "__transaction_state"


class TransactionShard:
    """The transactional ids of one partition, for one leader epoch."""

    def __init__(self, partition: int, epoch: LeaderEpoch, on_loaded: "Callable[[TransactionShard], None]") -> None:
        self.partition, self.epoch = partition, epoch
        self.transactional_ids: dict[str, TransactionalId] = {}  # by name
        self.completing: dict[str, asyncio.Task[None]] = {}  # by name: a task ends once Complete is committed
        self._on_loaded = on_loaded

    def replay(self, header: Header, records: Iterable[Record]) -> None:
        if header.is_control:
            return
        for record in records:
            try:
                self._replay(record)
            except CorruptMessage as error:
                log.error("%s-%d, offset %d is skipped: %s", TRANSACTIONS_TOPIC, self.partition, record.offset, error)

    def _replay(self, record: Record) -> None:
        name = read_key(record.key)
        if name is None:
            return  # a record of a newer broker
        if record.value is None:
            self.transactional_ids.pop(name, None)
        else:
            self.transactional_ids[name] = TransactionalId(name, read_value(record.value))

    def loaded(self) -> None:
        self._on_loaded(self)

    def unloaded(self) -> None:
        for task in self.completing.values():
            task.cancel()
