"""Opening a log: after a clean stop, after a crash, with leftovers of interrupted work, with damage."""

import errno
import os
from pathlib import Path

import pytest

from leadline.errors import CorruptFile, UnusableFile
from leadline.log.log import Isolation
from leadline.log.names import removed_name
from leadline.log.recovery import Opening, open_log, resolve_leftovers
from leadline.runtime.ports import OsFiles
from tests.support.logs import (
    START_MS,
    LogBench,
    holds_everything,
    listing,
    marker,
    offsets_in,
    three_segments,
    whole_log,
)
from tests.support.watched_files import WatchedFiles


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return three_segments(tmp_path)


def path(bench: LogBench, base: int, kind: str) -> Path:
    return bench.directory / f"{base:020d}{kind}"


def test_a_new_directory_becomes_an_empty_log(tmp_path: Path) -> None:
    made = LogBench(tmp_path)
    log = made.open()
    assert (log.log_start, log.log_end, log.recovery_point) == (0, 0, 0)
    assert {"00000000000000000000.log", "leader-epoch-checkpoint"} <= set(listing(made.directory))


@pytest.mark.parametrize(
    ("clean", "recovery_point", "trusted"), [(True, 0, 9), (False, 0, 0), (False, 4, 4), (False, 99, 9)]
)
def test_what_was_flushed_before_is_trusted_afterwards(
    bench: LogBench, clean: bool, recovery_point: int, trusted: int
) -> None:
    log = bench.open(clean=clean, recovery_point=recovery_point)
    assert holds_everything(log)
    assert log.recovery_point == trusted


def test_only_what_may_be_torn_is_read(bench: LogBench) -> None:
    read = list[int]()
    for recovery_point in (0, 3, 4, 9):
        done = list[int]()
        opening = Opening(bench.tp, str(bench.directory), bench.config, False, recovery_point)
        open_log(opening, bench.context, done.append)
        read.append(sum(done))
    sizes = [path(bench, base, ".log").stat().st_size for base in (0, 3, 6)]
    assert read == [sum(sizes), sum(sizes[1:]), sum(sizes[1:]), sizes[2]]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("base", [0, 3, 6])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "torn", "too far"])
def test_a_damaged_index_is_built_again_from_the_log(
    bench: LogBench, clean: bool, base: int, kind: str, damage: str
) -> None:
    index = path(bench, base, kind)
    if damage == "missing":
        index.unlink()
    elif damage == "torn":
        index.write_bytes(b"\x7f" * 13)
    else:
        index.write_bytes((b"\x7f" if kind == ".index" else b"\x80") * 24)
    log = bench.open(clean=clean, recovery_point=9)
    assert holds_everything(log)
    segment = log.segments.floor(base)
    assert segment is not None
    assert all(position < segment.size for _, position in segment.offset_index.entries())


def test_a_damaged_transaction_index_is_built_again(bench: LogBench) -> None:
    path(bench, 3, ".txnindex").write_bytes(b"\1" * 34)
    assert holds_everything(bench.open())


def test_snapshots_that_are_damaged_or_gone_cost_time_and_nothing_else(bench: LogBench) -> None:
    for n, snapshot in enumerate(sorted(bench.directory.glob("*.snapshot"))):
        if n % 2:
            snapshot.unlink()
        else:
            snapshot.write_bytes(b"torn")
    assert holds_everything(bench.open())


@pytest.mark.parametrize("content", [b"nonsense", b"0\n7\n0 0\n", b"0\n1\n2 6\n"])
def test_epochs_that_are_damaged_or_start_too_late_are_learnt_from_the_batches(bench: LogBench, content: bytes) -> None:
    epochs = bench.directory / "leader-epoch-checkpoint"
    epochs.write_bytes(content)
    assert holds_everything(bench.open())
    assert epochs.read_text() == "0\n3\n0 0\n1 3\n2 6\n"


def test_what_lies_behind_a_torn_batch_goes_also_in_later_segments(bench: LogBench) -> None:
    segment = path(bench, 3, ".log")
    segment.write_bytes(segment.read_bytes()[:-1])
    log = bench.open(clean=False)
    assert offsets_in(whole_log(log)) == [0, 1, 2, 3, 4]
    assert (log.log_end, log.segments.bases, [tuple(entry) for entry in log.epochs.entries]) == (
        5,
        [0, 3],
        [(0, 0), (1, 3)],
    )
    assert log.producer_state.first_unstable_offset() == 4, "the end of its transaction is gone"
    kept = [file.name for file in bench.directory.glob("*.removed")]
    assert sorted(kept) == [removed_name(3, START_MS, 160), removed_name(6, START_MS)]
    assert [file.name for file in bench.directory.glob("00000000000000000006.*")] == [removed_name(6, START_MS)]


@pytest.mark.parametrize(("contiguous", "offsets"), [(True, [0, 1]), (False, [0, 1, 3, 4, 5, 6, 7, 8])])
def test_a_gap_between_segments_is_a_lost_write_unless_compaction_may_have_made_it(
    bench: LogBench, contiguous: bool, offsets: list[int]
) -> None:
    segment = path(bench, 0, ".log")
    segment.write_bytes(segment.read_bytes()[: -len(marker(2, commit=True))])
    assert offsets_in(whole_log(bench.open(clean=False, contiguous=contiguous))) == offsets


def test_a_segment_with_offsets_that_are_there_already_is_dropped(bench: LogBench) -> None:
    path(bench, 1, ".log").touch()
    log = bench.open(clean=False)
    assert log.segments.bases == [0]
    assert offsets_in(whole_log(log)) == [0, 1, 2]


def test_an_index_without_its_log_is_removed(bench: LogBench) -> None:
    path(bench, 77, ".index").touch()
    assert holds_everything(bench.open())
    assert not path(bench, 77, ".index").exists()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_start_beyond_the_logs_end_is_ignored_and_logged(
    bench: LogBench, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    log = bench.open(clean=clean, log_start=50)
    assert holds_everything(log)
    assert (log.log_start, log.log_end) == (0, 9)
    assert "orders-0 ends at offset 9, below its log start offset 50" in caplog.text


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_segment_below_the_recovery_point_costs_its_own_records_only(
    bench: LogBench, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path(bench, 3, ".log").unlink()
    log = bench.open(clean=clean, recovery_point=6, contiguous=True)
    assert offsets_in(whole_log(log)) == [0, 1, 2, 6, 7, 8]
    assert log.read(4, 100, Isolation.LOG_END).slice is not None, "readers skip the gap"
    assert "orders-0: the records from offset 3 to 5 are missing, but later segments exist" in caplog.text


def test_where_the_recovery_point_is_not_known_a_gap_costs_no_records(bench: LogBench) -> None:
    path(bench, 3, ".log").unlink()
    opening = Opening(
        bench.tp, str(bench.directory), bench.config, clean=False, contiguous=True, knows_recovery_point=False
    )
    assert offsets_in(whole_log(open_log(opening, bench.context))) == [0, 1, 2, 6, 7, 8]


def test_a_log_that_lacks_its_last_segments_says_so(bench: LogBench, caplog: pytest.LogCaptureFixture) -> None:
    path(bench, 6, ".log").unlink()
    bench.open(clean=True, recovery_point=9)
    assert "orders-0 ends at offset 6, though it was flushed up to 9" in caplog.text


def test_a_damaged_batch_below_the_recovery_point_stays_also_where_an_index_is_missing(bench: LogBench) -> None:
    segment = path(bench, 3, ".log")
    damaged = bytearray(segment.read_bytes())
    damaged[70] ^= 1
    segment.write_bytes(damaged)
    path(bench, 3, ".index").unlink()
    log = bench.open(clean=False, recovery_point=6, contiguous=True)
    assert (log.log_end, log.segments.bases) == (9, [0, 3, 6])
    assert segment.read_bytes() == damaged


@pytest.mark.parametrize(
    ("kind", "error"), [(".log", errno.EACCES), (".index", errno.EISDIR), (".snapshot", errno.ELOOP)]
)
def test_a_file_that_the_system_refuses_is_this_logs_trouble_and_named(bench: LogBench, kind: str, error: int) -> None:
    refused = path(bench, 6, kind)

    def watch(operation: str, path: str) -> None:
        if operation == "open" and path == str(refused):
            raise OSError(error, os.strerror(error), path)

    again = LogBench(bench.directory.parent, files=WatchedFiles(watch))
    with pytest.raises(UnusableFile, match=f"{refused.name}: {os.strerror(error)}"):
        again.open(clean=False)


def test_a_log_may_start_inside_a_segment(bench: LogBench) -> None:
    log = bench.open(log_start=4)
    assert (log.log_start, log.segments.bases) == (4, [0, 3, 6])
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 4), (2, 6)]


def test_a_batch_that_cannot_be_read_is_this_logs_trouble_and_no_other(bench: LogBench) -> None:
    """A marker whose inside is garbage: nothing checks its CRC after a clean stop."""
    segment = path(bench, 6, ".log")
    segment.write_bytes(segment.read_bytes()[:-7] + b"\xff" * 7)
    for snapshot in bench.directory.glob("*.snapshot"):
        snapshot.unlink()
    with pytest.raises(CorruptFile, match="orders-0: at byte 0: a batch in it cannot be read"):
        bench.open(clean=True)


def test_of_a_swapped_segment_the_log_takes_its_place_first_once_the_old_ones_are_gone_for_good(tmp_path: Path) -> None:
    """Without the .log.swap the replaced segments are unknown; an index alone can be rebuilt later."""
    done = list[str]()
    for name in ("50.log.swap", "50.index.swap", "50.txnindex.swap", "50.log", "50.index"):
        (tmp_path / f"{name:0>{len(name) + 18}}").touch()
    resolve_leftovers(
        WatchedFiles(lambda operation, path: done.append(f"{operation} {Path(path).suffixes}")), str(tmp_path)
    )
    changes = [what.split()[0] for what in done if what.startswith(("unlink", "sync_dir", "rename"))]
    assert changes == ["unlink", "unlink", "sync_dir", "rename", "rename", "rename", "sync_dir"]
    assert next(what for what in done if what.startswith("rename")) == "rename ['.log', '.swap']"


@pytest.mark.parametrize(
    ("names", "left"),
    [
        (["50.log.deleted", "50.snapshot.deleted", "leader-epoch-checkpoint.tmp"], []),
        (["50.log.cleaned", "50.index.cleaned"], []),
        (["50.log.swap", "50.index.swap"], ["50.index", "50.log"]),
        (["50.log.swap", "50.index.cleaned"], []),
        (["50.log.swap", "60.log.cleaned"], ["50.log"]),
        (["50.log.cleaned", "60.log.swap"], []),
        (["50.log", "50.index.swap", "50.txnindex.swap"], ["50.index", "50.log", "50.txnindex"]),
        (["50.log.swap", "50.log", "50.snapshot", "51.log"], ["50.log", "51.log"]),
    ],
)
def test_leftovers_of_interrupted_work_are_finished_or_undone(
    tmp_path: Path, names: list[str], left: list[str]
) -> None:
    def full(name: str) -> str:
        base, dot, rest = name.partition(".")
        return f"{int(base):020d}{dot}{rest}" if base.isdigit() else name

    for name in names:
        (tmp_path / full(name)).touch()
    resolve_leftovers(OsFiles(), str(tmp_path))
    assert listing(tmp_path) == [full(name) for name in left]
