"""What is checked before batches are appended.

A leader checks the header, the CRC and the first record, unless it is compressed. It checks all records only where a
setting of the topic concerns them: keys on compacted topics, times where message.timestamp.before/after.max.ms limit
them, and another compression.type than the producer's. A follower checks the CRC and the order of offsets.

Pure: no file, no clock of its own.
"""

from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from crc32c import crc32c

from leadline.config.topic import LogConfig
from leadline.config.values import LONG_MAX
from leadline.errors import CorruptMessage, InvalidRecord, InvalidTimestamp, RecordError, RecordTooLarge
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
    Header,
    check_frame,
    crc_of,
    header_at,
    header_of,
    mark_create_time,
    stamp_append_time,
    walk,
)
from leadline.records.build import recompressed
from leadline.records.compression import Codec
from leadline.records.record import body_of, check_record, spans
from leadline.records.record import check_records as check_all

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


def one_batch(data: Buffer, config: LogConfig, origin: AppendOrigin, tp: TopicPartition) -> Header:
    """The header of the one batch that a leader is to append. It is checked, and the CRC too, unless we built it."""
    if len(data) < HEADER_BYTES:
        raise InvalidRecord(f"no record batch in {len(data)} bytes for {tp}")
    fields = HEADER.unpack_from(data)
    base_offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = fields
    if magic != MAGIC or length < MIN_LENGTH:
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
        if not codec:
            _check_first_record(data, size, count, tp)
    return header_of(fields)


def _check_first_record(data: Buffer, size: int, count: int, tp: TopicPartition) -> None:
    """A producer that builds its records wrongly shows it here. The cost does not grow with the batch."""
    try:
        end = check_record(data, HEADER_BYTES, size)
    except CorruptMessage as error:
        raise InvalidRecord(f"{error}: the first record of a batch for {tp}") from None
    if (end == size) is not (count == 1):
        raise InvalidRecord(f"a batch of {count} records for {tp} whose first ends {size - end} bytes before the batch")


def _refuse_client_batch(
    attributes: int, delta: int, count: int, producer_id: int, sequence: int, tp: TopicPartition
) -> NoReturn:
    """Say what is wrong with the header of a producer's batch."""
    if delta < 0 or count <= 0:
        raise InvalidRecord(f"a batch for {tp} with {count} records and last offset delta {delta}")
    if delta + 1 != count:
        raise InvalidRecord(f"a batch for {tp} covers {delta + 1} offsets but has {count} records")
    if attributes & CODEC_MASK > _LAST_CODEC:
        raise CorruptMessage(f"unknown compression codec {attributes & CODEC_MASK} in a batch for {tp}")
    if attributes & CONTROL:
        raise InvalidRecord(f"clients may not write control records, in {tp}")
    raise InvalidRecord(f"sequence number {sequence} in a batch of producer {producer_id} for {tp}")


def needs_records(config: LogConfig) -> bool:
    """Whether the settings of a topic concern single records."""
    return (
        config.compact
        or config.message_timestamp_before_max_ms != LONG_MAX
        or config.message_timestamp_after_max_ms != LONG_MAX
    )


def unchanged_from(config: LogConfig) -> tuple[AppendOrigin, ...]:
    """The origins whose batches are stored as they come: all of them, on nearly all topics."""
    if config.compression_type != "producer" or config.log_append_time:
        return ()
    coordinator = (AppendOrigin.COORDINATOR,)
    return coordinator if needs_records(config) else (AppendOrigin.CLIENT, *coordinator)


def as_configured(
    batch: Writable, header: Header, config: LogConfig, tp: TopicPartition, origin: AppendOrigin, now_ms: int
) -> tuple[Writable, Header]:
    """What the settings of few topics require: a check of all records, another codec, the broker's time."""
    if origin is AppendOrigin.CLIENT:
        header = with_own_time(batch, header, config, tp)
    if origin is not AppendOrigin.COORDINATOR and needs_records(config):  # a coordinator's records all have keys
        check_records(batch, header, config, tp, now_ms)
    batch = with_codec(batch, header, config, tp)
    if config.log_append_time:
        stamp_append_time(batch, 0, len(batch), now_ms)
    return batch, header_at(batch)


def leader_append(batch: Writable, header: Header, leader_epoch: LeaderEpoch) -> AppendInfo:
    """A batch of an idempotent or transactional producer that has its offset and leader epoch."""
    first, last = header.base_offset, header.last_offset
    newest = TimestampOffset(header.max_timestamp, last)
    return AppendInfo(batch, first, last, newest, ((leader_epoch, first),), [(0, header)])


def check_records(data: Buffer, header: Header, config: LogConfig, tp: TopicPartition, now_ms: int) -> None:
    """Refuse the batch, with the index of each record that is at fault."""
    body = body_of(data, 0, header)
    try:
        check_all(body, 0, len(body), header.record_count)
    except CorruptMessage as error:
        raise InvalidRecord(f"{error}: in a batch for {tp}") from None
    stamped = header.max_timestamp if header.is_log_append_time else None
    oldest = now_ms - config.message_timestamp_before_max_ms
    newest = now_ms + config.message_timestamp_after_max_ms
    keyless: list[RecordError] = []
    untimely: list[RecordError] = []
    for n, span in enumerate(spans(body, header.record_count)):
        if config.compact and span.key is None:
            keyless.append(
                RecordError(n, f"Compacted topic cannot accept message without key in topic partition {tp}.")
            )
            continue
        timestamp = header.base_timestamp + span.timestamp_delta if stamped is None else stamped
        if not config.log_append_time and timestamp != NO_TIMESTAMP and not oldest <= timestamp <= newest:
            untimely.append(
                RecordError(
                    n,
                    f"Timestamp {timestamp} of message with offset {header.base_offset + span.offset_delta} is out of "
                    f"range. The timestamp should be within [{oldest}, {newest}]",
                )
            )
    refused = tuple(sorted(keyless + untimely))
    if untimely:
        raise InvalidTimestamp(
            "One or more records have been rejected due to invalid timestamp: they must lie within "
            f"message.timestamp.before.max.ms={config.message_timestamp_before_max_ms} and "
            f"message.timestamp.after.max.ms={config.message_timestamp_after_max_ms} of the broker's time",
            refused,
        )
    if keyless:
        raise InvalidRecord(
            f"One or more records have been rejected due to {len(keyless)} record errors in total, and only showing "
            f"the first three errors at most: {list(keyless[:3])}",
            refused,
        )


def with_own_time(data: Writable, header: Header, config: LogConfig, tp: TopicPartition) -> Header:
    """A producer may not set LogAppendTime. The batch is refused; where its own times count, the mark is removed."""
    if not header.attributes & LOG_APPEND_TIME:
        return header
    if config.log_append_time:
        message = f"a producer must not set the timestamp type to LogAppendTime, in {tp}"
        records = spans(body_of(data, 0, header), header.record_count)
        raise InvalidTimestamp(message, tuple(RecordError(n, message) for n, _ in enumerate(records)))
    mark_create_time(data, 0, header.size)
    return header_at(data)


def with_codec(data: Writable, header: Header, config: LogConfig, tp: TopicPartition) -> Writable:
    """The batch under the codec of compression.type."""
    if config.compression_type == "producer" or header.is_control:
        return data
    codec = Codec.named(config.compression_type)
    if codec is header.codec:
        return data
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    changed = recompressed(data, 0, header, codec, levels.get(codec))
    if len(changed) > config.max_message_bytes:
        raise RecordTooLarge(
            f"a batch of {len(changed)} bytes for {tp}, under compression.type={config.compression_type}, exceeds "
            f"max.message.bytes={config.max_message_bytes}"
        )
    return changed


def replicated_batches(data: Buffer, tp: TopicPartition) -> AppendInfo | None:
    """What a leader sent. A batch that is cut off at the end is left out. None if there is no whole batch."""
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
            raise CorruptMessage(f"offset {base} comes behind {last} in records replicated to {tp}")
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
