"""snappy: a raw block opens with the size of its content. Xerial framing is what snappy-java puts around blocks.

Written as Java does: a header of 16 bytes, then for each 32 KB a length (4, big-endian) and a raw block. Read as well:
several xerial streams, and a raw block without framing (librdkafka). Xerial framing has no end mark, so a cut between
two of its blocks goes unseen here (the CRC of the batch catches it).
"""

import struct
from collections.abc import Iterator
from typing import Final

import cramjam
from cramjam import snappy

from leadline.records.compression import Codec, CorruptCompression, DecompressedTooLarge

ERRORS: Final = (cramjam.DecompressionError,)
LENGTH: Final = struct.Struct(">I")
XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1)  # magic, version, oldest compatible version
XERIAL_MAGIC: Final = memoryview(XERIAL_HEADER)[:8]
BLOCK_BYTES: Final = 32 * 1024
MAX_RATIO: Final = 22  # its densest element copies 64 bytes and takes 3


def compress(view: memoryview, _: int) -> bytes:
    out: list[bytes | cramjam.Buffer] = [XERIAL_HEADER]
    for start in range(0, len(view), BLOCK_BYTES):
        packed = snappy.compress_raw(view[start : start + BLOCK_BYTES])
        out += (LENGTH.pack(len(packed)), packed)
    return b"".join(out)


def decompress(view: memoryview, limit: int) -> bytes:
    size = 0
    for block in _blocks(view):
        size += _content_bytes(block)
        if size > limit:
            raise DecompressedTooLarge(Codec.SNAPPY, limit)
    out = bytearray(size)
    rest = memoryview(out)
    for block in _blocks(view):
        rest = rest[snappy.decompress_raw_into(block, rest) :]
    return bytes(out)


def _blocks(view: memoryview) -> Iterator[memoryview]:
    if view[:8] != XERIAL_MAGIC:
        yield view
        return
    at = 0
    while at < len(view):
        if view[at : at + 8] == XERIAL_MAGIC:  # also in the middle: streams may be concatenated
            at += len(XERIAL_HEADER)
            continue
        start = at + 4
        at = start + LENGTH.unpack_from(view, at)[0]
        yield view[start:at]
    if at > len(view):
        raise CorruptCompression(Codec.SNAPPY, f"{len(view)} bytes end {at - len(view)} short of the last block's end")


def chunks(view: memoryview) -> Iterator[bytearray]:
    """A chunk is what one block holds. Fewer than four bytes after the last block are ignored."""
    if len(view) < len(XERIAL_HEADER) or view[:8] != XERIAL_MAGIC:
        yield _content(view)
        return
    at = len(XERIAL_HEADER)
    while at + 4 <= len(view):
        if view[at : at + 8] == XERIAL_MAGIC:  # streams may be concatenated
            at += len(XERIAL_HEADER)
            continue
        start = at + 4
        at = start + LENGTH.unpack_from(view, at)[0]
        if at > len(view):
            raise CorruptCompression(Codec.SNAPPY, f"a block ends {at - len(view)} bytes after the end")
        yield _content(view[start:at])


def _content(block: memoryview) -> bytearray:
    out = bytearray(_content_bytes(block))
    snappy.decompress_raw_into(block, out)
    return out


def _content_bytes(block: memoryview) -> int:
    claimed = snappy.decompress_raw_len(block)
    if claimed > len(block) * MAX_RATIO:
        raise CorruptCompression(Codec.SNAPPY, f"a block of {len(block)} bytes claims to hold {claimed}")
    return claimed
