"""A client that costs little: one socket, requests made once, and no reply taken on trust.

Every answer to a produce request must name the partition, no error, and the offset that is due. What is fetched must
be the batches that were produced, each offset once and in order.
"""

import socket
import time
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TypeVar

from leadline.records.batch import HEADER_BYTES
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)

HOST = "127.0.0.1"
TIMEOUT_S = 120.0
PRODUCE_VERSION, FETCH_VERSION = 7, 4
MAX_FETCH_BYTES, MAX_PARTITION_BYTES = 50 << 20, 1 << 20
IN_FLIGHT = 5
NOT_CONTROLLER = 41

Connect = Callable[[int], "Connection"]  # to a port
M = TypeVar("M", bound=Message)
_SIZE = Struct(">i")
_BATCH = Struct(">qi11xi")  # base offset, length, last offset delta


class Refused(Exception):
    """The broker answered with an error, or with a response to another request."""


class Connection:
    def __init__(self, port: int, protect: Callable[[socket.socket], socket.socket] = lambda sock: sock) -> None:
        """`protect`: what goes around the socket, such as TLS."""
        sock = socket.create_connection((HOST, port), timeout=TIMEOUT_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = protect(sock)
        self._buffer = bytearray(1 << 16)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def ask(self, request: Message, kind: type[M], version: int) -> M:
        """One request and its answer; records in it last until the next one."""
        self.sock.sendall(frame(request, version))
        return parse_response(kind, self._receive(), version)[1]

    def _receive(self) -> memoryview:
        (size,) = _SIZE.unpack(self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view, got = memoryview(self._buffer)[:size], 0
        while got < size:
            count = self.sock.recv_into(view[got:])
            if not count:
                raise ConnectionError("the broker closed the connection")
            got += count
        return view


def frame(request: Message, version: int, correlation_id: int = 0) -> bytes:
    pieces = request_frame(request, version, correlation_id, "load")
    return b"".join(piece for piece in pieces if isinstance(piece, bytes | bytearray | memoryview))


# Topics


def create_topics(port: int, partitions: dict[str, int]) -> None:
    """Topics whose records never grow too old; ready to be written to."""
    keep = CreateTopicsRequest.CreateableTopicConfig(name="retention.ms", value="-1")
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=count, replication_factor=1, configs=[keep])
        for name, count in partitions.items()
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=int(TIMEOUT_S * 1000))
    deadline = time.monotonic() + TIMEOUT_S
    with Connection(port) as connection:
        while codes := {made.error_code for made in connection.ask(request, CreateTopicsResponse, 4).topics} - {0}:
            if codes != {NOT_CONTROLLER} or time.monotonic() > deadline:
                raise Refused(f"creating topics was answered with {codes}")
            time.sleep(0.05)
        while not _all_led(connection, partitions):
            if time.monotonic() > deadline:
                raise Refused("the new topics got no leaders")
            time.sleep(0.05)


def _all_led(connection: Connection, partitions: dict[str, int]) -> bool:
    named = [MetadataRequest.MetadataRequestTopic(name=name) for name in partitions]
    answer = connection.ask(MetadataRequest(topics=named), MetadataResponse, 4)
    led = {
        topic.name: sum(part.error_code == 0 and part.leader_id >= 0 for part in topic.partitions)
        for topic in answer.topics
    }
    return led == partitions


def delete_topic(port: int, name: str) -> None:
    with Connection(port) as connection:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(TIMEOUT_S * 1000))
        for deleted in connection.ask(request, DeleteTopicsResponse, 3).responses:
            if deleted.error_code:
                raise Refused(f"deleting {name} was answered with {deleted.error_code}")


# Records


class Producer:
    """The same batch again and again, to the partitions of a topic in turns; it must be the only one there.

    `requests`: one for each batch instead, to one partition; as many as are sent in all.
    """

    def __init__(
        self,
        port: int,
        topic: str,
        batch: bytes,
        *,
        records: int,
        partitions: int = 1,
        acks: int = 1,
        connect: Connect = Connection,
        requests: Sequence[bytes] = (),
    ) -> None:
        self._sock = connect(port).sock
        self._records, self._partitions = records, partitions
        self._requests = requests or [produce_request(topic, n, batch, acks) for n in range(partitions)]
        self._different = len(self._requests)
        name = len(topic.encode())
        self._reply = Struct(f">ii6x{name}x4xihq20x")  # size, correlation id, partition, error, base offset
        self._buffer = memoryview(bytearray(IN_FLIGHT * self._reply.size))
        self._sent = self._answered = 0

    def close(self) -> None:
        self._sock.close()

    def send(self, count: int, in_flight: int = IN_FLIGHT) -> None:
        """So many requests, some of them on their way at a time; until all are answered."""
        send, receive, requests, different = self._sock.sendall, self._sock.recv_into, self._requests, self._different
        buffer, step, check = self._buffer, self._reply.size, self._check
        sent, answered, end, held = self._sent, self._answered, self._sent + count, 0
        while answered < end:
            while sent < end and sent - answered < in_flight:
                send(requests[sent % different])
                sent += 1
            got = receive(buffer[held:])
            if not got:
                raise ConnectionError("the broker closed the connection")
            held += got
            at = 0
            while held - at >= step:
                check(at, answered)
                answered += 1
                at += step
            if at < held:
                buffer[: held - at] = bytes(buffer[at:held])
            held -= at
        self._sent, self._answered = sent, answered

    def _check(self, at: int, n: int) -> None:
        """The answer to the n-th request lies here."""
        turn, partition = divmod(n, self._partitions)
        fields = self._reply.unpack_from(self._buffer, at)
        if fields != (self._reply.size - 4, partition, partition, 0, turn * self._records):
            raise Refused(
                f"request {n} was answered with (size, correlation id, partition, error, offset) = {fields}; "
                f"due was offset {turn * self._records} of partition {partition}"
            )

    def round_trips_us(self, count: int) -> list[float]:
        """How long each of so many requests took, one after the other."""
        clock, send, times = time.perf_counter, self.send, list[float]()
        for _ in range(count):
            began = clock()
            send(1)
            times.append((clock() - began) * 1e6)
        return times


def produce_request(topic: str, partition: int, batch: bytes, acks: int, transactional_id: str | None = None) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=partition, records=batch)
    topics = [ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=30_000, topic_data=topics)
    return frame(request, PRODUCE_VERSION, correlation_id=partition)


def fetch_all(port: int, topic: str, ends: Sequence[int], connect: Connect = Connection) -> int:
    """Reads each partition from its start to its end; the bytes of all batches."""
    offsets, total = [0] * len(ends), 0
    with connect(port) as connection:
        while offsets != list(ends):
            answer = connection.ask(_fetch_request(topic, offsets), FetchResponse, FETCH_VERSION)
            for part in answer.responses[0].partitions:
                if part.error_code or not isinstance(part.records, memoryview):
                    raise Refused(f"a fetch of partition {part.partition_index} was answered with {part.error_code}")
                offsets[part.partition_index], count = _walk(part.records, offsets[part.partition_index])
                total += count
    return total


def _fetch_request(topic: str, offsets: Sequence[int]) -> FetchRequest:
    parts = [
        FetchRequest.FetchPartition(partition=n, fetch_offset=offset, partition_max_bytes=MAX_PARTITION_BYTES)
        for n, offset in enumerate(offsets)
    ]
    topics = [FetchRequest.FetchTopic(topic=topic, partitions=parts)]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=MAX_FETCH_BYTES, topics=topics)


def _walk(records: memoryview, offset: int) -> tuple[int, int]:
    """Where the next fetch goes on, and the bytes of the whole batches before that. The last one may be cut off."""
    at, end = 0, len(records)
    while end - at >= HEADER_BYTES:
        base, length, delta = _BATCH.unpack_from(records, at)
        behind = at + 12 + length
        if behind > end:
            break
        if base != offset:
            raise Refused(f"offset {offset} was due, and {base} came")
        offset, at = base + delta + 1, behind
    return offset, at
