"""Logs read from their files: which ones hold a range, and how far they may be read."""

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from leadline.errors import CorruptFile
from leadline.log import names
from leadline.model import Offset, TopicPartition
from leadline.spark.files import segments
from leadline.spark.files.log_split import LogSplit
from leadline.spark.files.log_views import VIEWS
from leadline.spark.files.segments import LogFiles, NoLogs, logs_in
from tests.support.damage import spoil
from tests.support.logs import batch, marker
from tests.support.replica_files import Replicas


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    filled = Replicas(tmp_path, count=1)
    for _ in range(100):
        filled.append(batch(5))
    return filled


def the_log(replicas: Replicas) -> LogFiles:
    (log,) = logs_in(replicas.paths)
    return log


def offsets(log: LogFiles, first: Offset, until: Offset, committed: bool = False) -> list[Offset]:
    aborted = segments.aborted_in(log, first, until) if committed else None
    columns = [batch.column("offset").to_pylist() for batch in segments.rows(log, first, until, aborted=aborted)]
    return [offset for some in columns for offset in some]


def test_a_log_is_found_with_its_segments_and_checkpoints(replicas: Replicas) -> None:
    replicas.stop(high_watermark=450)
    log = the_log(replicas)
    assert (log.tp, log.log_start, log.high_watermark) == (TopicPartition("orders", 0), 0, 450)
    assert [segment.base_offset for segment in log.segments] == replicas.leader.segments.bases
    assert len(log.segments) > 3
    assert log.size == replicas.leader.size


def test_the_folder_of_a_partition_will_do(replicas: Replicas) -> None:
    replicas.stop()
    assert logs_in([str(replicas.folders[0])]) == logs_in(replicas.paths)


@pytest.mark.parametrize("name", ["orders-0.5f-delete", "orders-0.5f-future", "orders-0.5f-stray", "lost+found"])
def test_folders_that_are_no_replica_of_a_partition_are_passed_over(replicas: Replicas, name: str) -> None:
    replicas.folders[0].rename(replicas.dirs[0] / name)
    with pytest.raises(NoLogs, match="neither a log directory nor"):
        logs_in(replicas.paths)


def test_a_missing_path_is_named() -> None:
    with pytest.raises(NoLogs, match="/nowhere: no such directory"):
        logs_in(["/nowhere"])


def test_other_topics_may_be_left_out(replicas: Replicas) -> None:
    replicas.stop()
    assert logs_in(replicas.paths, ["payments"]) == []
    assert len(logs_in(replicas.paths, ["payments", "orders"])) == 1


@pytest.mark.parametrize("piece_bytes", [70, 200, 1000, 1 << 20])
def test_any_range_is_read_whole(replicas: Replicas, piece_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where batches are larger than what is read at once."""
    monkeypatch.setattr(segments, "PIECE_BYTES", piece_bytes)
    log = the_log(replicas)
    for first, until in [(0, 500), (0, 3), (3, 4), (249, 251), (123, 456), (499, 500), (500, 600), (7, 7)]:
        assert offsets(log, first, until) == list(range(first, min(until, 500)))


def test_reading_starts_near_the_first_offset(replicas: Replicas) -> None:
    log = the_log(replicas)
    segment = log.segments[1]
    last = log.segments[2].base_offset - 1
    assert segment.size - segments.position_of(segment, last) < 1000


@pytest.mark.parametrize("damage", [bytes(8), b"\0\0\0\1\0\0\0\7", b"\x7f" * 80, b""])
def test_an_index_that_is_of_no_use_is_not_used(replicas: Replicas, damage: bytes) -> None:
    for path in replicas.folders[0].glob("*.index"):
        path.write_bytes(damage)
    assert offsets(the_log(replicas), 123, 456) == list(range(123, 456))


def test_room_that_a_running_broker_reserved_is_not_read(replicas: Replicas) -> None:
    for kind in ("index", "log"):
        last = max(replicas.folders[0].glob(f"*.{kind}"))
        os.truncate(last, last.stat().st_size + 4096)
    log = the_log(replicas)
    assert segments.log_end(log) == 500
    assert offsets(log, 490, 600) == list(range(490, 500))


def test_what_is_half_written_at_the_end_is_not_read(replicas: Replicas) -> None:
    last = max(replicas.folders[0].glob("*.log"))
    os.truncate(last, last.stat().st_size - 1)
    log = the_log(replicas)
    assert segments.log_end(log) == 495
    assert offsets(log, 490, 600) == list(range(490, 495))


def test_what_is_cut_off_elsewhere_is_damage(replicas: Replicas) -> None:
    first = min(replicas.folders[0].glob("*.log"))
    os.truncate(first, first.stat().st_size - 1)
    with pytest.raises(CorruptFile, match=r"0\.log: at byte \d+: a batch is incomplete"):
        offsets(the_log(replicas), 0, 500)


def test_damage_is_named_by_file_and_position(replicas: Replicas) -> None:
    second = sorted(replicas.folders[0].glob("*.log"))[1]
    data = bytearray(second.read_bytes())
    size = len(batch(5))
    data[3 * size + 70] ^= 1
    second.write_bytes(data)
    with pytest.raises(CorruptFile, match=rf"{second.name}: at byte {3 * size}: the batch of offset \d+: its CRC"):
        offsets(the_log(replicas), 0, 500)


def test_a_segment_that_waits_for_its_removal_is_still_read(replicas: Replicas) -> None:
    log = the_log(replicas)
    for path in replicas.folders[0].glob("*.log"):
        path.rename(f"{path}{names.DELETED}")
    assert offsets(log, 0, 500) == list(range(500))


def test_a_segment_that_is_gone_is_named(replicas: Replicas) -> None:
    log = the_log(replicas)
    min(replicas.folders[0].glob("*.log")).unlink()
    with pytest.raises(FileNotFoundError, match="removed before it could be read"):
        offsets(log, 0, 500)


# How far


def test_reading_ends_at_the_high_watermark_or_at_the_end(replicas: Replicas) -> None:
    replicas.stop(high_watermark=450)
    log = the_log(replicas)
    assert segments.readable_until(log, committed=False) == 450
    assert segments.readable_until(log, committed=False, to_log_end=True) == 500
    (replicas.dirs[0] / names.HIGH_WATERMARKS_FILE).unlink()
    assert segments.readable_until(the_log(replicas), committed=False) == 500


@pytest.mark.parametrize("with_snapshots", [True, False])
def test_readers_of_committed_records_stop_at_an_open_transaction(replicas: Replicas, with_snapshots: bool) -> None:
    replicas.append(batch(2, producer_id=7, transactional=True), marker(7, commit=True))
    opened = replicas.leader.log_end
    replicas.append(batch(2, producer_id=8, transactional=True))
    for _ in range(60):
        replicas.append(batch(5))
    replicas.stop()
    if not with_snapshots:
        for path in replicas.folders[0].glob("*.snapshot"):
            path.unlink()
    log = the_log(replicas)
    assert segments.readable_until(log, committed=True) == opened
    assert segments.readable_until(log, committed=False) == opened + 302


def test_aborted_records_are_left_out_of_what_is_committed(replicas: Replicas) -> None:
    for n in range(20):
        replicas.append(
            batch(2, producer_id=n % 3, sequence=n // 3 * 2, transactional=True), marker(n % 3, commit=n % 2 == 0)
        )
    replicas.stop()
    log = the_log(replicas)
    kept = [500 + 3 * n + k for n in range(0, 20, 2) for k in range(2)]
    assert offsets(log, 500, 560, committed=True) == kept
    assert offsets(log, 509, 518, committed=True) == [offset for offset in kept if 509 <= offset < 518]
    assert len(offsets(log, 500, 560)) == 40
    assert segments.readable_until(log, committed=True) == 560


def test_no_bytes_bring_a_reader_down(replicas: Replicas, tmp_path: Path) -> None:
    """They are read, or named as damaged."""
    replicas.append(batch(2, producer_id=7, transactional=True), marker(7, commit=False))
    replicas.stop()
    for n in range(60):
        rnd = random.Random(n)
        parent = shutil.copytree(replicas.dirs[0], tmp_path / str(n))
        for path in rnd.sample([path for path in parent.rglob("*") if path.is_file() and path.stat().st_size], 3):
            spoil(path, rnd)
        with suppress(CorruptFile):
            for log in logs_in([str(parent)]):
                end = segments.readable_until(log, committed=True)
                assert len(offsets(log, 0, end, committed=True)) <= 502
                for name in ("batches", "indexes", "producers", "checkpoints"):
                    for rows in VIEWS[name].read(LogSplit(log, log.segments)):
                        rows.validate(full=True)


def test_a_file_whose_name_is_no_offset_is_none_of_the_log(replicas: Replicas) -> None:
    (replicas.folders[0] / f"{1 << 64}.log").write_bytes(b"x")
    assert segments.log_end(the_log(replicas)) == 500
