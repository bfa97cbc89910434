"""The .snapshot files of a partition: their format, when one is written, which are kept, and damaged ones."""

from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.errors import CorruptFile
from leadline.log.producer_snapshots import ProducerSnapshots, decode_snapshot, encode_snapshot
from leadline.log.producer_state import AppendOrigin, ProducerState
from leadline.records.control import ControlType, EndMarker
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


# The format


def encoded(producers: ProducerState) -> bytes:
    return encode_snapshot(producers.by_id, producers.most_entries)


def test_a_snapshot_brings_back_the_last_batch_and_open_transactions() -> None:
    producers = ProducerState(TP, DAY_MS)
    write(producers, header(0, 0, 2, producer=1), header(2, 2, 3, producer=1))
    write(
        producers, header(5, 0, producer=70_000_000_000, epoch=3, transactional=True), origin=AppendOrigin.REPLICATION
    )
    append = producers.prepare(5, AppendOrigin.COORDINATOR)
    append.end_txn(EndMarker(ControlType.COMMIT, 0, START_MS), 0, 6)
    producers.update(append)
    loaded = ProducerState(TP, DAY_MS)
    loaded.load(decode_snapshot("x", encoded(producers)), 7, START_MS)
    assert loaded.end_offset == 7
    assert loaded.by_id[1].batches[-1] == producers.by_id[1].batches[-1]
    assert len(loaded.by_id[1].batches) == 1
    assert loaded.by_id[70_000_000_000] == producers.by_id[70_000_000_000]
    assert loaded.first_unstable_offset() == 5
    assert loaded.by_id[5].coordinator_epoch == 0
    assert encoded(loaded) == encoded(producers)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:9], "cut off"),
        (lambda data: b"\0\2" + data[2:], "version 2"),
        (lambda data: data[:-1] + b"\0", "CRC"),
        (lambda data: data[:-1], "CRC"),
        (lambda data: b"", "cut off"),
    ],
)
def test_a_damaged_snapshot_is_refused(producers: ProducerState, damage: Callable[[bytes], bytes], reason: str) -> None:
    with pytest.raises(CorruptFile, match=f"here: at byte .*{reason}"):
        decode_snapshot("here", damage(encoded(producers)))
