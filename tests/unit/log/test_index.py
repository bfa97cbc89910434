"""The two indexes of a segment: entries, the room for them, damage, and what is given back."""

from pathlib import Path

import pytest

from leadline.log.index import UNWRITTEN_ENTRIES, OffsetIndex, TimeIndex, TimestampOffset
from leadline.model import NO_TIMESTAMP
from leadline.runtime.ports import OsFiles

BASE = 100


@pytest.fixture
def offsets(tmp_path: Path) -> OffsetIndex:
    return OffsetIndex(OsFiles(), str(tmp_path / "0.index"), BASE, 80)


@pytest.fixture
def times(tmp_path: Path) -> TimeIndex:
    return TimeIndex(OsFiles(), str(tmp_path / "0.timeindex"), BASE, 36)


def test_entries_are_written_relative_to_the_base_offset(offsets: OffsetIndex) -> None:
    offsets.append(BASE + 5, 4000)
    offsets.file_to_flush()
    assert Path(offsets.path).read_bytes() == (5).to_bytes(4, "big") + (4000).to_bytes(4, "big")
    assert offsets.last_offset() == BASE + 5


def test_new_entries_are_found_at_once_and_written_some_at_a_time(tmp_path: Path) -> None:
    index = OffsetIndex(OsFiles(), str(tmp_path / "0.index"), BASE, 8000)
    for n in range(1, 2 * UNWRITTEN_ENTRIES + 10):
        index.append(BASE + n, n * 10)
        assert index.lookup(BASE + n) == n * 10
        assert index.count == n
        unwritten = n - Path(index.path).stat().st_size // 8
        assert unwritten == n % UNWRITTEN_ENTRIES
    index.trim()
    assert Path(index.path).stat().st_size == index.size == 8 * (2 * UNWRITTEN_ENTRIES + 9)
    assert index.entries() == [(n, n * 10) for n in range(1, 2 * UNWRITTEN_ENTRIES + 10)]


def test_an_index_that_is_let_go_of_is_what_is_in_its_file(offsets: OffsetIndex) -> None:
    offsets.append(BASE + 1, 10)
    offsets.file_to_flush()
    offsets.append(BASE + 2, 20)
    offsets.release()
    assert offsets.entries() == [(1, 10)]
    assert offsets.lookup(BASE + 2) == 10


def test_entries_behind_a_cut_are_not_written_later(offsets: OffsetIndex) -> None:
    for n in range(6):
        offsets.append(BASE + n, n)
    offsets.truncate_to(BASE + 2)
    offsets.append(BASE + 9, 90)
    assert offsets.entries() == [(0, 0), (1, 1), (9, 90)]
    assert Path(offsets.path).stat().st_size == 24


def test_an_index_without_entries_points_to_the_front(offsets: OffsetIndex, times: TimeIndex) -> None:
    assert offsets.lookup(BASE + 9) == 0
    assert offsets.last_offset() == BASE
    assert offsets.first_at_or_after(0) is None
    assert times.lookup(5) == TimestampOffset(NO_TIMESTAMP, BASE)
    assert times.last_entry() == TimestampOffset(NO_TIMESTAMP, BASE)


def test_a_time_that_is_not_later_gets_no_entry(times: TimeIndex) -> None:
    for timestamp, offset in [(10, 1), (10, 2), (9, 3), (11, 4)]:
        times.append_if_later(timestamp, BASE + offset)
    assert times.entries() == [(10, 1), (11, 4)]


def test_one_place_of_a_time_index_is_kept_for_the_end(times: TimeIndex) -> None:
    assert times.max_entries == 3
    times.append_if_later(1, BASE)
    assert not times.is_full()
    times.append_if_later(2, BASE)
    assert times.is_full()


def test_a_file_with_half_an_entry_is_torn(offsets: OffsetIndex) -> None:
    offsets.append(BASE, 0)
    assert not offsets.is_torn()
    Path(offsets.path).write_bytes(b"x" * 11)
    assert OffsetIndex(OsFiles(), offsets.path, BASE, 80).is_torn()


def test_trimming_cuts_what_another_broker_reserved(offsets: OffsetIndex) -> None:
    offsets.append(BASE + 1, 10)
    offsets.file_to_flush()
    Path(offsets.path).write_bytes(Path(offsets.path).read_bytes() + bytes(800))
    offsets.trim()
    assert Path(offsets.path).stat().st_size == 8
    assert offsets.entry(0) == (1, 10), "it opens again when it is looked at"


def test_loading_replaces_all_entries(offsets: OffsetIndex) -> None:
    for n in range(5):
        offsets.append(BASE + n, n)
    offsets.load(OffsetIndex.ENTRY.pack(7, 70))
    assert offsets.entries() == [(7, 70)]
    assert offsets.lookup(BASE + 7) == 70
