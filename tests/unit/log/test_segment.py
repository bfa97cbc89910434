"""One segment: finding batches, rolling for every reason, truncation, renaming."""

import os
from pathlib import Path

import pytest

from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile, CorruptMessage
from leadline.log.files import remove_files
from leadline.log.index import MAX_RELATIVE, OffsetIndex, TimestampOffset
from leadline.log.segment import BatchPosition, Segment, SegmentPath
from leadline.runtime.ports import OsFiles
from tests.support.logs import START_MS, at_offset, batch, listing

BASE = 100


def segment_at(directory: Path, **settings: str) -> Segment:
    config = LogConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
    return Segment(OsFiles(), SegmentPath(str(directory), BASE), config, now_ms=START_MS, create=True)


def fill(segment: Segment, *counts: int, timestamp: int = START_MS) -> list[BatchPosition]:
    offset = segment.base_offset
    for n, count in enumerate(counts):
        data = at_offset(batch(count, timestamp=timestamp + 10 * n), offset)
        offset += count
        segment.append(data, offset - 1, timestamp + 10 * n + count - 1, offset - 1)
    return list(segment.batches())


def test_an_offset_is_found_in_the_batch_that_holds_it(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, index_interval_bytes="100")
    places = fill(segment, 3, 2, 4)
    assert [(place.base_offset, place.last_offset) for place in places] == [(100, 102), (103, 104), (105, 108)]
    for place in places:
        for offset in range(place.base_offset, place.last_offset + 1):
            assert segment.find(offset) == place
    assert segment.find(109) is None
    assert segment.end() == (109, segment.size)


@pytest.mark.parametrize("entry", [(5, 1), (5, -7), (5, 1 << 30), (1, 0), (5, 3)])
def test_an_offset_is_found_also_where_the_index_is_wrong(tmp_path: Path, entry: tuple[int, int]) -> None:
    """Entries that point beside a batch, past the end, or to a batch behind the one that is looked for."""
    segment = segment_at(tmp_path, index_interval_bytes="100000")
    places = fill(segment, *[1] * 9)
    relative, position = entry
    position = places[8].position if position == 3 else position
    segment.offset_index.load(OffsetIndex.ENTRY.pack(relative, position))
    assert [segment.find(place.base_offset) for place in places] == places


def test_batches_behind_a_damaged_frame_are_hidden_and_logged(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, index_interval_bytes="100000")
    places = fill(segment, 1, 1, 1)
    os.pwrite(segment.file.fd, b"\x07", places[1].position + 16)  # the magic number
    assert segment.find(BASE) == places[0]
    with pytest.raises(CorruptMessage, match=f"holds no batch at byte {places[1].position}"):
        segment.find(BASE + 2)


def test_a_walk_ends_where_what_follows_is_no_batch(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    places = fill(segment, 1, 1)
    with open(segment.file.path, "r+b") as file:
        file.seek(places[1].position + 16)
        file.write(b"\7")
    assert list(segment.batches()) == places[:1]
    assert segment.end() == (101, places[0].size)


@pytest.mark.parametrize(
    ("settings", "size", "last", "timestamp", "now_ms", "rolls"),
    [
        ({}, 100, 110, START_MS, START_MS, False),
        ({"segment_bytes": "500"}, 500, 110, START_MS, START_MS, True),
        ({"segment_ms": "1000"}, 100, 110, START_MS + 1000, START_MS, False),
        ({"segment_ms": "1000"}, 100, 110, START_MS + 1001, START_MS, True),
        ({"segment_ms": "1000"}, 100, 110, START_MS, START_MS + 9999, False),  # the records' own time counts
        ({}, 100, BASE + MAX_RELATIVE, START_MS, START_MS, False),
        ({}, 100, BASE + MAX_RELATIVE + 1, START_MS, START_MS, True),
        ({"segment_index_bytes": "8"}, 100, 110, START_MS, START_MS, True),  # no time entry more fits
    ],
)
def test_a_segment_is_rolled_when_it_is_full_old_or_too_wide(
    tmp_path: Path, settings: dict[str, str], size: int, last: int, timestamp: int, now_ms: int, rolls: bool
) -> None:
    segment = segment_at(tmp_path, **settings)
    fill(segment, 1)
    config = LogConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
    assert segment.should_roll(size, last, timestamp, config, now_ms) is rolls


def test_jitter_makes_a_segment_roll_earlier(tmp_path: Path) -> None:
    config = LogConfig.parse({"segment.ms": "1000"})
    segment = Segment(OsFiles(), SegmentPath(str(tmp_path), BASE), config, now_ms=START_MS, jitter_ms=300, create=True)
    fill(segment, 1)
    assert not segment.should_roll(1, 101, START_MS + 700, config, START_MS)
    assert segment.should_roll(1, 101, START_MS + 701, config, START_MS)


def test_records_without_a_time_age_by_the_brokers_clock(tmp_path: Path) -> None:
    config = LogConfig.parse({"segment.ms": "1000"})
    segment = segment_at(tmp_path)
    fill(segment, 1, timestamp=-1)
    assert not segment.should_roll(1, 101, -1, config, START_MS + 1000)
    assert segment.should_roll(1, 101, -1, config, START_MS + 1001)


def test_an_empty_segment_does_not_age(tmp_path: Path) -> None:
    config = LogConfig.parse({"segment.ms": "1000"})
    assert not segment_at(tmp_path).should_roll(1, 100, START_MS + 5000, config, START_MS + 5000)


@pytest.mark.parametrize(("offset", "batches", "newest"), [(109, 3, 23), (106, 2, 11), (105, 2, 11), (100, 0, None)])
def test_truncating_drops_the_batch_that_holds_the_offset_and_all_behind(
    tmp_path: Path, offset: int, batches: int, newest: int | None
) -> None:
    segment = segment_at(tmp_path, index_interval_bytes="1")
    places = fill(segment, 3, 2, 4)
    before = segment.size
    cut = segment.truncate_to(offset, START_MS)
    assert list(segment.batches()) == places[:batches]
    assert cut == before - segment.size
    assert Path(segment.file.path).stat().st_size == segment.size
    assert segment.newest.timestamp == (START_MS + newest if newest is not None else -1)
    assert all(position < max(segment.size, 1) for _, position in segment.offset_index.entries())


def test_renaming_takes_all_files_along_also_where_indexes_were_never_made(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    segment.rename(".deleted")
    assert listing(tmp_path) == ["00000000000000000100.log.deleted"]
    segment.create_indexes()
    segment.rename("")
    assert listing(tmp_path) == [
        "00000000000000000100.index",
        "00000000000000000100.log",
        "00000000000000000100.timeindex",
    ]
    remove_files(OsFiles(), segment.all_paths())
    assert listing(tmp_path) == []


def test_sealing_completes_the_time_index(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    fill(segment, 3, 2)
    assert segment.time_index.entries() == []
    segment.seal()
    assert segment.time_index.entries() == [(START_MS + 11, 4)]


def test_a_time_is_found_at_its_first_record(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, index_interval_bytes="1")
    fill(segment, 3, 2, 4)
    for timestamp, offset in [(0, 100), (START_MS + 1, 101), (START_MS + 3, 103), (START_MS + 22, 107)]:
        position = segment.offset_for_time(timestamp, BASE)
        assert position is not None
        assert position[0].offset == offset
    assert segment.offset_for_time(START_MS + 24, BASE) is None
    newest = segment.offset_of_newest()
    assert newest is not None
    assert newest[0] == TimestampOffset(START_MS + 23, 108)


def test_a_batch_that_is_shorter_than_it_says_is_named_with_its_place(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    (place,) = fill(segment, 1)
    with pytest.raises(CorruptFile, match=f"0100.log: at byte 0: {place.size} bytes of a batch of {place.size + 9}"):
        segment.read_batch(place._replace(size=place.size + 9))


def test_a_preallocated_segment_is_cut_to_what_it_holds_when_it_is_sealed(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, preallocate="true", segment_bytes="5000")
    path = Path(segment.file.path)
    assert path.stat().st_size == 5000
    segment.size = 0
    fill(segment, 2)
    segment.seal()
    assert path.stat().st_size == segment.size
