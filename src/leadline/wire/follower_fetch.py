"""A follower's fetch and its answer, as nearly all of them are: read and written by hand, which costs a fraction.

A follower in a session asks with Fetch v16, by topic id; it names where its position changed and forgets nothing. Its
answer has records and watermarks, and no errors. What is said otherwise is left to the codec.

    request   size, key, version (8) · correlation id (4) · client id · 0 · wait, min, max bytes (12) · isolation (1)
              session id, epoch (8) · topics: id (16), partitions · nothing forgotten, no rack (2) · who fetches (16)
    answer    size, correlation id (8) · 0 · throttle, error, session id (10) · topics: id (16), partitions · 0
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from leadline.model import Buffer
from leadline.wire.primitives import BUFFERS, Piece

FETCH, VERSION = 1, 16
MOST_TOPICS = 126  # as many as are counted in one byte
MOST_PARTITIONS = 20_000  # in one request or answer; of more the codec takes care, which has a limit, too

_HEAD = Struct(">hhih")  # with the length of the client id
_SIZED_HEAD = Struct(">ihhih")
_BODY = Struct(">iiibii")
_ASKED = Struct(">iiqiqiB")  # partition, leader epoch, offset, last epoch, log start, max bytes; 0
_TAIL = Struct(">5siqB")  # nothing forgotten, no rack; one tagged field, 1, of 13 bytes: replica id, epoch; 0
_TAIL_START = bytes((1, 1, 1, 1, 13))
_SIZE = Struct(">i")
_FRONT = Struct(">iiBihiB")
_UNSIZED_FRONT = Struct(">iBihiB")
_TOLD = Struct(">ihqqqBi")  # partition, error, three watermarks, aborted: null, preferred replica
_NONE_ABORTED = (0, 1)  # null, or an empty list
_NO_RECORDS = b"\1\0"  # none, and no tagged fields
_END = b"\0"
_TOPIC_ID = attrgetter("topic_id")


class Asked(NamedTuple):
    """Where a follower is in a partition."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int
    max_bytes: int


class Request(NamedTuple):
    correlation_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    asked: list[Asked]
    replica: int
    broker_epoch: int

    @property
    def is_patient(self) -> bool:
        """Whether it waits for more if there is nothing."""
        return self.max_wait_ms > 0 and self.min_bytes > 0 and self.max_bytes > 0


class Told(NamedTuple):
    """What a follower is told of a partition."""

    topic_id: bytes
    partition: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: Piece | None


class Answer(NamedTuple):
    session_id: int
    told: list[Told]


def request(asking: Request, client_id: str) -> bytes:
    """A whole frame, with the partitions in this order."""
    client = client_id.encode()
    body = bytearray(_BODY.pack(*asking[1:4], 0, asking.session_id, asking.session_epoch))
    topics = _by_topic(asking.asked)
    assert len(topics) <= MOST_TOPICS
    body.append(len(topics) + 1)
    for topic_id, parts in topics:
        body += topic_id + _varint(len(parts) + 1)
        for part in parts:
            body += _ASKED.pack(*part[1:], 0)
        body += _END
    body += _TAIL.pack(_TAIL_START, asking.replica, asking.broker_epoch, 0)
    size = _HEAD.size + len(client) + 1 + len(body)
    return _SIZED_HEAD.pack(size, FETCH, VERSION, asking.correlation_id, len(client)) + client + _END + body


def _by_topic(asked: list[Asked]) -> list[tuple[bytes, list[Asked]]]:
    if len(asked) == 1:  # as most often
        return [(asked[0].topic_id, asked)]
    return [(topic_id, list(parts)) for topic_id, parts in groupby(asked, _TOPIC_ID)]


def parse_request(frame: memoryview) -> Request | None:
    """None if it is anything else."""
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
        asked, at = _asked(frame, at + 1 + _BODY.size)
        start, replica, broker_epoch, end = _TAIL.unpack_from(frame, at)
        if at + _TAIL.size != len(frame) or start != _TAIL_START or end:
            return None
    except (StructError, IndexError, ValueError):
        return None
    return Request(
        correlation_id, max_wait_ms, min_bytes, max_bytes, session_id, session_epoch, asked, replica, broker_epoch
    )


def _asked(frame: memoryview, at: int) -> tuple[list[Asked], int]:
    """The partitions, and where they end. ValueError: not as most are."""
    topics = frame[at] - 1
    found: list[Asked] = []
    if not 0 <= topics <= MOST_TOPICS:
        raise ValueError
    at += 1
    for _ in range(topics):
        topic_id, at = bytes(frame[at : at + 16]), at + 16
        count, at = _count(frame, at)
        if len(found) + count > MOST_PARTITIONS:
            raise ValueError
        for _ in range(count):
            partition, epoch, offset, last_epoch, log_start, max_bytes, tags = _ASKED.unpack_from(frame, at)
            if tags:
                raise ValueError
            found.append(Asked(topic_id, partition, epoch, offset, last_epoch, log_start, max_bytes))
            at += _ASKED.size
        if frame[at]:
            raise ValueError
        at += 1
    return found, at


def answer(correlation_id: int, session_id: int, told: Iterable[Told]) -> list[Piece]:
    """A whole frame."""
    topics: dict[bytes, list[Told]] = {}
    for each in told:
        topics.setdefault(each.topic_id, []).append(each)
    assert len(topics) <= MOST_TOPICS
    pieces: list[Piece] = []
    start = here = bytearray(_FRONT.pack(0, correlation_id, 0, 0, 0, session_id, len(topics) + 1))
    size = -4
    for topic_id, parts in topics.items():
        here += topic_id + _varint(len(parts) + 1)
        for part in parts:
            records = part.records
            here += _TOLD.pack(part.partition, 0, part.high_watermark, part.last_stable_offset, part.log_start, 0, -1)
            if records is None:
                here += _NO_RECORDS
            elif isinstance(records, BUFFERS):
                here += _varint(len(records) + 1)
                here += records
                here += _END
            else:
                here += _varint(records.length + 1)
                pieces += (here, records)
                size += len(here) + records.length
                here = bytearray(_END)
        here += _END
    here += _END
    pieces.append(here)
    _SIZE.pack_into(start, 0, size + len(here))
    return pieces


def parse_answer(frame: memoryview) -> Answer | None:
    """Without its size. None if there is anything else in it."""
    try:
        _, tags, throttle_ms, error, session_id, topics = _UNSIZED_FRONT.unpack_from(frame)
        if tags or throttle_ms or error or not 0 < topics <= MOST_TOPICS + 1:
            return None
        told, at = _told(frame, _UNSIZED_FRONT.size, topics - 1)
        if frame[at] or at + 1 != len(frame):
            return None
    except (StructError, IndexError, ValueError):
        return None
    return Answer(session_id, told)


def _told(frame: memoryview, at: int, topics: int) -> tuple[list[Told], int]:
    """The partitions, and where they end. ValueError: not as most are."""
    found: list[Told] = []
    for _ in range(topics):
        topic_id, at = bytes(frame[at : at + 16]), at + 16
        count, at = _count(frame, at)
        if len(found) + count > MOST_PARTITIONS:
            raise ValueError
        for _ in range(count):
            partition, error, high_watermark, stable, log_start, aborted, _ = _TOLD.unpack_from(frame, at)
            length, start = _count(frame, at + _TOLD.size)
            at = start + length
            if error or aborted not in _NONE_ABORTED or frame[at]:
                raise ValueError
            records = frame[start:at] if length else None
            found.append(Told(topic_id, partition, high_watermark, stable, log_start, records))
            at += 1
        if frame[at]:
            raise ValueError
        at += 1
    return found, at


def _count(frame: memoryview, at: int) -> tuple[int, int]:
    """What is counted from one on, in up to five bytes; and where it ends."""
    value = shift = 0
    while (byte := frame[at]) > 0x7F and shift < 28:
        value |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
    value |= byte << shift
    if not value:
        raise ValueError
    return value - 1, at + 1


def _varint(value: int) -> Buffer:
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return found
