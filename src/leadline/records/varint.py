"""Variable-length integers as records use them: zigzag, seven bits a byte, least significant first.

The unsigned ones, and the loop over bytes, are in `wire.primitives`.

Pure: bytes in, numbers out.
"""

from leadline.model import Buffer
from leadline.wire.primitives import read_unsigned, write_varint

INT_BYTES, LONG_BYTES = 5, 10  # of the longest number of 32 and of 64 bits


def encode(value: int) -> bytes:
    return _SMALL[value + 1] if -1 <= value < _SMALL_END else _encode(value)


def _encode(value: int) -> bytes:
    return write_varint((value << 1) ^ (value >> 63))


_SMALL_END = 2048  # lengths and counts are nearly all below
_SMALL = tuple(map(_encode, range(-1, _SMALL_END)))


def decode(data: Buffer, position: int) -> tuple[int, int]:
    """The number at a position and the position after it. IndexError past the end, ValueError beyond 64 bits."""
    byte = data[position]
    if byte < 0x80:  # nearly all of them
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, end = read_unsigned(data, position, LONG_BYTES)
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return (value >> 1) ^ -(value & 1), end


def decode_int(data: Buffer, position: int) -> tuple[int, int]:
    """As `decode`, a number of 32 bits: ValueError beyond five bytes. Bits beyond 32 are ignored, as in Kafka."""
    value, end = read_unsigned(data, position, INT_BYTES)
    value &= 0xFFFF_FFFF
    return (value >> 1) ^ -(value & 1), end
