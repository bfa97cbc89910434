"""The codecs of a record batch: how its records are packed behind the batch header.

Written as Kafka's Java classes write them:
    gzip    one member: no name, no time, OS byte 255 (Java 16 and later)
    snappy  xerial framing: header of 16 bytes, then per 32 KB a length (4, big-endian) and a raw snappy block
    lz4     one LZ4 frame: independent blocks of 64 KB, no checksums, no content size
    zstd    one frame: no content size, no checksum, flushed before it is ended
Read as well: several gzip members, several xerial streams, raw snappy without framing (librdkafka), several zstd
frames, content sizes and checksums. Refused, as in Kafka: lz4 blocks that depend on each other.
    decompress(codec, compress(codec, data)) == data
    whatever the input, at most `limit` bytes come out, and no error but CorruptCompression and DecompressedTooLarge
    every byte of the input is accounted for; but xerial framing has no end mark, so a cut between two of its blocks
    goes unseen here (the CRC of the batch catches it)

Pure: no file, no clock.
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import cramjam
from cramjam import lz4, snappy, zstd

MAX_DECOMPRESSED_BYTES: Final = 104_857_600  # as socket.request.max.bytes: what could not have been sent uncompressed


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec that a compression.type names; "producer" names none and is the caller's to handle."""
        codec = _CODEC_OF_SETTING.get(name)
        if codec is None:
            raise ValueError(f"no codec is called {name!r}; there are {', '.join(_CODEC_OF_SETTING)}")
        return codec


_CODEC_OF_SETTING: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class Levels:
    """The valid compression levels of a codec. The default is valid also where it lies outside the range."""

    lowest: int
    highest: int
    default: int

    def __contains__(self, level: int) -> bool:
        return self.lowest <= level <= self.highest or level == self.default


LEVELS: Final[Mapping[Codec, Levels]] = {  # compression.gzip.level, compression.lz4.level, compression.zstd.level
    Codec.GZIP: Levels(1, 9, default=-1),
    Codec.LZ4: Levels(1, 17, default=9),
    Codec.ZSTD: Levels(-131072, 22, default=3),
}


class CorruptCompression(ValueError):
    """The input is not what its codec writes: garbage, cut short, or with something behind its end."""

    def __init__(self, codec: Codec, reason: str) -> None:
        super().__init__(f"{codec.name.lower()}: {reason}")
        self.codec = codec


class DecompressedTooLarge(ValueError):
    """The input may be sound, but holds more than the caller is willing to unpack."""

    def __init__(self, codec: Codec, limit: int) -> None:
        super().__init__(f"{codec.name.lower()}: decompresses to more than the limit of {limit} bytes")
        self.codec = codec
        self.limit = limit


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`data` as Kafka would pack it. Without a level, at Kafka's default; where the codec has no levels, it is moot."""
    view = memoryview(data)
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            return _gzip_compress(view, _level(codec, level))
        case Codec.SNAPPY:
            return _snappy_compress(view)
        case Codec.LZ4:
            return _lz4_compress(view, _level(codec, level))
        case Codec.ZSTD:
            return _zstd_compress(view, _level(codec, level))


def decompress(codec: Codec, data: bytes | bytearray | memoryview, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """All that `data` holds, but not more than `limit` bytes; on the way there it takes up to about twice `limit`."""
    view = memoryview(data)
    try:
        match codec:
            case Codec.NONE:
                if len(view) > limit:
                    raise DecompressedTooLarge(codec, limit)
                return bytes(data)
            case Codec.GZIP:
                return _gzip_decompress(view, limit)
            case Codec.SNAPPY:
                return _snappy_decompress(view, limit)
            case Codec.LZ4:
                return _decompress_bounded(codec, lz4.decompress_into, view, _lz4_bound(view), limit)
            case Codec.ZSTD:
                return _decompress_bounded(codec, zstd.decompress_into, view, zstd_bound(view), limit)
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptCompression(codec, str(error).removeprefix(f"{codec.name.lower()}: ")) from error
    except (struct.error, IndexError) as error:  # a field of a header lies beyond the end of the input
        raise CorruptCompression(codec, f"{len(view)} bytes end in the middle of a header") from error


def decompress_within(codec: Codec, data: bytes | bytearray | memoryview, scratch: memoryview) -> memoryview:
    """As `decompress`, without new memory where the codec can do without: valid until the buffer is used again.

    CorruptCompression or DecompressedTooLarge also if it does not fit.
    """
    view = memoryview(data)
    try:
        if codec is Codec.LZ4:
            _lz4_bound(view)
            return scratch[: lz4.decompress_into(view, scratch)]
        if codec is Codec.ZSTD:
            zstd_bound(view)
            return scratch[: zstd.decompress_into(view, scratch)]
    except (cramjam.DecompressionError, struct.error, IndexError) as error:
        raise CorruptCompression(codec, str(error)) from error
    return memoryview(decompress(codec, view, len(scratch)))


def _level(codec: Codec, level: int | None) -> int:
    levels = LEVELS[codec]
    if level is None:
        return levels.default
    if level not in levels:
        raise ValueError(f"{codec.name.lower()} has no compression level {level}")
    return level


U32_BE: Final = struct.Struct(">I")
U32_LE: Final = struct.Struct("<I")

# The streaming compressors of cramjam hold the GIL, and take nothing but `bytes`. Between two pieces other threads get
# their turn. The pieces leave no trace in the output.
_STREAM_PIECE: Final = 128 * 1024


def _feed(stream: lz4.Compressor | zstd.Compressor, view: memoryview) -> None:
    for start in range(0, len(view), _STREAM_PIECE):
        stream.compress(bytes(view[start : start + _STREAM_PIECE]))


_BUFFER_FULL: Final = "failed to write whole buffer"  # how decompress_into says that the output ended first


def _decompress_bounded(
    codec: Codec, into: Callable[[memoryview, bytearray], int], view: memoryview, bound: int, limit: int
) -> bytes:
    """One pass into a buffer that can only be too small where `bound` is above `limit`."""
    out = bytearray(min(bound, limit))
    try:
        size = into(view, out)
    except cramjam.DecompressionError as error:
        if bound > limit and str(error) == _BUFFER_FULL:
            raise DecompressedTooLarge(codec, limit) from None
        raise
    return bytes(memoryview(out)[:size])


# gzip: RFC 1952. The standard library bounds it (max_length) and packs faster than cramjam.

GZIP_HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
GZIP_TRAILER: Final = struct.Struct("<II")  # CRC-32, size modulo 2**32
GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # with gzip's header and trailer
GZIP_PIECE: Final = 64 * 1024  # where a member ends, zlib copies the rest of the piece: so never the whole rest


def _gzip_compress(view: memoryview, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = GZIP_TRAILER.pack(zlib.crc32(view), len(view) & 0xFFFF_FFFF)
    return b"".join((GZIP_HEADER, deflate.compress(view), deflate.flush(), trailer))


def _gzip_decompress(view: memoryview, limit: int) -> bytes:
    parts = []
    at, left = 0, limit
    member = zlib.decompressobj(GZIP_WINDOW_BITS)
    while at < len(view):
        if member.eof:
            member = zlib.decompressobj(GZIP_WINDOW_BITS)
        piece = view[at : at + GZIP_PIECE]
        part = member.decompress(piece, left + 1)
        left -= len(part)
        if left < 0:
            raise DecompressedTooLarge(Codec.GZIP, limit)
        parts.append(part)
        at += len(piece) - len(member.unused_data)
    if not member.eof:
        raise CorruptCompression(Codec.GZIP, f"{len(view)} bytes end before the member does")
    return b"".join(parts)


# snappy: a raw block opens with the size of its content. Xerial framing is what snappy-java puts around blocks.

XERIAL_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1)  # magic, version, oldest compatible version
XERIAL_MAGIC: Final = memoryview(XERIAL_HEADER)[:8]
XERIAL_BLOCK: Final = 32 * 1024
SNAPPY_MAX_RATIO: Final = 22  # its densest element copies 64 bytes and takes 3


def _snappy_compress(view: memoryview) -> bytes:
    out: list[bytes | cramjam.Buffer] = [XERIAL_HEADER]
    for start in range(0, len(view), XERIAL_BLOCK):
        packed = snappy.compress_raw(view[start : start + XERIAL_BLOCK])
        out += (U32_BE.pack(len(packed)), packed)
    return b"".join(out)


def _snappy_decompress(view: memoryview, limit: int) -> bytes:
    size = 0
    for block in _snappy_blocks(view):
        claimed = snappy.decompress_raw_len(block)
        if claimed > len(block) * SNAPPY_MAX_RATIO:
            raise CorruptCompression(Codec.SNAPPY, f"a block of {len(block)} bytes claims to hold {claimed}")
        size += claimed
        if size > limit:
            raise DecompressedTooLarge(Codec.SNAPPY, limit)
    out = bytearray(size)
    rest = memoryview(out)
    for block in _snappy_blocks(view):
        rest = rest[snappy.decompress_raw_into(block, rest) :]
    return bytes(out)


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if view[:8] != XERIAL_MAGIC:
        yield view
        return
    at = 0
    while at < len(view):
        if view[at : at + 8] == XERIAL_MAGIC:  # also in the middle: streams may be concatenated
            at += len(XERIAL_HEADER)
            continue
        start = at + 4
        at = start + U32_BE.unpack_from(view, at)[0]
        yield view[start:at]
    if at > len(view):
        raise CorruptCompression(Codec.SNAPPY, f"{len(view)} bytes end {at - len(view)} short of the last block's end")


# lz4: magic (4, little-endian), flags (1), block size code (1), content size (0 or 8), header checksum (1); then blocks
# of length (4, little-endian, top bit: stored as is), content and checksum (0 or 4); a length of 0; checksum (0 or 4).

LZ4_MAGIC: Final = 0x184D2204
LZ4_START: Final = struct.Struct("<IBB")
LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
LZ4_END_MARK: Final = bytes(4)
LZ4_BLOCK: Final = 64 * 1024
LZ4_STORED: Final = 0x8000_0000
LZ4_FIXED_FLAGS, LZ4_KAFKA_FLAGS = 0b1110_0011, 0b0110_0000  # version 1, independent blocks, no dictionary
LZ4_BLOCK_CHECKSUM, LZ4_CONTENT_SIZE, LZ4_CONTENT_CHECKSUM = 0b0001_0000, 0b0000_1000, 0b0000_0100
LZ4_MAX_RATIO: Final = 255  # a byte lengthens a match by no more


def _lz4_compress(view: memoryview, level: int) -> bytes:
    blocks = _lz4_fast_blocks(view) if level == LEVELS[Codec.LZ4].default else _lz4_high_blocks(view, level)
    return b"".join((LZ4_HEADER, *blocks, LZ4_END_MARK))


def _lz4_fast_blocks(view: memoryview) -> Iterator[bytes | memoryview | cramjam.Buffer]:
    """Kafka's default level 9 is lz4's fast mode; all other levels are its high compression."""
    for start in range(0, len(view), LZ4_BLOCK):
        block = view[start : start + LZ4_BLOCK]
        packed = lz4.compress_block(block, store_size=False)
        if len(packed) < len(block):
            yield from (U32_LE.pack(len(packed)), packed)
        else:
            yield from (U32_LE.pack(len(block) | LZ4_STORED), block)


def _lz4_high_blocks(view: memoryview, level: int) -> Iterator[memoryview]:
    """cramjam has levels for whole frames alone, and these carry block checksums, which Kafka leaves out."""
    stream = lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    _feed(stream, view)
    frame = memoryview(bytes(stream.finish()))
    return (frame[at:end] for at, end, _ in _lz4_spans(frame))


def _lz4_spans(frame: memoryview) -> Iterator[tuple[int, int, int]]:
    """Of each block: where its length field begins, where its content ends, and at most how much it holds."""
    magic, flags, size_code = LZ4_START.unpack_from(frame)
    if magic != LZ4_MAGIC:
        raise CorruptCompression(Codec.LZ4, f"opens with {magic:#010x}, not with a frame's magic")
    if flags & LZ4_FIXED_FLAGS != LZ4_KAFKA_FLAGS:
        raise CorruptCompression(Codec.LZ4, f"frame flags {flags:#010b} are not of version 1 with independent blocks")
    largest = 1 << (8 + 2 * (size_code >> 4 & 7))
    checksum = 4 if flags & LZ4_BLOCK_CHECKSUM else 0
    at = len(LZ4_HEADER) + (8 if flags & LZ4_CONTENT_SIZE else 0)
    while length := U32_LE.unpack_from(frame, at)[0]:
        size = length & ~LZ4_STORED
        end = at + 4 + size
        yield at, end, min(size if length & LZ4_STORED else size * LZ4_MAX_RATIO, largest)
        at = end + checksum
    at += 8 if flags & LZ4_CONTENT_CHECKSUM else 4
    if at != len(frame):
        raise CorruptCompression(Codec.LZ4, f"the frame takes {at} bytes, but there are {len(frame)}")


def _lz4_bound(view: memoryview) -> int:
    """At most so many bytes come out, read off the block headers. Decoding checks everything else."""
    return sum(most for _, _, most in _lz4_spans(view))


# zstd: RFC 8878. Magic (4, little-endian), descriptor (1), window (0 or 1), dictionary (0-4), content size (0-8); then
# blocks with a header of 3 bytes (last: 1 bit, kind: 2, size: 21) until the last one; checksum (0 or 4).

_ZSTD_MAGIC: Final = 0xFD2F_B528
_ZSTD_SKIPPABLE: Final = 0x184D_2A50  # to ...5f; then a length (4) and so many bytes without meaning
_ZSTD_MAX_BLOCK: Final = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE = 0, 1


def _zstd_compress(view: memoryview, level: int) -> bytes:
    stream = zstd.Compressor(level)
    if not view:
        return bytes(stream.finish())
    _feed(stream, view)
    return b"".join((stream.flush(), stream.finish()))


def zstd_bound(view: memoryview) -> int:
    """At most so many bytes come out, read off the frame and block headers. Decoding checks everything else."""
    bound = at = 0
    while at < len(view):
        magic = U32_LE.unpack_from(view, at)[0]
        if magic == _ZSTD_MAGIC:
            at, most = _zstd_frame(view, at + 4)
            bound += most
        elif magic & ~0xF == _ZSTD_SKIPPABLE:
            at += 8 + U32_LE.unpack_from(view, at + 4)[0]
        else:
            raise CorruptCompression(Codec.ZSTD, f"no frame begins at byte {at}, but {magic:#010x}")
    return bound


def _zstd_frame(view: memoryview, at: int) -> tuple[int, int]:
    """Where the frame ends whose descriptor is at `at`, and at most how much it holds."""
    descriptor = view[at]
    single_segment, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    at += 1
    largest = _ZSTD_MAX_BLOCK
    if not single_segment:
        exponent, mantissa = divmod(view[at], 8)
        largest = min(largest, (8 + mantissa) << (7 + exponent))
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    content_size_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    content_size = int.from_bytes(view[at : at + content_size_bytes], "little")
    at += content_size_bytes
    bound = last = 0
    while not last:
        header = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        bound += size if kind in (_ZSTD_RAW, _ZSTD_RLE) else largest
        at += 4 if kind == _ZSTD_RLE else 3 + size
    if content_size_bytes:
        bound = min(bound, content_size + (256 if content_size_bytes == 2 else 0))
    return at + 4 * checksum, bound
