"""The fast path of OffsetCommit: a commit that differs from the one before it only in numbers.

A consumer commits the same partitions again and again on one connection. Two commits in a row with the same outline
become a template: one of the request, in which correlation id, offsets and leader epochs are blanks, one of the records
in the journal, and one of the response. A request that matches is not decoded. State that may have changed is checked
again: the group, the member, whether the partitions exist, and whether it is still allowed.
"""

from collections.abc import Awaitable
from typing import NamedTuple

from leadline.api.context import ClientConnection, Context, Services
from leadline.api.fast.grants import NO_ACLS
from leadline.api.group_offsets import NO_METADATA, committed, offset_commit
from leadline.coordinator.offset_commit_template import OffsetCommitTemplate
from leadline.coordinator.offset_coordinator import ConsumerGroupMetadata, ErrorCodes
from leadline.model import Buffer, TopicPartition
from leadline.wire.codec import decode_from, to_bytes
from leadline.wire.frames import FRONT, response_frame
from leadline.wire.messages import OffsetCommitRequest, OffsetCommitResponse
from leadline.wire.primitives import BUFFERS, Piece
from leadline.wire.templates import INT, LONG, Template

OFFSET_COMMIT = 8  # its api key
OLDEST = 6  # before it a commit has no leader epoch
MOST_BYTES = 8192  # of a request that becomes a template

Reply = bytes | list[Piece]
Answer = OffsetCommitResponse | Awaitable[OffsetCommitResponse]


class OffsetCommitOutline(NamedTuple):
    """The parts of a commit without its numbers. Two commits with the same outline get a template."""

    version: int
    size: int
    committer: ConsumerGroupMetadata
    topics: tuple[str, ...]
    partitions: tuple[int, ...]


class OffsetCommitRequestTemplate(NamedTuple):
    version: int
    committer: ConsumerGroupMetadata
    request: Template  # blanks: correlation id; then offset and leader epoch of each partition
    entries: OffsetCommitTemplate
    response: Template  # blank: correlation id
    highest: dict[str, int]  # by topic: the highest of the partitions that must exist
    acl_version: int  # at which the whole commit was allowed


def commit_by_template(
    frame: memoryview, version: int, correlation_id: int, client: ClientConnection, services: Services
) -> Reply | Awaitable[Reply] | None:
    template = client.last_commit
    if not isinstance(template, OffsetCommitRequestTemplate) or (numbers := template.request.match(frame)) is None:
        return None
    if template.acl_version != services.acl_version:
        return None
    partition_count = services.metadata.partition_count
    for topic, highest in template.highest.items():
        if (partition_count(topic) or 0) <= highest:
            return None
    entries = template.entries
    verdicts = services.offsets.commit_from_template(template.committer, entries, numbers[1::2], numbers[2::2])
    if verdicts is entries.accepted:
        return template.response.fill((correlation_id,))
    if isinstance(verdicts, dict):
        return _reply(services, verdicts, version, correlation_id)
    return _reply_later(services, verdicts, version, correlation_id)


async def _reply_later(services: Services, verdicts: Awaitable[ErrorCodes], version: int, correlation_id: int) -> Reply:
    return _reply(services, await verdicts, version, correlation_id)


def _reply(services: Services, verdicts: ErrorCodes, version: int, correlation_id: int) -> list[Piece]:
    response = committed(verdicts)
    services.request_metrics.count_errors(OFFSET_COMMIT, response)
    return response_frame(response, version, correlation_id)


def serve_offset_commit(frame: Buffer, body_at: int, ctx: Context) -> Answer:
    """The connection keeps the outline of the commit, or its template if the commit before it had the same outline."""
    request, _ = decode_from(OffsetCommitRequest, frame, ctx.version, body_at)
    response = offset_commit(request, ctx)
    before, ctx.client.last_commit = ctx.client.last_commit, None
    if ctx.version >= OLDEST and len(frame) <= MOST_BYTES:
        outline = _outline(request, ctx.version, len(frame))
        template = _template(frame, body_at, request, ctx) if before == outline else None
        ctx.client.last_commit = template or outline
    return response


def _outline(request: OffsetCommitRequest, version: int, size: int) -> OffsetCommitOutline:
    topics = request.topics
    return OffsetCommitOutline(
        version,
        size,
        _committer(request),
        tuple(topic.name for topic in topics),
        tuple(part.partition_index for topic in topics for part in topic.partitions),
    )


def _committer(request: OffsetCommitRequest) -> ConsumerGroupMetadata:
    generation = request.generation_id_or_member_epoch
    return ConsumerGroupMetadata(request.group_id, request.member_id, request.group_instance_id, generation)


def _template(
    frame: Buffer, body_at: int, request: OffsetCommitRequest, ctx: Context
) -> OffsetCommitRequestTemplate | None:
    """None if the request names a partition twice, or none, or is not encoded as the codec does it."""
    metadata = {
        TopicPartition(topic.name, part.partition_index): part.committed_metadata or NO_METADATA
        for topic in request.topics
        for part in topic.partitions
    }
    acl_version = _acl_version(request, ctx)
    if acl_version is None:
        return None
    template = Template(_specimen(frame, body_at, request, ctx.version))
    if not metadata or template.blanks != 1 + 2 * len(metadata) or template.match(frame) is None:
        return None
    entries = ctx.services.offsets.template(request.group_id, metadata)
    if entries is None:
        return None
    pieces = response_frame(committed(entries.accepted), ctx.version, INT)
    response = Template(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS)))
    if response.blanks != 1 or any(tp.partition < 0 for tp in metadata):
        return None
    highest: dict[str, int] = {}
    for tp in metadata:
        highest[tp.topic] = max(tp.partition, highest.get(tp.topic, 0))
    return OffsetCommitRequestTemplate(
        ctx.version, _committer(request), template, entries, response, highest, acl_version
    )


def _acl_version(request: OffsetCommitRequest, ctx: Context) -> int | None:
    """The version of the ACLs at which the whole commit is allowed; None if it is not.

    If the audit log has a line for each decision, each one has to be made: None as well.
    """
    if ctx.services.acls is None:
        return NO_ACLS
    if ctx.services.audit.is_logged(allowed=True):
        return None
    names = {topic.name for topic in request.topics}
    permitted = ctx.permitted("topics", names)
    is_allowed = ctx.permits("group", request.group_id) and all(name in permitted for name in names)
    return ctx.services.acl_version if is_allowed else None


def _specimen(frame: Buffer, body_at: int, request: OffsetCommitRequest, version: int) -> bytes:
    """The request with blanks. It is changed in place."""
    for topic in request.topics:
        for part in topic.partitions:
            part.committed_offset, part.committed_leader_epoch = LONG, INT
    assert request.API_KEY is not None
    front = FRONT.pack(request.API_KEY, version, INT)
    return front + bytes(frame[FRONT.size : body_at]) + to_bytes(request, version)
