"""The codecs of a record batch, held against bytes that Kafka 3.8's Java classes wrote, and against hostile ones."""

import hashlib
import resource
import struct
import sys
import tracemalloc
import zlib
from base64 import b64decode
from collections.abc import Callable
from contextlib import suppress

import cramjam
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline.records.compression import (
    LEVELS,
    MAX_DECOMPRESSED_BYTES,
    Codec,
    CorruptCompression,
    DecompressedTooLarge,
    compress,
    decompress,
)

MB = 1024 * 1024
PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]

each_codec = pytest.mark.parametrize("codec", PACKING, ids=lambda codec: codec.name.lower())


def lines(size: int) -> bytes:
    out = bytearray()
    n = 0
    while len(out) < size:
        out += b'{"id":%d,"depth":%d,"at":%d}\n' % (n * 2654435761 % 1000000007, n * n % 97, 1700000000000 + 17 * n)
        n += 1
    return bytes(out[:size])


def noise(size: int) -> bytes:
    return hashlib.shake_128(b"leadline").digest(size)


ORDERS = b"".join(b'{"order":%d,"item":"sounding lead","grams":%d}\n' % (1000 + n, 250 * n) for n in range(6))

WRITTEN_BY_KAFKA: list[tuple[Codec, bytes, bytes]] = [
    (codec, content, b64decode(packed))
    for codec, content, packed in [
        (Codec.GZIP, b"", "H4sIAAAAAAAA/wMAAAAAAAAAAAA="),
        (Codec.SNAPPY, b"", "glNOQVBQWQAAAAABAAAAAQ=="),
        (Codec.LZ4, b"", "BCJNGGBAggAAAAA="),
        (Codec.ZSTD, b"", "KLUv/SAAAQAA"),
        (
            Codec.GZIP,
            ORDERS,
            "H4sIAAAAAAAA/6tWyi9KSS1SsjI0MDDQUcosSc1VslIqzi/NS8nMS1fISU1MUdJRSi9KzC1WsjKo5apGUm9ISL2RKZoOI0I6TA3QdBgT0mGO"
            "bocJIR0gn6JqMSWoBewTACmcmd0sAQAA",
        ),
        (
            Codec.SNAPPY,
            ORDERS,
            "glNOQVBQWQAAAAABAAAAAQAAAG2sAsB7Im9yZGVyIjoxMDAwLCJpdGVtIjoic291bmRpbmcgbGVhZCIsImdyYW1zIjowfQp7HTAAMX4wAAQy"
            "NToyAAAyfjIABDUwOjIAADN+MgAANz5kAAA0fjIAAeoAfTLJAAA1gjMAEDI1MH0K",
        ),
        (
            Codec.LZ4,
            ORDERS,
            "BCJNGGBAgmcAAAD4IXsib3JkZXIiOjEwMDAsIml0ZW0iOiJzb3VuZGluZyBsZWFkIiwiZ3JhbXMiOjB9CjAAHzEwAA0rMjUyAB8yMgANKzUw"
            "MgAfMzIADRw3ZAAfNDIADQDqAArJAB81MwAOUDI1MH0KAAAAAA==",
        ),
        (
            Codec.ZSTD,
            ORDERS,
            "KLUv/QBYxAIAMgQPFaBXBy6Y2bu99IT/7q/yv0R96a/NESR+Nfcp7BB8dTVJvDFk5ykXo5MIQLWFmuGgjVkqlsv/NH4JPecjCgCACzQgCHAG"
            "ugZwAToEOKuqawAXMDkFBQEAAA==",
        ),
        (
            Codec.GZIP,
            noise(40),
            "H4sIAAAAAAAA/wEoANf/Rm8aSdfGsJpiYmWx2Tl2oSDgTLmb+iZw3a05Hdeq6sG5ph8AGAmup7w6n/0oAAAA",
        ),
        (
            Codec.SNAPPY,
            noise(40),
            "glNOQVBQWQAAAAABAAAAAQAAACoonEZvGknXxrCaYmJlsdk5dqEg4Ey5m/omcN2tOR3XqurBuaYfABgJrqc=",
        ),
        (Codec.LZ4, noise(40), "BCJNGGBAgigAAIBGbxpJ18awmmJiZbHZOXahIOBMuZv6JnDdrTkd16rqwbmmHwAYCa6nAAAAAA=="),
        (Codec.ZSTD, noise(40), "KLUv/QBYQAEARm8aSdfGsJpiYmWx2Tl2oSDgTLmb+iZw3a05Hdeq6sG5ph8AGAmupwEAAA=="),
    ]
]

# Too long to stand here: the content, the level (None: the default), the head of the SHA-256 of what Kafka wrote.
DIGESTS: list[tuple[Codec, Callable[[int], bytes], int, int | None, str]] = [
    (Codec.GZIP, lines, 32767, None, "c2c5edb321bdf8ac"),
    (Codec.GZIP, lines, 65537, None, "dfc3475c4f17d076"),
    (Codec.GZIP, lines, 100000, 1, "8e8fbbe5e51a1398"),
    (Codec.GZIP, lines, 100000, 9, "c7f12440d21c3cbe"),
    (Codec.GZIP, noise, 131073, None, "4b4ef791a521a206"),
    (Codec.SNAPPY, lines, 32767, None, "4830c61f053233e8"),
    (Codec.SNAPPY, lines, 32768, None, "e18983799e46ea15"),
    (Codec.SNAPPY, lines, 32769, None, "9b69d5a69339110e"),
    (Codec.SNAPPY, lines, 1048577, None, "6cc33bea214785c2"),
    (Codec.SNAPPY, noise, 65537, None, "c51c6fdaeb16402d"),
    (Codec.LZ4, lines, 65535, None, "ef0ab8f56fc96026"),
    (Codec.LZ4, lines, 65536, None, "145662a841d6080e"),
    (Codec.LZ4, lines, 65537, None, "9fdb6bb31d6830a4"),
    (Codec.LZ4, lines, 1048577, None, "49bf3b86f55cda02"),
    (Codec.LZ4, lines, 100000, 3, "4a77b6dd76519d5c"),
    (Codec.LZ4, lines, 100000, 17, "e1d1fd486fc1e518"),
    (Codec.LZ4, noise, 65537, None, "209ccb19ba407a97"),
    (Codec.ZSTD, lines, 100000, -5, "f9762d91e3e59251"),
    (Codec.ZSTD, lines, 100000, 1, "d0b379792892c4f8"),
    (Codec.ZSTD, lines, 100000, 6, "99ced5e53ba066c2"),
    (Codec.ZSTD, noise, 131072, None, "9e321ede4aeb79f4"),
    (Codec.ZSTD, noise, 131073, None, "1cfd10f7cabe98d4"),
]


def lz4_fast(content: bytes, *, content_checksum: bool = False, linked: bool = False) -> bytes:
    stream = cramjam.lz4.Compressor(level=1, content_checksum=content_checksum, block_linked=linked)
    stream.compress(content)
    return bytes(stream.finish())


XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1)
ZSTD_FRAME = bytes.fromhex("28b52ffd0058")  # no content size, a window of 2 MB; blocks follow


def zstd_run(size: int, *, last: bool) -> bytes:
    return struct.pack("<I", size << 3 | 0b010 | last)[:3] + b"\x00"


# With a content size, block checksums and a content checksum.
LZ4_WITH_EVERYTHING = b64decode(
    "BCJNGHxALAEAAAAAAAD6ZwAAAPgheyJvcmRlciI6MTAwMCwiaXRlbSI6InNvdW5kaW5nIGxlYWQiLCJncmFtcyI6MH0KMAAfMTAADSsyNTIAHzIy"
    "AA0rNTAyAB8zMgANHDdkAB80MgANAOoACskAHzUzAA5QMjUwfQp/MdkBAAAAACbubRQ="
)
ALSO_READ: dict[str, tuple[Codec, bytes, bytes]] = {
    "several gzip members": (Codec.GZIP, compress(Codec.GZIP, b"le") + compress(Codec.GZIP, b"ad"), b"lead"),
    "gzip with a file name": (
        Codec.GZIP,
        b"\x1f\x8b\x08\x08" + bytes(6) + b"name\x00" + compress(Codec.GZIP, b"lead")[10:],
        b"lead",
    ),
    "raw snappy": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(ORDERS)), ORDERS),
    "raw snappy of 1 MB": (Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(lines(MB))), lines(MB)),
    "raw snappy of nothing": (Codec.SNAPPY, b"\x00", b""),
    "several xerial streams": (Codec.SNAPPY, compress(Codec.SNAPPY, b"le") + compress(Codec.SNAPPY, b"ad"), b"lead"),
    "lz4 with everything": (Codec.LZ4, LZ4_WITH_EVERYTHING, ORDERS),
    "lz4 with checksums": (Codec.LZ4, lz4_fast(lines(MB), content_checksum=True), lines(MB)),
    "zstd with a content size": (Codec.ZSTD, bytes(cramjam.zstd.compress(ORDERS, 3)), ORDERS),
    "several zstd frames": (
        Codec.ZSTD,
        compress(Codec.ZSTD, b"le") + bytes(cramjam.zstd.compress(b"ad", 3)),
        b"lead",
    ),
    "zstd with a checksum": (
        Codec.ZSTD,
        bytes.fromhex("28b52ffd04002100006c6561640b8aa3c3") + compress(Codec.ZSTD, b"line"),
        b"leadline",
    ),
    "zstd behind a frame to skip": (
        Codec.ZSTD,
        struct.pack("<II", 0x184D2A53, 5) + b"hello" + compress(Codec.ZSTD, b"lead"),
        b"lead",
    ),
    "zstd runs": (Codec.ZSTD, ZSTD_FRAME + zstd_run(100, last=False) + zstd_run(50, last=True), bytes(150)),
}

REFUSED: dict[str, tuple[Codec, bytes]] = {
    "linked lz4 blocks": (Codec.LZ4, lz4_fast(ORDERS, linked=True)),
    "two lz4 frames": (Codec.LZ4, 2 * compress(Codec.LZ4, ORDERS)),  # of which Kafka would read the first alone
    "lz4 with a wrong header checksum": (Codec.LZ4, bytes.fromhex("04224d18604083") + bytes(4)),
    "lz4 with a wrong content checksum": (Codec.LZ4, LZ4_WITH_EVERYTHING[:-1] + b"\x00"),
    "lz4 with a wrong content size": (
        Codec.LZ4,
        LZ4_WITH_EVERYTHING[:6] + struct.pack("<QB", len(ORDERS) - 1, 0x53) + LZ4_WITH_EVERYTHING[15:],
    ),
    "lz4 with a block larger than its frame allows": (
        Codec.LZ4,
        bytes.fromhex("04224d18604082") + struct.pack("<I", 65537 | 1 << 31) + bytes(65537 + 4),
    ),
    "snappy that claims 1 GB": (Codec.SNAPPY, b"\x80\x80\x80\x80\x04" + b"\xfe\x01\x00" * 100),
    "snappy that claims too little": (Codec.SNAPPY, b"\x01\x04ab"),
    "an empty xerial block": (Codec.SNAPPY, XERIAL_HEADER + bytes(4)),
    "zstd that claims too little": (Codec.ZSTD, bytes.fromhex("28b52ffd2005") + zstd_run(100_000, last=True)),
    "zstd that claims a petabyte": (
        Codec.ZSTD,
        bytes.fromhex("28b52ffde0") + struct.pack("<Q", 1 << 50) + zstd_run(100, last=True),
    ),
    "zstd with a window of terabytes": (Codec.ZSTD, bytes.fromhex("28b52ffd00ff") + zstd_run(100, last=True)),
    "gzip with a wrong checksum": (Codec.GZIP, compress(Codec.GZIP, ORDERS)[:-8] + bytes(8)),
}


def test_codecs_are_numbered_as_in_the_attributes_of_a_batch() -> None:
    assert [Codec(n).name for n in range(5)] == ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"]


def test_codecs_go_by_the_names_of_the_setting() -> None:
    names = ["uncompressed", "gzip", "snappy", "lz4", "zstd"]
    assert [Codec.named(name) for name in names] == list(Codec)


@pytest.mark.parametrize("name", ["producer", "none", "GZIP", ""])
def test_a_name_that_is_no_codec_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(ValueError, match="uncompressed, gzip, snappy, lz4, zstd"):
        Codec.named(name)


@pytest.mark.parametrize(
    ("codec", "valid", "invalid"),
    [
        (Codec.GZIP, [-1, 1, 9], [-2, 0, 10]),
        (Codec.LZ4, [1, 9, 17], [-1, 0, 18]),
        (Codec.ZSTD, [-131072, 0, 3, 22], [-131073, 23]),
    ],
)
def test_levels_are_those_of_kafka(codec: Codec, valid: list[int], invalid: list[int]) -> None:
    for level in valid:
        assert decompress(codec, compress(codec, ORDERS, level)) == ORDERS
    for level in invalid:
        with pytest.raises(ValueError, match=f"{codec.name.lower()} has no compression level {level}"):
            compress(codec, ORDERS, level)


@each_codec
def test_without_a_level_the_default_is_taken(codec: Codec) -> None:
    level = LEVELS[codec].default if codec in LEVELS else None
    assert compress(codec, ORDERS) == compress(codec, ORDERS, level)


@pytest.mark.parametrize(("codec", "content", "packed"), WRITTEN_BY_KAFKA)
def test_what_kafka_wrote_is_read(codec: Codec, content: bytes, packed: bytes) -> None:
    assert decompress(codec, packed) == content


def skip_under_another_deflate(codec: Codec) -> None:
    if codec is Codec.GZIP and "ng" in zlib.ZLIB_RUNTIME_VERSION:
        pytest.skip("zlib-ng packs otherwise than zlib")


@pytest.mark.parametrize(("codec", "content", "packed"), WRITTEN_BY_KAFKA)
def test_bytes_are_those_that_kafka_writes(codec: Codec, content: bytes, packed: bytes) -> None:
    skip_under_another_deflate(codec)
    assert compress(codec, content) == packed


@pytest.mark.parametrize(("codec", "content", "size", "level", "digest"), DIGESTS)
def test_bytes_are_those_that_kafka_writes_at_the_edges_of_blocks_and_at_other_levels(
    codec: Codec, content: Callable[[int], bytes], size: int, level: int | None, digest: str
) -> None:
    skip_under_another_deflate(codec)
    packed = compress(codec, content(size), level)
    assert hashlib.sha256(packed).hexdigest().startswith(digest)


@pytest.mark.parametrize("name", ALSO_READ)
def test_what_other_writers_write_is_read(name: str) -> None:
    codec, packed, content = ALSO_READ[name]
    assert decompress(codec, packed, limit=len(content)) == content


@pytest.mark.parametrize("name", REFUSED)
def test_what_contradicts_itself_is_corrupt(name: str) -> None:
    codec, packed = REFUSED[name]
    with pytest.raises(CorruptCompression, match=f"^{codec.name.lower()}: ") as caught:
        decompress(codec, packed)
    assert caught.value.codec is codec


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", [0, 1, 32767, 32768, 32769, 65535, 65536, 65537, 131072, MB + 1])
@pytest.mark.parametrize("content", [lines, noise, bytes])
def test_what_goes_in_comes_out(codec: Codec, content: Callable[[int], bytes], size: int) -> None:
    data = content(size)
    assert decompress(codec, compress(codec, data), limit=size) == data


repetitive = st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 2000)), max_size=12).map(
    lambda runs: b"".join(word * times for word, times in runs)
)


@given(st.sampled_from(Codec), st.binary(max_size=5000) | repetitive, st.sampled_from([bytes, bytearray, memoryview]))
def test_any_data_in_any_buffer_comes_out_as_bytes(
    codec: Codec, data: bytes, buffer: type[bytes] | type[bytearray] | type[memoryview]
) -> None:
    packed = compress(codec, buffer(data))
    unpacked = decompress(codec, buffer(packed))
    assert type(packed) is type(unpacked) is bytes
    assert unpacked == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("data", [ORDERS, lines(200_000), bytes(200_000)], ids=["small", "large", "dense"])
def test_the_limit_may_be_reached_but_not_passed(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed, limit=len(data)) == data
    for limit in (len(data) - 1, len(data) // 2, 0):
        with pytest.raises(DecompressedTooLarge, match=f"limit of {limit} bytes") as caught:
            decompress(codec, packed, limit)
        assert caught.value.limit == limit


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("data", [b"", ORDERS, noise(40)], ids=["empty", "orders", "noise"])
def test_a_cut_at_any_byte_is_corrupt(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    for end in range(len(packed)):
        with pytest.raises(CorruptCompression):
            decompress(codec, packed[:end])


def test_a_cut_at_any_byte_of_snappy_but_between_blocks_is_corrupt() -> None:
    packed = compress(Codec.SNAPPY, lines(40_000))
    first_end = 20 + int.from_bytes(packed[16:20], "big")
    assert decompress(Codec.SNAPPY, packed[:16]) == b""
    assert decompress(Codec.SNAPPY, packed[:first_end]) == lines(32768)
    for end in {*range(100), *range(first_end - 50, first_end + 50), len(packed) - 1} - {16, first_end}:
        with pytest.raises(CorruptCompression):
            decompress(Codec.SNAPPY, packed[:end])


@each_codec
def test_anything_behind_the_end_is_corrupt(codec: Codec) -> None:
    for garbage in (b"\x00", b"\x01", bytes(8), noise(3), noise(40)):
        with pytest.raises(CorruptCompression):
            decompress(codec, compress(codec, ORDERS) + garbage)


def refused_or_read(codec: Codec, packed: bytes | bytearray, limit: int = MB) -> None:
    with suppress(CorruptCompression, DecompressedTooLarge):
        assert len(decompress(codec, packed, limit)) <= limit


@each_codec
@pytest.mark.parametrize("data", [ORDERS, noise(40), bytes(3000)], ids=["orders", "noise", "zeros"])
def test_a_flip_of_any_bit_is_read_or_refused(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    for bit in range(8 * len(packed)):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        refused_or_read(codec, flipped)


OPENINGS = [b"", b"\x1f\x8b\x08", XERIAL_HEADER, bytes.fromhex("04224d18604082"), ZSTD_FRAME, bytes.fromhex("28b52ffd")]


@given(st.sampled_from(PACKING), st.sampled_from(OPENINGS), st.binary(max_size=300))
@example(Codec.SNAPPY, XERIAL_HEADER, b"\xff\xff\xff\xff")
@example(Codec.ZSTD, b"", struct.pack("<II", 0x184D2A50, 0xFFFFFFFF))
def test_garbage_is_read_or_refused(codec: Codec, opening: bytes, garbage: bytes) -> None:
    refused_or_read(codec, opening + garbage)


@given(st.sampled_from(PACKING), st.data())
def test_spliced_streams_are_read_or_refused(codec: Codec, data: st.DataObject) -> None:
    one, other = compress(codec, ORDERS), compress(codec, lines(3000))
    cut, resume = data.draw(st.integers(0, len(one))), data.draw(st.integers(0, len(other)))
    refused_or_read(codec, one[:cut] + other[resume:])


def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    zeros = deflate.compress(bytes(MB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return compress(Codec.GZIP, b"")[:10] + zeros * 1024


def snappy_bomb() -> bytes:
    zeros = bytes(cramjam.snappy.compress_raw(bytes(MB)))
    return XERIAL_HEADER + (struct.pack(">I", len(zeros)) + zeros) * 1024


def lz4_bomb() -> bytes:
    frame = compress(Codec.LZ4, bytes(65536))
    return frame[:7] + frame[7:-4] * (16 * 1024) + frame[-4:]


def zstd_bomb() -> bytes:
    return ZSTD_FRAME + zstd_run(131072, last=False) * 8191 + zstd_run(131072, last=True)


BOMBS: dict[str, tuple[Codec, Callable[[], bytes]]] = {
    "gzip": (Codec.GZIP, gzip_bomb),
    "gzip members": (Codec.GZIP, lambda: compress(Codec.GZIP, bytes(MB)) * 1024),
    "snappy": (Codec.SNAPPY, snappy_bomb),
    "lz4": (Codec.LZ4, lz4_bomb),
    "zstd": (Codec.ZSTD, zstd_bomb),
    "zstd frames": (Codec.ZSTD, lambda: bytes(cramjam.zstd.compress(bytes(MB), 3)) * 1024),
    "zstd with the largest window": (Codec.ZSTD, lambda: bytes.fromhex("28b52ffd0088") + zstd_bomb()[6:]),
}


def peak_resident_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_of_1_gb_takes_little_more_memory_than_the_limit(name: str) -> None:
    codec, bomb = BOMBS[name]
    packed, limit = bomb(), 4 * MB
    resident_before = peak_resident_bytes()
    tracemalloc.start()
    with pytest.raises(DecompressedTooLarge):
        decompress(codec, packed, limit)
    _, traced = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert traced < 3 * limit
    assert peak_resident_bytes() - resident_before < 2 * len(packed) + 4 * limit


@pytest.mark.parametrize("name", ["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_meets_the_limit_that_holds_by_default(name: str) -> None:
    codec, bomb = BOMBS[name]
    with pytest.raises(DecompressedTooLarge, match=str(MAX_DECOMPRESSED_BYTES)):
        decompress(codec, bomb())


@pytest.mark.parametrize(
    ("codec", "packed"),
    [
        (Codec.GZIP, compress(Codec.GZIP, b"") * 10_000),
        (Codec.SNAPPY, XERIAL_HEADER * 10_000),
        (Codec.LZ4, bytes.fromhex("04224d18604082") + struct.pack("<IB", 1 | 1 << 31, 0) * 10_000 + bytes(4)),
        (Codec.ZSTD, compress(Codec.ZSTD, b"") * 10_000),
        (Codec.ZSTD, ZSTD_FRAME + bytes(3 * 10_000) + b"\x01\x00\x00"),
    ],
    ids=["gzip members", "xerial headers", "lz4 blocks", "zstd frames", "zstd blocks"],
)
def test_a_stream_of_countless_tiny_parts_is_read(codec: Codec, packed: bytes) -> None:
    assert set(decompress(codec, packed)) <= {0}
