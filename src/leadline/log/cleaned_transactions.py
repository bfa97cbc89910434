"""The transactions of a log while it is compacted: which batches are aborted, and which markers have lost theirs."""

from collections.abc import Sequence
from heapq import heappop, heappush

from leadline.log.txn_index import AbortedTxn, TxnIndex
from leadline.model import Buffer, Offset
from leadline.records.batch import Header
from leadline.records.control import ControlType, control_type
from leadline.records.record import records_of


class CleanedTransactions:
    """Callers pass batches and markers in the order of the log."""

    def __init__(self, aborted: Sequence[AbortedTxn] = ()) -> None:
        self._coming: list[tuple[Offset, AbortedTxn]] = []
        self._aborting: dict[int, AbortedTxn] = {}
        self._aborting_with_batches: set[int] = set()  # those with batches that still exist
        self._committing: set[int] = set()
        self.kept: TxnIndex | None = None  # the transaction index of the cleaned segment
        self.add(aborted)

    def add(self, aborted: Sequence[AbortedTxn]) -> None:
        for txn in aborted:
            heappush(self._coming, (txn.first_offset, txn))

    def _reach(self, offset: Offset) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, txn = heappop(self._coming)
            if txn.producer_id not in self._aborting:
                self._aborting[txn.producer_id] = txn

    def is_aborted(self, header: Header) -> bool:
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborting:
            self._aborting_with_batches.add(header.producer_id)
            return True
        self._committing.add(header.producer_id)
        return False

    def is_empty_marker(self, data: Buffer, position: int, header: Header) -> bool:
        """True if nothing of the transaction that this control batch ends is left."""
        self._reach(header.last_offset)
        record = next(records_of(data, position, header), None)
        if record is None:
            return True
        kind = control_type(record.key)
        producer_id = header.producer_id
        if kind is ControlType.ABORT:
            txn = self._aborting.pop(producer_id, None)
            if txn is None or producer_id not in self._aborting_with_batches:
                return True
            self._aborting_with_batches.discard(producer_id)
            if self.kept is not None:
                self.kept.append(txn)
            return False
        if kind is ControlType.COMMIT:
            alone = producer_id not in self._committing
            self._committing.discard(producer_id)
            return alone
        return False
