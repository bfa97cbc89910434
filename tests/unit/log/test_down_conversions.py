"""Slices of a segment are read in windows and converted beside the loop."""

import asyncio
from pathlib import Path

from leadline.log.down_conversions import WINDOW_BYTES, DownConversions
from leadline.log.log import Isolation
from leadline.log.segment import FileSlice
from leadline.records.message_set import entries
from tests.support.logs import LogBench, batch


def offsets_of(part: FileSlice, magic: int = 1, first: int = 0) -> list[int]:
    conversions = DownConversions()
    try:
        data = asyncio.run(conversions.convert(part, magic, first))
    finally:
        conversions.close()
    return [entry.offset for entry in entries(data)]


def test_batches_within_and_across_windows_are_all_converted(tmp_path: Path) -> None:
    log = LogBench(tmp_path).open()
    sizes = (10, WINDOW_BYTES - 100, 10, 3 * WINDOW_BYTES, 10, WINDOW_BYTES // 2, WINDOW_BYTES // 2, 10)
    for size in sizes:
        log.append_as_leader(batch(size=size), 0)
    part = log.read(0, 1 << 30, Isolation.LOG_END).slice
    assert part is not None
    assert offsets_of(FileSlice(part.file, part.position, part.length)) == list(range(len(sizes)))
    assert offsets_of(part, first=5) == [5, 6, 7]


def test_a_batch_that_is_cut_off_is_not_converted(tmp_path: Path) -> None:
    log = LogBench(tmp_path).open()
    for size in (10, 2 * WINDOW_BYTES):
        log.append_as_leader(batch(size=size), 0)
    part = log.read(0, 1 << 30, Isolation.LOG_END).slice
    assert part is not None
    for length, expected in ((60, []), (90, [0]), (part.length - 1, [0]), (part.length, [0, 1])):
        assert offsets_of(FileSlice(part.file, part.position, length)) == expected
