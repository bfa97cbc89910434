"""Up-conversion: the message set of an old producer becomes one record batch, checked as Kafka checks it.

Kafka converts the messages of Produce v0-2, and checks in this order:
    every entry of the set: its size, its CRC, its codec
    the set: wrappers and record batches come alone, and all entries have one message format
    a wrapper: that it can be unpacked, and holds messages up to its own offset
    every message: its CRC and format inside a wrapper, keys on compacted topics, times
    what cannot be written: lengths that do not fit, negative times
Offsets are assigned again. Records of format 0 have no time.

Pure: no file, no clock. A thread runs it.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from leadline.config.topic import LogConfig
from leadline.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordTooLarge,
    UnknownServerError,
    WireError,
)
from leadline.log.producer_state import AppendOrigin
from leadline.log.validation import (
    CheckedBatch,
    Writable,
    checked_batch,
    limited,
    one_batch,
    refuse_short_batch,
    target_codec,
    time_limits,
)
from leadline.model import NO_TIMESTAMP, Buffer, TopicPartition
from leadline.records import varint
from leadline.records.batch import CODEC_MASK, FLAGS_AT, MAGIC, crc_of, header_at
from leadline.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from leadline.records.build import BatchFields, build_of
from leadline.records.compression import MAX_DECOMPRESSED_BYTES, Codec, CorruptCompression, chunks
from leadline.records.message_set import MessageEntry, UnreadableMessage, entries, inner_entries

_NO_HEADERS = b"\0"
_MAX_RATIO = 1032  # of deflate, the densest codec of a wrapper
_CANNOT_EXCEED_BYTES = MAX_DECOMPRESSED_BYTES // _MAX_RATIO  # a wrapper of no more is certainly within the limit


def up_converted(data: Writable, config: LogConfig, tp: TopicPartition, now_ms: int) -> CheckedBatch | None:
    """The messages of an old producer as one batch that may be appended. None if there is no whole entry."""
    summary = _summary(data, config, tp)
    if summary.first is None:
        return None
    if summary.entry_count > 1 and (summary.first.magic == MAGIC or summary.codec is not Codec.NONE):
        raise InvalidRecord(
            f"a wrapper or a record batch for {tp} is not alone: there are {summary.entry_count} entries"
        )
    if summary.first.magic == MAGIC:
        batch = memoryview(data)[: summary.first.size]
        one_batch(batch, config, AppendOrigin.CLIENT, tp)
        return checked_batch(batch, config, tp, now_ms)
    return _Conversion(summary, config, tp, now_ms).batch_of(data)


class _Summary(NamedTuple):
    first: MessageEntry | None
    entry_count: int
    codec: Codec  # of the last entry that has one


def _summary(data: Buffer, config: LogConfig, tp: TopicPartition) -> _Summary:
    first, count, codec, position = None, 0, Codec.NONE, 0
    for entry in entries(data):
        if entry.magic == MAGIC:
            is_valid, codec_id = _batch_validity(memoryview(data)[position : position + entry.size], entry, tp)
        else:
            is_valid, codec_id = entry.is_valid, entry.codec_id
        if entry.size > config.max_message_bytes:
            raise RecordTooLarge(
                f"a message of {entry.size} bytes for {tp} exceeds max.message.bytes={config.max_message_bytes}"
            )
        if not is_valid:
            raise CorruptMessage(f"the CRC of a message for {tp} does not match")
        if codec_id > max(Codec):
            raise UnknownServerError(f"Unknown compression type id: {codec_id}, in a message for {tp}")
        if codec_id:
            codec = Codec(codec_id)
        first, count, position = first or entry, count + 1, position + entry.size
    return _Summary(first, count, codec)


def _batch_validity(batch: memoryview, entry: MessageEntry, tp: TopicPartition) -> tuple[bool, int]:
    """Whether the CRC of a record batch matches, and the number of its codec."""
    if entry.offset:
        raise InvalidRecord(f"the base offset of a batch for {tp} should be 0, but it is {entry.offset}")
    if len(batch) < BATCH_HEADER_BYTES:
        refuse_short_batch(len(batch), tp)
    return crc_of(batch, 0, len(batch)) == header_at(batch).crc, batch[FLAGS_AT] & CODEC_MASK


class _Conversion:
    """The batch that becomes of one message set, record by record."""

    def __init__(self, summary: _Summary, config: LogConfig, tp: TopicPartition, now_ms: int) -> None:
        assert summary.first is not None
        self._config, self._tp, self._magic = config, tp, summary.first.magic
        self._source = summary.codec
        self._target, self._level = target_codec(summary.codec, config)
        self._limits = time_limits(config, now_ms)
        self._body, self._count, self._base_timestamp, self._newest = bytearray(), 0, NO_TIMESTAMP, NO_TIMESTAMP
        self._unwritable: WireError | None = None  # why there is no batch although every message passed its check

    def batch_of(self, data: Buffer) -> CheckedBatch:
        is_plain = self._source is Codec.NONE and self._target is Codec.NONE
        if is_plain:
            self._check_lengths(data)
        for entry in entries(data):
            if entry.magic != self._magic:
                raise InvalidRecord(f"messages of formats {self._magic} and {entry.magic} in one set for {self._tp}")
            if entry.codec_id:
                self._add_wrapper(entry)
            else:
                self._add_checked(entry)
            if is_plain and self._unwritable is not None:
                break
        if self._unwritable is not None:
            raise self._unwritable
        fields = BatchFields(codec=self._target, level=self._level)
        batch = build_of(self._body, self._count, self._base_timestamp, self._newest, fields)
        return CheckedBatch(batch, (self._newest, self._newest, 0, -1))

    def _check_lengths(self, data: Buffer) -> None:
        try:
            for entry in entries(data):
                if entry.magic != MAGIC:
                    entry.content()
        except UnreadableMessage as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: UnreadableMessage) -> UnknownServerError:
        return UnknownServerError(f"{error}, for {self._tp}")

    # Messages

    def _add_checked(self, entry: MessageEntry) -> None:
        fault = self._fault(entry, entry.timestamp, entry.is_log_append_time)
        if fault is not None:
            raise fault
        self._add(entry, entry.timestamp)

    def _fault(self, entry: MessageEntry, timestamp: int, is_log_append_time: bool) -> WireError | None:
        """The error in the key or the time of a message."""
        config = self._config
        try:
            if config.compact and not entry.has_key:
                return InvalidRecord(f"Compacted topic cannot accept message without key in topic partition {self._tp}")
            if not config.log_append_time and timestamp != NO_TIMESTAMP:
                earliest, latest = self._limits
                if not earliest <= timestamp <= latest:
                    return InvalidTimestamp(f"timestamp {timestamp} of a message for {self._tp} is out of range")
            elif is_log_append_time:
                entry.content()  # Kafka fails here, if it cannot show the message
                return InvalidTimestamp(f"a producer's message for {self._tp} has a log append time")
        except UnreadableMessage as error:
            raise self._unreadable(error) from None
        return None

    def _add(self, entry: MessageEntry, timestamp: int) -> None:
        try:
            key, value = entry.content()
        except UnreadableMessage as error:
            self._unwritable = self._unwritable or self._unreadable(error)
            return
        if timestamp < 0 and timestamp != NO_TIMESTAMP:
            self._unwritable = self._unwritable or UnknownServerError(
                f"Invalid negative timestamp {timestamp} in a message for {self._tp}"
            )
            return
        if not self._count:
            self._base_timestamp = timestamp
        encode = varint.encode
        front = b"\0" + encode(timestamp - self._base_timestamp) + encode(self._count)
        key_size = encode(-1) if key is None else encode(len(key))
        value_size = encode(-1) if value is None else encode(len(value))
        record = b"".join((front, key_size, key or b"", value_size, value or b"", _NO_HEADERS))
        self._body += encode(len(record))
        self._body += record
        self._count += 1
        self._newest = max(self._newest, timestamp)

    # Wrappers

    def _add_wrapper(self, wrapper: MessageEntry) -> None:
        """Everything is unpacked before a message is checked: Kafka reports errors of unpacking first."""
        stamped = wrapper.timestamp if wrapper.is_log_append_time else None
        failure: WireError | None = None
        faults: dict[bool, WireError] = {}  # the first of those that concern a time, and of the others
        last_offset = -1
        count = 0
        for inner in self._unwrapped(wrapper):
            last_offset, count = inner.offset, count + 1
            if failure is None:
                try:
                    self._add_inner(inner, stamped, faults)
                except WireError as error:
                    failure = error
        self._check_wrapper(wrapper, last_offset, count)
        if failure is not None:
            raise failure
        if faults:
            raise faults.get(True) or faults[False]

    def _unwrapped(self, wrapper: MessageEntry) -> Iterator[MessageEntry]:
        codec = Codec(wrapper.codec_id)
        if codec is Codec.ZSTD:
            raise InvalidRecord(f"a wrapper of message format {self._magic} for {self._tp} is packed with zstd")
        try:
            _, value = wrapper.content()
        except UnreadableMessage as error:
            raise self._unreadable(error) from None
        if value is None:
            raise InvalidRecord(f"a wrapper for {self._tp} has no value")
        unpacked = partial(chunks, codec, value, any_lz4_header=self._magic == 0)
        limit = partial(limited, what=f"a wrapper for {self._tp}")
        if len(value) > _CANNOT_EXCEED_BYTES:
            with suppress(CorruptCompression):  # messages may be at fault before it
                for _ in limit(unpacked()):
                    pass
        try:
            yield from inner_entries(limit(unpacked()))
        except CorruptCompression as error:
            raise UnknownServerError(f"a wrapper for {self._tp} cannot be decompressed: {error}") from None

    def _check_wrapper(self, wrapper: MessageEntry, last_offset: int, count: int) -> None:
        if not count:
            raise InvalidRecord(f"a wrapper for {self._tp} holds no messages")
        if self._magic > 0 and wrapper.offset != 0 and wrapper.offset < last_offset:
            raise InvalidRecord(
                f"a wrapper for {self._tp} has offset {wrapper.offset}, less than {last_offset} of its last message"
            )

    def _add_inner(self, inner: MessageEntry, stamped: int | None, faults: dict[bool, WireError]) -> None:
        if inner.codec_id > max(Codec):
            raise UnknownServerError(f"Unknown compression type id: {inner.codec_id}, in a message for {self._tp}")
        if inner.codec_id:
            raise InvalidRecord(f"a wrapper for {self._tp} holds another one")
        if inner.magic != self._magic:
            faults.setdefault(False, self._of_another_format(inner))
            return
        if not inner.is_valid:
            raise CorruptMessage(f"the CRC of a message in a wrapper for {self._tp} does not match")
        timestamp = inner.timestamp if stamped is None else stamped
        fault = self._fault(inner, timestamp, stamped is not None)
        if fault is not None:
            faults.setdefault(isinstance(fault, InvalidTimestamp), fault)
        elif not faults:
            self._add(inner, timestamp)

    def _of_another_format(self, inner: MessageEntry) -> InvalidRecord:
        try:
            inner.content()  # Kafka fails here, if it cannot show the message
        except UnreadableMessage as error:
            raise self._unreadable(error) from None
        return InvalidRecord(f"a wrapper of format {self._magic} for {self._tp} holds a message of {inner.magic}")
