"""The fetch of a follower and its response, encoded and decoded by hand: this costs a fraction of the codec's time.

A follower in a session sends Fetch v16 with topic ids. It names the partitions whose position changed and forgets none.
The response has records and watermarks, and no errors. Every other fetch is left to the codec.

    request   size, key, version (8) · correlation id (4) · client id · 0 · wait, min, max bytes (12) · isolation (1)
              session id, epoch (8) · topics: id (16), partitions · nothing forgotten, no rack (2) · replica state (16)
    response  size, correlation id (8) · 0 · throttle, error, session id (10) · topics: id (16), partitions · 0
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from leadline.wire.fetch_position import FetchPosition
from leadline.wire.primitives import BUFFERS, MalformedRequest, Piece, read_varint, write_varint

FETCH, VERSION = 1, 16
MOST_TOPICS = 126  # their count fits into one byte
MOST_PARTITIONS = 20_000  # in one request or response; larger ones are left to the codec, which has a limit of its own

_HEAD = Struct(">hhih")  # with the length of the client id
_SIZED_HEAD = Struct(">ihhih")
_BODY = Struct(">iiibii")
_POSITION = Struct(">iiqiqiB")  # partition, leader epoch, offset, last epoch, log start, max bytes; 0
_TAIL = Struct(">5siqB")  # nothing forgotten, no rack; one tagged field, 1, of 13 bytes: replica id, epoch; 0
_TAIL_START = bytes((1, 1, 1, 1, 13))
_SIZE = Struct(">i")
_FRONT = Struct(">iiBihiB")
_UNSIZED_FRONT = Struct(">iBihiB")
_PARTITION = Struct(">ihqqqBi")  # partition, error, three watermarks, aborted: null, preferred replica
_NONE_ABORTED = (0, 1)  # null, or an empty list
_NO_RECORDS = b"\1\0"  # none, and no tagged fields
_END = b"\0"
_COUNT = "a length"  # compact ones are stored plus one: 0 stands for null
_TOPIC_ID = attrgetter("topic_id")


class FollowerFetchRequest(NamedTuple):
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    positions: list[FetchPosition]
    replica: int
    broker_epoch: int

    @property
    def is_patient(self) -> bool:
        """Whether the leader may delay the response until there are records."""
        return self.max_wait_ms > 0 and self.min_bytes > 0 and self.max_bytes > 0


class FetchedPartition(NamedTuple):
    """The part of a response about one partition."""

    topic_id: bytes
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: Piece | None


class FollowerFetchResponse(NamedTuple):
    session_id: int
    partitions: list[FetchedPartition]


def encode_request(request: FollowerFetchRequest, client_id: str) -> bytes:
    """A whole frame, with the partitions in this order."""
    client = client_id.encode()
    body = bytearray(_BODY.pack(*request[1:4], 0, request.session_id, request.session_epoch))
    topics = _by_topic(request.positions)
    assert len(topics) <= MOST_TOPICS
    body.append(len(topics) + 1)
    for topic_id, parts in topics:
        body += topic_id + write_varint(len(parts) + 1)
        for part in parts:
            body += _POSITION.pack(*part[1:], 0)
        body += _END
    body += _TAIL.pack(_TAIL_START, request.replica, request.broker_epoch, 0)
    size = _HEAD.size + len(client) + 1 + len(body)
    return _SIZED_HEAD.pack(size, FETCH, VERSION, request.correlation_id, len(client)) + client + _END + body


def _by_topic(positions: list[FetchPosition]) -> list[tuple[bytes, list[FetchPosition]]]:
    if len(positions) == 1:  # the common case
        return [(positions[0].topic_id, positions)]
    return [(topic_id, list(parts)) for topic_id, parts in groupby(positions, _TOPIC_ID)]


def parse_request(frame: memoryview) -> FollowerFetchRequest | None:
    """The request of a frame; None if it has to be left to the codec."""
    try:
        key, version, correlation_id, client_bytes = _HEAD.unpack_from(frame)
        if key != FETCH or version != VERSION:
            return None
        at = _HEAD.size + max(client_bytes, 0)
        if frame[at]:
            return None
        max_wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = _BODY.unpack_from(frame, at + 1)
        if session_id <= 0 or session_epoch <= 0:
            return None
        positions, at = _positions(frame, at + 1 + _BODY.size)
        start, replica, broker_epoch, end = _TAIL.unpack_from(frame, at)
        if at + _TAIL.size != len(frame) or start != _TAIL_START or end:
            return None
    except (StructError, IndexError, ValueError, MalformedRequest):
        return None
    return FollowerFetchRequest(
        correlation_id, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, positions, replica, broker_epoch
    )


def _positions(frame: memoryview, at: int) -> tuple[list[FetchPosition], int]:
    """The positions, and where they end. ValueError: this fetch has to be left to the codec."""
    topics = frame[at] - 1
    positions: list[FetchPosition] = []
    if not 0 <= topics <= MOST_TOPICS:
        raise ValueError
    at += 1
    for _ in range(topics):
        topic_id, at = bytes(frame[at : at + 16]), at + 16
        count, at = read_varint(frame, at, _COUNT)
        if not 0 < count <= MOST_PARTITIONS - len(positions) + 1:
            raise ValueError
        for _ in range(count - 1):
            partition, epoch, offset, last_epoch, log_start, max_bytes, tags = _POSITION.unpack_from(frame, at)
            if tags:
                raise ValueError
            positions.append(FetchPosition(topic_id, partition, epoch, offset, last_epoch, log_start, max_bytes))
            at += _POSITION.size
        if frame[at]:
            raise ValueError
        at += 1
    return positions, at


def encode_response(correlation_id: int, session_id: int, partitions: Iterable[FetchedPartition]) -> list[Piece]:
    """A whole frame."""
    topics: dict[bytes, list[FetchedPartition]] = {}
    for part in partitions:
        topics.setdefault(part.topic_id, []).append(part)
    assert len(topics) <= MOST_TOPICS
    pieces: list[Piece] = []
    start = out = bytearray(_FRONT.pack(0, correlation_id, 0, 0, 0, session_id, len(topics) + 1))
    size = -4
    for topic_id, parts in topics.items():
        out += topic_id + write_varint(len(parts) + 1)
        for part in parts:
            records = part.records
            out += _PARTITION.pack(
                part.partition, 0, part.high_watermark, part.last_stable_offset, part.log_start, 0, -1
            )
            if records is None:
                out += _NO_RECORDS
            elif isinstance(records, BUFFERS):
                out += write_varint(len(records) + 1)
                out += records
                out += _END
            else:
                out += write_varint(records.length + 1)
                pieces += (out, records)
                size += len(out) + records.length
                out = bytearray(_END)
        out += _END
    out += _END
    pieces.append(out)
    _SIZE.pack_into(start, 0, size + len(out))
    return pieces


def parse_response(frame: memoryview) -> FollowerFetchResponse | None:
    """The response of a frame without its size; None if it has to be left to the codec."""
    try:
        _, tags, throttle_ms, error, session_id, topics = _UNSIZED_FRONT.unpack_from(frame)
        if tags or throttle_ms or error or not 0 < topics <= MOST_TOPICS + 1:
            return None
        partitions, at = _partitions(frame, _UNSIZED_FRONT.size, topics - 1)
        if frame[at] or at + 1 != len(frame):
            return None
    except (StructError, IndexError, ValueError, MalformedRequest):
        return None
    return FollowerFetchResponse(session_id, partitions)


def _partitions(frame: memoryview, at: int, topics: int) -> tuple[list[FetchedPartition], int]:
    """The partitions, and where they end. ValueError: this response has to be left to the codec."""
    partitions: list[FetchedPartition] = []
    for _ in range(topics):
        topic_id, at = bytes(frame[at : at + 16]), at + 16
        count, at = read_varint(frame, at, _COUNT)
        if not 0 < count <= MOST_PARTITIONS - len(partitions) + 1:
            raise ValueError
        for _ in range(count - 1):
            partition, error, high_watermark, stable, log_start, aborted, _ = _PARTITION.unpack_from(frame, at)
            length, start = read_varint(frame, at + _PARTITION.size, _COUNT)
            at = start + length - 1
            if error or aborted not in _NONE_ABORTED or not length or frame[at]:
                raise ValueError
            records = frame[start:at] if length > 1 else None
            partitions.append(FetchedPartition(topic_id, partition, high_watermark, stable, log_start, records))
            at += 1
        if frame[at]:
            raise ValueError
        at += 1
    return partitions, at
