"""Records that the console shows: which match a query, and where a search starts."""

from typing import cast

import pytest

from leadline.admin.partitions import OffsetRange
from leadline.admin.session import ClusterSession
from leadline.console import record_search as module
from leadline.console.record_search import MAX_READ, RecordQuery, ShownRecord, search
from leadline.model import TopicPartition

NO_SESSION = cast(ClusterSession, None)


def record(key: bytes | None = b"k", value: bytes | None = b"value", header: bytes | None = b"h") -> ShownRecord:
    return ShownRecord(0, 0, None, "", key, value, [("name", header)])


@pytest.mark.parametrize(
    ("query", "shown", "matches"),
    [
        (RecordQuery(), record(), True),
        (RecordQuery(key="k"), record(), True),
        (RecordQuery(key="k2"), record(), False),
        (RecordQuery(key="k"), record(None), False),
        (RecordQuery(text="alu"), record(), True),
        (RecordQuery(text="k"), record(), True),
        (RecordQuery(text="nam"), record(), True),
        (RecordQuery(text="h"), record(), True),
        (RecordQuery(text="h"), record(header=None), False),
        (RecordQuery(text="x"), record(None, None), False),
        (RecordQuery(key="k", text="x"), record(), False),
    ],
)
def test_a_record_matches_by_its_whole_key_and_by_text_in_any_part(
    query: RecordQuery, shown: ShownRecord, matches: bool
) -> None:
    assert query.matches(shown) is matches


def starts(query: RecordQuery, **offsets: int) -> dict[int, int]:
    ranges = {0: OffsetRange(10, 1000), 1: OffsetRange(0, 5)}
    return module._starts(NO_SESSION, [TopicPartition("orders", n) for n in ranges], query, ranges)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (RecordQuery(count=50), {0: 950, 1: 0}),
        (RecordQuery(key="k"), {0: 10, 1: 0}),
        (RecordQuery("earliest"), {0: 10, 1: 0}),
        (RecordQuery("offset", 500), {0: 500, 1: 5}),
        (RecordQuery("offset", 3), {0: 10, 1: 3}),
        (RecordQuery("offset", 7, at={1: 4}), {1: 4}),
    ],
)
def test_a_search_starts_within_what_each_partition_holds(query: RecordQuery, expected: dict[int, int]) -> None:
    assert starts(query) == expected


def test_a_search_for_a_text_shares_its_reads_among_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    held = {0: OffsetRange(0, 10 * MAX_READ), 1: OffsetRange(0, 10 * MAX_READ)}
    chosen = [TopicPartition("orders", n) for n in held]
    expected = dict.fromkeys(held, 10 * MAX_READ - MAX_READ // 2)
    assert module._starts(NO_SESSION, chosen, RecordQuery(text="x"), held) == expected


def test_a_search_by_time_starts_at_the_end_where_no_record_is_that_new(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = {TopicPartition("orders", 0): 400, TopicPartition("orders", 1): -1}
    monkeypatch.setattr(module, "list_offsets", lambda *arguments: offsets)
    session = cast(ClusterSession, type("Session", (), {"connection": None, "admin": None}))
    ranges = {0: OffsetRange(10, 1000), 1: OffsetRange(0, 5)}
    assert module._starts(session, list(offsets), RecordQuery("time", 7), ranges) == {0: 400, 1: 5}


def test_partitions_without_records_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "offset_ranges", lambda *arguments: {TopicPartition("orders", 0): OffsetRange(7, 7)})
    monkeypatch.setattr(module, "_read", lambda *arguments: pytest.fail("there is nothing to read"))
    session = cast(ClusterSession, type("Session", (), {"connection": None, "admin": None}))
    result = search(session, "orders", RecordQuery(), [0, 1])
    assert (result.records, result.ranges) == ([], {0: OffsetRange(7, 7)})
