"""Message sets of formats 0 and 1, written out byte by byte: right ones, and ones that are wrong in one way."""

import gzip
import struct
from zlib import crc32

from leadline.records.compression import Codec, compress
from tests.support.bad_batches import batch_of, record
from tests.support.logs import START_MS, batch

STAMPED = 1 << 3  # in the attributes: log append time
LZ4_HEADER_CHECKSUM_AT = 6
PACKED = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)


def sized(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def with_crc(body: bytes, crc: int | None = None) -> bytes:
    return struct.pack(">I", crc32(body) if crc is None else crc) + body


def message(
    magic: int,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    *,
    timestamp: int = START_MS,
    attributes: int = 0,
    crc: int | None = None,
    more: bytes = b"",
) -> bytes:
    time = struct.pack(">q", timestamp) if magic else b""
    return with_crc(struct.pack(">bb", magic, attributes) + time + sized(key) + sized(value) + more, crc)


def entry(offset: int, content: bytes, length: int | None = None) -> bytes:
    return struct.pack(">qi", offset, len(content) if length is None else length) + content


def plain(magic: int, count: int = 3, timestamp: int = START_MS, size: int = 10) -> bytes:
    """Messages as an old producer sends them without a codec."""
    return b"".join(
        entry(n, message(magic, f"k{n}".encode(), b"v" * size, timestamp=timestamp + n)) for n in range(count)
    )


def wrapped(
    magic: int,
    inner: bytes,
    codec: int = Codec.GZIP,
    *,
    offset: int = 2,
    timestamp: int = START_MS + 2,
    attributes: int = 0,
    key: bytes | None = None,
    payload: bytes | None = None,
) -> bytes:
    packed = compress(Codec(codec), inner) if payload is None else payload
    return entry(offset, message(magic, key, packed, timestamp=timestamp, attributes=attributes | codec))


def good_sets(magic: int) -> dict[str, bytes]:
    """What Kafka takes."""
    sets = {
        "one": plain(magic, 1),
        "three": plain(magic),
        "no key, no value": entry(0, message(magic, None, None)) + entry(1, message(magic, b"", b"")),
        "offsets in disorder": entry(7, message(magic)) + entry(3, message(magic)) + entry(3, message(magic)),
        "bytes behind the value": entry(0, message(magic, more=b"more")),
        "attributes without a meaning": entry(0, message(magic, attributes=0x70)),
        "cut off behind the first": plain(magic, 2)[:-1],
        "a length behind the first": plain(magic, 1) + entry(1, b""[:0], 14),
        "a piece of a length behind the first": plain(magic, 1) + bytes(7),
        "times in disorder": b"".join(
            entry(n, message(magic, timestamp=START_MS + ms)) for n, ms in enumerate((5, -9, 3))
        ),
        "no time": entry(0, message(magic, timestamp=-1)) + entry(1, message(magic, timestamp=-1)),
        "no time at first": entry(0, message(magic, timestamp=-1)) + entry(1, message(magic)),
        "a key in the wrapper": wrapped(magic, plain(magic), key=b"key"),
        "offset 0 of the wrapper": wrapped(magic, plain(magic), offset=0),
        "a high offset of the wrapper": wrapped(magic, plain(magic), offset=1000),
        "a wrong time of the wrapper": wrapped(magic, plain(magic), timestamp=5),
        "no time of the wrapper": wrapped(magic, plain(magic), timestamp=-1),
        "absolute offsets inside": wrapped(magic, plain(magic, 9)[-2 * (len(plain(magic)) // 3) :], offset=8),
        "the same offset inside": wrapped(magic, entry(0, message(magic)) * 4, offset=0),
        "cut off inside": wrapped(magic, plain(magic)[:-1], offset=0),
        "bytes behind the gzip member": wrapped(magic, b"", payload=gzip.compress(plain(magic), mtime=0) + b"xx"),
        "stamped, as a wrapper": wrapped(magic, plain(magic), attributes=STAMPED),
        "stamped": entry(0, message(magic, attributes=STAMPED)),
        "stamped inside": wrapped(magic, entry(0, message(magic, attributes=STAMPED)), offset=0),
    }
    sets |= {codec.name.lower(): wrapped(magic, plain(magic), codec) for codec in PACKED}
    return sets | {f"{codec.name.lower()} of much": much(magic, codec) for codec in PACKED if codec is not Codec.SNAPPY}


def much(magic: int, codec: Codec) -> bytes:
    return wrapped(magic, plain(magic, 400, size=100), codec, offset=399)


def bad_sets(magic: int) -> dict[str, bytes]:
    """What Kafka refuses, or takes for nothing."""
    other = 1 - magic
    short = struct.pack(">bb", magic, 0) + (b"\0" * 8 if magic else b"")
    lz4 = bytearray(compress(Codec.LZ4, plain(magic)))
    lz4[LZ4_HEADER_CHECKSUM_AT] ^= 1
    negative = entry(0, message(magic, timestamp=-5))
    late = entry(0, message(magic, timestamp=START_MS << 8))
    return {
        "nothing": b"",
        "a piece of an entry": plain(magic, 1)[:11],
        "a piece of a message": plain(magic, 1)[:-1],
        "a piece up to the magic": plain(magic, 1)[:17],
        "a length of 13": entry(0, message(magic), 13),
        "a negative length": entry(0, message(magic), -1),
        "a length too large": entry(0, message(magic), 1 << 30),
        "magic 3": entry(0, with_crc(b"\3" + message(magic)[5:])),
        "magic -1": entry(0, with_crc(b"\xff" + message(magic)[5:])),
        "a wrong CRC": entry(0, message(magic, crc=1234)),
        "a wrong CRC behind the first": plain(magic, 1) + entry(1, message(magic, crc=1234)),
        "a wrong CRC and a time": entry(0, message(magic, crc=1234, timestamp=-5)),
        "both formats": plain(magic, 1) + plain(other, 1),
        "a record batch behind a message": plain(magic, 1) + bytes(batch()),
        "a message behind a record batch": bytes(batch()) + plain(magic, 1),
        "an unknown codec": entry(0, message(magic, attributes=5)),
        "no room for a key": entry(0, with_crc(short.ljust(10, b"\0"))),
        "a key too long": entry(0, with_crc(short + struct.pack(">i", 100) + bytes(20))),
        "a value too long": entry(0, with_crc(short + struct.pack(">ii", -1, 100) + bytes(20))),
        "a key longer than any": entry(0, with_crc(short + struct.pack(">i", 2**31 - 1) + bytes(20))),
        "a negative time": negative,
        "a negative time behind the first": plain(magic, 1) + negative,
        "a late time": late,
        "a negative time, then a late one": negative + late,
        "a late time, then a negative one": late + negative,
        "a key too long and a late time": entry(
            0, with_crc(short[:2] + struct.pack(">qi", START_MS << 8, 100) + bytes(20))
        ),
        "too large": plain(magic, 1, size=1_100_000),
        "too large as a batch": plain(magic, 1200, size=1000),
        "two wrappers": wrapped(magic, plain(magic)) * 2,
        "a message and a wrapper": plain(magic, 1) + wrapped(magic, plain(magic)),
        "a wrapper without a value": entry(0, message(magic, None, None, attributes=Codec.GZIP)),
        "a wrapper with an empty value": entry(0, message(magic, None, b"", attributes=Codec.GZIP)),
        "an empty wrapper": wrapped(magic, b""),
        "an empty wrapper of snappy": wrapped(magic, b"", Codec.SNAPPY),
        "an empty wrapper of lz4": wrapped(magic, b"", Codec.LZ4),
        "a piece of a message in a wrapper": wrapped(magic, plain(magic, 1)[:-1]),
        "zstd": wrapped(magic, plain(magic), Codec.ZSTD),
        "zstd without a value": entry(0, message(magic, None, None, attributes=Codec.ZSTD)),
        "no gzip": wrapped(magic, b"", payload=b"this is no gzip"),
        "no snappy": wrapped(magic, b"", Codec.SNAPPY, payload=b"this is no snappy"),
        "no lz4": wrapped(magic, b"", Codec.LZ4, payload=b"this is no lz4"),
        "gzip cut off": wrapped(magic, b"", payload=compress(Codec.GZIP, plain(magic))[:-9]),
        "snappy cut off": wrapped(magic, b"", Codec.SNAPPY, payload=compress(Codec.SNAPPY, plain(magic))[:-9]),
        "lz4 cut off": wrapped(magic, b"", Codec.LZ4, payload=compress(Codec.LZ4, plain(magic))[:-9]),
        "a wrong checksum in the lz4 header": wrapped(magic, b"", Codec.LZ4, payload=bytes(lz4)),
        "an offset below those inside": wrapped(magic, plain(magic), offset=1),
        "a negative offset": wrapped(magic, plain(magic), offset=-1),
        "a wrapper in a wrapper": wrapped(magic, wrapped(magic, plain(magic))),
        "a wrapper behind a message": wrapped(magic, plain(magic, 1) + wrapped(magic, plain(magic))),
        "an unknown codec inside": wrapped(magic, entry(0, message(magic, attributes=6))),
        "a wrong CRC inside": wrapped(magic, plain(magic, 1) + entry(1, message(magic, crc=77))),
        "a wrong CRC, then a wrapper": wrapped(magic, entry(0, message(magic, crc=1)) + wrapped(magic, b"")),
        "a wrapper, then a wrong CRC": wrapped(magic, wrapped(magic, b"") + entry(0, message(magic, crc=1))),
        "a length of 13 inside": wrapped(magic, plain(magic, 1) + entry(1, message(magic), 13)),
        "a wrong CRC, then a length of 13": wrapped(magic, entry(0, message(magic, crc=1)) + entry(1, b"", 13)),
        "the other format inside": wrapped(magic, plain(other)),
        "the other format among others": wrapped(magic, plain(magic, 1) + plain(other, 1)),
        "magic 2 inside": wrapped(magic, entry(0, with_crc(b"\2" + message(1)[5:]))),
        "a short message of magic 2 inside": wrapped(magic, entry(0, with_crc(b"\2" + message(0)[5:]))),
        "the other format and a wrong CRC": wrapped(magic, plain(other, 1) + entry(1, message(magic, crc=1))),
        "a late time inside": wrapped(magic, plain(magic, 1) + late),
        "the other format and a late time": wrapped(magic, plain(other, 1) + late),
        "a negative time inside": wrapped(magic, negative),
        "a negative, then a late time inside": wrapped(magic, negative + late),
        "a key too long inside": wrapped(magic, entry(0, with_crc(short + struct.pack(">i", 100) + bytes(20)))),
        "a key too long, then a late time inside": wrapped(
            magic, entry(0, with_crc(short + struct.pack(">i", 100) + bytes(20))) + late
        ),
        "a late time of the wrapper": wrapped(magic, plain(magic), timestamp=START_MS << 8, attributes=STAMPED),
        "a wrapper's key too long": entry(
            0, with_crc(struct.pack(">bb", magic, 1) + short[2:] + struct.pack(">i", 9999) + bytes(20))
        ),
        "stamped without a time": entry(0, message(magic, timestamp=-1, attributes=STAMPED)),
        "stamped without a time, unreadable": entry(
            0, with_crc(struct.pack(">bb", magic, STAMPED) + b"\xff" * 8 * magic + struct.pack(">i", 99) + bytes(9))
        ),
    }


def batches_in_disguise() -> dict[str, bytes]:
    """Record batches, which old requests may carry as well."""
    return {
        "one": bytes(batch(3)),
        "of gzip": bytes(batch(3, codec=Codec.GZIP)),
        "of zstd": bytes(batch(3, codec=Codec.ZSTD)),
        "two": bytes(batch(3) + batch(3)),
        "and a piece": bytes(batch(3) + batch(3)[:-1]),
        "and a wrong CRC": bytes(batch(3)) + bytes(batch(3)[:-1]) + b"x",
        "and a piece of a message": bytes(batch(3)) + plain(1, 1, size=100)[:-1],
        "with a base offset": b"\0" * 7 + b"\1" + bytes(batch(3)[8:]),
        "with a wrong CRC": bytes(batch(3)[:-1]) + b"x",
        "with a wrong count": batch_of(record(0), 2),
        "too small": entry(0, bytes(4) + b"\2" + bytes(20)),
        "of a producer": bytes(batch(2, producer_id=7)),
        "in a transaction": bytes(batch(2, producer_id=8, transactional=True)),
    }
