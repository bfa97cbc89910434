"""lz4: one frame of independent blocks.

    magic (4, little-endian), flags (1), block size code (1), content size (0 or 8), header checksum (1)
    blocks of length (4, little-endian, top bit: stored as is), content, checksum (0 or 4)
    a length of 0, checksum (0 or 4)

Written as Java does, through cramjam: blocks of 64 KB, no checksums, no content size. Read through python-lz4, which
takes half as long or less: content sizes and checksums, too. Refused, as in Kafka: blocks that depend on each other.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

import cramjam
import lz4.frame  # type: ignore[import-untyped]

from leadline.records.compression import LEVELS, Codec, CorruptCompression, DecompressedTooLarge

ERRORS: Final = (RuntimeError,)
WORD: Final = struct.Struct("<I")
MAGIC: Final = 0x184D2204
START: Final = struct.Struct("<IBB")
CONTENT_SIZE: Final = struct.Struct("<Q")
HEADER: Final = bytes.fromhex("04224d18604082")
END_MARK: Final = bytes(4)
BLOCK_BYTES: Final = 64 * 1024
PIECE_BYTES: Final = 128 * 1024  # cramjam's streams hold the GIL: between two pieces other threads get their turn
STORED: Final = 0x8000_0000
FIXED_FLAGS, KAFKA_FLAGS = 0b1110_0011, 0b0110_0000  # version 1, independent blocks, no dictionary
HAS_BLOCK_CHECKSUM, HAS_CONTENT_SIZE, HAS_CONTENT_CHECKSUM = 0b0001_0000, 0b0000_1000, 0b0000_0100
MAX_RATIO: Final = 255  # a byte lengthens a match by no more


def compress(view: memoryview, level: int) -> bytes:
    """Kafka's default level 9 is lz4's fast mode; all other levels are its high compression."""
    blocks = _fast_blocks(view) if level == LEVELS[Codec.LZ4].default else _high_blocks(view, level)
    return b"".join((HEADER, *blocks, END_MARK))


def _fast_blocks(view: memoryview) -> Iterator[bytes | memoryview | cramjam.Buffer]:
    for start in range(0, len(view), BLOCK_BYTES):
        block = view[start : start + BLOCK_BYTES]
        packed = cramjam.lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            yield from (WORD.pack(len(packed)), packed)
        else:
            yield from (WORD.pack(len(block) | STORED), block)


def _high_blocks(view: memoryview, level: int) -> Iterator[memoryview]:
    """cramjam has levels for whole frames alone, and these carry block checksums, which Kafka leaves out."""
    stream = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    for start in range(0, len(view), PIECE_BYTES):
        stream.compress(bytes(view[start : start + PIECE_BYTES]))
    frame = memoryview(bytes(stream.finish()))
    return (frame[block.start : block.end] for block in _blocks(frame))


class _Block(NamedTuple):
    start: int  # of its length field
    end: int  # of its content
    bound: int  # upper bound of the output


def decompress(view: memoryview, limit: int) -> bytes:
    """The block headers bound the output. Decoding checks everything else."""
    bound = sum(block.bound for block in _blocks(view))
    if START.unpack_from(view)[1] & HAS_CONTENT_SIZE:
        (content_bytes,) = CONTENT_SIZE.unpack_from(view, START.size)
        if content_bytes > bound:
            raise CorruptCompression(Codec.LZ4, f"a frame that holds at most {bound} bytes claims {content_bytes}")
    if bound <= limit:
        content: bytes = lz4.frame.decompress(view)
        return content
    stream, parts, left = lz4.frame.LZ4FrameDecompressor(), [], limit
    for start in range(0, len(view), PIECE_BYTES):
        part = stream.decompress(view[start : start + PIECE_BYTES], left + 1)
        left -= len(part)
        if left < 0:
            raise DecompressedTooLarge(Codec.LZ4, limit)
        parts.append(part)
    return b"".join(parts)


def _blocks(frame: memoryview) -> Iterator[_Block]:
    magic, flags, size_code = START.unpack_from(frame)
    if magic != MAGIC:
        raise CorruptCompression(Codec.LZ4, f"opens with {magic:#010x}, not with a frame's magic")
    if flags & FIXED_FLAGS != KAFKA_FLAGS:
        raise CorruptCompression(Codec.LZ4, f"frame flags {flags:#010b} are not of version 1 with independent blocks")
    largest = 1 << (8 + 2 * (size_code >> 4 & 7))
    checksum = 4 if flags & HAS_BLOCK_CHECKSUM else 0
    at = len(HEADER) + (8 if flags & HAS_CONTENT_SIZE else 0)
    while length := WORD.unpack_from(frame, at)[0]:
        size = length & ~STORED
        end = at + 4 + size
        yield _Block(at, end, min(size if length & STORED else size * MAX_RATIO, largest))
        at = end + checksum
    at += 8 if flags & HAS_CONTENT_CHECKSUM else 4
    if at != len(frame):
        raise CorruptCompression(Codec.LZ4, f"the frame takes {at} bytes, but there are {len(frame)}")


def chunks(view: memoryview, *, any_header: bool = False) -> Iterator[bytes | memoryview]:
    """A chunk is what one block holds.

    Bytes after the end mark are ignored; content size and content checksum are not compared. `any_header`: nor is the
    checksum of the frame's header, as in message format 0.
    """
    magic, flags, size_code = START.unpack_from(view)
    at = START.size + (8 if flags & HAS_CONTENT_SIZE else 0)
    if magic != MAGIC or flags & FIXED_FLAGS != KAFKA_FLAGS:
        raise CorruptCompression(Codec.LZ4, f"{magic:#010x} with flags {flags:#010b} opens no frame as Kafka writes it")
    if not 4 <= size_code >> 4 <= 7 or size_code & 0xF:
        raise CorruptCompression(Codec.LZ4, f"a frame with the block size {size_code:#04x}")
    if view[at] != header_checksum(view[4:at]) and not any_header:
        raise CorruptCompression(Codec.LZ4, "the checksum of the frame's header does not match")
    at += 1
    checksum_flag = flags & HAS_BLOCK_CHECKSUM
    descriptor = bytes([KAFKA_FLAGS | checksum_flag, size_code])
    header = WORD.pack(MAGIC) + descriptor + bytes([header_checksum(memoryview(descriptor))])
    while length := WORD.unpack_from(view, at)[0]:
        end = at + 4 + (length & ~STORED) + (4 if checksum_flag else 0)
        if end > len(view):
            raise CorruptCompression(Codec.LZ4, f"a block ends {end - len(view)} bytes after the end")
        # a frame of its own, so that the library checks the size of the block, and its checksum
        yield lz4.frame.decompress(b"".join((header, view[at:end], END_MARK)))
        at = end


def header_checksum(descriptor: memoryview) -> int:
    """A byte of its xxHash32, which is defined by these numbers. Of at most 15 bytes."""
    mask, h = 0xFFFF_FFFF, 374761393 + len(descriptor)
    words = len(descriptor) // 4 * 4
    for (word,) in WORD.iter_unpack(descriptor[:words]):
        h = h + word * 3266489917 & mask
        h = (h << 17 | h >> 15) * 668265263 & mask
    for byte in descriptor[words:]:
        h = h + byte * 374761393 & mask
        h = (h << 11 | h >> 21) * 2654435761 & mask
    h = (h ^ h >> 15) * 2246822519 & mask
    h = (h ^ h >> 13) * 3266489917 & mask
    return (h ^ h >> 16) >> 8 & 0xFF
