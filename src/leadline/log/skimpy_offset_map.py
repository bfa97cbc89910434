"""The last offset of each key in the dirty part of a log, while it is compacted (Kafka: SkimpyOffsetMap).

Compiled, it is a table of 24 bytes a key in memory of a fixed size: a digest of the key (16) and the offset (8). The
digest depends on a secret of the pass, so that clients cannot choose keys that collide. In Python it is a dict.
`log.cleaner.dedupe.buffer.size` is its size. Memory that no key can need is not taken.
"""

import sys
from typing import Any, NamedTuple

from leadline.model import Buffer, Offset
from leadline.records import walker
from leadline.records.build import RetainedRecords

KEY_BYTES = 24 if walker.IS_COMPILED else 160  # what one key costs in memory
SLOT_BYTES, HEAD_BYTES, SECRET_AT, SECRET_BYTES = 24, 24, 8, 16


class CleanedBatches(NamedTuple):
    """The rest of several batches."""

    end: int  # where the first batch is that is not among them
    data: bytes
    last_offset: Offset  # -1: nothing is left
    max_timestamp: int
    timestamp_offset: Offset  # the last one of the batch with the largest timestamp
    records_read: int
    records_written: int
    keyless: int


class CleanedPacked(NamedTuple):
    """The rest of a compressed batch."""

    batch: bytes  # with a body that is not compressed
    is_whole: bool  # it stays unchanged
    last_offset: Offset
    max_timestamp: int
    records_read: int
    records_written: int
    keyless: int


class SkimpyOffsetMap:
    def __init__(self, most_bytes: int, load_factor: float, most_records: int, secret: bytes) -> None:
        """`most_records`: that can be in the dirty part. `secret`: random bytes."""
        self.end: Offset = -1  # the last offset whose keys are here
        self.most_keys = int(most_bytes / KEY_BYTES * load_factor)
        if self.most_keys < 1:
            raise ValueError(
                f"log.cleaner.dedupe.buffer.size={most_bytes} cannot hold a single key; it has to be larger"
            )
        slots = min(most_bytes // KEY_BYTES, most_records * 5 // 4 + 1)  # with some free ones a key is near its place
        self.table_bytes = slots * KEY_BYTES  # at most
        self._table: Any = _new_table(slots, secret) if walker.IS_COMPILED else {}

    def __len__(self) -> int:
        return int.from_bytes(self._table[:SECRET_AT], sys.byteorder) if walker.IS_COMPILED else len(self._table)

    def learn(self, body: Buffer, count: int, base_offset: Offset, start: Offset) -> bool:
        """Note the records of a batch from the offset `start` on. False once there is no more room."""
        last, is_full = walker.learn_keys(self._table, body, count, base_offset, start, self.most_keys)
        self.end = max(self.end, last)
        return not is_full

    def learn_plain(self, data: Buffer, at: int, start: Offset) -> tuple[int, bool]:
        """The same for plain batches in a row. Where the first other one is; False once there is no more room."""
        at, last, is_full = walker.learn_plain(self._table, data, at, start, self.most_keys)
        self.end = max(self.end, last)
        return at, not is_full

    def retained(
        self, body: Buffer, count: int, base_offset: Offset, *, keep_tombstones: bool, keep_all: bool = False
    ) -> RetainedRecords:
        """The records of a batch that stay: the last of each key, and those whose key is not learnt yet."""
        end = -1 if keep_all else self.end
        return RetainedRecords(*walker.retained(self._table, body, count, base_offset, end, keep_tombstones))

    def clean_plain(self, data: Buffer, at: int, now_ms: int, horizon_ms: int, most_bytes: int) -> CleanedBatches:
        """Compact several plain batches; see `python_walker.clean_plain`."""
        return CleanedBatches(*walker.clean_plain(self._table, data, at, self.end, now_ms, horizon_ms, most_bytes))

    def clean_packed(self, batch: Buffer, body: Buffer, now_ms: int, horizon_ms: int) -> CleanedPacked | None:
        """Compact a compressed batch; see `python_walker.clean_packed`."""
        left = walker.clean_packed(self._table, batch, body, self.end, now_ms, horizon_ms)
        return None if left is None else CleanedPacked(*left)


def _new_table(slots: int, secret: bytes) -> bytearray:
    table = bytearray(HEAD_BYTES + slots * SLOT_BYTES)
    table[SECRET_AT : SECRET_AT + SECRET_BYTES] = secret
    return table
