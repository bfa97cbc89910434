"""Times and durations as a person types them."""

import argparse
import time

import pytest

from leadline.admin.times import duration_ms, moment_ms

HOUR_MS = 3_600_000


def test_a_time_is_ms_or_iso_or_so_long_ago() -> None:
    now = time.time() * 1000
    assert moment_ms("1700000000000") == 1_700_000_000_000
    assert moment_ms("2023-11-14T22:13:20+00:00") == 1_700_000_000_000
    assert moment_ms("-1h") == pytest.approx(now - HOUR_MS, abs=5000)
    assert moment_ms("2 hours ago") == pytest.approx(now - 2 * HOUR_MS, abs=5000)
    assert moment_ms("now") == pytest.approx(now, abs=5000)
    with pytest.raises(argparse.ArgumentTypeError, match="is not a time"):
        moment_ms("-1y")


@pytest.mark.parametrize(
    ("typed", "meant_ms"),
    [
        ("250ms", 250),
        ("90s", 90_000),
        ("1h30m", HOUR_MS + 30 * 60_000),
        ("2 hours", 2 * HOUR_MS),
        ("1 day 5 mins", 24 * HOUR_MS + 5 * 60_000),
        ("1w", 7 * 24 * HOUR_MS),
        ("PT2H", 2 * HOUR_MS),
        ("P1DT30S", 24 * HOUR_MS + 30_000),
    ],
)
def test_a_length_of_time_is_typed_in_words_or_as_iso_8601(typed: str, meant_ms: int) -> None:
    assert duration_ms(typed) == meant_ms


@pytest.mark.parametrize("typed", ["", "5", "h", "2 moons", "-1h", "P", "PT", "P1M", "1h,2m"])
def test_what_is_no_length_of_time_is_refused(typed: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        duration_ms(typed)
