"""The content of a compressed batch in chunks, for a check that must not hold all of it.

It accepts what Kafka's Java classes accept, and refuses what they refuse, also where `compression.decompress` is
stricter:
    gzip    members may follow each other; what follows one and is none is ignored
    snappy  fewer than four bytes behind the last block are ignored
    lz4     what follows the end mark is ignored; content size and content checksum are not compared
    zstd    every byte counts
A chunk is what one block of snappy or lz4 holds, and at most CHUNK_BYTES of gzip and of zstd beyond SMALL_BYTES.

Pure: no file, no clock. What needs a file is passed in.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Final

import cramjam
from cramjam import lz4, snappy, zstd

from leadline.model import Buffer
from leadline.records.compression import (
    GZIP_WINDOW_BITS,
    LZ4_BLOCK_CHECKSUM,
    LZ4_CONTENT_SIZE,
    LZ4_END_MARK,
    LZ4_FIXED_FLAGS,
    LZ4_KAFKA_FLAGS,
    LZ4_MAGIC,
    LZ4_START,
    LZ4_STORED,
    SNAPPY_MAX_RATIO,
    U32_BE,
    U32_LE,
    XERIAL_HEADER,
    XERIAL_MAGIC,
    Codec,
    CorruptCompression,
    DecompressedTooLarge,
    zstd_bound,
)

CHUNK_BYTES: Final = 256 * 1024
SMALL_BYTES: Final = 16 * 1024 * 1024  # zstd of no more content is unpacked in one piece

WriteTo = Callable[[str], object]  # writes to a path
ChunksOf = Callable[[WriteTo], Iterator[bytes]]  # what was written, while it is written


def chunks(codec: Codec, data: Buffer, chunks_of: ChunksOf, *, any_lz4_header: bool = False) -> Iterator[Buffer]:
    """CorruptCompression where Kafka's classes fail, once the chunks before it are taken.

    `any_lz4_header`: the checksum of a frame's header is not compared, as in message format 0.
    """
    view = memoryview(data)
    try:
        match codec:
            case Codec.NONE:
                yield view
            case Codec.GZIP:
                yield from _gzip_chunks(view)
            case Codec.SNAPPY:
                yield from _snappy_chunks(view)
            case Codec.LZ4:
                yield from _lz4_chunks(view, any_lz4_header)
            case Codec.ZSTD:
                yield from _zstd_chunks(view, chunks_of)
    except (cramjam.DecompressionError, OSError, zlib.error) as error:
        raise CorruptCompression(codec, str(error)) from error
    except (struct.error, IndexError) as error:
        raise CorruptCompression(codec, f"{len(view)} bytes end in the middle of a header") from error


def unpacked(codec: Codec, data: Buffer, limit: int) -> bytes:
    """All of it, but not more than `limit` bytes."""
    parts, left = [], limit
    for chunk in chunks(codec, data, _nothing_written):
        left -= len(chunk)
        if left < 0:
            raise DecompressedTooLarge(codec, limit)
        parts.append(bytes(chunk))
    return b"".join(parts)


def _nothing_written(_: WriteTo) -> Iterator[bytes]:
    raise OSError("it is damaged, and large if it were not")


_GZIP_MEMBER: Final = b"\x1f\x8b\x08"
_GZIP_LEAST: Final = 18  # Java looks for another member only if more bytes than these are left


def _gzip_chunks(view: memoryview) -> Iterator[bytes]:
    at = 0
    while True:
        member = zlib.decompressobj(GZIP_WINDOW_BITS)
        while not member.eof:
            piece = member.unconsumed_tail or view[at : at + CHUNK_BYTES]
            if not piece:
                raise CorruptCompression(Codec.GZIP, f"{len(view)} bytes end before the member does")
            if not member.unconsumed_tail:
                at += len(piece)
            yield member.decompress(piece, CHUNK_BYTES)
        at -= len(member.unused_data)
        if len(view) - at <= _GZIP_LEAST or bytes(view[at : at + len(_GZIP_MEMBER)]) != _GZIP_MEMBER:
            return


def _snappy_chunks(view: memoryview) -> Iterator[bytearray]:
    if len(view) < len(XERIAL_HEADER) or view[:8] != XERIAL_MAGIC:
        yield _snappy_block(view)
        return
    at = len(XERIAL_HEADER)
    while at + 4 <= len(view):
        if view[at : at + 8] == XERIAL_MAGIC:  # streams may be concatenated
            at += len(XERIAL_HEADER)
            continue
        start = at + 4
        at = start + U32_BE.unpack_from(view, at)[0]
        if at > len(view):
            raise CorruptCompression(Codec.SNAPPY, f"a block ends {at - len(view)} bytes behind the end")
        yield _snappy_block(view[start:at])


def _snappy_block(block: memoryview) -> bytearray:
    claimed = snappy.decompress_raw_len(block)
    if claimed > len(block) * SNAPPY_MAX_RATIO:
        raise CorruptCompression(Codec.SNAPPY, f"a block of {len(block)} bytes claims to hold {claimed}")
    out = bytearray(claimed)
    snappy.decompress_raw_into(block, out)
    return out


def _lz4_chunks(view: memoryview, any_header: bool) -> Iterator[memoryview]:
    """Each block becomes a frame of its own, so that the library checks the block's checksum."""
    magic, flags, size_code = LZ4_START.unpack_from(view)
    at = LZ4_START.size + (8 if flags & LZ4_CONTENT_SIZE else 0)
    if magic != LZ4_MAGIC or flags & LZ4_FIXED_FLAGS != LZ4_KAFKA_FLAGS:
        raise CorruptCompression(Codec.LZ4, f"{magic:#010x} with flags {flags:#010b} opens no frame as Kafka writes it")
    if not 4 <= size_code >> 4 <= 7 or size_code & 0xF:
        raise CorruptCompression(Codec.LZ4, f"a frame with the block size {size_code:#04x}")
    if view[at] != lz4_checksum(view[4:at]) and not any_header:
        raise CorruptCompression(Codec.LZ4, "the checksum of the frame's header does not match")
    at += 1
    with_checksum = flags & LZ4_BLOCK_CHECKSUM
    descriptor = bytes([LZ4_KAFKA_FLAGS | with_checksum, size_code])
    header = U32_LE.pack(LZ4_MAGIC) + descriptor + bytes([lz4_checksum(memoryview(descriptor))])
    out = bytearray(1 << (8 + 2 * (size_code >> 4)))
    while length := U32_LE.unpack_from(view, at)[0]:
        end = at + 4 + (length & ~LZ4_STORED) + (4 if with_checksum else 0)
        if end > len(view):
            raise CorruptCompression(Codec.LZ4, f"a block ends {end - len(view)} bytes behind the end")
        yield memoryview(out)[: lz4.decompress_into(b"".join((header, view[at:end], LZ4_END_MARK)), out)]
        at = end


def lz4_checksum(descriptor: memoryview) -> int:
    """A byte of its xxHash32, which is defined by these numbers. Of at most 15 bytes."""
    mask, h = 0xFFFF_FFFF, 374761393 + len(descriptor)
    words = len(descriptor) // 4 * 4
    for (word,) in U32_LE.iter_unpack(descriptor[:words]):
        h = h + word * 3266489917 & mask
        h = (h << 17 | h >> 15) * 668265263 & mask
    for byte in descriptor[words:]:
        h = h + byte * 374761393 & mask
        h = (h << 11 | h >> 21) * 2654435761 & mask
    h = (h ^ h >> 15) * 2246822519 & mask
    h = (h ^ h >> 13) * 3266489917 & mask
    return (h ^ h >> 16) >> 8 & 0xFF


def _zstd_chunks(view: memoryview, chunks_of: ChunksOf) -> Iterator[Buffer]:
    """The library unpacks everything in one call. Where that may be much, the call writes to a file."""
    if not view:
        return
    if (bound := zstd_bound(view)) > SMALL_BYTES:
        yield from chunks_of(lambda path: zstd.decompress_into(view, cramjam.File(path, read=False, write=True)))
        return
    out = bytearray(bound)
    yield memoryview(out)[: zstd.decompress_into(view, out)]
