"""The ports that the logs of one directory share."""

from dataclasses import replace
from pathlib import Path

from tests.support.logs import LogBench, batch


def test_a_log_reports_each_rolled_segment_that_is_flushed(tmp_path: Path) -> None:
    bench, flushed = LogBench(tmp_path), list[int]()
    bench.context = replace(bench.context, segment_flushed=lambda: flushed.append(log.flushed_to))
    log = bench.open()
    for _ in range(2):
        log.append_as_leader(batch(), 0)
        log.roll()
    assert flushed == [1, 2]
