"""Forms: read is what was filled in, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.wire.codec import to_bytes
from leadline.wire.messages import OffsetCommitRequest
from leadline.wire.templates import INT, LONG, Template

PARTITION, TOPIC = OffsetCommitRequest.OffsetCommitRequestPartition, OffsetCommitRequest.OffsetCommitRequestTopic
LONGS, INTS = st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(1 << 31), (1 << 31) - 1)


def commit(group: str, *numbers: tuple[int, int], version: int = 8) -> bytes:
    partitions = [
        PARTITION(partition_index=n, committed_offset=offset, committed_leader_epoch=epoch)
        for n, (offset, epoch) in enumerate(numbers)
    ]
    return to_bytes(OffsetCommitRequest(group_id=group, topics=[TOPIC(name="t", partitions=partitions)]), version)


@given(st.text(max_size=5), st.lists(st.tuples(LONGS, INTS), max_size=4), st.sampled_from([6, 8]))
def test_what_the_codec_writes_is_what_a_form_reads_and_fills_in(
    group: str, numbers: list[tuple[int, int]], version: int
) -> None:
    form = Template(commit(group, *[(LONG, INT)] * len(numbers), version=version))
    flat, data = tuple(number for pair in numbers for number in pair), commit(group, *numbers, version=version)
    assert (form.blanks, form.match(memoryview(data)), form.fill(flat)) == (len(flat), flat, data)


@pytest.mark.parametrize(
    "other", [commit("h", (1, 2)), commit("gg", (1, 2)), commit("g", (1, 2), (3, 4)), commit("g"), b""]
)
def test_another_one_is_not_read(other: bytes) -> None:
    assert Template(commit("g", (LONG, INT))).match(other) is None


def test_each_byte_counts_that_is_not_of_a_number() -> None:
    form, data = Template(commit("g", (LONG, INT))), commit("g", (1, 2))
    readable = [form.match(data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :]) is not None for n in range(len(data))]
    assert sum(readable) == 8 + 4


@given(st.binary(max_size=12), st.binary(max_size=12))
def test_blanks_are_found_whatever_stands_around_them(before: bytes, behind: bytes) -> None:
    specimen = before + LONG.to_bytes(8) + INT.to_bytes(4) + behind
    assert Template(specimen).fill((1, 2)) == before + (1).to_bytes(8) + (2).to_bytes(4) + behind


def test_what_looks_like_a_blank_is_one_too_many() -> None:
    assert Template(commit("g", (INT << 32, 0))).blanks == 1
