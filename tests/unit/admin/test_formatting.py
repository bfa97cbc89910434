"""Times, ids and tables as text for a person."""

import pytest

from leadline.admin.formatting import age_text, brokers_text, table

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (-5, "0 ms"),
        (999, "999 ms"),
        (45_900, "45 s"),
        (3 * MINUTE_MS + 20_000, "3 min 20 s"),
        (HOUR_MS, "1 h"),
        (2 * HOUR_MS + 5 * MINUTE_MS + 1000, "2 h 5 min"),
        (9 * DAY_MS + 59_000, "9 d"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(ms: int, text: str) -> None:
    assert age_text(ms) == text


def test_ids_of_brokers_are_not_to_be_taken_for_their_number() -> None:
    assert brokers_text([1001]) == "the only broker is 1001"
    assert brokers_text([1001, 1]) == "the brokers are 1 and 1001"
    assert brokers_text([3, 1, 2]) == "the brokers are 1, 2 and 3"


def test_a_table_has_words_to_the_left_and_numbers_to_the_right() -> None:
    rows = [["orders", "9", "a"], ["x", "1,234", ""]]
    assert table(["TOPIC", "LAG", "OWNER"], rows) == ["TOPIC     LAG  OWNER", "orders      9  a", "x       1,234"]


def test_only_the_head_of_a_table_is_painted_and_it_needs_no_rows() -> None:
    assert table(["A", "B"], [], str.lower) == ["a  b"]
