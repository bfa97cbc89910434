"""Lanes for committers: commits that differ from the one before them in nothing but numbers.

A consumer commits the same partitions again and again, on one connection. What it commits twice in a row becomes a
lane: a form of the request, in which correlation id, offsets and leader epochs are blanks, with the form of what is
written to the journal and the form of the answer. While requests are that form filled in, nothing is decoded any more.
All that may change meanwhile is looked at again: the group, the member, whether the partitions exist.
"""

from collections.abc import Awaitable
from typing import NamedTuple

from leadline.api.context import Context, Services
from leadline.api.group_offsets import NO_METADATA, committed, offset_commit
from leadline.coordinator.offset_commit_template import OffsetCommitTemplate
from leadline.coordinator.offset_coordinator import ConsumerGroupMetadata, ErrorCodes
from leadline.model import TopicPartition
from leadline.wire.codec import decode_from, to_bytes
from leadline.wire.frames import FRONT, Head, response_frame
from leadline.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from leadline.wire.primitives import BUFFERS, Piece
from leadline.wire.templates import INT, LONG, Template

OLDEST = 6  # before it a commit has no leader epoch
MOST_BYTES = 8192  # of a request that is kept

Reply = bytes | list[Piece]
Answer = OffsetCommitResponse | Awaitable[OffsetCommitResponse]


class Sketch(NamedTuple):
    """What two commits have in common that are likely to differ in numbers alone."""

    version: int
    size: int
    who: ConsumerGroupMetadata
    topics: tuple[str, ...]
    partitions: tuple[int, ...]


class Lane(NamedTuple):
    version: int
    who: ConsumerGroupMetadata
    request: Template  # blanks: correlation id; then of each partition offset and leader epoch
    entries: OffsetCommitTemplate
    answer: Template  # blank: correlation id
    highest: dict[str, int]  # of each topic, the last partition that must exist


Kept = Sketch | Lane | None  # with a connection: of its last commit


def commit_in_lane(frame: memoryview, kept: object, services: Services) -> Reply | Awaitable[Reply] | None:
    """The reply, if the request is in the lane that was kept. If not, nothing has happened to it."""
    if not isinstance(kept, Lane) or (numbers := kept.request.match(frame)) is None:
        return None
    partition_count = services.metadata.partition_count
    for topic, highest in kept.highest.items():
        if (partition_count(topic) or 0) <= highest:
            return None
    verdicts = services.offsets.commit_from_template(kept.who, kept.entries, numbers[1::2], numbers[2::2])
    if verdicts is kept.entries.accepted:
        return kept.answer.fill(numbers[:1])
    if isinstance(verdicts, dict):
        return _reply(verdicts, kept.version, numbers[0])
    return _later(verdicts, kept.version, numbers[0])


async def _later(verdicts: Awaitable[ErrorCodes], version: int, correlation_id: int) -> Reply:
    return _reply(await verdicts, version, correlation_id)


def _reply(verdicts: ErrorCodes, version: int, correlation_id: int) -> list[Piece]:
    return response_frame(committed(verdicts), version, correlation_id)


def commit_outside(frame: memoryview, head: Head, kept: object, ctx: Context) -> tuple[Answer, Kept]:
    """The answer to a commit that is in no lane, and what to keep of it."""
    request, _ = decode_from(OffsetCommitRequest, frame, head.version, head.body_at)
    answer = offset_commit(request, ctx)
    if head.version < OLDEST or len(frame) > MOST_BYTES:
        return answer, None
    sketch = _sketch(request, head.version, len(frame))
    return answer, _lane(frame, head, request, ctx.services) or sketch if kept == sketch else sketch


def _sketch(request: OffsetCommitRequest, version: int, size: int) -> Sketch:
    topics = request.topics
    return Sketch(
        version,
        size,
        _who(request),
        tuple(topic.name for topic in topics),
        tuple(asked.partition_index for topic in topics for asked in topic.partitions),
    )


def _who(request: OffsetCommitRequest) -> ConsumerGroupMetadata:
    generation = request.generation_id_or_member_epoch
    return ConsumerGroupMetadata(request.group_id, request.member_id, request.group_instance_id, generation)


def _lane(frame: memoryview, head: Head, request: OffsetCommitRequest, services: Services) -> Lane | None:
    """None if it names a partition twice, or none, or says it in other ways than the codec would."""
    asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
    metadata = {
        TopicPartition(name, part.partition_index): part.committed_metadata or NO_METADATA for name, part in asked
    }
    form = Template(_specimen(frame, head, request))
    if not metadata or form.blanks != 1 + 2 * len(metadata) or form.match(frame) is None:
        return None
    entries = services.offsets.template(request.group_id, metadata)
    if entries is None:
        return None
    pieces = _reply(entries.accepted, head.version, INT)
    answer = Template(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS)))
    highest: dict[str, int] = {}
    for tp in metadata:
        highest[tp.topic] = max(tp.partition, highest.get(tp.topic, 0))
    is_sound = answer.blanks == 1 and all(tp.partition >= 0 for tp in metadata)
    return Lane(head.version, _who(request), form, entries, answer, highest) if is_sound else None


def _specimen(frame: memoryview, head: Head, request: OffsetCommitRequest) -> bytes:
    """The request, with blanks. It is changed."""
    for topic in request.topics:
        for asked in topic.partitions:
            asked.committed_offset, asked.committed_leader_epoch = LONG, INT
    front = FRONT.pack(head.api_key, head.version, INT)
    return front + bytes(frame[FRONT.size : head.body_at]) + to_bytes(request, head.version)
