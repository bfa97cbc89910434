"""Message sets become batches, or are refused with the codes of Kafka 3.8: the conformance tests compare them."""

import pytest

from leadline.config.topic import LogConfig
from leadline.errors import RecordTooLarge, WireError
from leadline.log.up_conversion import up_converted
from leadline.log.validation import CheckedBatch
from leadline.records.batch import header_at
from leadline.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from leadline.records.record import records_of
from tests.support.logs import START_MS, TP
from tests.support.message_sets import bad_sets, entry, good_sets, message, plain, wrapped

YEAR_MS = 365 * 86_400_000
CONFIG = {"message.timestamp.after.max.ms": str(10 * YEAR_MS), "max.message.bytes": "1000000"}
NOTHING = {"nothing", "a piece of an entry", "a piece of a message", "a piece up to the magic", "a length too large"}
CORRUPT = {
    "a length of 13", "a negative length", "magic 3", "magic -1", "a wrong CRC", "a wrong CRC behind the first",
    "a wrong CRC and a time", "a wrong CRC inside", "a wrong CRC, then a wrapper", "a length of 13 inside",
    "a wrong CRC, then a length of 13", "the other format and a wrong CRC",
}  # fmt: skip
INVALID = {
    "both formats", "a record batch behind a message", "a message behind a record batch", "two wrappers",
    "a message and a wrapper", "a wrapper without a value", "an empty wrapper", "an empty wrapper of snappy",
    "an empty wrapper of lz4", "a piece of a message in a wrapper", "zstd", "zstd without a value",
    "a wrapper in a wrapper", "a wrapper behind a message", "a wrapper, then a wrong CRC", "the other format inside",
    "the other format among others", "magic 2 inside",
}  # fmt: skip
UNKNOWN = {
    "an unknown codec", "a key too long", "a value too long", "a key longer than any",
    "a key too long and a late time", "a wrapper with an empty value", "no gzip", "no snappy", "no lz4",
    "gzip cut off", "snappy cut off", "lz4 cut off", "an unknown codec inside", "a short message of magic 2 inside",
    "a key too long inside", "a wrapper's key too long", "stamped without a time, unreadable",
}  # fmt: skip
# In format 0 there are no times, offsets inside are not looked at, and lz4 headers are believed.
INVALID_1 = INVALID | {"an offset below those inside", "a negative offset"}
UNKNOWN_1 = UNKNOWN | {
    "no room for a key", "a negative time", "a negative time behind the first", "a negative time, then a late one",
    "a wrong checksum in the lz4 header", "a negative time inside",
}  # fmt: skip
UNTIMELY_1 = {
    "a late time", "a late time, then a negative one", "a late time inside", "the other format and a late time",
    "a negative, then a late time inside", "a key too long, then a late time inside", "a late time of the wrapper",
    "stamped without a time",
}  # fmt: skip


def convert(data: bytes, **settings: str) -> CheckedBatch | None:
    config = LogConfig.parse(CONFIG | {name.replace("_", "."): value for name, value in settings.items()})
    return up_converted(bytearray(data), config, TP, START_MS + YEAR_MS)


def code_of(data: bytes, **settings: str) -> int | None:
    """None: there is nothing to append."""
    try:
        return None if convert(data, **settings) is None else 0
    except WireError as error:
        return error.code


@pytest.mark.parametrize("magic", [0, 1])
def test_bad_sets_are_refused_with_kafkas_codes(magic: int) -> None:
    codes = {
        None: NOTHING, 2: CORRUPT, 10: {"too large"}, 87: INVALID_1 if magic else INVALID,
        -1: UNKNOWN_1 if magic else UNKNOWN, 32: UNTIMELY_1 if magic else set(),
    }  # fmt: skip
    if not magic:
        codes[87] |= {"the other format and a late time"}
        codes[-1] |= {"a key too long, then a late time inside"}
    expected = {name: code for code, names in codes.items() for name in names}
    assert {name: code for name, data in bad_sets(magic).items() if (code := code_of(data)) != 0} == expected


@pytest.mark.parametrize("magic", [0, 1])
def test_good_sets_become_one_batch_with_offsets_in_order(magic: int) -> None:
    for name, data in good_sets(magic).items():
        checked = convert(data)
        assert checked is not None, name
        header = header_at(checked.data)
        records = list(records_of(checked.data, 0, header))
        assert [record.offset for record in records] == list(range(len(records))), name
        assert header.max_timestamp == max(record.timestamp for record in records) == checked.content[0], name
        assert header.codec.name.lower() in name or header.codec in (Codec.NONE, Codec.GZIP), name


def test_the_time_of_a_stamped_wrapper_holds_for_its_messages() -> None:
    checked = convert(good_sets(1)["stamped, as a wrapper"])
    assert checked is not None
    assert [record.timestamp for record in records_of(checked.data, 0, header_at(checked.data))] == [START_MS + 2] * 3


@pytest.mark.parametrize(("setting", "codec"), [("uncompressed", Codec.NONE), ("lz4", Codec.LZ4), ("zstd", Codec.ZSTD)])
def test_a_batch_gets_the_codec_of_the_topic(setting: str, codec: Codec) -> None:
    for name in ("three", "gzip"):
        checked = convert(good_sets(1)[name], compression_type=setting)
        assert checked is not None
        assert header_at(checked.data).codec is codec


def test_a_compacted_topic_needs_keys() -> None:
    without = entry(0, message(1, None))
    assert code_of(without) == 0
    assert code_of(without, cleanup_policy="compact") == code_of(wrapped(1, without), cleanup_policy="compact") == 87


def test_a_topic_with_the_brokers_time_takes_any_time_but_a_stamped_one() -> None:
    stamped = {"message_timestamp_type": "LogAppendTime"}
    assert code_of(bad_sets(1)["a late time"], **stamped) == 0
    assert (
        code_of(good_sets(1)["stamped"], **stamped) == code_of(good_sets(1)["stamped, as a wrapper"], **stamped) == 32
    )


def test_more_than_a_broker_unpacks_is_refused() -> None:
    large = plain(1, 2, size=MAX_DECOMPRESSED_BYTES // 2)
    with pytest.raises(RecordTooLarge, match=f"holds more than {MAX_DECOMPRESSED_BYTES} bytes"):
        convert(wrapped(1, large, Codec.LZ4))
