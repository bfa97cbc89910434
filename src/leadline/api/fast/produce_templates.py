"""Templates of produce requests: what a request means is learned once, for all that start with the same bytes.

The requests of a producer to a partition share version, client id, acks, time-out, topic and partition. Only the
correlation id and the records differ. The shared bytes, the prefix, are decoded once. `produce.py` finds the template
of a later request with the same prefix, and need not decode it.

    api key, version (4) · correlation id (4) · prefix, up to the partition's index · size, records
    from v9 on the records are followed by three empty sets of tagged fields

A template is for one partition and acks=1 or all, outside of transactions and internal topics.

Pure: reads bytes and remembers some.
"""

from struct import Struct
from typing import NamedTuple

from leadline.controller.topics import INTERNAL
from leadline.model import ACKS_ALL, Buffer, TopicPartition
from leadline.wire.codec import to_bytes
from leadline.wire.frames import FRONT, response_frame
from leadline.wire.messages import ProduceRequest, ProduceResponse
from leadline.wire.primitives import BUFFERS

OLDEST, NEWEST = 7, 11  # before v7 the codec of the records has to be checked
MOST = 4096  # templates of a version; when there are more, all are forgotten
MOST_BYTES = 1024  # of a prefix: names of clients and topics may be 32 KB long
TEMPLATE_ACKS = (1, ACKS_ALL)

_OFFSETS = Struct(">qqq")  # in a response: base offset, append time, log start offset
_ANY = (0x0102_0304_0506_0708, 0x1112_1314_1516_1718, 0x2122_2324_2526_2728)
_NO_RECORDS = 4  # bytes after the prefix of a request without records, in all versions


class ProduceTemplate(NamedTuple):
    tp: TopicPartition
    acks: int
    timeout_ms: int  # for the in-sync replicas
    response: Struct  # size, correlation id, front, the three offsets, back
    size: int  # of a response, without these four bytes
    front: bytes
    back: bytes


class ProduceTemplates:
    """The templates of all connections, by version and prefix."""

    def __init__(self) -> None:
        self.by_version: dict[int, dict[bytes, ProduceTemplate]] = {v: {} for v in range(OLDEST, NEWEST + 1)}

    def learn(self, frame: Buffer, body_at: int, request: ProduceRequest, version: int) -> None:
        """Make a template of a request, if there can be one."""
        topics = request.topic_data
        partitions = topics[0].partition_data if len(topics) == 1 else []
        if version not in self.by_version or len(partitions) != 1 or request.acks not in TEMPLATE_ACKS:
            return
        tp = TopicPartition(topics[0].name, partitions[0].index)
        if request.transactional_id is not None or tp.topic in INTERNAL:
            return
        prefix = _prefix_of(request, tp, version)
        end = body_at + len(prefix)
        if end > MOST_BYTES or frame[body_at:end] != prefix:
            return  # it is long, or the client encodes the same values differently
        templates, key = self.by_version[version], bytes(frame[FRONT.size : end])
        if len(templates) >= MOST:
            templates.clear()
        if key not in templates:
            templates[key] = _template(tp, version, request)


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
    return ProduceTemplate(tp, request.acks, request.timeout_ms, struct, struct.size - 4, front, back)
