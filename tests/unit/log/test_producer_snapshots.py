"""The .snapshot files of a partition: when one is written, which are kept, and damaged ones."""

from pathlib import Path

import pytest

from leadline.log.producer_snapshots import ProducerSnapshots
from leadline.log.producer_state import ProducerState
from leadline.runtime.ports import OsFiles
from tests.support.logs import START_MS, TP, listing
from tests.support.producers import DAY_MS, header, write


@pytest.fixture
def producers() -> ProducerState:
    made = ProducerState(TP, DAY_MS)
    write(made, header(0, 0))
    return made


def taken_at(directory: Path, producers: ProducerState, *offsets: int) -> ProducerSnapshots:
    snapshots = ProducerSnapshots(OsFiles(), str(directory))
    for offset in offsets:
        producers.end_offset = offset
        snapshots.take(producers, sync=False)
    return snapshots


def test_one_is_written_only_if_more_is_known_than_before(tmp_path: Path, producers: ProducerState) -> None:
    snapshots = taken_at(tmp_path, producers, 5)
    assert listing(tmp_path) == ["00000000000000000005.snapshot"]
    assert snapshots.take(producers, sync=False) is None
    producers.end_offset = 6
    assert snapshots.take(producers, sync=True) == str(tmp_path / "00000000000000000006.snapshot")
    assert snapshots.offsets == [5, 6]


def test_the_newest_whole_one_is_loaded_and_a_damaged_one_is_removed(tmp_path: Path, producers: ProducerState) -> None:
    taken_at(tmp_path, producers, 5, 9)
    (tmp_path / "00000000000000000009.snapshot").write_bytes(b"torn")
    snapshots, loaded = ProducerSnapshots(OsFiles(), str(tmp_path)), ProducerState(TP, DAY_MS)
    (refused,) = snapshots.load_latest(loaded, 0, START_MS)
    assert "00000000000000000009.snapshot" in str(refused)
    assert (loaded.end_offset, set(loaded.by_id)) == (5, {1})
    assert listing(tmp_path) == ["00000000000000000005.snapshot"]


def test_without_any_one_starts_from_nothing_at_the_logs_start(tmp_path: Path, producers: ProducerState) -> None:
    snapshots = ProducerSnapshots(OsFiles(), str(tmp_path))
    assert snapshots.load_latest(producers, 7, START_MS) == []
    assert (producers.end_offset, producers.by_id) == (7, {})


def test_those_outside_of_the_log_are_removed(tmp_path: Path, producers: ProducerState) -> None:
    snapshots = taken_at(tmp_path, producers, 5, 9, 12)
    snapshots.keep_between(5, 11)
    assert snapshots.offsets == [9]
    assert listing(tmp_path) == ["00000000000000000009.snapshot"]


def test_strays_go_but_for_the_newest_behind_all_segments(tmp_path: Path, producers: ProducerState) -> None:
    snapshots = taken_at(tmp_path, producers, 5, 7, 9, 12)
    snapshots.remove_strays([0, 5, 9])
    assert snapshots.offsets == [5, 9, 12]
    snapshots.remove_strays([0, 5, 15])
    assert snapshots.offsets == [5]


def test_one_is_renamed_before_it_is_removed(tmp_path: Path, producers: ProducerState) -> None:
    snapshots = taken_at(tmp_path, producers, 5)
    assert snapshots.mark_deleted(4) is None
    assert snapshots.mark_deleted(5) == str(tmp_path / "00000000000000000005.snapshot.deleted")
    assert listing(tmp_path) == ["00000000000000000005.snapshot.deleted"]
    assert snapshots.latest is None
