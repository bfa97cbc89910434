"""Message sets of old clients: what goes up comes down again, and no bytes do more than be refused."""

from zlib import crc32

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.config.topic import LogConfig
from leadline.errors import CorruptMessage, WireError
from leadline.log.up_conversion import up_converted
from leadline.records.batch import assign
from leadline.records.compression import Codec, chunks
from leadline.records.down_conversion import message_set
from leadline.records.message_set import (
    MessageEntry,
    MessageFields,
    UnreadableMessage,
    entries,
    inner_entries,
    put_message,
    put_wrapper,
)
from tests.support.logs import START_MS, TP

CONFIG = LogConfig()
PACKED = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
sized = st.none() | st.binary(max_size=40)
Message = tuple[int, bytes | None, bytes | None]
message_lists = st.lists(st.tuples(st.integers(-1, 2**60), sized, sized), min_size=1, max_size=8)


def set_of(messages: list[Message], magic: int, codec: Codec) -> bytearray:
    out, fields = bytearray(), MessageFields(magic)
    for n, (timestamp, key, value) in enumerate(messages):
        put_message(out, n, timestamp, key, value, fields)
    if codec is Codec.NONE:
        return out
    wrapper = bytearray()
    put_wrapper(wrapper, len(messages) - 1, max(one[0] for one in messages), out, fields, codec)
    return wrapper


def messages_in(data: bytearray) -> list[tuple[int, Message]]:
    """With their offsets."""
    messages = []
    for entry in entries(data):
        inner, base = [entry], 0
        if entry.codec_id:
            _, packed = entry.content()
            assert packed is not None
            inner = list(inner_entries(chunks(Codec(entry.codec_id), packed, any_lz4_header=entry.magic == 0)))
            base = entry.offset - inner[-1].offset
        messages += [(base + one.offset, value_of(one)) for one in inner if one.offset >= 0]
    return messages


def value_of(entry: MessageEntry) -> Message:
    key, value = entry.content()
    return entry.timestamp, None if key is None else bytes(key), None if value is None else bytes(value)


@given(message_lists, st.sampled_from([0, 1]), st.sampled_from(PACKED), st.integers(0, 2**40))
@settings(max_examples=150)
def test_what_is_converted_up_comes_down_as_it_was(
    messages: list[Message], magic: int, codec: Codec, offset: int
) -> None:
    if magic == 0:
        messages = [(-1, key, value) for _, key, value in messages]
    checked = up_converted(set_of(messages, magic, codec), CONFIG, TP, START_MS)
    assert checked is not None
    batch = bytearray(checked.data)
    assign(batch, 0, offset, 0)
    data = message_set([batch], magic, offset, 0)
    assert messages_in(data) == [(offset + n, one) for n, one in enumerate(messages)]
    assert all(entry.is_valid for entry in entries(data))
    without_times = [(-1, key, value) for _, key, value in messages]
    assert [one for _, one in messages_in(message_set([batch], 0, offset, 0))] == without_times


@given(message_lists, st.sampled_from([0, 1]), st.sampled_from(PACKED), st.data())
@settings(max_examples=300)
def test_damaged_sets_are_refused_or_taken_and_nothing_else(
    messages: list[Message], magic: int, codec: Codec, data: st.DataObject
) -> None:
    damaged = set_of(messages, magic, codec)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        damaged = with_crc(damaged)
    try:
        up_converted(damaged, CONFIG, TP, START_MS)
    except WireError:
        return


def with_crc(data: bytearray) -> bytearray:
    """With the CRC of the first entry put right, so that what it covers is looked at."""
    size = int.from_bytes(data[8:12], "big", signed=True)
    if 14 <= size <= len(data) - 12:
        data[12:16] = crc32(memoryview(data)[16 : 12 + size]).to_bytes(4, "big")
    return data


@given(st.binary(max_size=200), st.integers(1, 50))
@settings(max_examples=200)
def test_any_bytes_are_entries_within_them_or_corrupt(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    for walk in (entries(data), inner_entries(pieces)):
        try:
            assert sum(entry.size for entry in walk) <= len(data)
        except CorruptMessage:
            continue


@given(st.binary(min_size=14, max_size=60), st.sampled_from([0, 1, 2, 127]))
@settings(max_examples=200)
def test_any_message_is_read_or_unreadable(data: bytes, magic: int) -> None:
    entry = MessageEntry(0, memoryview(data[:4] + bytes([magic]) + data[5:]))
    try:
        parts = [part for part in entry.content() if part is not None]
    except UnreadableMessage:
        return
    assert sum(map(len, parts)) <= len(data)
    assert entry.has_key == (entry.content()[0] is not None)
