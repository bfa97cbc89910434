"""Compressed content in chunks: all of it, in pieces of bounded size, however much it is."""

from collections.abc import Iterator
from itertools import islice

import pytest

from leadline.records.compression import (
    CHUNK_BYTES,
    SMALL_BYTES,
    Codec,
    CorruptCompression,
    DecompressedTooLarge,
    chunks,
    compress,
    decompress_as_kafka,
)
from tests.support.bad_batches import bad_payloads, in_order

PACKED = [codec for codec in Codec if codec is not Codec.NONE]
BODY = b"".join(in_order(3))


def pieces(codec: Codec, data: bytes) -> Iterator[bytes]:
    return (bytes(chunk) for chunk in chunks(codec, data))


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 70_000, 3_000_000])
def test_the_chunks_are_the_content(codec: Codec, size: int) -> None:
    data = bytes(n * 7 % 251 for n in range(1000)) * (size // 1000) + b"x" * (size % 1000)
    assert b"".join(pieces(codec, compress(codec, data))) == data
    assert decompress_as_kafka(codec, compress(codec, data), 3_000_000) == data


@pytest.mark.parametrize("codec", PACKED)
def test_no_chunk_holds_more_than_a_little_of_much(codec: Codec) -> None:
    size = SMALL_BYTES + 5 * CHUNK_BYTES + 3
    lengths = [len(piece) for piece in pieces(codec, compress(codec, bytes(size)))]
    assert sum(lengths) == size
    assert max(lengths) <= CHUNK_BYTES


@pytest.mark.parametrize("codec", PACKED)
def test_a_reader_may_stop_in_the_middle(codec: Codec) -> None:
    packed = compress(codec, bytes(SMALL_BYTES + 5 * CHUNK_BYTES))
    assert any(islice(map(len, pieces(codec, packed)), 3))


@pytest.mark.parametrize("codec", PACKED)
def test_not_more_than_the_limit_is_unpacked(codec: Codec) -> None:
    with pytest.raises(DecompressedTooLarge):
        decompress_as_kafka(codec, compress(codec, bytes(2_000_000)), 1_000_000)


def test_bad_payloads_are_unpacked_or_refused_and_nothing_else() -> None:
    accepted = set()
    for what, codec, payload in bad_payloads():
        try:
            content = b"".join(pieces(codec, payload))
        except CorruptCompression:
            continue
        if content == BODY:
            accepted.add(what)
    assert {"gzip: bytes behind", "lz4: twice", "snappy: a byte behind", "lz4: a wrong content checksum"} <= accepted
    assert accepted.isdisjoint({"zstd: bytes behind", "gzip: a wrong CRC", "lz4: a wrong block checksum"})


def test_what_is_damaged_far_behind_is_found() -> None:
    packed = bytearray(compress(Codec.ZSTD, bytes(range(256)) * (SMALL_BYTES // 128)))
    with pytest.raises(CorruptCompression):
        list(pieces(Codec.ZSTD, bytes(packed[:-2])))
