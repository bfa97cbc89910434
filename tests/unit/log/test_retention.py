"""Which segments go: by time, by size, below the log's start, and never one beyond the high watermark."""

from pathlib import Path

import pytest

from leadline.log.log import Log
from leadline.log.retention import deletable_segments
from tests.support.logs import START_MS, LogBench, batch, listing

HOUR_MS = 3_600_000


def four_segments(tmp_path: Path, settings: dict[str, str]) -> tuple[LogBench, Log]:
    """Of one batch and one hour each; the last one is active."""
    bench = LogBench(tmp_path, settings)
    log = bench.open()
    for n in range(4):
        if n:
            log.roll()
        log.append_as_leader(batch(2, timestamp=START_MS + n * HOUR_MS), 0)
    log.advance_high_watermark(log.log_end)
    return bench, log


def deletable(log: Log, now_ms: int, *, high_watermark: int | None = None) -> tuple[list[int], str]:
    high_watermark = log.high_watermark if high_watermark is None else high_watermark
    deletion = deletable_segments(list(log.segments), log.config, log.log_start, log.log_end, high_watermark, now_ms)
    return [segment.base_offset for segment in deletion.segments], deletion.text


@pytest.mark.parametrize(("hours", "gone"), [(1, []), (2, [0]), (3, [0, 2]), (4, [0, 2, 4]), (9, [0, 2, 4, 6])])
def test_segments_go_by_the_time_of_their_newest_record(tmp_path: Path, hours: int, gone: list[int]) -> None:
    _, log = four_segments(tmp_path, {"retention.ms": str(HOUR_MS)})
    assert deletable(log, START_MS + hours * HOUR_MS + 1)[0] == gone


def test_for_ever_is_for_ever(tmp_path: Path) -> None:
    _, log = four_segments(tmp_path, {"retention.ms": "-1"})
    assert deletable(log, START_MS + 1000 * HOUR_MS)[0] == []


def test_segments_go_until_the_size_fits(tmp_path: Path) -> None:
    _, log = four_segments(tmp_path, {})
    size = log.size // 4
    for limit, gone in [
        (4 * size + 1, []),
        (4 * size, []),
        (3 * size + 1, []),
        (3 * size, [0]),
        (size, [0, 2, 4]),
        (0, [0, 2, 4, 6]),
    ]:
        log.update_config(LogBench(tmp_path, {"retention.bytes": str(limit), "retention.ms": "-1"}).config)
        assert deletable(log, START_MS)[0] == gone, limit


def test_segments_below_the_logs_start_go_whatever_the_policy(tmp_path: Path) -> None:
    _, log = four_segments(tmp_path, {"cleanup.policy": "compact", "retention.ms": "0"})
    assert deletable(log, START_MS + 9 * HOUR_MS)[0] == []
    log.delete_records(5)
    bases, reason = deletable(log, START_MS)
    assert bases == [0, 2]
    assert reason == "they are below the log start offset 5"


@pytest.mark.parametrize(("high_watermark", "gone"), [(0, []), (3, [0]), (4, [0, 2]), (8, [0, 2, 4, 6])])
def test_nothing_goes_that_reaches_beyond_the_high_watermark(
    tmp_path: Path, high_watermark: int, gone: list[int]
) -> None:
    _, log = four_segments(tmp_path, {"retention.ms": "0"})
    assert deletable(log, START_MS + 9 * HOUR_MS, high_watermark=high_watermark)[0] == gone


def test_when_all_segments_are_old_a_new_one_is_started_first(tmp_path: Path) -> None:
    bench, log = four_segments(tmp_path, {"retention.ms": str(HOUR_MS)})
    bench.clock.ms += 99 * HOUR_MS
    log.delete_old_segments()
    assert (log.segments.bases, log.log_start, log.log_end) == ([8], 8, 8)
    log.delete_old_segments()
    assert log.segments.bases == [8], "an empty active segment stays"
    assert log.append_as_leader(batch(), 0).first_offset == 8


def test_files_wait_for_file_delete_delay_ms_before_they_are_removed(tmp_path: Path) -> None:
    bench, log = four_segments(tmp_path, {"retention.ms": str(HOUR_MS), "file.delete.delay.ms": "777"})
    bench.clock.ms += 2 * HOUR_MS + 1
    assert log.delete_old_segments().text == f"they are older than retention.ms={HOUR_MS}"
    waiting = [name for name in listing(bench.directory) if name.endswith(".deleted")]
    assert [name.split(".", 1)[1] for name in waiting] == ["index.deleted", "log.deleted", "timeindex.deleted"]
    assert [delay_ms for delay_ms, _ in bench.background.postponed] == [777]
    bench.background.run_due()
    assert not any(name.endswith(".deleted") for name in listing(bench.directory))
