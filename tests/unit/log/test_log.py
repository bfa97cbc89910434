"""A log: appending, reading within bounds, truncating, deleting, flushing in order, and failing for good."""

import errno
import gc
import os
import uuid
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from leadline.errors import InconsistentTopicId, OffsetOutOfRange, RecordListTooLarge, ResourceExhausted
from leadline.log.log import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    AppendResult,
    Isolation,
    ListedOffset,
    Log,
)
from leadline.log.producer_state import AppendOrigin
from leadline.log.segment import Segment
from leadline.log.txn_index import AbortedTxn
from leadline.records.batch import header_at
from leadline.runtime.ports import OsFiles
from tests.support.logs import (
    START_MS,
    LogBench,
    append_batches,
    at_offset,
    batch,
    bytes_of,
    listing,
    marker,
    offsets_in,
    whole_log,
)


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(tmp_path, {"index.interval.bytes": "100"})


@pytest.fixture
def log(bench: LogBench) -> Log:
    return bench.open()


# Appending


def test_a_batch_gets_its_offset_and_epoch_in_place(log: Log) -> None:
    data = batch(3)
    assert log.append_as_leader(data, 7) == AppendResult(0, 2, -1)
    assert log.append_as_leader(batch(2), 7) == AppendResult(3, 4, -1)
    header = header_at(data)
    assert (header.base_offset, header.leader_epoch, header.crc) == (0, 7, header_at(batch(3)).crc)
    assert [(entry.epoch, entry.start_offset) for entry in log.epochs.entries] == [(7, 0)]


def test_bytes_of_the_caller_are_not_changed(log: Log) -> None:
    data = bytes(batch(2))
    log.append_as_leader(batch(), 0)
    log.append_as_leader(data, 3)
    assert data == bytes(batch(2))
    assert offsets_in(bytes_of(log.read(1, 999, Isolation.LOG_END))) == [1, 2]


def test_under_log_append_time_the_brokers_time_is_stored_and_returned(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, {"message.timestamp.type": "LogAppendTime"})
    log = bench.open()
    bench.clock.ms += 555
    assert log.append_as_leader(batch(2), 0).log_append_time_ms == bench.clock.ms
    header = header_at(bytes_of(log.read(0, 999, Isolation.LOG_END)))
    assert (header.is_log_append_time, header.max_timestamp) == (True, bench.clock.ms)


def test_a_duplicate_is_answered_with_its_first_offsets_and_not_written(log: Log) -> None:
    for sequence in (0, 2, 4):
        log.append_as_leader(batch(2, producer_id=1, sequence=sequence), 0)
    size = log.size
    assert log.append_as_leader(batch(2, producer_id=1, sequence=2), 0) == AppendResult(2, 3, START_MS + 1, True)
    assert (log.log_end, log.size) == (6, size)


def test_what_no_segment_can_hold_is_refused(tmp_path: Path) -> None:
    log = LogBench(tmp_path, {"segment.bytes": "200"}).open()
    with pytest.raises(RecordListTooLarge, match=r"exceed segment.bytes=200"):
        log.append_as_leader(batch(size=300), 0)
    assert log.log_end == 0


def test_an_epoch_of_records_that_were_refused_begins_with_the_first_that_are_not(tmp_path: Path) -> None:
    log = LogBench(tmp_path, {"segment.bytes": "200"}).open()
    with pytest.raises(RecordListTooLarge):
        log.append_as_leader(batch(size=300), 0)
    log.append_as_leader(batch(2), 1)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 0)]


def test_records_that_a_full_disk_refuses_leave_the_epochs_as_they_were(log: Log) -> None:
    """They span two epochs, and are sent again."""
    log.append_as_follower(at_offset(batch(5), 0))
    chunk = at_offset(batch(), 5) + at_offset(batch(), 6, 1)
    with mock.patch.object(Segment, "append", side_effect=OSError(errno.ENOSPC, "full")):
        for _ in range(2):
            with pytest.raises(ResourceExhausted):
                log.append_as_follower(chunk)
            assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0)]
    log.append_as_follower(chunk)
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 6)]


def test_a_follower_takes_what_its_leader_has_though_segments_became_smaller(tmp_path: Path) -> None:
    """One fetch brings more than a segment holds, and a batch from before segment.bytes was lowered."""
    log = LogBench(tmp_path, {"segment.bytes": "200"}).open()
    batches = [at_offset(batch(), 0), at_offset(batch(size=300), 1), at_offset(batch(), 2, 1), at_offset(batch(), 3, 1)]
    appended = log.append_as_follower(b"".join(batches))
    assert appended == AppendResult(0, 3, -1)
    assert whole_log(log) == b"".join(batches)
    assert len(log.segments) > 1
    assert [tuple(entry) for entry in log.epochs.entries] == [(0, 0), (1, 2)]


def test_a_follower_keeps_what_was_appended_before_the_disk_was_full(tmp_path: Path) -> None:
    log = LogBench(tmp_path, {"segment.bytes": "200"}).open()
    batches = [at_offset(batch(size=150), 0), at_offset(batch(size=150), 1)]
    append = Segment.append
    room = iter([None])

    def append_once(self: Segment, *args: Any) -> None:
        if next(room, OSError) is not None:
            raise OSError(errno.ENOSPC, "full")
        append(self, *args)

    with mock.patch.object(Segment, "append", append_once):
        assert log.append_as_follower(b"".join(batches)) == AppendResult(0, 0, -1)
        with pytest.raises(ResourceExhausted):
            log.append_as_follower(batches[1])
    assert log.append_as_follower(batches[1]) == AppendResult(1, 1, -1)


def test_a_follower_takes_whole_batches_with_gaps_and_leaves_a_torn_one(log: Log) -> None:
    chunk = at_offset(batch(2), 5, 1) + at_offset(batch(1), 10, 4)
    appended = log.append_as_follower(chunk + batch()[:-3])
    assert appended is not None
    assert (appended.first_offset, appended.last_offset, log.log_end) == (5, 10, 11)
    assert [tuple(entry) for entry in log.epochs.entries] == [(1, 5), (4, 10)]
    assert log.append_as_follower(batch()[:-1]) is None


def test_a_topic_id_is_written_once_and_must_stay(log: Log, bench: LogBench) -> None:
    topic_id = uuid.uuid4()
    log.assign_topic_id(topic_id)
    log.assign_topic_id(topic_id)
    assert bench.open().topic_id == topic_id
    with pytest.raises(InconsistentTopicId):
        log.assign_topic_id(uuid.uuid4())


# Reading


def test_an_offset_inside_a_batch_brings_the_whole_batch(log: Log) -> None:
    written = append_batches(log, 3, 3)
    for offset in (0, 1, 2):
        assert bytes_of(log.read(offset, 1)) == written[0]
    assert bytes_of(log.read(4, 9999)) == written[1]


def test_a_batch_larger_than_the_limit_comes_alone_if_one_is_wanted_at_all(log: Log) -> None:
    written = append_batches(log, 1, 1)
    assert bytes_of(log.read(0, 10)) == written[0]
    read = log.read(0, 10, min_one=False)
    assert (bytes_of(read), read.first_incomplete) == (written[0][:10], True)


def test_a_reader_sees_up_to_its_bound(log: Log) -> None:
    log.append_as_leader(batch(2), 0)
    log.append_as_leader(batch(1, producer_id=1, transactional=True), 0)
    log.append_as_leader(batch(2), 0)
    log.append_as_leader(batch(1), 0)
    log.advance_high_watermark(5)
    assert offsets_in(bytes_of(log.read(0, 9999, Isolation.LOG_END))) == [0, 1, 2, 3, 4, 5]
    assert offsets_in(bytes_of(log.read(0, 9999, Isolation.HIGH_WATERMARK))) == [0, 1, 2, 3, 4]
    assert offsets_in(bytes_of(log.read(0, 9999, Isolation.COMMITTED))) == [0, 1]
    assert log.last_stable_offset == 2
    assert log.read(2, 9999, Isolation.COMMITTED).slice is None
    assert log.read(6, 9999, Isolation.LOG_END).slice is None


@pytest.mark.parametrize("offset", [-1, 3])
def test_offsets_outside_are_refused_with_what_there_is(log: Log, offset: int) -> None:
    append_batches(log, 2)
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset} .* it holds 0 to 2"):
        log.read(offset, 100)


def test_a_gap_is_read_over_also_across_segments(log: Log) -> None:
    log.append_as_follower(at_offset(batch(1), 0))
    log.roll(10)
    log.roll(20)
    last = at_offset(batch(2), 25)
    log.append_as_follower(last)
    log.set_high_watermark(27)
    assert bytes_of(log.read(1, 9999)) == last


def test_reading_and_rolling_leaks_no_descriptor(log: Log, bench: LogBench) -> None:
    def opened() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    append_batches(log, 1)
    before = opened()
    for _ in range(20):
        append_batches(log, 1)
        log.roll()
        log.read(0, 9999)
    log.truncate_to(0)
    bench.background.run_due()
    assert opened() <= before + 3


# Transactions


def test_aborted_transactions_are_returned_to_readers_of_committed_records(log: Log) -> None:
    log.append_as_leader(batch(2, producer_id=1, transactional=True), 0)
    log.append_as_leader(marker(1, commit=False), 0, AppendOrigin.COORDINATOR)
    log.append_as_leader(batch(1), 0)
    assert log.last_stable_offset == 0
    log.advance_high_watermark(3)
    assert log.last_stable_offset == 3
    log.advance_high_watermark(4)
    assert log.read(0, 9999, Isolation.COMMITTED).aborted == (AbortedTxn(1, 0, 2, 3),)
    assert log.read(0, 9999).aborted == ()
    assert log.read(3, 9999, Isolation.COMMITTED).aborted == ()


def test_a_committed_transaction_is_in_no_index(log: Log, bench: LogBench) -> None:
    log.append_as_leader(batch(2, producer_id=1, transactional=True), 0)
    log.append_as_leader(marker(1, commit=True), 0, AppendOrigin.COORDINATOR)
    log.advance_high_watermark(3)
    assert log.read(0, 9999, Isolation.COMMITTED).aborted == ()
    assert not any(name.endswith(".txnindex") for name in listing(bench.directory))


def test_truncating_an_end_marker_opens_the_transaction_again(log: Log) -> None:
    log.append_as_leader(batch(1), 0)
    log.append_as_leader(batch(1, producer_id=1, transactional=True), 0)
    log.append_as_leader(marker(1, commit=False), 0, AppendOrigin.COORDINATOR)
    log.advance_high_watermark(3)
    log.truncate_to(2)
    log.set_high_watermark(2)
    assert log.last_stable_offset == 1
    assert log.aborted_between(0, 9) == ()


# Times


def test_times_and_special_timestamps_lead_to_offsets(log: Log) -> None:
    append_batches(log, 3)
    log.append_as_leader(batch(1, timestamp=START_MS + 100), 4)
    log.roll()
    log.append_as_leader(batch(1, timestamp=START_MS + 50), 4)
    assert log.offset_for_time(START_MS + 2) == ListedOffset(START_MS + 2, 2, 0)
    assert log.offset_for_time(START_MS + 3) == ListedOffset(START_MS + 100, 3, 4)
    assert log.offset_for_time(START_MS + 101) is None
    assert log.offset_for_time(EARLIEST_TIMESTAMP) == ListedOffset(-1, 0, 0)
    assert log.offset_for_time(LATEST_TIMESTAMP) == ListedOffset(-1, 5, 4)
    assert log.offset_for_time(MAX_TIMESTAMP) == ListedOffset(START_MS + 100, 3, 4)


# Log start and high watermark


def test_records_are_deleted_up_to_the_high_watermark(log: Log) -> None:
    append_batches(log, 3, 3)
    assert log.delete_records(4)
    assert not log.delete_records(4)
    assert (log.log_start, log.log_end) == (4, 6)
    with pytest.raises(OffsetOutOfRange, match="up to the high watermark 6, not 7"):
        log.delete_records(7)
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100)


def test_what_was_deleted_does_not_count_as_flushed(log: Log, bench: LogBench) -> None:
    append_batches(log, 3, 3)
    log.delete_records(4)
    assert (log.recovery_point, log.flushed_to) == (4, 0)
    log.flush()
    assert (log.recovery_point, log.flushed_to) == (6, 6)
    assert not bench.failures


def test_a_leaders_high_watermark_only_goes_up_a_followers_stays_within_the_log(log: Log) -> None:
    append_batches(log, 3)
    assert not log.advance_high_watermark(2)
    with pytest.raises(AssertionError):
        log.advance_high_watermark(4)
    assert log.set_high_watermark(1)
    assert log.set_high_watermark(99)
    assert log.high_watermark == 3


# Truncation


def test_truncating_goes_back_over_segments(log: Log, bench: LogBench) -> None:
    written = append_batches(log, 2, 2)
    log.roll()
    append_batches(log, 2)
    log.roll()
    assert log.truncate_to(2)
    assert (log.segments.bases, log.log_end, log.high_watermark, log.recovery_point) == ([0], 2, 2, 2)
    assert bytes_of(log.read(0, 9999, Isolation.LOG_END)) == written[0]
    assert not bench.failures, "also a segment that was never written to can be renamed away"
    assert not log.truncate_to(2)


def test_truncating_below_the_first_segment_starts_there(log: Log) -> None:
    log.truncate_fully_and_start_at(100)
    log.append_as_leader(batch(5), 0)
    assert log.truncate_to(50)
    assert (log.log_start, log.log_end, log.segments.bases, log.epochs.entries) == (50, 50, [50], [])


def test_truncating_fully_forgets_producers_epochs_and_snapshots(log: Log, bench: LogBench) -> None:
    log.append_as_leader(batch(1, producer_id=1, transactional=True), 3)
    log.roll()
    log.truncate_fully_and_start_at(40)
    assert (log.log_start, log.log_end, log.high_watermark) == (40, 40, 40)
    assert not log.producer_state.by_id
    assert log.last_stable_offset == 40
    assert not any(name.endswith(".snapshot") for name in listing(bench.directory))
    assert log.append_as_leader(batch(1, producer_id=1, sequence=9), 3).first_offset == 40


# Rolling


def test_rolling_writes_a_snapshot_and_flushes_the_old_segment(log: Log, bench: LogBench) -> None:
    log.append_as_leader(batch(2, producer_id=1), 0)
    log.roll()
    assert "00000000000000000002.snapshot" in listing(bench.directory)
    assert (log.segments.bases, log.recovery_point) == ([0, 2], 2)


@pytest.mark.parametrize(
    ("settings", "timestamps", "bases"),
    [
        ({"segment.bytes": "250"}, [0, 0, 0, 0], [0, 3]),
        ({"segment.ms": "100"}, [0, 100, 101, 150], [0, 2]),
        ({"segment.index.bytes": "24", "index.interval.bytes": "1"}, [0, 0, 0, 0, 0], [0, 2]),
    ],
)
def test_an_append_rolls_when_the_segment_is_full_or_old(
    tmp_path: Path, settings: dict[str, str], timestamps: list[int], bases: list[int]
) -> None:
    log = LogBench(tmp_path, settings).open()
    for timestamp in timestamps:
        log.append_as_leader(batch(timestamp=START_MS + timestamp), 0)
    assert log.segments.bases[: len(bases)] == bases


def test_jitter_stays_within_what_is_allowed(tmp_path: Path) -> None:
    log = LogBench(tmp_path, {"segment.ms": "1000", "segment.jitter.ms": "400"}).open()
    jitters = set()
    for _ in range(30):
        log.truncate_fully_and_start_at(log.log_end + 1)
        jitters.add(log.segments.active.jitter_ms)
    assert len(jitters) > 1
    assert all(0 <= jitter <= 400 for jitter in jitters)


# Flushing


# Failing


def test_a_closed_log_is_complete_on_disk(bench: LogBench, log: Log) -> None:
    append_batches(log, 2, 2)
    log.append_as_leader(batch(producer_id=3), 0)
    log.close()
    assert log.recovery_point == log.log_end == 5
    assert "00000000000000000005.snapshot" in listing(bench.directory)
    again = bench.open(clean=True)
    assert (again.log_end, set(again.producer_state.by_id)) == (5, {3})
    assert again.segments.active.time_index.entries() == [(START_MS + 1, 1)]
    assert OsFiles().size(again.segments.active.file.fd) == again.size
