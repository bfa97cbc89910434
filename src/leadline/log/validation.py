"""The checks of batches before they are appended.

A leader checks what Apache Kafka checks, by default and for every batch of a producer: the header, the CRC, and each
record (docs/decisions/0042-a-leader-checks-every-record.md). It unpacks a compressed batch for that. A batch that takes
too long for the loop is `LargeContent`: a thread checks it (`content_checks.py`), and it comes again with the result. A
follower checks the CRC and the order of offsets.

Pure: no file, no clock of its own.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple, NoReturn

from leadline.config.topic import LogConfig
from leadline.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordError,
    RecordsRefused,
    RecordTooLarge,
    UnknownServerError,
    WireError,
)
from leadline.log.index import TimestampOffset
from leadline.log.producer_state import AppendOrigin
from leadline.model import NO_EPOCH, NO_TIMESTAMP, Buffer, LeaderEpoch, Offset, TopicPartition
from leadline.records.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    MIN_LENGTH,
    PRODUCER_ID_END,
    Header,
    check_frame,
    crc_of,
    header_at,
    header_of,
    set_times,
    stamp_append_time,
    walk,
)
from leadline.records.build import recompressed
from leadline.records.checksum import crc32c
from leadline.records.compression import (
    MAX_DECOMPRESSED_BYTES,
    Codec,
    CorruptCompression,
    DecompressedTooLarge,
    chunks,
    decompress,
)
from leadline.records.message_set import entries, no_entry
from leadline.records.python_walker import LONG_MAX, Summary, to_long
from leadline.records.record import body_of, spans
from leadline.records.walker import IS_COMPILED, check, check_chunks

# The loop itself checks batches that take about half a millisecond. A thread checks larger ones.
INLINE_BYTES: Mapping[int, int] = {  # unpacked
    Codec.GZIP: 128 * 1024,
    Codec.SNAPPY: 512 * 1024,
    Codec.LZ4: 1024 * 1024,
    Codec.ZSTD: 256 * 1024,
}
INLINE_PACKED_BYTES = {codec: size // 2 for codec, size in INLINE_BYTES.items()}
INLINE_REBUILT_BYTES = 16 * 1024  # under another codec
INLINE_RECORDS = 20_000 if IS_COMPILED else 1_000
INLINE_REFUSALS = 1_000  # of records in one batch
MAX_RECORD_ERRORS = 10_000  # of one response

LONG_MIN = -LONG_MAX - 1

Writable = bytearray | memoryview
_CLIENT, _LAST_CODEC = AppendOrigin.CLIENT, int(max(Codec))


class AppendInfo(NamedTuple):
    """Whole batches that are about to be appended, and what the log needs to know of them."""

    data: Buffer
    first_offset: Offset
    last_offset: Offset
    newest: TimestampOffset  # the largest timestamp, and the last offset of its batch
    epochs: Sequence[tuple[LeaderEpoch, Offset]]  # each with its first offset here
    stateful: Sequence[tuple[int, Header]]  # batches with a producer id, by position


class LargeContent(Exception):
    """Checking the records of a batch takes too long for the loop."""


def one_batch(data: Buffer, config: LogConfig, origin: AppendOrigin, tp: TopicPartition) -> Header:
    """The header of the one batch that a leader appends. It is checked, and so is the CRC, unless we built it."""
    if len(data) < HEADER_BYTES:
        _refuse_short(data, tp)
    fields = HEADER.unpack_from(data)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = fields
    if magic != MAGIC or length < MIN_LENGTH:
        if (refusal := no_entry(data)) is not None:
            raise refusal
        if magic in (0, 1):
            raise InvalidRecord(f"messages of format {magic} for {tp}, which a producer may send up to Produce v2")
        check_frame(length, magic)
    size, from_client = LENGTH_END + length, origin is _CLIENT
    if size != len(data):
        if size > len(data):
            raise InvalidRecord(f"a record batch of {size} bytes is cut off at {len(data)} for {tp}")
        if next(walk(data, size), None) is not None:
            raise InvalidRecord(f"more than one record batch in one append to {tp}")
    if base_offset and from_client:
        raise InvalidRecord(f"the base offset of a batch for {tp} should be 0, but it is {base_offset}")
    if size > config.max_message_bytes:
        raise RecordTooLarge(
            f"a record batch of {size} bytes for {tp} exceeds max.message.bytes={config.max_message_bytes}"
        )
    if from_client:
        if crc32c(memoryview(data)[ATTRIBUTES_AT:size]) != crc:
            raise CorruptMessage(f"the CRC of a record batch for {tp} does not match (stored: {crc})")
        codec = attributes & CODEC_MASK
        if (
            delta < 0
            or delta + 1 != count
            or codec > _LAST_CODEC
            or attributes & CONTROL
            or producer_id >= 0 > sequence
        ):
            _refuse_client_batch(attributes, delta, count, producer_id, sequence, tp)
    return header_of(fields)


def _refuse_short(data: Buffer, tp: TopicPartition) -> NoReturn:
    """Bytes without room for a header. Kafka fails to read a producer id where there is none."""
    entry = next(entries(data), None)
    if entry is None:
        raise InvalidRecord(f"no record batch in {len(data)} bytes for {tp}")
    if entry.magic != MAGIC:
        raise InvalidRecord(f"messages of format {entry.magic} for {tp}, which a producer may send up to Produce v2")
    refuse_short_batch(entry.size, tp)


def refuse_short_batch(size: int, tp: TopicPartition) -> NoReturn:
    refuse = UnknownServerError if size < PRODUCER_ID_END else CorruptMessage
    raise refuse(f"a record batch of {size} bytes for {tp} is smaller than its own header")


def _refuse_client_batch(
    attributes: int, delta: int, count: int, producer_id: int, sequence: int, tp: TopicPartition
) -> NoReturn:
    """The error in the header of a producer's batch."""
    if delta < 0 or count <= 0:
        raise InvalidRecord(f"a batch for {tp} with {count} records and last offset delta {delta}")
    if delta + 1 != count:
        raise InvalidRecord(f"a batch for {tp} covers {delta + 1} offsets but has {count} records")
    if attributes & CODEC_MASK > _LAST_CODEC:
        raise UnknownServerError(f"Unknown compression type id: {attributes & CODEC_MASK}, in a batch for {tp}")
    if attributes & CONTROL:
        raise InvalidRecord(f"clients may not write control records, in {tp}")
    raise InvalidRecord(f"sequence number {sequence} in a batch of producer {producer_id} for {tp}")


# The records of a batch


def content_of(data: Buffer, header: Header, config: LogConfig, tp: TopicPartition, now_ms: int) -> Summary:
    """The summary of a batch's records. InvalidRecord or InvalidTimestamp if Kafka refuses them."""
    count, size = header.record_count, LENGTH_END + header.length
    if count > INLINE_RECORDS or (size > INLINE_REBUILT_BYTES and _is_rebuilt(header, config)):
        raise LargeContent
    codec = header.attributes & CODEC_MASK
    try:
        if not codec:
            summary = check(data, HEADER_BYTES, size, count, header.base_timestamp)
        else:
            body = _unpacked(data, size, Codec(codec))
            summary = check(body, 0, len(body), count, header.base_timestamp)
    except CorruptMessage as error:
        raise InvalidRecord(f"{error}, in a batch for {tp}") from None
    fault = _fault(summary, header, config, now_ms)
    if fault is None:
        return summary
    if count > INLINE_REFUSALS:
        raise LargeContent
    raise _refusal(fault, data, header, config, tp, now_ms)


def _unpacked(data: Buffer, size: int, codec: Codec) -> bytes:
    if size > INLINE_PACKED_BYTES[codec]:
        raise LargeContent
    try:
        return decompress(codec, memoryview(data)[HEADER_BYTES:size], INLINE_BYTES[codec])
    except (CorruptCompression, DecompressedTooLarge):  # Kafka may still read it: see `large_content_of`
        raise LargeContent from None


class CheckedBatch(NamedTuple):
    """A batch of a producer whose records a thread has checked. It has the topic's codec."""

    data: Writable
    content: Summary


def checked_batch(data: Writable, config: LogConfig, tp: TopicPartition, now_ms: int) -> CheckedBatch:
    """As `content_of`, for a thread: of any size, and in bounded memory. It unpacks everything that Kafka unpacks."""
    header = header_at(data)
    codec, size = Codec(header.attributes & CODEC_MASK), LENGTH_END + header.length
    pieces = chunks(codec, memoryview(data)[HEADER_BYTES:size])
    if config.compact or _is_rebuilt(header, config):
        pieces = limited(pieces, f"a batch for {tp}, which is unpacked again,")
    try:
        content = check_chunks(pieces, header.record_count, header.base_timestamp)
    except CorruptMessage as error:
        raise InvalidRecord(f"{error}, in a batch for {tp}") from None
    except CorruptCompression as error:
        raise UnknownServerError(f"a batch for {tp} cannot be decompressed: {error}") from None
    fault = _fault(content, header, config, now_ms)
    if fault is not None:
        raise _refusal(fault, data, header, config, tp, now_ms)
    changed = with_codec(data, header, content, config, tp)
    return CheckedBatch(changed, (*content[:3], -1))


def limited(pieces: Iterator[Buffer], what: str) -> Iterator[Buffer]:
    """Refuse a payload that is too large to unpack whole: the cleaner would have to, or a recompression."""
    left = MAX_DECOMPRESSED_BYTES
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise RecordTooLarge(f"{what} holds more than {MAX_DECOMPRESSED_BYTES} bytes")
        yield piece


class _Fault(Enum):
    KEY_OR_TIME = "some records have no key, or a wrong time"
    OFFSET = "a record has another offset delta than its place in the batch"


def _fault(content: Summary, header: Header, config: LogConfig, now_ms: int) -> _Fault | None:
    """The reason to refuse a batch although its records can be read."""
    newest, oldest, keyless, misplaced = content
    if keyless and config.compact:
        return _Fault.KEY_OR_TIME
    if header.attributes & LOG_APPEND_TIME:
        newest = oldest = header.max_timestamp
        if config.log_append_time or newest == NO_TIMESTAMP:
            return _Fault.KEY_OR_TIME
    if not config.log_append_time:
        earliest, latest = time_limits(config, now_ms)
        if newest > latest or oldest < earliest:
            return _Fault.KEY_OR_TIME
    return _Fault.OFFSET if misplaced >= 0 and not _is_rebuilt(header, config) else None


def time_limits(config: LogConfig, now_ms: int) -> tuple[int, int]:
    before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    return LONG_MIN if before == LONG_MAX else now_ms - before, LONG_MAX if after == LONG_MAX else now_ms + after


def _is_rebuilt(header: Header, config: LogConfig) -> bool:
    """Whether the records get another codec, and with it offsets in order."""
    return config.compression_type != "producer" and Codec.named(config.compression_type) is not header.codec


def _refusal(
    fault: _Fault, data: Buffer, header: Header, config: LogConfig, tp: TopicPartition, now_ms: int
) -> WireError:
    if fault is _Fault.OFFSET:
        # Kafka fails to correct compressed records. It stores others unchanged, and its readers fail on them.
        refuse = UnknownServerError if header.attributes & CODEC_MASK else InvalidRecord
        return refuse(f"{fault.value}, in a batch for {tp}")
    try:
        return _refusal_of_records(data, header, config, tp, now_ms)
    except CorruptMessage:  # only Kafka's classes can unpack it, or it is too large to unpack
        return InvalidRecord(f"{fault.value}, in a batch for {tp}")


def _refusal_of_records(
    data: Buffer, header: Header, config: LogConfig, tp: TopicPartition, now_ms: int
) -> RecordsRefused:
    """The refusal, with the number of each record that is at fault, in Kafka's words."""
    keyless: list[RecordError] = []
    untimely: list[RecordError] = []
    stamped = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    earliest, latest = time_limits(config, now_ms)
    allowed = (
        f"[{to_long(now_ms - config.message_timestamp_before_max_ms)}, "
        f"{to_long(now_ms + config.message_timestamp_after_max_ms)}]"
    )
    is_partial = header.attributes & CODEC_MASK and not _is_rebuilt(header, config)
    for n, span in enumerate(islice(spans(body_of(data, 0, header), header.record_count), MAX_RECORD_ERRORS)):
        timestamp = to_long(header.base_timestamp + span.timestamp_delta) if stamped is None else stamped
        if config.compact and span.key_bytes < 0:
            message = f"Compacted topic cannot accept message without key in topic partition {tp}"
            keyless.append(RecordError(n, message))
        elif not config.log_append_time and timestamp != NO_TIMESTAMP:
            if not earliest <= timestamp <= latest:
                message = (
                    f"Timestamp {timestamp} of message with offset {span.offset_delta} is out of range. "
                    f"The timestamp should be within {allowed}"
                )
                untimely.append(RecordError(n, message))
        elif stamped is not None:
            record = (
                f"{'Partial' if is_partial else ''}DefaultRecord(offset={span.offset_delta}, timestamp={timestamp}, "
                f"key={max(span.key_bytes, 0)} bytes, value={max(span.value_bytes, 0)} bytes)"
            )
            message = f"Invalid timestamp type in message {record}. "
            untimely.append(RecordError(n, message + "Producer should not set timestamp type to LogAppendTime."))
    refused = tuple(sorted(keyless + untimely))
    if untimely:
        return InvalidTimestamp("One or more records have been rejected due to invalid timestamp", refused)
    return InvalidRecord(
        f"One or more records have been rejected due to {len(keyless)} record errors in total, and only showing "
        f"the first three errors at most: [{', '.join(map(str, keyless[:3]))}]",
        refused,
    )


# What the settings of a topic change


def is_stored_unchanged(config: LogConfig) -> bool:
    """Whether valid batches are stored unchanged: on nearly all topics."""
    return config.compression_type == "producer" and not config.log_append_time


def as_configured(
    batch: Writable, header: Header, content: Summary | None, config: LogConfig, tp: TopicPartition, now_ms: int
) -> tuple[Writable, Header]:
    """The batch to store: with the right max timestamp, under the topic's codec, at the broker's time.

    `content`: None for a batch that the broker built.
    """
    if content is not None and not config.log_append_time:
        newest = max(header.max_timestamp, NO_TIMESTAMP) if header.attributes & LOG_APPEND_TIME else content[0]
        set_times(batch, header.size, newest)
        header = header_at(batch)
    batch = with_codec(batch, header, content, config, tp)
    if config.log_append_time:
        stamp_append_time(batch, 0, len(batch), now_ms)
    return batch, header_at(batch)


def leader_append(batch: Writable, header: Header, leader_epoch: LeaderEpoch) -> AppendInfo:
    """A batch of an idempotent or transactional producer that has its offset and leader epoch."""
    first, last = header.base_offset, header.last_offset
    newest = TimestampOffset(header.max_timestamp, last)
    return AppendInfo(batch, first, last, newest, ((leader_epoch, first),), [(0, header)])


def with_codec(
    data: Writable, header: Header, content: Summary | None, config: LogConfig, tp: TopicPartition
) -> Writable:
    """The batch under the codec of compression.type."""
    if header.is_control or not _is_rebuilt(header, config):
        return data
    if content is not None and content[1] < 0:
        raise UnknownServerError(f"Invalid negative timestamp {content[1]} in a batch for {tp}")  # as Kafka
    codec, level = target_codec(header.codec, config)
    changed = recompressed(data, 0, header, codec, level, renumber=content is not None and content[3] >= 0)
    if len(changed) > config.max_message_bytes:
        raise RecordTooLarge(
            f"a batch of {len(changed)} bytes for {tp}, under compression.type={config.compression_type}, exceeds "
            f"max.message.bytes={config.max_message_bytes}"
        )
    return changed


def target_codec(source: Codec, config: LogConfig) -> tuple[Codec, int | None]:
    """The codec under which records are stored that came under another one, and its level if one is set."""
    if config.compression_type == "producer":
        return source, None
    codec = Codec.named(config.compression_type)
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return codec, levels.get(codec)


def replicated_batches(data: Buffer, tp: TopicPartition) -> AppendInfo | None:
    """The batches that a leader sent. One that is cut off at the end is left out. None if there is no whole batch."""
    end, position, first, last, epoch = len(data), 0, -1, -1, NO_EPOCH
    newest = TimestampOffset(NO_TIMESTAMP, -1)
    epochs: list[tuple[LeaderEpoch, Offset]] = []
    stateful: list[tuple[int, Header]] = []
    while position + HEADER_BYTES <= end:
        fields = HEADER.unpack_from(data, position)
        base, length, batch_epoch, magic, crc, _, delta, _, max_timestamp, producer_id, _, _, _ = fields
        check_frame(length, magic)
        size = LENGTH_END + length
        if position + size > end:
            break
        if base <= last or delta < 0:
            raise CorruptMessage(f"offset {base} follows {last} in records replicated to {tp}")
        if crc_of(data, position, size) != crc:
            raise CorruptMessage(f"the CRC of the batch at offset {base} replicated to {tp} does not match")
        if first < 0:
            first = base
        last = base + delta
        if batch_epoch != epoch:
            epoch = batch_epoch
            epochs.append((epoch, base))
        if max_timestamp > newest.timestamp:
            newest = TimestampOffset(max_timestamp, last)
        if producer_id >= 0:
            stateful.append((position, header_of(fields)))
        position += size
    if position == 0:
        return None
    return AppendInfo(memoryview(data)[:position], first, last, newest, epochs, stateful)
