"""Lanes: produce requests that begin as one before them did, told by their first bytes.

A producer that writes to a partition says the same again and again: version, client id, acks, time-out, topic and
partition; only the correlation id and the records differ. Such a beginning is decoded once. While requests begin with
the very same bytes, what was understood of them is still true, and only the records are looked at.

    api key, version (4) · correlation id (4) · beginning, up to the partition's index · size, records
    from v9 on the records are followed by three empty sets of tagged fields

A lane is opened for one partition, acks=1 or all, outside of transactions and internal topics. What is in no lane, or
unusual in its records, is decoded as any other request.

Pure: looks at bytes, remembers some.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from leadline.controller.topics import INTERNAL
from leadline.model import Buffer, Offset, TopicPartition
from leadline.records.batch import FLAGS_AT, HEADER_BYTES, TRANSACTIONAL
from leadline.wire.codec import to_bytes
from leadline.wire.frames import FRONT, response_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import BUFFERS

OLDEST, FLEXIBLE, NEWEST = 7, 9, 11  # before v7 a look at the codec is due
MOST = 4096  # beginnings to remember; then all are forgotten
MOST_BYTES = 1024  # of a beginning: names of clients and topics may be 32 KB long
ACKS_ALL = -1
LANE_ACKS = (1, ACKS_ALL)

_SHORT, _INT = Struct(">h"), Struct(">i")
_OFFSETS = Struct(">qqq")  # in an answer: the base offset, the append time, where the log starts
_ANY = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728)
_NO_RECORDS = 4  # bytes that a request without records has behind its beginning, in all versions
_NOWHERE = (0, 0)


class Lane(NamedTuple):
    tp: TopicPartition
    answer: Struct  # size, correlation id, front, the three offsets, back
    front: bytes
    back: bytes
    acks: int
    timeout_ms: int  # how long the in-sync replicas may take

    def reply(self, correlation_id: int, first_offset: Offset, append_time_ms: int, log_start: Offset) -> bytes:
        answer = self.answer
        size = answer.size - 4
        return answer.pack(size, correlation_id, self.front, first_offset, append_time_ms, log_start, self.back)


Found = tuple[Lane, memoryview, int, int]  # with the records, the version and the correlation id


class Lanes:
    def __init__(self) -> None:
        self._lanes: dict[int, dict[bytes, Lane]] = {version: {} for version in range(OLDEST, NEWEST + 1)}

    def find(self, frame: memoryview) -> Found | None:
        """The lane that a request is in, if it is in one."""
        try:
            key, version, correlation_id = FRONT.unpack_from(frame)
            if key or version < OLDEST:
                return None
            end = _end_of_beginning(frame, version)
            lane = self._lanes[version].get(bytes(frame[FRONT.size : end]))
            if lane is None:
                return None
            start, stop = _records_at(frame, end, version)
            if stop - start <= HEADER_BYTES or frame[start + FLAGS_AT] & TRANSACTIONAL:
                return None
        except (StructError, IndexError, KeyError):
            return None
        return lane, frame[start:stop], version, correlation_id

    def open(self, frame: Buffer, body_at: int, request: ProduceRequest, version: int) -> None:
        """Remember how a request begins, if others may begin like it."""
        topics = request.topic_data
        partitions = topics[0].partition_data if len(topics) == 1 else []
        if version < OLDEST or len(partitions) != 1 or request.acks not in LANE_ACKS:
            return
        tp = TopicPartition(topics[0].name, partitions[0].index)
        if request.transactional_id is not None or tp.topic in INTERNAL:
            return
        beginning = _beginning_of(request, tp, version)
        end = body_at + len(beginning)
        if end > MOST_BYTES:
            return
        if frame[body_at:end] != beginning or _end_of_beginning(frame, version) != end:
            return  # the same can be said in other ways
        lanes = self._lanes[version]
        if len(lanes) >= MOST:
            lanes.clear()
        lanes[bytes(frame[FRONT.size : end])] = _lane(tp, version, request)


def _end_of_beginning(frame: Buffer, version: int) -> int:
    """Where the size of the records stands, if it is a request as there are in lanes; otherwise anywhere."""
    length: int = _SHORT.unpack_from(frame, FRONT.size)[0]
    behind_client = FRONT.size + 2 + (length if length > 0 else 0)
    if version >= FLEXIBLE:
        return behind_client + 10 + frame[behind_client + 9] - 1 + 5
    length = _SHORT.unpack_from(frame, behind_client + 12)[0]
    return behind_client + 14 + length + 8


def _records_at(frame: Buffer, at: int, version: int) -> tuple[int, int]:
    """From where to where the records lie, whose size stands here; nowhere if it is not all that is left."""
    if version < FLEXIBLE:
        stop = at + 4 + _INT.unpack_from(frame, at)[0]
        return (at + 4, stop) if stop == len(frame) else _NOWHERE
    byte, size, shift = frame[at], 0, 0
    while byte > 0x7F and shift < 28:
        size |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = frame[at]
    start = at + 1
    stop = start + (size | byte << shift) - 1
    return (start, stop) if stop + 3 == len(frame) and not frame[-1] | frame[-2] | frame[-3] else _NOWHERE


def _beginning_of(request: ProduceRequest, tp: TopicPartition, version: int) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=tp.partition, records=b"")
    topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
    plain = ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[topic])
    return to_bytes(plain, version)[:-_NO_RECORDS]


def _lane(tp: TopicPartition, version: int, request: ProduceRequest) -> Lane:
    """With what is the same in each answer, taken from any one of them."""
    offset, time_ms, log_start = _ANY
    part = ProduceResponse.PartitionProduceResponse(
        index=tp.partition, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=log_start
    )
    topic = ProduceResponse.TopicProduceResponse(name=tp.topic, partition_responses=[part])
    pieces = response_frame(ProduceResponse(responses=[topic]), version, 0)
    answer = b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))
    front, back = answer[FRONT.size :].split(_OFFSETS.pack(*_ANY))
    struct = Struct(f">ii{len(front)}sqqq{len(back)}s")
    return Lane(tp, struct, front, back, request.acks, request.timeout_ms)
