"""Message sets: entries as kafka-python writes and reads them, whole ones only, in one piece or in chunks."""

import re

import pytest
from kafka.record.legacy_records import (  # type: ignore[import-untyped]
    LegacyRecordBatch,
    LegacyRecordBatchBuilder,
)

from leadline.errors import CorruptMessage
from leadline.records.compression import Codec, chunks, compress
from leadline.records.message_set import (
    MessageEntry,
    MessageFields,
    UnreadableMessage,
    entries,
    inner_entries,
    no_entry,
    put_message,
    put_wrapper,
)
from tests.support.logs import START_MS
from tests.support.message_sets import PACKED, entry, message, plain, with_crc

CONTENTS = [(b"key", b"value"), (None, b"value"), (b"key", None), (b"", b"")]


def built(magic: int, codec: Codec) -> bytes:
    """By kafka-python."""
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for n, (key, value) in enumerate(CONTENTS):
        builder.append(n, timestamp=START_MS + n, key=key, value=value)
    return bytes(builder.build())


def put(magic: int, codec: Codec) -> bytes:
    """By us."""
    out, fields = bytearray(), MessageFields(magic)
    for n, (key, value) in enumerate(CONTENTS):
        put_message(out, n, START_MS + n, key, value, fields)
    if codec is Codec.NONE:
        return bytes(out)
    wrapper = bytearray()
    put_wrapper(wrapper, len(CONTENTS) - 1, START_MS + 3, out, fields, codec)
    return bytes(wrapper)


def content_of(one: MessageEntry) -> tuple[bytes | None, bytes | None]:
    key, value = one.content()
    return None if key is None else bytes(key), None if value is None else bytes(value)


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_are_those_of_kafka_python(magic: int) -> None:
    data = built(magic, Codec.NONE)
    assert put(magic, Codec.NONE) == data
    assert [(one.offset, one.magic, one.codec_id) for one in entries(data)] == [(n, magic, 0) for n in range(4)]
    assert [content_of(one) for one in entries(data)] == CONTENTS
    assert [one.has_key for one in entries(data)] == [True, False, True, True]
    assert [one.timestamp for one in entries(data)] == [START_MS + n if magic else -1 for n in range(4)]
    assert all(one.is_valid for one in entries(data))


@pytest.mark.parametrize(
    ("magic", "codec"), [(n, codec) for n in (0, 1) for codec in PACKED if (n, codec) != (0, Codec.LZ4)]
)  # for lz4 of format 0 kafka-python needs another library
def test_wrappers_go_from_and_to_kafka_python(magic: int, codec: Codec) -> None:
    (wrapper,) = entries(built(magic, codec))
    assert (wrapper.codec_id, wrapper.is_valid) == (codec, True)
    packed = content_of(wrapper)[1]
    assert packed is not None
    inner = list(inner_entries(chunks(codec, packed, any_lz4_header=magic == 0)))
    assert [content_of(one) for one in inner] == CONTENTS
    read = list(LegacyRecordBatch(put(magic, codec), magic))
    assert [(record.key, record.value) for record in read] == CONTENTS
    assert [record.offset for record in read] == [0, 1, 2, 3]


def test_lz4_of_format_0_has_the_checksum_of_the_first_clients() -> None:
    """The hash of the frame's magic number, flags and block size; later formats leave the number out."""
    headers = {}
    for magic in (0, 1):
        (wrapper,) = entries(put(magic, Codec.LZ4))
        headers[magic] = (content_of(wrapper)[1] or b"")[:7]
    assert headers == {0: bytes.fromhex("04224d1860401a"), 1: bytes.fromhex("04224d18604082")}


@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_cut_off_is_left_out(magic: int) -> None:
    data = plain(magic, 2)
    for size in range(len(data)):
        count = 0 if size < len(data) // 2 else 1
        assert len(list(entries(data[:size]))) == count
        assert len(list(inner_entries([data[:size]]))) == count


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (entry(0, message(0), 13), "Record size 13 is less than the minimum record overhead (14)"),
        (entry(0, message(0), -1), "Record size -1 is less than the minimum record overhead (14)"),
        (entry(0, with_crc(b"\3" + message(0)[5:])), "Invalid magic found in record: 3"),
        (entry(0, with_crc(b"\xff" + message(0)[5:])), "Invalid magic found in record: -1"),
    ],
)
def test_what_cannot_be_an_entry_is_corrupt_in_kafkas_words(data: bytes, text: str) -> None:
    with pytest.raises(CorruptMessage, match=re.escape(text)):
        list(entries(data))
    assert str(no_entry(data)) == text


@pytest.mark.parametrize("size", [0, 11, 12, 16, 17, 26])
def test_an_entry_that_is_cut_off_is_not_refused_as_none(size: int) -> None:
    assert no_entry(entry(0, message(0))[:size]) is None


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("rest", [b"\0\0\0\x63abc", b"\xff\xff\xff\xff\0\0\0\x63abc", b"\0\0\0\1k\0", b"\0\0"])
def test_lengths_that_do_not_fit_make_a_message_unreadable(magic: int, rest: bytes) -> None:
    body = bytes([magic, 0]) + bytes(8 if magic else 0) + rest
    one = MessageEntry(0, memoryview(with_crc(body)))
    with pytest.raises(UnreadableMessage):
        one.content()


@pytest.mark.parametrize("size", [1, 7, 30, 1000])
def test_chunks_make_the_same_entries(size: int) -> None:
    data = plain(1, 5) + plain(0, 5, size=200) + b"rest"
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [(one.offset, bytes(one.message)) for one in inner_entries(pieces)] == [
        (one.offset, bytes(one.message)) for one in entries(data[:-4])
    ]


def test_compressed_messages_of_any_header_are_unpacked_in_format_0_alone() -> None:
    packed = bytearray(compress(Codec.LZ4, b"content"))
    packed[6] ^= 0xFF
    assert b"".join(map(bytes, chunks(Codec.LZ4, packed, any_lz4_header=True))) == b"content"
    with pytest.raises(ValueError, match="checksum"):
        list(chunks(Codec.LZ4, packed))
