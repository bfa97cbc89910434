"""Record batches by the hundred thousand: every payload distinct, made as fast as memory can be copied.

Values are taken out of a pool, each record's at another place: random bytes, or JSON where they are to be compressed.
All records of a maker have the same size, so that what surrounds them is made once.
"""

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

from crc32c import crc32c

from leadline.log.log import Log
from leadline.records import varint
from leadline.records.batch import ATTRIBUTES_AT, HEADER, HEADER_BYTES, LENGTH_END, MAGIC, TRANSACTIONAL
from leadline.records.compression import Codec, compress
from tests.support.logs import START_MS, TP, LogBench

POOL_BYTES = 1 << 24
STRIDE = 7_919  # a prime: it takes long until a payload comes again


class Maker:
    """Batches of so many records, each with a value of so many bytes and a key, if it is to have one."""

    def __init__(self, records: int, value_bytes: int, key_bytes: int = -1, codec: Codec = Codec.NONE) -> None:
        self.records, self.value_bytes, self.codec = records, value_bytes, codec
        self._pool, self._at = _pool(POOL_BYTES + value_bytes, codec), 0
        self._fronts, self._middle = [], varint.encode(value_bytes)
        for n in range(records):
            front = b"\0\0" + varint.encode(n) + varint.encode(key_bytes)
            length = len(front) + max(key_bytes, 0) + len(self._middle) + value_bytes + 1
            self._fronts.append(varint.encode(length) + front)
        self._keyless = [b""] * records
        self._made = 0

    def batch(
        self,
        keys: Sequence[bytes] | None = None,
        *,
        producer_id: int = -1,
        base_offset: int = 0,
        leader_epoch: int = -1,
        is_transactional: bool = False,
    ) -> bytearray:
        """The next one: a millisecond younger than the last, and behind it in its producer's sequence."""
        pool, size, middle, at = self._pool, self.value_bytes, self._middle, self._at
        parts: list[bytes] = []
        for front, key in zip(self._fronts, keys or self._keyless, strict=True):
            at = (at + STRIDE) % POOL_BYTES
            parts += front, key, middle, pool[at : at + size], b"\0"
        self._at = at
        body = compress(self.codec, b"".join(parts))
        now_ms = START_MS + self._made
        sequence = self._made * self.records if producer_id >= 0 else -1
        self._made += 1
        data = bytearray(HEADER_BYTES) + body
        attributes = self.codec | (TRANSACTIONAL if is_transactional else 0)
        producer = (producer_id, 0 if producer_id >= 0 else -1, sequence)
        fields = [base_offset, len(data) - LENGTH_END, leader_epoch, MAGIC, 0, attributes, self.records - 1]
        fields += now_ms, now_ms
        HEADER.pack_into(data, 0, *fields, *producer, self.records)
        fields[4] = crc32c(memoryview(data)[ATTRIBUTES_AT:])
        HEADER.pack_into(data, 0, *fields, *producer, self.records)
        return data

    @property
    def batch_bytes(self) -> int:
        fronts = sum(map(len, self._fronts))
        return HEADER_BYTES + fronts + self.records * (len(self._middle) + self.value_bytes + 1)


def _pool(size: int, codec: Codec) -> bytes:
    if codec is Codec.NONE:
        return os.urandom(size)
    draw, parts, made = random.Random(size), list[bytes](), 0
    while made < size:
        order = {
            "order": draw.randrange(10**9),
            "customer": f"customer-{draw.randrange(10**5)}",
            "city": draw.choice(("Trieste", "Rijeka", "Pula", "Split", "Zadar")),
            "items": [{"sku": f"{draw.randrange(2**32):08x}", "count": draw.randrange(9)} for _ in range(3)],
            "paid": draw.random() < 0.5,
        }
        parts.append(json.dumps(order).encode())
        made += len(parts[-1])
    return b"".join(parts)


def fill(parent: Path, size: int, maker: Maker, *, producer_id: int = -1) -> Log:
    """A log of at least so many bytes in a new folder of a partition; still open, as a running broker has it."""
    parent.mkdir(parents=True)
    log = LogBench(parent).open()
    written = 0
    while written < size:
        data = maker.batch(producer_id=producer_id)
        log.append_as_leader(data, 0)
        written += len(data)
    return log


def partition_folder(parent: Path) -> Path:
    return parent / str(TP)
