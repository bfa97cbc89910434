"""zstd: RFC 8878.

    magic (4, little-endian), descriptor (1), window (0 or 1), dictionary (0-4), content size (0-8)
    blocks with a header of 3 bytes (last: 1 bit, kind: 2, size: 21) until the last one
    checksum (0 or 4)

Written as Java does: one frame, no content size, no checksum, flushed before it is ended. Read as well: several frames,
frames to skip, content sizes and checksums.
"""

import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, Generic, NamedTuple, TypeVar

import zstandard

from leadline.records.compression import CHUNK_BYTES, SMALL_BYTES, Codec, CorruptCompression, DecompressedTooLarge

C = TypeVar("C")
ERRORS: Final = (zstandard.ZstdError,)
WORD: Final = struct.Struct("<I")
MAGIC: Final = 0xFD2F_B528
SKIPPABLE: Final = 0x184D_2A50  # to ...5f; then a length (4) and that many bytes without meaning
MAX_BLOCK_BYTES: Final = 128 * 1024
RAW, RLE = 0, 1
EMPTY: Final = bytes.fromhex("28b52ffd2000010000")  # as Java writes nothing


class _Idle(Generic[C]):
    """Idle contexts. Making one takes longer than using it on a small batch.

    Two threads must not share one. So a user takes it out, and puts it back unless there was an error.
    """

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._contexts: list[C] = []

    def take(self) -> C:
        try:
            return self._contexts.pop()
        except IndexError:
            return self._make()

    def put_back(self, context: C) -> None:
        self._contexts.append(context)


@cache
def _compressors(level: int) -> _Idle[zstandard.ZstdCompressor]:
    return _Idle(lambda: zstandard.ZstdCompressor(level=level, write_content_size=False, write_checksum=False))


_decompressors = _Idle(zstandard.ZstdDecompressor)


def compress(view: memoryview, level: int) -> bytes:
    if not view:
        return EMPTY
    idle = _compressors(level)
    compressor = idle.take()
    stream = compressor.compressobj()
    packed = b"".join((stream.compress(view), stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK), stream.flush()))
    idle.put_back(compressor)
    return packed


class _Frame(NamedTuple):
    end: int
    bound: int  # upper bound of the output, by its block headers
    content_bytes: int | None  # the size that it claims


def decompress(view: memoryview, limit: int) -> bytes:
    if not view:
        raise CorruptCompression(Codec.ZSTD, "there is no frame")
    parts, left = [], limit
    for packed, frame in _frames(view):
        if frame.content_bytes is not None and frame.content_bytes > left:
            raise DecompressedTooLarge(Codec.ZSTD, limit)
        try:
            decompressor = _decompressors.take()
            part = decompressor.decompress(packed, max_output_size=max(min(frame.bound, left), 1))
            _decompressors.put_back(decompressor)
        except zstandard.ZstdError:
            if frame.bound <= left:
                raise
            part = zstandard.ZstdDecompressor().stream_reader(packed).read(left + 1)  # corrupt, or too large?
        if len(part) > left:
            raise DecompressedTooLarge(Codec.ZSTD, limit)
        left -= len(part)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def chunks(view: memoryview) -> Iterator[bytes]:
    """Every byte counts. Little content is one chunk."""
    if not view:
        return
    if sum(frame.bound for _, frame in _frames(view)) <= SMALL_BYTES:
        yield decompress(view, SMALL_BYTES)
        return
    with zstandard.ZstdDecompressor().stream_reader(view, read_across_frames=True) as reader:
        while chunk := reader.read(CHUNK_BYTES):
            yield chunk


def _frames(view: memoryview) -> Iterator[tuple[memoryview, _Frame]]:
    """The frames with content, each with the values of its headers."""
    at = 0
    while at < len(view):
        magic = WORD.unpack_from(view, at)[0]
        if magic == MAGIC:
            frame = _frame(view, at + 4)
            if frame.end > len(view):
                raise CorruptCompression(Codec.ZSTD, f"{len(view)} bytes end before the frame does")
            if frame.content_bytes is not None and frame.content_bytes > frame.bound:
                reason = f"a frame that holds at most {frame.bound} bytes claims {frame.content_bytes}"
                raise CorruptCompression(Codec.ZSTD, reason)
            yield view[at : frame.end], frame
            at = frame.end
        elif magic & ~0xF == SKIPPABLE:
            at += 8 + WORD.unpack_from(view, at + 4)[0]
            if at > len(view):
                raise CorruptCompression(Codec.ZSTD, f"a frame to skip ends {at - len(view)} bytes after the end")
        else:
            raise CorruptCompression(Codec.ZSTD, f"no frame begins at byte {at}, but {magic:#010x}")


def _frame(view: memoryview, at: int) -> _Frame:
    """The frame whose descriptor is at `at`."""
    descriptor = view[at]
    single_segment, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    at += 1
    largest = MAX_BLOCK_BYTES
    if not single_segment:
        exponent, mantissa = divmod(view[at], 8)
        largest = min(largest, (8 + mantissa) << (7 + exponent))
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    field_bytes = (single_segment, 2, 4, 8)[descriptor >> 6]
    content_bytes = int.from_bytes(view[at : at + field_bytes], "little") + (256 if field_bytes == 2 else 0)
    at += field_bytes
    bound = last = 0
    while not last:
        header = view[at] | view[at + 1] << 8 | view[at + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        bound += size if kind in (RAW, RLE) else largest
        at += 4 if kind == RLE else 3 + size
    return _Frame(at + 4 * checksum, bound, content_bytes if field_bytes else None)
