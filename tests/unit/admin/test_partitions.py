"""Partitions as a person types them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.admin.partitions import partitions_in, partitions_text, topic_in
from leadline.model import TopicPartition


@given(st.sets(st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e_f"]), st.integers(0, 30))))
def test_partitions_are_written_in_ranges_and_read_back(partitions: set[TopicPartition]) -> None:
    assert set(partitions_in(partitions_text(partitions))) == partitions


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("orders", ("orders", None)), ("orders:3", ("orders", [3])), ("orders:0,4-6,5", ("orders", [0, 4, 5, 6]))],
)
def test_partitions_as_one_types_them(typed: str, meant: tuple[str, list[int] | None]) -> None:
    assert topic_in(typed) == meant


@pytest.mark.parametrize("typed", ["", ":0", "orders:", "orders:a", "orders:1-", "orders:0-999999999"])
def test_what_names_no_partition_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match=r"expected TOPIC|more partitions than"):
        topic_in(typed)
