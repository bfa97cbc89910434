"""Batches that no producer should send, each wrong in one way below a right CRC, and some that are right but rare."""

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence

import cramjam

from leadline.records import varint
from leadline.records.batch import DELETE_HORIZON, HEADER, HEADER_BYTES, LENGTH_END, LOG_APPEND_TIME, MAGIC, put_crc
from leadline.records.compression import Codec, compress
from tests.support.logs import START_MS

FRONT = b"\0\0"  # attributes and timestamp delta
KEY_VALUE = b"\2k\2v"


def sized(body: bytes) -> bytes:
    return varint.encode(len(body)) + body


def record(offset_delta: int, timestamp_delta: int = 0, rest: bytes = KEY_VALUE + b"\0") -> bytes:
    return sized(b"\0" + varint.encode(timestamp_delta) + varint.encode(offset_delta) + rest)


def in_order(count: int, rest: bytes = KEY_VALUE + b"\0") -> list[bytes]:
    return [record(n, 0, rest) for n in range(count)]


def batch_of(
    payload: bytes,
    count: int,
    attributes: int = 0,
    *,
    last_delta: int | None = None,
    base_timestamp: int = START_MS,
    max_timestamp: int = START_MS,
) -> bytes:
    """A batch whose header says this, with the CRC that fits."""
    delta = count - 1 if last_delta is None else last_delta
    length = HEADER_BYTES - LENGTH_END + len(payload)
    fields = (0, length, -1, MAGIC, 0, attributes, delta, base_timestamp, max_timestamp, -1, -1, -1, count)
    data = bytearray(HEADER.pack(*fields)) + payload
    put_crc(data, 0, len(data))
    return bytes(data)


def packed(codec: Codec, records: Sequence[bytes], count: int | None = None, **header: int) -> bytes:
    count = len(records) if count is None else count
    return batch_of(compress(codec, b"".join(records)), count, codec, **header)


LONG_ONE = b"\x82\x80\x80\x80\0"  # 1, in five bytes
MANY = varint.encode(2**31 - 1)

NOT_RECORDS = {
    "a length of -1": b"\1",
    "a length of -1, and a record": b"\1" + record(1)[1:],
    "a length of 0": b"\0",
    "a length beyond the batch": varint.encode(200) + record(1)[1:],
    "a length one too long": varint.encode(len(record(1))) + record(1)[1:],
    "a length one too short": varint.encode(len(record(1)) - 2) + record(1)[1:],
    "2^31-1 headers": record(1, 0, KEY_VALUE + MANY),
    "2^31-1 headers, and 40 bytes": record(1, 0, KEY_VALUE + MANY + bytes(40)),
    "-1 headers": record(1, 0, KEY_VALUE + b"\1"),
    "no count of headers": record(1, 0, KEY_VALUE),
    "a header without a key": record(1, 0, KEY_VALUE + b"\2\1\0"),
    "a header that is cut off": record(1, 0, KEY_VALUE + b"\2\2k"),
    "a header that is too long": record(1, 0, KEY_VALUE + b"\2\2k\x7e"),
    "a key that is too long": record(1, 0, b"\x7ek\2v\0"),
    "a value that is too long": record(1, 0, b"\2k\x7ev\0"),
    "bytes behind the headers": record(1, 0, KEY_VALUE + b"\0\0"),
    "a timestamp without an end": sized(b"\0" + b"\xff" * 12),
    "a timestamp of eleven bytes": sized(b"\0" + b"\x80" * 10 + b"\0" + b"\2" + KEY_VALUE + b"\0"),
    "a length of six bytes": b"\x90\x80\x80\x80\x80\0" + record(1)[1:],
    "an offset of six bytes": sized(FRONT + b"\x82\x80\x80\x80\x80\0" + KEY_VALUE + b"\0"),
    "a key length of six bytes": sized(FRONT + b"\2" + b"\x82\x80\x80\x80\x80\0k\2v\0"),
    "a value length of six bytes": sized(FRONT + b"\2\2k" + b"\x82\x80\x80\x80\x80\0v\0"),
    "a count of headers of six bytes": sized(FRONT + b"\2" + KEY_VALUE + b"\x80\x80\x80\x80\x80\0"),
}
RARE_RECORDS = {
    "attributes": sized(b"\x7f\0\2" + KEY_VALUE + b"\0"),
    "a timestamp delta of ten bytes": sized(b"\0" + b"\x80" * 9 + b"\0" + b"\2" + KEY_VALUE + b"\0"),
    "an offset of five bytes": sized(FRONT + LONG_ONE + KEY_VALUE + b"\0"),
    "an offset with bits beyond 32": sized(FRONT + b"\x82\x80\x80\x80\x70" + KEY_VALUE + b"\0"),
    "a key length of five bytes": sized(FRONT + b"\2" + LONG_ONE + b"k\2v\0"),
    "a key length of -2": sized(FRONT + b"\2" + b"\3\2v\0"),
    "neither key nor value": sized(FRONT + b"\2" + b"\1\1\0"),
    "headers": sized(FRONT + b"\2" + KEY_VALUE + b"\4\2a\2b\2c\1"),
    "a header whose value has a length of -5": sized(FRONT + b"\2" + KEY_VALUE + b"\2\2a\x09"),
    "a header key that is not UTF-8": sized(FRONT + b"\2" + KEY_VALUE + b"\2\2\xff\1"),
}
WRONG_OFFSETS = {
    "all 0": (0, 0, 0),
    "not ascending": (0, 2, 1),
    "from 1 on": (1, 2, 3),
    "from -1 on": (-1, 0, 1),
    "with a gap": (0, 1, 5),
    "below": (0, 1, -7),
}
WRONG_TIMES: dict[str, dict[str, int]] = {
    "a max timestamp too high": {"max_timestamp": START_MS + 10**9},
    "a max timestamp too low": {"max_timestamp": START_MS - 10**9},
    "no max timestamp": {"max_timestamp": -1},
    "no timestamps": {"base_timestamp": -1, "max_timestamp": -1},
    "no timestamps but a max timestamp": {"base_timestamp": -1, "max_timestamp": START_MS},
    "timestamps of -5": {"base_timestamp": -5, "max_timestamp": -5},
    "timestamps of -5 and a max timestamp": {"base_timestamp": -5, "max_timestamp": 3},
    "the largest timestamp there is": {"base_timestamp": 2**63 - 1, "max_timestamp": 2**63 - 1},
    "the smallest timestamp there is": {"base_timestamp": -(2**63), "max_timestamp": -1},
}


def bad_payloads() -> Iterator[tuple[str, Codec, bytes]]:
    """What a codec may not be able to unpack, of three records."""
    body = b"".join(in_order(3))
    for codec in Codec:
        good = compress(codec, body)
        name = codec.name.lower()
        yield f"{name}: nothing", codec, b""
        if codec is Codec.NONE:
            continue
        yield f"{name}: garbage", codec, b"\x17" * 40
        yield f"{name}: one byte", codec, good[:1]
        yield f"{name}: half", codec, good[: len(good) // 2]
        yield f"{name}: the last byte is missing", codec, good[:-1]
        yield f"{name}: the last four bytes are missing", codec, good[:-4]
        yield f"{name}: twice", codec, good + good
        yield f"{name}: a byte behind", codec, good + b"\0"
        yield f"{name}: bytes behind", codec, good + b"\x17" * 40
        for at in (0, 4, 6, len(good) // 2, len(good) - 6, len(good) - 1):
            yield f"{name}: byte {at} is wrong", codec, good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :]
    yield from _of_gzip(body)
    yield from _of_snappy(body)
    yield from _of_lz4(body)
    yield from _of_zstd(body)


def _of_gzip(body: bytes) -> Iterator[tuple[str, Codec, bytes]]:
    good = compress(Codec.GZIP, body)
    yield "gzip: a wrong CRC", Codec.GZIP, good[:-8] + b"\1\2\3\4" + good[-4:]
    yield "gzip: a wrong size", Codec.GZIP, good[:-4] + b"\1\2\3\4"
    yield "gzip: two members", Codec.GZIP, gzip.compress(body[:10]) + gzip.compress(body[10:])
    yield "gzip: no trailer", Codec.GZIP, good[:-8]
    yield "gzip: zlib instead", Codec.GZIP, zlib.compress(body)


def _of_snappy(body: bytes) -> Iterator[tuple[str, Codec, bytes]]:
    raw = bytes(cramjam.snappy.compress_raw(body))
    header = compress(Codec.SNAPPY, b"")
    yield "snappy: without framing", Codec.SNAPPY, raw
    yield "snappy: without framing, a size that lies", Codec.SNAPPY, b"\xff\xff\xff\x7f" + raw[1:]
    yield "snappy: a block size that lies", Codec.SNAPPY, header + struct.pack(">I", 1 << 30) + raw
    yield "snappy: a negative block size", Codec.SNAPPY, header + struct.pack(">i", -5) + raw
    yield "snappy: an empty block", Codec.SNAPPY, header + struct.pack(">I", 0) + struct.pack(">I", len(raw)) + raw
    yield "snappy: another version", Codec.SNAPPY, header[:8] + struct.pack(">II", 9, 9) + header[16:]
    yield "snappy: half a header", Codec.SNAPPY, header[:12]


def _of_lz4(body: bytes) -> Iterator[tuple[str, Codec, bytes]]:
    def frame(flags: int, blocks: bytes, size_code: int = 0x40, checksum: int | None = None) -> bytes:
        descriptor = bytes([flags, size_code]) + (len(body).to_bytes(8, "little") if flags & 8 else b"")
        if checksum is None:
            checksum = (_xxh32(descriptor) >> 8) & 0xFF
        return bytes.fromhex("04224d18") + descriptor + bytes([checksum]) + blocks

    stored = struct.pack("<I", len(body) | 0x8000_0000) + body
    end = bytes(4)
    yield "lz4: a stored block", Codec.LZ4, frame(0x60, stored + end)
    yield "lz4: no end mark", Codec.LZ4, frame(0x60, stored)
    yield "lz4: a wrong header checksum", Codec.LZ4, frame(0x60, stored + end, checksum=0x11)
    yield "lz4: linked blocks", Codec.LZ4, frame(0x40, stored + end)
    yield "lz4: version 2", Codec.LZ4, frame(0xA0, stored + end)
    yield "lz4: a reserved flag", Codec.LZ4, frame(0x62, stored + end)
    yield "lz4: a dictionary", Codec.LZ4, frame(0x61, stored + end)
    yield "lz4: a reserved block size", Codec.LZ4, frame(0x60, stored + end, size_code=0x30)
    yield "lz4: a reserved bit of the block size", Codec.LZ4, frame(0x60, stored + end, size_code=0x41)
    yield "lz4: a content size", Codec.LZ4, frame(0x68, stored + end)
    yield "lz4: a block checksum", Codec.LZ4, frame(0x70, stored + struct.pack("<I", _xxh32(body)) + end)
    yield "lz4: a wrong block checksum", Codec.LZ4, frame(0x70, stored + struct.pack("<I", 5) + end)
    yield "lz4: a content checksum", Codec.LZ4, frame(0x64, stored + end + struct.pack("<I", _xxh32(body)))
    yield "lz4: a wrong content checksum", Codec.LZ4, frame(0x64, stored + end + struct.pack("<I", 5))
    large = struct.pack("<I", (1 << 17) | 0x8000_0000) + bytes(1 << 17)
    yield "lz4: a block larger than its frame allows", Codec.LZ4, frame(0x60, large + end)


def _of_zstd(body: bytes) -> Iterator[tuple[str, Codec, bytes]]:
    def frame(blocks: bytes, descriptor: int = 0, window: int = 0x58) -> bytes:
        return struct.pack("<IB", 0xFD2FB528, descriptor) + bytes([window]) + blocks

    def block(data: bytes, last: int = 1, kind: int = 0, size: int | None = None) -> bytes:
        return (last | kind << 1 | (len(data) if size is None else size) << 3).to_bytes(3, "little") + data

    skippable = struct.pack("<II", 0x184D2A50, 4) + b"skip"
    yield "zstd: a stored block", Codec.ZSTD, frame(block(body))
    yield "zstd: no last block", Codec.ZSTD, frame(block(body, last=0))
    yield "zstd: a reserved kind of block", Codec.ZSTD, frame(block(body, kind=3))
    yield "zstd: a wrong checksum", Codec.ZSTD, frame(block(body) + b"\1\2\3\4", descriptor=4)
    yield "zstd: a skippable frame before", Codec.ZSTD, skippable + frame(block(body))
    yield "zstd: a skippable frame behind", Codec.ZSTD, frame(block(body)) + skippable
    yield "zstd: two frames", Codec.ZSTD, frame(block(body[:10])) + frame(block(body[10:]))
    yield "zstd: a window of 2 GB", Codec.ZSTD, frame(block(body), window=21 << 3)
    yield "zstd: a dictionary", Codec.ZSTD, struct.pack("<IBBB", 0xFD2FB528, 1, 0x58, 7) + block(body)


def _xxh32(data: bytes) -> int:
    """The checksum of lz4, of short inputs as much as of long ones."""
    p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
    mask, at = 0xFFFF_FFFF, 0

    def rotl(x: int, r: int) -> int:
        return (x << r | x >> (32 - r)) & mask

    if len(data) >= 16:
        lanes = [(p1 + p2) & mask, p2, 0, -p1 & mask]
        while at + 16 <= len(data):
            for n in range(4):
                word = int.from_bytes(data[at + 4 * n : at + 4 * n + 4], "little")
                lanes[n] = rotl((lanes[n] + word * p2) & mask, 13) * p1 & mask
            at += 16
        h = sum(rotl(lane, turn) for lane, turn in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
    else:
        h = p5
    h = (h + len(data)) & mask
    while at + 4 <= len(data):
        h = rotl((h + int.from_bytes(data[at : at + 4], "little") * p3) & mask, 17) * p4 & mask
        at += 4
    for byte in data[at:]:
        h = rotl((h + byte * p5) & mask, 11) * p1 & mask
    h = (h ^ h >> 15) * p2 & mask
    h = (h ^ h >> 13) * p3 & mask
    return h ^ h >> 16


def bad_batches() -> Iterator[tuple[str, bytes]]:
    """By name. Those that are right but rare are among them."""
    for codec in Codec:
        name = codec.name.lower()
        for what, broken in NOT_RECORDS.items():
            yield f"{name}: {what}, last", packed(codec, [record(0), broken])
            yield f"{name}: {what}, not last", packed(codec, [record(0), broken, record(2)])
        for what, rare in RARE_RECORDS.items():
            yield f"{name}: rare: {what}", packed(codec, [record(0), rare, record(2)])
        yield f"{name}: fewer records than counted", packed(codec, in_order(2), 3)
        yield f"{name}: more records than counted", packed(codec, in_order(3), 2)
        yield f"{name}: a byte behind the records", packed(codec, [*in_order(3), b"\0"], 3)
        yield f"{name}: a count of 0", packed(codec, in_order(2), 0)
        yield f"{name}: a count of 0 and no records", packed(codec, [], 0)
        yield f"{name}: a count of -1", packed(codec, in_order(2), -1)
        yield f"{name}: a count of 2^31-1", packed(codec, in_order(2), 2**31 - 1)
        yield f"{name}: offsets beyond the count", packed(codec, in_order(2), last_delta=5)
        yield f"{name}: a negative last offset delta", packed(codec, in_order(2), last_delta=-3)
        for what, deltas in WRONG_OFFSETS.items():
            yield f"{name}: offsets {what}", packed(codec, [record(delta) for delta in deltas])
        for what, header in WRONG_TIMES.items():
            yield f"{name}: {what}", packed(codec, in_order(3), **header)
        yield f"{name}: a max timestamp in the middle", packed(codec, [record(0), record(1, 9), record(2, -3)])
        yield f"{name}: without keys", packed(codec, [record(0), record(1, 0, b"\1\2v\0"), record(2, 0, b"\1\2v\0")])
        yield f"{name}: many without keys", packed(codec, in_order(7, b"\1\2v\0"))
        for what, flags in (("log append time", LOG_APPEND_TIME), ("a delete horizon", DELETE_HORIZON)):
            yield f"{name}: {what}", batch_of(compress(codec, b"".join(in_order(3))), 3, codec | flags)
        yield f"{name}: unused attributes", batch_of(compress(codec, b"".join(in_order(3))), 3, codec | 0x4180)
    for codec_id in (5, 6, 7):
        yield f"codec {codec_id}", batch_of(b"".join(in_order(3)), 3, codec_id)
    for what, codec, payload in bad_payloads():
        yield f"payload: {what}", batch_of(payload, 3, codec)
