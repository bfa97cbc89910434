"""Numbers as people read them."""

import pytest

from leadline.spark.report import quantities


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 KB"), (1234, "1.23 KB"), (12_340, "12.3 KB"), (999_499, "999 KB"),
     (999_600, "1 MB"), (5e9, "5 GB"), (2.5e18, "2500 PB")],
)  # fmt: skip
def test_sizes_have_three_digits_and_a_unit(count: float, text: str) -> None:
    assert quantities.size(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (0.5, "0.5"), (0.0251, "0.0251"), (7, "7"), (1500, "1.5 k"), (241_884, "242 k"), (3.456e6, "3.46 M")],
)
def test_counts_have_three_digits(count: float, text: str) -> None:
    assert quantities.short(count) == text


@pytest.mark.parametrize(
    ("part", "text"), [(0, "0.0 %"), (0.01, "< 0.1 %"), (1.25, "1.2 %"), (47, "47 %"), (99.9, "99.9 %"), (100, "100 %")]
)
def test_shares_are_percentages(part: float, text: str) -> None:
    assert quantities.share(part, 100) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [(12, "12 ms"), (1000, "1 s"), (69_000, "1 min 9 s"), (3_600_000, "1 h"), (86_400_000 * 3, "3 d"),
     (86_400_000 * 40, "40 d"), (90_061_000, "1 d 1 h"), (12 * 3_600_000 + 60_000, "12 h")],
)  # fmt: skip
def test_lengths_of_time_have_at_most_two_units(ms: int, text: str) -> None:
    assert quantities.length(ms) == text


@pytest.mark.parametrize(
    ("key", "text"),
    [(b"shop-4", "shop-4"), ("café".encode(), "café"), (b"\x00\x01", "0x0001"), (b"\xff\xfe", "0xfffe"),
     (b"x" * 50, "x" * 39 + "…")],
)  # fmt: skip
def test_keys_are_text_or_hex_and_short(key: bytes, text: str) -> None:
    assert quantities.shown(key) == text


def test_moments_are_utc() -> None:
    assert quantities.moment(1_794_744_900_000) == "2026-11-15 12:15:00"
