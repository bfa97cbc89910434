"""Templates of produce requests: requests that start with the same bytes mean the same.

The requests of a producer to a partition share version, client id, acks, time-out, topic and partition. Only the
correlation id and the records differ. The shared bytes, the prefix, are decoded once. A later request with the same
prefix needs no decoding.

    api key, version (4) · correlation id (4) · prefix, up to the partition's index · size, records
    from v9 on the records are followed by three empty sets of tagged fields

A template is for one partition and acks=1 or all, outside of transactions and internal topics.

Pure: reads bytes and remembers some.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from leadline.controller.topics import INTERNAL
from leadline.model import ACKS_ALL, Buffer, Offset, TopicPartition
from leadline.records.batch import FLAGS_AT, HEADER_BYTES, TRANSACTIONAL
from leadline.wire.codec import to_bytes
from leadline.wire.frames import FRONT, response_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import BUFFERS

OLDEST, FLEXIBLE, NEWEST = 7, 9, 11  # before v7 the codec of the records has to be checked
MOST = 4096  # templates of a version; when there are more, all are forgotten
MOST_BYTES = 1024  # of a prefix: names of clients and topics may be 32 KB long
TEMPLATE_ACKS = (1, ACKS_ALL)

_SHORT, _INT = Struct(">h"), Struct(">i")
_OFFSETS = Struct(">qqq")  # in a response: base offset, append time, log start offset
_ANY = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728)
_NO_RECORDS = 4  # bytes after the prefix of a request without records, in all versions
_NOWHERE = (0, 0)


class ProduceTemplate(NamedTuple):
    tp: TopicPartition
    response: Struct  # size, correlation id, front, the three offsets, back
    front: bytes
    back: bytes
    acks: int
    timeout_ms: int  # for the in-sync replicas

    def reply(self, correlation_id: int, first_offset: Offset, append_time_ms: int, log_start: Offset) -> bytes:
        response = self.response
        size = response.size - 4
        return response.pack(size, correlation_id, self.front, first_offset, append_time_ms, log_start, self.back)


class ProduceTemplates:
    """Those of all connections, by version and prefix."""

    def __init__(self) -> None:
        self._templates: dict[int, dict[bytes, ProduceTemplate]] = {v: {} for v in range(OLDEST, NEWEST + 1)}

    def match(self, frame: memoryview, version: int) -> tuple[ProduceTemplate, memoryview] | None:
        """The template of a request, and its records."""
        if version < OLDEST:
            return None
        try:
            end = _end_of_prefix(frame, version)
            template = self._templates[version].get(bytes(frame[FRONT.size : end]))
            if template is None:
                return None
            start, stop = _records_at(frame, end, version)
            if stop - start <= HEADER_BYTES or frame[start + FLAGS_AT] & TRANSACTIONAL:
                return None
        except (StructError, IndexError, KeyError):
            return None
        return template, frame[start:stop]

    def learn(self, frame: Buffer, body_at: int, request: ProduceRequest, version: int) -> None:
        """Make a template of a request, if there can be one."""
        topics = request.topic_data
        partitions = topics[0].partition_data if len(topics) == 1 else []
        if version < OLDEST or len(partitions) != 1 or request.acks not in TEMPLATE_ACKS:
            return
        tp = TopicPartition(topics[0].name, partitions[0].index)
        if request.transactional_id is not None or tp.topic in INTERNAL:
            return
        prefix = _prefix_of(request, tp, version)
        end = body_at + len(prefix)
        if end > MOST_BYTES:
            return
        if frame[body_at:end] != prefix or _end_of_prefix(frame, version) != end:
            return  # the client encodes the same values differently
        templates = self._templates[version]
        if len(templates) >= MOST:
            templates.clear()
        templates[bytes(frame[FRONT.size : end])] = _template(tp, version, request)


def _end_of_prefix(frame: Buffer, version: int) -> int:
    """The position of the records' size, if the request has a template; otherwise any number."""
    length: int = _SHORT.unpack_from(frame, FRONT.size)[0]
    body_at = FRONT.size + 2 + (length if length > 0 else 0)
    if version >= FLEXIBLE:
        return body_at + 10 + frame[body_at + 9] - 1 + 5
    length = _SHORT.unpack_from(frame, body_at + 12)[0]
    return body_at + 14 + length + 8


def _records_at(frame: Buffer, at: int, version: int) -> tuple[int, int]:
    """Start and end of the records whose size is here; _NOWHERE if the request does not end with them."""
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


def _prefix_of(request: ProduceRequest, tp: TopicPartition, version: int) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=tp.partition, records=b"")
    topic = ProduceRequest.TopicProduceData(name=tp.topic, partition_data=[data])
    empty = ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[topic])
    return to_bytes(empty, version)[:-_NO_RECORDS]


def _template(tp: TopicPartition, version: int, request: ProduceRequest) -> ProduceTemplate:
    """The constant bytes of its responses are taken from one that the codec writes."""
    offset, time_ms, log_start = _ANY
    part = ProduceResponse.PartitionProduceResponse(
        index=tp.partition, base_offset=offset, log_append_time_ms=time_ms, log_start_offset=log_start
    )
    topic = ProduceResponse.TopicProduceResponse(name=tp.topic, partition_responses=[part])
    pieces = response_frame(ProduceResponse(responses=[topic]), version, 0)
    response = b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))
    front, back = response[FRONT.size :].split(_OFFSETS.pack(*_ANY))
    struct = Struct(f">ii{len(front)}sqqq{len(back)}s")
    return ProduceTemplate(tp, struct, front, back, request.acks, request.timeout_ms)
