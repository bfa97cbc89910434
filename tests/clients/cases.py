"""What every client writes: the same records, with every codec, with and without idempotence.

Partition 0 has the odd ones (null, empty, binary, headers), partition 1 many small ones, partition 2 nearly a megabyte
that no codec makes much smaller. Times are fixed; those of partition 0 do not grow with the offset.
"""

import base64
import hashlib
import random
from enum import Enum
from typing import NamedTuple

from tests.clients.python.serving import DIGEST_FROM

PARTITIONS = 3
ODD, SMALL, LARGE, LARGE_BYTES = 7, 150, 10, 80_000
START_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RUNS = [*((codec, True) for codec in CODECS), ("none", False), ("snappy", False)]  # codec, idempotent
RETENTION_MS = 100 * 365 * 24 * 3_600_000  # a broker keeps what was written at START_MS, whenever it looks


class Odd(Enum):
    """What some client cannot write. All can read it."""

    RECORD = "a record with neither key nor value"
    HEADER = "a header without a value"


CANNOT_WRITE = {"aiokafka": {Odd.RECORD}, "kafka-python": {Odd.RECORD, Odd.HEADER}, "kafkajs": {Odd.HEADER}}


class Written(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    def as_values(self) -> list[object]:
        """For the request that writes it."""
        headers = [[name, _text(value)] for name, value in self.headers]
        return [self.partition, _text(self.key), _text(self.value), headers, self.timestamp]

    def read(self, offset: int) -> list[object]:
        """As the answer to a request that reads it."""
        headers = [[name, _shown(value)] for name, value in self.headers]
        return [self.partition, offset, self.timestamp, _shown(self.key), _shown(self.value), headers]


def records(run: int, client: str) -> list[Written]:
    """Those of one run, which are not those of another."""
    cannot = CANNOT_WRITE.get(client, set())
    draw = random.Random(run)
    now = START_MS + run * 1_000_000
    no: tuple[tuple[str, bytes | None], ...] = ()
    odd = [
        (b"key", b"value", (("trace", b"1"), ("trace", b"2"), ("\u017eluva-\U0001f40e", "\u010desky".encode()))),
        (None, b"no key", no),
        (b"no value", None, no),
        (b"some" if Odd.RECORD in cannot else None, None, (("only", b"headers"),)),
        (b"", b"", (("empty", b""), ("nothing", b"some" if Odd.HEADER in cannot else None))),
        (bytes(range(256)), draw.randbytes(300), no),
        (f"run {run}".encode(), b"same " * 150, no),
    ]
    made = [Written(0, key, value, headers, now - n * 1000) for n, (key, value, headers) in enumerate(odd)]
    made += [
        Written(1, b"k%d" % (n % 7), b"%d: %d " % (run, n) * 5, (("n", b"%d" % n),), now + n * 10) for n in range(SMALL)
    ]
    zeros = bytes(LARGE_BYTES // 8)  # a little for the codecs: a client leaves as it is what gets no smaller
    made += [Written(2, None, draw.randbytes(LARGE_BYTES) + zeros, no, now + n) for n in range(LARGE)]
    return made


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _shown(data: bytes | None) -> str | None:
    if data is not None and len(data) > DIGEST_FROM:
        return f"sha256:{hashlib.sha256(data).hexdigest()}"
    return _text(data)
