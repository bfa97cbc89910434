"""Partitions of keys, as Kafka's Java clients choose them."""
# mypy: disable-error-code="import-untyped"

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from leadline.spark.batches.partitioning import partitions_of_keys


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(1, 200))
def test_they_agree_with_another_client(keys: list[bytes | None], count: int) -> None:
    partitions = partitions_of_keys(pa.array(keys, pa.binary()), count).tolist()
    assert partitions == [-1 if key is None else (murmur2(key) & 0x7FFF_FFFF) % count for key in keys]


def test_keys_of_a_slice_are_its_own() -> None:
    keys = pa.array([b"zero", b"one", None, b"three"], pa.binary())
    assert partitions_of_keys(keys.slice(1), 7).tolist() == partitions_of_keys(keys, 7).tolist()[1:]
