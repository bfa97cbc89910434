"""THE TABLE: each request once."""

import pytest

from leadline.api import TABLE, by_key


def test_a_request_that_is_listed_twice_is_refused() -> None:
    first, *others = TABLE.values()
    with pytest.raises(ValueError, match="Produce and Produce both have api key 0"):
        by_key(first, *others, first)


def test_each_entry_is_found_under_its_own_key() -> None:
    assert all(key == entry.key for key, entry in TABLE.items())
    assert len({entry.name for entry in TABLE.values()}) == len(TABLE)
