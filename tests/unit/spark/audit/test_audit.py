"""Damage planted in replicas is found, with file and position; healthy replicas give no findings."""

import errno
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from leadline.log import checkpoints, names
from leadline.log.index import OffsetIndex, TimeIndex
from leadline.model import new_id
from leadline.records.batch import Header, walk
from leadline.records.build import build, empty
from leadline.records.record import Record
from leadline.runtime.ports import OsFiles
from leadline.spark.audit import audit_job, file_scan
from leadline.spark.audit.audit_job import audit_unit, logs_of, units
from leadline.spark.audit.checks import Finding, FindingKind
from leadline.spark.files.segments import logs_in
from tests.support.damage import spoil, with_right_crc
from tests.support.logs import START_MS, batch, marker
from tests.support.replica_files import COMPACTED, Replicas

SEED = int(os.environ.get("LEADLINE_AUDIT_SEED", "1"))
ROUNDS = 6 * int(os.environ.get("LEADLINE_FACTOR", "1"))


def findings(paths: list[str], *, checksums: bool = True, unit_bytes: int = 1 << 30) -> list[Finding]:
    logs, all_findings = logs_of(paths)
    for unit in units(logs, checksums=checksums, unit_bytes=unit_bytes):
        all_findings += audit_unit(unit).findings
    return all_findings


def places(all_findings: list[Finding]) -> set[tuple[FindingKind, str, int]]:
    return {one.place for one in all_findings}


def fill(replicas: Replicas, batches: int = 120) -> None:
    """Epochs, codecs, sizes, times that go back, transactions of which some are aborted."""
    rnd = random.Random(SEED)
    sequences = [0, 0, 0]
    for n in range(batches):
        replicas.epoch = n // 30
        count, time_ms = rnd.randint(1, 8), START_MS + 1000 * n - rnd.choice([0, 0, 5000])
        if n % 5:
            replicas.append(batch(count, timestamp=time_ms, size=rnd.choice([0, 10, 100])))
        else:
            producer = rnd.randrange(3)
            replicas.append(
                batch(count, timestamp=time_ms, producer_id=producer, sequence=sequences[producer], transactional=True)
            )
            sequences[producer] += count
            if n % 10 == 0:
                replicas.append(marker(producer, commit=n % 20 == 0))


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    """Three copies, stopped."""
    filled = Replicas(tmp_path, count=3)
    fill(filled)
    filled.stop()
    return filled


@pytest.mark.parametrize("unit_bytes", [1, 20_000, 1 << 30])
@pytest.mark.parametrize("checksums", [True, False])
def test_healthy_replicas_give_no_findings(replicas: Replicas, checksums: bool, unit_bytes: int) -> None:
    assert findings(replicas.paths, checksums=checksums, unit_bytes=unit_bytes) == []
    assert len(list(units(logs_in(replicas.paths), checksums=True, unit_bytes=1))) > 3


def test_a_replica_that_is_behind_or_has_lost_its_oldest_segments_is_healthy(replicas: Replicas) -> None:
    late, old = replicas.folders[1], replicas.folders[2]
    last = max(late.glob("*.log"))
    for path in late.glob(f"{last.stem}*"):
        path.unlink()
    (replicas.dirs[1] / names.HIGH_WATERMARKS_FILE).unlink()
    first = min(old.glob("*.log"))
    for path in old.glob(f"{first.stem}*"):
        path.unlink()
    assert findings(replicas.paths) == []


def test_logs_of_a_running_broker_are_healthy(tmp_path: Path) -> None:
    """Not closed, with room reserved in indexes and log; nothing was checkpointed yet."""
    replicas = Replicas(tmp_path, count=2)
    fill(replicas, 50)
    for folder in replicas.folders:
        for kind in ("index", "timeindex"):
            last = max(folder.glob(f"*.{kind}"))
            os.truncate(last, last.stat().st_size + 24 * 50)
    os.truncate(max(replicas.folders[1].glob("*.log")), 100_000)
    assert findings(replicas.paths) == []


class Pauses:
    """What stands in for the module `time`, so that other threads sleep as ever."""

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self.sleep, self.perf_counter = sleep, time.perf_counter


def test_what_a_running_broker_puts_right_meanwhile_is_no_finding(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap that compaction made, of which the checkpoint did not tell yet."""
    (replicas.dirs[0] / names.CLEAN_SHUTDOWN_FILE).unlink()
    remove_a_batch(replicas.folders[0], random.Random(SEED))
    end = {replicas.tp: replicas.leader.log_end}

    def checkpoint(_: float) -> None:
        checkpoints.write_offsets(OsFiles(), str(replicas.dirs[0] / names.CLEANED_OFFSETS_FILE), end)

    monkeypatch.setattr(audit_job, "time", Pauses(lambda _: None))
    assert FindingKind.MISSING in {one.kind for one in findings(replicas.paths)}
    monkeypatch.setattr(audit_job, "time", Pauses(checkpoint))
    assert FindingKind.MISSING not in {one.kind for one in findings(replicas.paths[:1])}


# Planted damage


def batches_in(path: Path) -> list[tuple[int, Header]]:
    return list(walk(path.read_bytes()))


def write_at(path: Path, position: int, data: bytes | bytearray) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def some_segment(folder: Path, rnd: random.Random) -> tuple[Path, int, Header]:
    """A file, and a batch in it that is neither the first nor the last."""
    path = rnd.choice([path for path in folder.glob("*.log") if len(batches_in(path)) > 4])
    position, header = rnd.choice(batches_in(path)[1:-1])
    return path, position, header


Planted = tuple[set[FindingKind], Path, int]  # one of these kinds, at this place


def flip_a_byte(folder: Path, rnd: random.Random) -> Planted:
    path, position, header = some_segment(folder, rnd)
    at = position + rnd.randrange(header.size)
    write_at(path, at, bytes([path.read_bytes()[at] ^ rnd.randint(1, 255)]))
    return set(FindingKind), path, position


def change_an_epoch(folder: Path, rnd: random.Random) -> Planted:
    path, position, header = some_segment(folder, rnd)
    write_at(path, position + 12, (header.leader_epoch + rnd.choice([-1, 1, 7])).to_bytes(4, "big", signed=True))
    return {FindingKind.EPOCH}, path, position


def change_an_offset(folder: Path, rnd: random.Random) -> Planted:
    path, position, header = some_segment(folder, rnd)
    write_at(path, position, (header.base_offset + rnd.choice([-1, 1, 1000, 1 << 40])).to_bytes(8, "big"))
    return {FindingKind.ORDER, FindingKind.MISSING}, path, position


def remove_a_batch(folder: Path, rnd: random.Random) -> Planted:
    path, position, header = some_segment(folder, rnd)
    data = path.read_bytes()
    path.write_bytes(data[:position] + data[position + header.size :])
    return {FindingKind.MISSING}, path, position


def tear_the_tail(folder: Path, rnd: random.Random) -> Planted:
    path = max(folder.glob("*.log"))
    position, header = batches_in(path)[-1]
    os.truncate(path, position + rnd.randrange(1, header.size))
    return (
        {FindingKind.TORN, FindingKind.SHORT},
        path,
        position,
    )  # the begin of an offset is zeros: as if there was nothing yet


def swap_the_bytes_of_a_batch(folder: Path, rnd: random.Random) -> Planted:
    """Another batch of the same size, whole, in its place: only the other replicas can tell."""
    path, position, header = some_segment(folder, rnd)
    data = bytearray(path.read_bytes()[position : position + header.size])
    data[-2] ^= 1
    write_at(path, position, with_right_crc(data))
    return {FindingKind.BYTES}, path, position


def wrong_entry(kind: str, size: int, layout: str) -> Callable[[Path, random.Random], Planted]:
    def plant(folder: Path, rnd: random.Random) -> Planted:
        path = rnd.choice([path for path in folder.glob(f"*{kind}") if path.stat().st_size >= size])
        data = bytearray(path.read_bytes())
        at = rnd.randrange(len(data) // size) * size
        entry = bytearray(data[at : at + size])
        while bytes(entry) == bytes(data[at : at + size]):
            entry[rnd.randrange(size)] ^= 1 << rnd.randrange(8)
        write_at(path, at, entry)
        return {FindingKind.INDEX, FindingKind.TIME_INDEX, FindingKind.TXN_INDEX}, path, at

    plant.__name__ = f"wrong_entry_of_{kind[1:]}"
    return plant


def damage_a_snapshot(folder: Path, rnd: random.Random) -> Planted:
    path = rnd.choice(list(folder.glob("*.snapshot")))
    write_at(path, 10, bytes([path.read_bytes()[10] ^ 1]))
    return {FindingKind.FILE}, path, 2


DAMAGES = [
    flip_a_byte,
    change_an_epoch,
    change_an_offset,
    remove_a_batch,
    tear_the_tail,
    swap_the_bytes_of_a_batch,
    wrong_entry(names.INDEX, OffsetIndex.ENTRY.size, ">ii"),
    wrong_entry(names.TIME_INDEX, TimeIndex.ENTRY.size, ">qi"),
    wrong_entry(names.TXN_INDEX, 34, ">hqqqq"),
    damage_a_snapshot,
]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directories of three brokers."""
    parent = tmp_path_factory.mktemp("healthy")
    replicas = Replicas(parent, count=3)
    fill(replicas)
    replicas.stop()
    return parent


@pytest.mark.parametrize("plant", DAMAGES, ids=lambda plant: plant.__name__)
def test_planted_damage_is_found_where_it_is(
    template: Path, tmp_path: Path, plant: Callable[[Path, random.Random], Planted]
) -> None:
    """By the replica alone, or by three together, of which two are whole."""
    rnd = random.Random(f"{SEED} {plant.__name__}")
    for n in range(ROUNDS):
        dirs = sorted(shutil.copytree(template, tmp_path / str(n)).iterdir())
        damaged = rnd.choice(dirs)
        kinds, path, position = plant(damaged / "orders-0", rnd)
        for some in [dirs] if plant is swap_the_bytes_of_a_batch else [dirs, [damaged]]:
            reported = places(findings([str(directory) for directory in some]))
            assert any((kind, str(path), position) in reported for kind in kinds), (path, position, reported)


# Compaction


def compacted(parent: Path) -> Replicas:
    """The first one was compacted at the end, the second one halfway, the third one never."""
    replicas = Replicas(parent, 3, COMPACTED)
    rnd = random.Random(SEED)
    cleaned: list[int | None] = [None, None, None]
    for n in range(300):
        value = None if n % 17 == 0 else f"v{n}".encode()
        replicas.append(build([Record(0, START_MS + n, f"k{rnd.randrange(20)}".encode(), value)]))
        if n % 50 == 7:
            replicas.append(batch(2, key=f"t{n}-", producer_id=n, transactional=True), marker(n, commit=n % 100 == 7))
        if n == 150:
            cleaned[1] = replicas.compact(1)
    cleaned[0] = replicas.compact(0)
    replicas.stop(cleaned=cleaned)
    return replicas


def sizes(replicas: Replicas) -> list[int]:
    return [sum(path.stat().st_size for path in folder.glob("*.log")) for folder in replicas.folders]


def test_replicas_that_were_compacted_at_different_times_are_healthy(tmp_path: Path) -> None:
    replicas = compacted(tmp_path)
    assert sizes(replicas) == sorted(set(sizes(replicas)))
    assert findings(replicas.paths) == []


def test_tombstones_that_expired_in_one_of_them_are_healthy(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, 2, COMPACTED | {"delete.retention.ms": "1"})
    for n in range(60):
        replicas.append(build([Record(0, START_MS, f"k{n}".encode(), None if n % 2 else b"v")]))
    replicas.compact(0)
    cleaned = replicas.compact(0, START_MS + 1000)
    replicas.stop(cleaned=[cleaned, None])
    assert findings(replicas.paths) == []
    assert sizes(replicas)[0] < sizes(replicas)[1]


def survivors(folder: Path, below: int) -> list[tuple[Path, int, Header]]:
    """Batches of one record each that compaction left."""
    return [
        (path, position, header)
        for path in folder.glob("*.log")
        for position, header in batches_in(path)
        if header.record_count == 1 and not header.is_transactional and header.last_offset < below
    ]


@pytest.mark.parametrize("loss", ["the batch", "the record"])
def test_a_record_that_compaction_should_have_kept_is_missed(tmp_path: Path, loss: str) -> None:
    replicas = compacted(tmp_path)
    rnd = random.Random(SEED)
    path, position, header = rnd.choice(survivors(replicas.folders[0], 250))
    data = path.read_bytes()
    instead = b"" if loss == "the batch" else bytes(empty(header))
    path.write_bytes(data[:position] + instead + data[position + header.size :])
    missing = [one for one in findings(replicas.paths) if one.kind is FindingKind.MISSING]
    assert {(one.path, one.offset) for one in missing} == {(str(path), header.base_offset)}
    assert "so is any newer record of its key" in missing[0].text


def test_a_record_that_differs_from_another_replicas_is_found(tmp_path: Path) -> None:
    replicas = compacted(tmp_path)
    path, position, header = random.Random(SEED).choice(survivors(replicas.folders[1], 140))
    data = bytearray(path.read_bytes()[position : position + header.size])
    data[-2] ^= 1
    write_at(path, position, with_right_crc(data))
    assert (FindingKind.BYTES, str(path), position) in places(findings(replicas.paths))


# What else may be wrong


def test_a_diverged_replica_is_recognized_by_its_epoch(tmp_path: Path) -> None:
    """It led and wrote records that no other replica had; then another replica led."""
    replicas = Replicas(tmp_path, 2)
    fill(replicas, 30)
    lonely, end = replicas.logs[1], replicas.leader.log_end
    for _ in range(5):
        lonely.append_as_leader(batch(2, size=50), 1)
    replicas.logs.remove(lonely)
    replicas.epoch = 2
    replicas.append(*(batch(2, size=60) for _ in range(20)))
    replicas.logs.append(lonely)
    replicas.stop()
    checkpoints.write_offsets(OsFiles(), str(replicas.dirs[1] / names.HIGH_WATERMARKS_FILE), {replicas.tp: end})
    (finding,) = findings(replicas.paths)
    assert (finding.kind, finding.offset) == (FindingKind.EPOCH, end)
    assert finding.path.startswith(str(replicas.dirs[1]))
    assert "epoch 1, not 2" in finding.text
    assert "it will be cut off there" in finding.text


def test_a_log_that_ends_below_its_own_high_watermark_has_lost_records(replicas: Replicas) -> None:
    end = replicas.leader.log_end
    checkpoints.write_offsets(OsFiles(), str(replicas.dirs[2] / names.HIGH_WATERMARKS_FILE), {replicas.tp: end + 1})
    (finding,) = findings(replicas.paths)
    assert (finding.kind, finding.path) == (FindingKind.SHORT, str(max(replicas.folders[2].glob("*.log"))))


def test_replicas_of_topics_that_only_share_a_name_are_not_compared(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, 2)
    fill(replicas, 10)
    for log in replicas.logs:
        log.assign_topic_id(new_id(uuid4))
    replicas.append(batch(1))
    replicas.stop()
    swap_the_bytes_of_a_batch(replicas.folders[1], random.Random(SEED))
    (finding,) = findings(replicas.paths)
    assert (finding.kind, finding.path) == (FindingKind.TOPIC, str(replicas.folders[1] / names.PARTITION_METADATA_FILE))


@pytest.mark.parametrize("name", [names.HIGH_WATERMARKS_FILE, f"orders-0/{names.EPOCHS_FILE}"])
def test_a_checkpoint_that_cannot_be_read_is_a_finding(replicas: Replicas, name: str) -> None:
    path = replicas.dirs[1] / name
    path.write_text("0\n9\nnonsense\n")
    assert {(one.kind, one.path) for one in findings(replicas.paths)} == {(FindingKind.FILE, str(path))}


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_an_index_that_is_gone_or_cut_off_is_a_finding(replicas: Replicas, kind: str) -> None:
    gone, cut = sorted(replicas.folders[0].glob(f"*.{kind}"))[:2]
    gone.unlink()
    os.truncate(cut, cut.stat().st_size - 1)
    assert {(one.kind, one.path) for one in findings(replicas.paths)} == {
        (FindingKind.FILE, str(gone)),
        (FindingKind.FILE, str(cut)),
    }


def test_a_topic_that_is_deleted_meanwhile_is_passed_over(replicas: Replicas) -> None:
    (work,) = units(logs_in(replicas.paths), checksums=True)
    for folder in replicas.folders[1:]:
        shutil.rmtree(folder)
    assert audit_unit(work).findings == []
    shutil.rmtree(replicas.folders[0])
    assert audit_unit(work).findings == []


def test_a_file_that_the_disk_does_not_hand_out_is_a_finding(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(min(replicas.folders[1].glob("*.log")))
    read = file_scan.scan

    def scan(of: str, **how: bool) -> file_scan.FileScan:
        if of == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), of)
        return read(of, **how)

    monkeypatch.setattr(file_scan, "scan", scan)
    assert [one.place for one in findings(replicas.paths)] == [(FindingKind.FILE, path, 0)]


def test_findings_that_are_too_many_are_counted(replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_job, "MOST_FINDINGS", 3)
    for path in replicas.folders[0].glob("*.log"):
        for position, _ in batches_in(path):
            write_at(path, position + 12, b"\0\0\1\0")
    results = [audit_unit(unit) for unit in units(logs_in(replicas.paths), checksums=True)]
    assert [len(result.findings) for result in results] == [3]
    assert results[0].unreported > 50


# Whatever lies in the files


@pytest.mark.parametrize("kind", ["plain", "compacted"])
def test_no_bytes_bring_an_audit_down(template: Path, tmp_path: Path, kind: str) -> None:
    rnd = random.Random(f"{SEED} {kind}")
    origin = template if kind == "plain" else compacted(tmp_path).dirs[0].parent
    for n in range(ROUNDS * 2):
        dirs = sorted(
            shutil.copytree(origin, tmp_path / f"spoiled-{n}", ignore=shutil.ignore_patterns("spoiled-*")).iterdir()
        )
        files = [path for path in (tmp_path / f"spoiled-{n}").rglob("*") if path.is_file() and path.stat().st_size]
        for path in rnd.sample(files, rnd.randint(1, 6)):
            spoil(path, rnd)
        for checksums in (True, False):
            for one in findings([str(directory) for directory in dirs if directory.is_dir()], checksums=checksums):
                assert one.position >= 0
                assert str(one)
