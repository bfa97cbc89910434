"""Variable-length integers: the known encodings, and what is none."""

import pytest

from leadline.records import varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_are_written_as_kafka_writes_them(value: int, encoded: str) -> None:
    assert varint.encode(value).hex() == encoded
    assert varint.decode(b"x" + bytes.fromhex(encoded) + b"x", 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize("cut", [b"", b"\x80", b"\xff\xff\xff"])
def test_a_number_that_is_cut_off_is_an_index_error(cut: bytes) -> None:
    with pytest.raises(IndexError):
        varint.decode(cut, 0)


def test_a_number_of_more_than_ten_bytes_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="10 bytes"):
        varint.decode(b"\xff" * 10 + b"\x01", 0)
