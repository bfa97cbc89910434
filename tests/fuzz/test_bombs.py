"""A few compressed bytes that stand for hundreds of megabytes: memory stays flat, and others are served meanwhile.

Bombs come in all codecs, as record batches and in the message formats before them, also one inside another, and go to
topics that store what producers send and to topics that compress anew. What a broker does not need to unpack whole it
may take, as Kafka does.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

import pytest

from leadline.records import varint
from leadline.records.compression import MAX_DECOMPRESSED_BYTES, Codec, compress
from leadline.wire import messages as m
from tests.conformance.both import Connection
from tests.fuzz.test_known_vulnerabilities import create
from tests.support import in_memory
from tests.support.bad_batches import batch_of
from tests.support.broker import RunningBroker, leadline
from tests.support.logs import batch
from tests.support.message_sets import PACKED, entry, message, wrapped
from tests.unit.records.test_compression import BOMBS

MB = 1 << 20
UNPACKED_BYTES = 2 * MAX_DECOMPRESSED_BYTES
FLAT_MB = 64  # beside what was sent, which is there twice: in the frame that is received, and as the records in it
SLOWEST_S = 0.4  # of the other client's requests, in the best of some tries: other processes may hold it up, too
TRIES = 4
STORED, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD = 0, 2, 10, 87
REFUSED = (CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD)
TOPICS = {codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE} | {"producer": None}
OLD, NEW = 2, 9  # versions of Produce


@cache
def packed_record(codec: Codec) -> bytes:
    """One record of a batch, with a long value of zeros."""
    front = b"\0\0\0\1" + varint.encode(UNPACKED_BYTES)
    size = varint.encode(len(front) + UNPACKED_BYTES + 1)
    return compress(codec, b"".join((size, front, bytes(UNPACKED_BYTES), b"\0")))


@cache
def packed_message(codec: Codec) -> bytes:
    """One message of format 1, with a long value of zeros."""
    return compress(codec, entry(0, message(1, None, bytes(UNPACKED_BYTES))))


@cache
def packed_faults(codec: Codec) -> bytes:
    """Countless messages, and each is of the wrong format."""
    faulty = entry(0, message(0))
    return compress(codec, faulty * (20 * MB // len(faulty)))


def zeros(codec: Codec) -> bytes:
    return BOMBS[codec.name.lower()][1]()


def nested(codec: Codec) -> bytes:
    inner = wrapped(1, b"", codec, payload=packed_message(codec), offset=0)
    return wrapped(1, inner, codec, offset=0)


BATCHES: dict[str, Callable[[Codec], bytes]] = {
    "zeros": lambda codec: batch_of(zeros(codec), 1, codec),
    "a record": lambda codec: batch_of(packed_record(codec), 1, codec),
}
MESSAGE_SETS: dict[str, Callable[[Codec], bytes]] = {
    "zeros": lambda codec: wrapped(1, b"", codec, payload=zeros(codec), offset=0),
    "a message": lambda codec: wrapped(1, b"", codec, payload=packed_message(codec), offset=0),
    "faults": lambda codec: wrapped(1, b"", codec, payload=packed_faults(codec), offset=0),
    "a set in a set": nested,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    for folder in in_memory.directory():
        with leadline(folder / "data") as running:
            with closing(Connection("localhost", running.port)) as connection:
                for topic in TOPICS:
                    create(connection, topic, compression_type=topic, max_message_bytes="100000000")
                for codec in Codec:  # what is loaded once is not growth
                    assert produce(connection, topic, bytes(batch(1000, size=1000, codec=codec)), NEW) == STORED
            yield running


def produce(connection: Connection, topic: str, data: bytes, version: int) -> int:
    part = m.ProduceRequest.PartitionProduceData(index=0, records=data)
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[part])]
    request = m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=topics)
    return connection.ask(m.ProduceResponse, request, version).responses[0].partition_responses[0].error_code


def memory_mb(broker: RunningBroker, field: str) -> float:
    lines = Path(f"/proc/{broker.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{field}:"))


@contextmanager
def another_client(broker: RunningBroker) -> Iterator[list[float]]:
    """It sends one request after the other; the seconds that each takes."""
    seconds: list[float] = []
    over = threading.Event()

    def ask() -> None:
        with closing(Connection("localhost", broker.port)) as connection:
            while not over.wait(0.001):
                began = time.monotonic()
                connection.ask(m.ApiVersionsResponse, m.ApiVersionsRequest(), 0)
                seconds.append(time.monotonic() - began)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seconds
    finally:
        over.set()
        thread.join()


def throw(broker: RunningBroker, topic: str, data: bytes, version: int) -> tuple[int, float, float]:
    """The error code, by how many MB memory has grown meanwhile, and the slowest request of another client."""
    Path(f"/proc/{broker.pid}/clear_refs").write_text("5")  # the peak begins anew
    before = memory_mb(broker, "VmRSS")
    with closing(Connection("localhost", broker.port)) as connection, another_client(broker) as seconds:
        code = produce(connection, topic, data, version)
    return code, memory_mb(broker, "VmHWM") - before, max(seconds, default=0.0)


def check(broker: RunningBroker, topic: str, data: bytes, version: int, expected: tuple[int, ...]) -> None:
    slowest, sent_mb, figures = float("inf"), len(data) / MB, []
    for _ in range(TRIES):
        code, grown_mb, seconds = throw(broker, topic, data, version)
        figures.append(f"{sent_mb:.1f} MB sent, {grown_mb:.0f} MB more, {seconds:.3f} s")
        assert code in expected, figures
        assert grown_mb < FLAT_MB + 2 * sent_mb, figures
        slowest = min(slowest, seconds)
        if slowest < SLOWEST_S:
            break
    assert slowest < SLOWEST_S, figures
    with closing(Connection("localhost", broker.port)) as connection:
        assert produce(connection, topic, bytes(batch(1)), NEW) == STORED


@pytest.mark.parametrize("topic", ["producer", "gzip", "zstd"])
@pytest.mark.parametrize("codec", list(filter(None, TOPICS.values())), ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("bomb", BATCHES)
def test_a_batch_that_becomes_large_takes_little_memory_and_holds_nobody_up(
    broker: RunningBroker, bomb: str, codec: Codec, topic: str
) -> None:
    is_kept = bomb == "a record" and TOPICS[topic] in (None, codec)
    check(broker, topic, BATCHES[bomb](codec), NEW, (STORED,) if is_kept else REFUSED)


@pytest.mark.parametrize("topic", ["producer", "zstd"])
@pytest.mark.parametrize("codec", PACKED, ids=lambda codec: codec.name.lower())
@pytest.mark.parametrize("bomb", MESSAGE_SETS)
def test_a_message_set_that_becomes_large_takes_little_memory_and_holds_nobody_up(
    broker: RunningBroker, bomb: str, codec: Codec, topic: str
) -> None:
    check(broker, topic, MESSAGE_SETS[bomb](codec), OLD, REFUSED)
