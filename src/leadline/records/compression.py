"""Compression of the records of a batch. Its header stays as it is.

    decompress(codec, compress(codec, data)) == data
    for any input, the output has at most `limit` bytes, and errors are CorruptCompression or DecompressedTooLarge
    `decompress` accounts for every byte of the input; `chunks` accepts what Kafka's Java classes accept, and refuses
    what they refuse

The bytes are those of Kafka's Java classes where the library is the same (`records/codecs`, one module each).

Pure: no file, no clock.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import ModuleType
from typing import Final, Protocol, cast

from leadline.model import Buffer

MAX_DECOMPRESSED_BYTES: Final = 104_857_600  # as socket.request.max.bytes: more could not have been sent uncompressed
CHUNK_BYTES: Final = 256 * 1024  # of gzip, and of zstd beyond SMALL_BYTES
SMALL_BYTES: Final = 16 * 1024 * 1024  # zstd of no more content is unpacked in one piece


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
    """The valid compression levels of a codec. The default is valid also where it is outside the range."""

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
    """Invalid input for the codec: garbage, cut short, or with bytes after its end."""

    def __init__(self, codec: Codec, reason: str) -> None:
        super().__init__(f"{codec.name.lower()}: {reason}")
        self.codec = codec


class DecompressedTooLarge(ValueError):
    """The input may be sound, but holds more than the caller is willing to unpack."""

    def __init__(self, codec: Codec, limit: int) -> None:
        super().__init__(f"{codec.name.lower()}: decompresses to more than the limit of {limit} bytes")
        self.codec = codec
        self.limit = limit


class _CodecModule(Protocol):
    """A module of `records/codecs`."""

    ERRORS: tuple[type[Exception], ...]  # of its library, for input that it does not understand

    @staticmethod
    def compress(view: memoryview, level: int, /) -> bytes: ...

    @staticmethod
    def decompress(view: memoryview, limit: int, /) -> bytes: ...

    @staticmethod
    def chunks(view: memoryview, /) -> Iterator[Buffer]: ...


@cache
def _module(codec: Codec) -> _CodecModule:
    module: ModuleType
    match codec:
        case Codec.GZIP:
            from leadline.records.codecs import gzip as module
        case Codec.SNAPPY:
            from leadline.records.codecs import snappy as module
        case Codec.LZ4:
            from leadline.records.codecs import lz4 as module
        case _:
            from leadline.records.codecs import zstd as module
    return cast(_CodecModule, module)


def compress(codec: Codec, data: bytes | bytearray | memoryview, level: int | None = None) -> bytes:
    """`data` as Kafka would pack it. Without a level, at Kafka's default; where the codec has no levels, it is moot."""
    if codec is Codec.NONE:
        return bytes(data)
    return _module(codec).compress(memoryview(data), _level(codec, level))


def _level(codec: Codec, level: int | None) -> int:
    levels = LEVELS.get(codec)
    if levels is None:
        return 0
    if level is None:
        return levels.default
    if level not in levels:
        raise ValueError(f"{codec.name.lower()} has no compression level {level}")
    return level


def decompress(codec: Codec, data: bytes | bytearray | memoryview, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The decompressed content of `data`, at most `limit` bytes; decompression takes up to about twice `limit`."""
    if codec is Codec.NONE:
        if len(data) > limit:
            raise DecompressedTooLarge(codec, limit)
        return bytes(data)
    module, view = _module(codec), memoryview(data)
    try:
        return module.decompress(view, limit)
    except module.ERRORS as error:
        raise CorruptCompression(codec, str(error)) from error
    except (struct.error, IndexError) as error:  # a field of a header is beyond the end of the input
        raise _cut_header(codec, view) from error


def chunks(codec: Codec, data: Buffer, *, any_lz4_header: bool = False) -> Iterator[Buffer]:
    """The decompressed content of `data`, in chunks: for a check in bounded memory.

    CorruptCompression where Kafka's classes fail, once the chunks before it are taken. `any_lz4_header`: the checksum
    of a frame's header is not compared, as in message format 0.
    """
    view = memoryview(data)
    if codec is Codec.NONE:
        yield view
        return
    module = _module(codec)
    options = {"any_header": True} if any_lz4_header and codec is Codec.LZ4 else {}
    try:
        yield from module.chunks(view, **options)
    except module.ERRORS as error:
        raise CorruptCompression(codec, str(error)) from error
    except (struct.error, IndexError) as error:
        raise _cut_header(codec, view) from error


def decompress_as_kafka(codec: Codec, data: Buffer, limit: int) -> bytes:
    """As `decompress`, as strict as Kafka's classes are and no stricter."""
    parts, left = [], limit
    for chunk in chunks(codec, data):
        left -= len(chunk)
        if left < 0:
            raise DecompressedTooLarge(codec, limit)
        parts.append(bytes(chunk))
    return b"".join(parts)


def _cut_header(codec: Codec, view: memoryview) -> CorruptCompression:
    return CorruptCompression(codec, f"{len(view)} bytes end in the middle of a header")
