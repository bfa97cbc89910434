"""Descriptors, disk space or memory that run out at any operation: one attempt fails, and the same succeeds later.

no directory goes offline
an append that fails has changed nothing
what was appended is there, also after a restart
"""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.errors import OutOfOrderSequence, ResourceExhausted
from leadline.log.log import Isolation, Log
from leadline.log.producer_state import AppendOrigin
from tests.support.crash_disk import Unsynced
from tests.support.logs import LogBench, at_offset, batch, bytes_of, marker, offsets_in, whole_log
from tests.support.watched_files import Failing, SmallDisk, WatchedFiles

OPENING = ("open", "listdir", "sync_dir")
WRITING = ("open", "pwrite", "ftruncate")
ROOM_BYTES = 1 << 20
SETTINGS = {"segment.bytes": "600", "index.interval.bytes": "1"}


class Persistent:
    """Does everything to one log, each step until it succeeds."""

    def __init__(self, path: Path, watch: Failing) -> None:
        path.mkdir()
        self.watch = watch
        self.files = WatchedFiles(watch, Unsynced())
        self.bench = LogBench(path, SETTINGS, self.files)
        self.refused: list[str] = []
        watch.off = True
        self.log = self.bench.open()
        watch.off = False

    def until_done(self, step: Callable[[Log], object]) -> None:
        for _ in range(100):
            try:
                step(self.log)
            except ResourceExhausted as error:
                self.refused.append(str(error))
            else:
                return
        raise AssertionError("it never succeeds")

    def append(self, data: bytearray, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        def attempt(log: Log) -> None:
            end, state = log.log_end, dict(log.producer_state.by_id)
            try:
                log.append_as_leader(bytearray(data), 3, origin)
            except ResourceExhausted:
                assert (log.log_end, log.producer_state.by_id) == (end, state)
                raise

        self.until_done(attempt)
        self.bench.background.run_due()

    def run(self) -> None:
        self.log.begin_epoch(3)
        for n in range(8):
            self.append(batch(2, size=60))
            self.append(batch(producer_id=1, sequence=n, size=30))
            self.append(batch(producer_id=2, sequence=n, transactional=True))
            self.append(marker(2, commit=n % 2 == 0), AppendOrigin.COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end)
        self.until_done(lambda log: log.flush())
        self.until_done(lambda log: log.read(5, 100, Isolation.COMMITTED))
        self.until_done(lambda log: log.offset_for_time(0))
        self.until_done(lambda log: log.truncate_to(33))
        self.append(batch(2, size=60))
        self.log.advance_high_watermark(self.log.log_end)
        self.until_done(lambda log: log.delete_records(9))
        self.until_done(lambda log: log.delete_old_segments())
        self.bench.background.run_due()


def test_a_producer_that_gives_a_refused_batch_up_is_out_of_order(tmp_path: Path) -> None:
    disk = SmallDisk(ROOM_BYTES)
    log = LogBench(tmp_path, files=disk).open()
    log.append_as_leader(batch(producer_id=1), 0)
    disk.room = 0
    with pytest.raises(ResourceExhausted):
        log.append_as_leader(batch(producer_id=1, sequence=1), 0)
    disk.room = ROOM_BYTES
    with pytest.raises(ResourceExhausted):
        log.append_as_leader(batch(producer_id=1, sequence=2), 0)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(batch(producer_id=1, sequence=2), 0)


@pytest.mark.parametrize(("written", "transactional"), [(0, False), (1, False), (0, True), (1, True)])
def test_what_was_sent_behind_a_refused_batch_is_refused_until_that_one_comes_again(
    tmp_path: Path, written: int, transactional: bool
) -> None:
    """Were it out of order, or accepted, an idempotent producer could not send both again in their order."""
    disk = SmallDisk(ROOM_BYTES)
    log = LogBench(tmp_path, files=disk).open()

    def append(sequence: int) -> None:
        log.append_as_leader(batch(producer_id=1, sequence=sequence, transactional=transactional), 0)

    for sequence in range(written):
        append(sequence)
    disk.room = 0
    with pytest.raises(ResourceExhausted, match="the disk is full"):
        append(written)
    disk.room = ROOM_BYTES
    for behind in (written + 1, written + 2):
        with pytest.raises(ResourceExhausted, match=f"followed batch {written}, which was refused"):
            append(behind)
    for sequence in range(written, written + 3):
        append(sequence)
    with pytest.raises(OutOfOrderSequence):
        append(written + 4)
    assert log.log_end == written + 3


def whole(bench: LogBench, log: Log) -> tuple[int, bytes, object]:
    aborted = [log.aborted_between(offset, offset + 1) for offset in range(log.log_start, log.log_end)]
    return log.log_end, whole_log(log, bench.files), (aborted, log.epochs.entries)


@pytest.mark.parametrize(("error", "operations"), [(errno.EMFILE, OPENING), (errno.ENOSPC, WRITING)])
@pytest.mark.parametrize("often", [1, 3])
def test_a_shortage_at_any_operation_fails_one_attempt_and_nothing_else(
    error: int, operations: tuple[str, ...], often: int, tmp_path: Path
) -> None:
    undisturbed = Persistent(tmp_path / "calm", Failing(0, error, only=operations))
    undisturbed.run()
    expected = whole(undisturbed.bench, undisturbed.log)
    failed, refused = 0, 0
    for nth in range(1, -undisturbed.watch.left, 2):
        watch = Failing(nth, error, only=operations, often=often)
        attempts = Persistent(tmp_path / str(nth), watch)
        attempts.run()
        assert attempts.bench.failures == [], watch.failed
        assert not attempts.log.offline
        assert all("raise ulimit -n" in text or "the disk is full" in text for text in attempts.refused)
        failed, refused = failed + len(watch.failed), refused + len(attempts.refused)
        attempts.bench.background.run_due()
        watch.off = True
        assert whole(attempts.bench, attempts.log) == expected, watch.failed
        attempts.log.close()
        for clean in (True, False):
            again = attempts.bench.open(clean=clean, log_start=attempts.log.log_start)
            assert whole(attempts.bench, again)[:2] == expected[:2], watch.failed
    assert failed > refused > 0


def test_a_log_goes_on_with_its_old_segment_while_it_cannot_open_a_new_one(tmp_path: Path) -> None:
    """Small batches still fit; the one that needs a new segment is refused until there are descriptors."""
    watch = Failing(1, errno.EMFILE, for_good=True, only=("open",))
    attempts = Persistent(tmp_path / "run", watch)
    watch.off = True
    attempts.log.append_as_leader(batch(size=300), 0)
    watch.off = False
    with pytest.raises(ResourceExhausted, match=r"rolling a segment orders-0 failed: all .* raise ulimit -n"):
        attempts.log.append_as_leader(batch(size=500), 0)
    attempts.log.append_as_leader(batch(size=10), 0)
    watch.off = True
    attempts.log.advance_high_watermark(2)
    assert offsets_in(bytes_of(attempts.log.read(0, 1000), attempts.files)) == [0, 1]
    attempts.log.append_as_leader(batch(size=500), 0)
    assert [segment.base_offset for segment in attempts.log.segments] == [0, 2]
    assert not attempts.bench.failures


@pytest.mark.parametrize("lacking", [("open",), ("pwrite",)], ids=["no room for a segment", "no room for the records"])
def test_the_epochs_of_records_that_a_follower_has_no_room_for_are_forgotten(
    tmp_path: Path, lacking: tuple[str, ...]
) -> None:
    """A later attempt brings the same records: the epoch that they go on with began earlier."""
    watch = Failing(1, errno.ENOSPC, for_good=True, only=lacking)
    watch.off = True
    log = LogBench(tmp_path, SETTINGS, WatchedFiles(watch)).open()
    log.append_as_follower(at_offset(batch(size=300), 0, 5))
    log.append_as_follower(at_offset(batch(size=50), 1, 6))
    before, records = list(log.epochs.entries), at_offset(batch(size=100), 2, 6) + at_offset(batch(size=100), 3, 7)
    watch.off = False
    for _ in range(2):
        with pytest.raises(ResourceExhausted):
            log.append_as_follower(records)
        assert log.epochs.entries == before == [(5, 0), (6, 1)]
    watch.off = True
    log.append_as_follower(records)
    assert log.epochs.entries == [(5, 0), (6, 1), (7, 3)]
