"""The segments of a log on disk: flushes in order, the recovery point, the durable end, and a failing disk."""

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from leadline.errors import StorageError
from leadline.log.log import (
    Log,
)
from leadline.log.producer_state import AppendOrigin
from tests.support.lazy_disk import LazyDisk
from tests.support.logs import (
    START_MS,
    LogBench,
    batch,
    marker,
)
from tests.support.watched_files import Failing, WatchedFiles


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(tmp_path, {"index.interval.bytes": "100"})


@pytest.fixture
def log(bench: LogBench) -> Log:
    return bench.open()


def recording(tmp_path: Path, settings: dict[str, str] | None = None) -> tuple[LogBench, list[str]]:
    done = list[str]()

    def watch(operation: str, path: str) -> None:
        if operation in ("fsync", "sync_dir"):
            done.append(Path(path).name.lstrip("0") if operation == "fsync" else "directory")

    return LogBench(tmp_path, settings, WatchedFiles(watch)), done


def test_a_flush_brings_log_index_time_index_transactions_then_the_directory(tmp_path: Path) -> None:
    bench, done = recording(tmp_path, {"index.interval.bytes": "0"})
    log = bench.open()
    log.append_as_leader(batch(timestamp=START_MS - 1, producer_id=1, transactional=True), 0)
    done.clear()
    log.flush()
    assert done == [".log", ".index", ".timeindex", "directory"]
    log.append_as_leader(marker(1, commit=False), 0, AppendOrigin.COORDINATOR)
    done.clear()
    log.flush()
    assert done == [".log", ".index", ".timeindex", ".txnindex", "directory"], "the name of an index is new"
    done.clear()
    log.flush()
    assert done == [], "there is nothing to flush"
    log.append_as_leader(batch(timestamp=START_MS + 1), 0)
    log.flush()
    assert done == [".log", ".index", ".timeindex", ".txnindex"], "no name is new"


def test_a_flush_leaves_out_indexes_that_have_not_changed(tmp_path: Path) -> None:
    bench, done = recording(tmp_path)
    log = bench.open()
    for expected in ([".log", ".index", ".timeindex", "directory"], [".log"], [".log"]):
        log.append_as_leader(batch(), 0)
        done.clear()
        log.flush()
        assert done == expected
    del log  # nobody knows what its process left unflushed
    log = bench.open()
    log.append_as_leader(batch(), 0)
    done.clear()
    log.flush()
    assert done[:3] == [".log", ".index", ".timeindex"]


def test_a_roll_flushes_the_snapshot_first_and_the_old_segment_also_if_it_was_flushed(tmp_path: Path) -> None:
    bench, done = recording(tmp_path)
    log = bench.open()
    log.append_as_leader(batch(), 0)
    log.flush()
    done.clear()
    log.roll()  # completes the time index
    assert done == ["1.snapshot", ".log", ".index", ".timeindex", "directory"]


def test_flush_messages_flushes_after_so_many_records(tmp_path: Path) -> None:
    log = LogBench(tmp_path, {"flush.messages": "3"}).open()
    log.append_as_leader(batch(2), 0)
    assert log.recovery_point == 0
    log.append_as_leader(batch(2), 0)
    assert log.recovery_point == 4


def lazily(tmp_path: Path, settings: Mapping[str, str] | None = None) -> tuple[Log, LazyDisk]:
    bench = LogBench(tmp_path, settings)
    lazy = LazyDisk(str(tmp_path), bench.failures.append)
    bench.context = replace(bench.context, background=lazy)
    return bench.open(), lazy


def test_the_recovery_point_moves_only_once_the_flush_is_done(tmp_path: Path) -> None:
    log, lazy = lazily(tmp_path)
    log.append_as_leader(batch(3), 0)
    log.flush()
    log.append_as_leader(batch(3), 0)
    assert log.recovery_point == 0
    while lazy.step():
        pass
    assert log.recovery_point == 3


def test_without_flush_messages_all_is_durable_as_it_comes(tmp_path: Path) -> None:
    log, lazy = lazily(tmp_path)
    for end in (2, 4):
        log.append_as_leader(batch(2), 0)
        assert log.durable_end == end
    log.truncate_to(2)
    assert log.durable_end == 2
    lazy.step()


def test_the_durable_end_moves_with_the_flushes_that_are_due(tmp_path: Path) -> None:
    log, lazy = lazily(tmp_path, {"flush.messages": "2"})
    moved: list[int] = []
    log.on_durable = lambda: moved.append(log.durable_end)
    while lazy.step():  # the files of a new log
        pass
    log.append_as_leader(batch(1), 0)
    assert log.durable_end == 1
    log.append_as_leader(batch(1), 0)  # due, and begins
    log.append_as_leader(batch(1), 0)  # not due, but behind one that is
    log.append_as_leader(batch(1), 0)  # due, in the next one
    assert log.durable_end == 1
    while len(lazy.waiting) > 1:  # the epochs were written, too
        lazy.step()
    assert len(lazy.waiting) == 1
    lazy.step()
    assert moved == [2]
    log.append_as_leader(batch(1), 0)
    lazy.step()
    assert moved == [2, 5], "what came by the time the flush was over"
    assert not lazy.waiting


def test_a_due_flush_that_a_truncation_overtook_is_done_again(tmp_path: Path) -> None:
    log, lazy = lazily(tmp_path, {"flush.messages": "1"})
    for _ in range(3):
        log.append_as_leader(batch(1), 0)
    log.truncate_to(2)
    log.append_as_leader(batch(1), 0)
    assert log.durable_end == 0
    while lazy.step():
        pass
    assert log.durable_end == log.flushed_to == log.log_end == 3


@pytest.mark.parametrize("truncate", [lambda log: log.truncate_to(1), lambda log: log.lower_recovery_point(1)])
def test_a_flush_that_a_truncation_overtook_does_not_count(tmp_path: Path, truncate) -> None:  # type: ignore[no-untyped-def]
    log, lazy = lazily(tmp_path)
    for _ in range(3):
        log.append_as_leader(batch(1), 0)
    log.flush()
    truncate(log)
    log.append_as_leader(batch(5), 0)
    while lazy.step():
        pass
    assert log.recovery_point <= 1, "other records stand there now, and nobody flushed them"
    log.flush()
    lazy.step()
    assert log.recovery_point == log.log_end


@pytest.mark.parametrize("operation", ["pwrite", "open"])
def test_an_append_that_the_disk_refuses_is_a_storage_error_and_so_is_every_later_one(
    tmp_path: Path, operation: str
) -> None:
    watch = Failing(10**9, errno.EIO, only=[operation])
    bench = LogBench(tmp_path, {"index.interval.bytes": "1"}, WatchedFiles(watch))
    log = bench.open()
    log.append_as_leader(batch(), 0)
    watch.left = 1

    def append_and_roll() -> None:
        log.append_as_leader(batch(), 0)
        log.roll()

    with pytest.raises(StorageError, match=r"log directory .* failed while .*orders-0.*Input/output error"):
        append_and_roll()
    (failure,) = bench.failures
    assert failure.directory == str(tmp_path)
    with pytest.raises(StorageError, match="orders-0 is offline"):
        log.append_as_leader(batch(), 0)
    assert len(bench.failures) == 1


def test_a_failed_flush_leaves_the_recovery_point_and_is_reported(tmp_path: Path) -> None:
    watch = Failing(10**9, errno.EIO, only=["fsync"])
    bench = LogBench(tmp_path, None, WatchedFiles(watch))
    log = bench.open()
    log.append_as_leader(batch(), 0)
    watch.left = 1
    log.flush()
    assert log.recovery_point == 0
    assert "flushing orders-0" in str(bench.failures[0])
