"""The compiled walk over records against the one in Python: the same numbers, or the same error, for any bytes."""

import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

import crc32c
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.errors import CorruptMessage
from leadline.log.skimpy_offset_map import HEAD_BYTES, SECRET_AT, SLOT_BYTES
from leadline.records import python_walker, varint
from tests.support.bad_batches import NOT_RECORDS, RARE_RECORDS, WRONG_OFFSETS, in_order, record

SETTINGS = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

small = st.integers(-3, 70)
numbers = st.one_of(small, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)).map(varint.encode)
fields = st.one_of(
    numbers, st.binary(max_size=4), st.sampled_from([b"\x80", b"\xff" * 5, b"\0", b"\1", b"\2k", b"\2v\0"])
)
torn = st.lists(fields, max_size=9).map(b"".join)
claimed = st.tuples(small.map(varint.encode), torn).map(b"".join)
honest = torn.map(lambda body: varint.encode(len(body)) + body)
examples = st.sampled_from(
    [*NOT_RECORDS.values(), *RARE_RECORDS.values(), *in_order(5), record(2, 2**61), record(3, -9)]
)
bodies = st.lists(st.one_of(examples, examples, honest, claimed), max_size=6).map(b"".join) | st.binary(max_size=60)
counts = st.integers(-1, 6)
times = st.sampled_from([0, -1, 1_700_000_000_000, 2**63 - 1, -(2**63)])


def outcome(call: Callable[..., object], *arguments: object) -> object:
    try:
        return call(*arguments)
    except CorruptMessage as error:
        return str(error)


@given(bodies, counts, times)
@SETTINGS
def test_both_give_the_same_summary_or_the_same_error(
    compiled_walker: ModuleType, body: bytes, count: int, base_timestamp: int
) -> None:
    arguments = (b"xx" + body + b"x", 2, 2 + len(body), count, base_timestamp)
    assert outcome(compiled_walker.check, *arguments) == outcome(python_walker.check, *arguments)


@given(bodies, counts, times, st.lists(st.integers(0, 80), max_size=6))
@SETTINGS
def test_records_that_come_in_chunks_are_what_they_are_in_one_piece(
    compiled_walker: ModuleType, body: bytes, count: int, base_timestamp: int, cuts: list[int]
) -> None:
    ends = sorted(cut for cut in cuts if cut <= len(body))
    chunks = [body[start:end] for start, end in zip([0, *ends], [*ends, len(body)], strict=True)]
    whole = outcome(python_walker.check, body, 0, len(body), count, base_timestamp)
    assert outcome(python_walker.check_chunks, chunks, count, base_timestamp) == whole
    assert outcome(compiled_walker.check_chunks, iter(chunks), count, base_timestamp) == whole


@given(bodies, counts)
@SETTINGS
def test_both_find_the_same_rows(compiled_walker: ModuleType, body: bytes, count: int) -> None:
    arguments = (b"xx" + body + b"x", 2, 2 + len(body), count, 7)
    assert outcome(compiled_walker.rows, *arguments) == outcome(python_walker.rows, *arguments)


@pytest.mark.parametrize("what", [*NOT_RECORDS, *RARE_RECORDS, *WRONG_OFFSETS])
def test_both_say_the_same_of_what_is_wrong_or_rare(compiled_walker: ModuleType, what: str) -> None:
    parts = [record(0), (NOT_RECORDS | RARE_RECORDS).get(what, b""), record(2)]
    if what in WRONG_OFFSETS:
        parts = [record(delta) for delta in WRONG_OFFSETS[what]]
    body = b"".join(parts)
    summary = outcome(compiled_walker.check, body, 0, len(body), 3, 5)
    assert summary == outcome(python_walker.check, body, 0, len(body), 3, 5)
    assert isinstance(summary, str) == (what in NOT_RECORDS)


def test_an_error_of_the_chunks_comes_out(compiled_walker: ModuleType) -> None:
    def failing() -> object:
        yield record(0)
        raise OSError("no more")

    for walker in (compiled_walker, python_walker):
        with pytest.raises(OSError, match="no more"):
            walker.check_chunks(failing(), 2, 0)


@pytest.mark.parametrize("wrong", [(-1, 3), (2, 1), (0, 9)])
def test_a_range_outside_of_the_buffer_is_refused(compiled_walker: ModuleType, wrong: tuple[int, int]) -> None:
    for call in (compiled_walker.check, compiled_walker.rows):
        with pytest.raises(ValueError, match="outside of the buffer"):
            call(b"12345678", *wrong, 1, 0)


# Compaction


def sized(data: bytes | None) -> bytes:
    return varint.encode(-1) if data is None else varint.encode(len(data)) + data


keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"a" * 16, b"a" * 17]), st.binary(max_size=20))
keyed = st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=3))), max_size=40)
key_bodies = st.tuples(
    keyed.map(
        lambda some: b"".join(
            record(n, n % 3, sized(key) + sized(value) + b"\0") for n, (key, value) in enumerate(some)
        )
    ),
    st.just(b"") | examples,
).map(b"".join)
key_counts = st.integers(-1, 42)


def new_table(slots: int) -> bytearray:
    return bytearray(HEAD_BYTES + slots * SLOT_BYTES)


@given(
    st.lists(st.tuples(key_bodies, key_counts, st.integers(0, 50)), max_size=4), st.integers(0, 50), st.integers(0, 60)
)
@SETTINGS
def test_both_learn_the_same_keys_and_retain_the_same_records(
    compiled_walker: ModuleType, batches: list[tuple[bytes, int, int]], start: int, most: int
) -> None:
    table, reference = new_table(max(most, 1)), dict[bytes, int]()
    for body, count, base_offset in batches:
        learnt = outcome(python_walker.learn_keys, reference, body, count, base_offset, start, most)
        assert outcome(compiled_walker.learn_keys, table, body, count, base_offset, start, most) == learnt
        assert int.from_bytes(table[:SECRET_AT], sys.byteorder) == len(reference)
    for body, count, base_offset in batches:
        for map_end in (-1, base_offset + 5, 1000):
            for keep_tombstones in (True, False):
                arguments = (body, count, base_offset, map_end, keep_tombstones)
                kept = outcome(python_walker.retained, reference, *arguments)
                assert outcome(compiled_walker.retained, table, *arguments) == kept


@given(key_bodies, times, st.booleans())
@SETTINGS
def test_both_join_what_is_kept_to_the_same_bytes(
    compiled_walker: ModuleType, body: bytes, shift: int, is_stamped: bool
) -> None:
    for count in range(42):
        with suppress(CorruptMessage):
            kept, *_ = python_walker.retained({}, body, count, 0, -1, True)
            joined = python_walker.joined(body, kept, shift, is_stamped)
            assert compiled_walker.joined(body, kept, shift, is_stamped) == joined


# The checksum


@pytest.mark.parametrize("size", [*range(40), 255, 256, 767, 768, 3071, 3072, 12_287, 12_288, 12_289, 40_000])
def test_the_compiled_checksum_is_that_of_the_library(compiled_walker: ModuleType, size: int) -> None:
    data = bytes((n * n + size) % 251 for n in range(size))
    assert compiled_walker.crc32c(data) == crc32c.crc32c(data)
    assert compiled_walker.crc32c_by_table(data) == crc32c.crc32c(data)
