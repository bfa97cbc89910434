"""Variable-length integers as records use them: zigzag, seven bits a byte, least significant first.

The unsigned ones of the protocol are in `wire.primitives`.

Pure: bytes in, numbers out.
"""

from leadline.model import Buffer
from leadline.wire.primitives import write_varint

INT_BYTES = 5  # of the longest number of 32 bits


def encode(value: int) -> bytes:
    return _SMALL[value + 1] if -1 <= value < _SMALL_END else _encode(value)


def _encode(value: int) -> bytes:
    return write_varint((value << 1) ^ (value >> 63))


_SMALL_END = 2048  # lengths and counts are nearly all below
_SMALL = tuple(map(_encode, range(-1, _SMALL_END)))


def decode(data: Buffer, position: int) -> tuple[int, int]:
    """The number at a position and the position behind it. IndexError past the end, ValueError beyond 64 bits."""
    byte = data[position]
    if byte < 0x80:  # nearly all of them
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise ValueError("a variable-length integer of more than ten bytes")
    value &= 0xFFFF_FFFF_FFFF_FFFF
    return (value >> 1) ^ -(value & 1), position + 1


def decode_int(data: Buffer, position: int) -> tuple[int, int]:
    """As `decode`, a number of 32 bits: ValueError beyond five bytes. Bits beyond 32 are ignored, as in Kafka."""
    value, end = decode(data, position)
    if end - position > INT_BYTES:
        raise ValueError("a variable-length integer of more than five bytes")
    return (value & 0x7FFF_FFFF if value >= 0 else ~(~value & 0x7FFF_FFFF)), end
