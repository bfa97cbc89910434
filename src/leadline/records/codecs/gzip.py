"""gzip: RFC 1952.

Written as Java does, with the same zlib, so with the same bytes: one member, no name, no time, OS byte 255 (Java 16 and
later). Read through zlib-ng, which takes two thirds of zlib's time or less: several members, too.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from zlib_ng import zlib_ng

from leadline.records.compression import CHUNK_BYTES, Codec, CorruptCompression, DecompressedTooLarge

ERRORS: Final = (zlib_ng.error,)
HEADER: Final = bytes.fromhex("1f8b08000000000000ff")
TRAILER: Final = struct.Struct("<II")  # CRC-32, size modulo 2**32
WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # with gzip's header and trailer
PIECE_BYTES: Final = 64 * 1024  # where a member ends, zlib copies the rest of the piece: so never the whole rest
MEMBER: Final = b"\x1f\x8b\x08"
LEAST_BYTES: Final = 18  # Java looks for another member only if more bytes than these are left


def compress(view: memoryview, level: int) -> bytes:
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    trailer = TRAILER.pack(zlib_ng.crc32(view), len(view) & 0xFFFF_FFFF)
    return b"".join((HEADER, deflate.compress(view), deflate.flush(), trailer))


def decompress(view: memoryview, limit: int) -> bytes:
    parts = []
    at, left = 0, limit
    member = zlib_ng.decompressobj(WINDOW_BITS)
    while at < len(view):
        if member.eof:
            member = zlib_ng.decompressobj(WINDOW_BITS)
        piece = view[at : at + PIECE_BYTES]
        part = member.decompress(piece, left + 1)
        left -= len(part)
        if left < 0:
            raise DecompressedTooLarge(Codec.GZIP, limit)
        parts.append(part)
        at += len(piece) - len(member.unused_data)
    if not member.eof:
        raise CorruptCompression(Codec.GZIP, f"{len(view)} bytes end before the member does")
    return b"".join(parts)


def chunks(view: memoryview) -> Iterator[bytes]:
    """Bytes after a member that are not another member are ignored."""
    at = 0
    while True:
        member = zlib_ng.decompressobj(WINDOW_BITS)
        while not member.eof:
            piece = member.unconsumed_tail or view[at : at + CHUNK_BYTES]
            if not piece:
                raise CorruptCompression(Codec.GZIP, f"{len(view)} bytes end before the member does")
            if not member.unconsumed_tail:
                at += len(piece)
            yield member.decompress(piece, CHUNK_BYTES)
        at -= len(member.unused_data)
        if len(view) - at <= LEAST_BYTES or bytes(view[at : at + len(MEMBER)]) != MEMBER:
            return
