"""The scan of a segment after a crash: what it collects, and where it ends."""

import zlib
from pathlib import Path

import pytest

from leadline.errors import CorruptFile
from leadline.log.epochs import LeaderEpochs
from leadline.log.index import OffsetIndex
from leadline.log.producer_state import ProducerState
from leadline.log.segment_scan import scan_segment
from tests.support.logs import LogBench, batch, three_segments


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return three_segments(tmp_path)


def path(bench: LogBench, base: int, kind: str) -> Path:
    return bench.directory / f"{base:020d}{kind}"


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_format_is_named_and_left_as_it_is(bench: LogBench, magic: int) -> None:
    inside = bytes([magic, 0]) + bytes(20)
    old = (3).to_bytes(8, "big") + (4 + len(inside)).to_bytes(4, "big") + zlib.crc32(inside).to_bytes(4, "big") + inside
    segment = path(bench, 3, ".log")
    segment.write_bytes(old * 3)
    with pytest.raises(CorruptFile, match=f"0003.log: at byte 0: message format {magic} .from before Kafka 0.11"):
        bench.open(clean=False)
    assert segment.read_bytes() == old * 3


@pytest.mark.parametrize(("damage_at", "batches"), [(None, 3), (150, 1), (0, 0)])
def test_a_scan_ends_at_the_first_batch_that_is_not_valid(tmp_path: Path, damage_at: int | None, batches: int) -> None:
    bench = LogBench(tmp_path, {"index.interval.bytes": "0"})
    log = bench.open()
    ends = [0]
    for n in range(3):
        log.append_as_leader(batch(producer_id=1, sequence=n, size=50), n)
        ends.append(log.size)
    segment = log.segments.active
    if damage_at is not None:
        segment.file.write(b"damage", damage_at + 20)
    state, epochs, progress = ProducerState(bench.tp, 1), LeaderEpochs(), list[int]()
    scan = scan_segment(bench.files, segment, state, epochs, progress.append)
    assert scan.valid_bytes == ends[batches]
    assert state.end_offset == batches
    assert [entry.epoch for entry in epochs.entries] == list(range(batches))
    assert len(scan.offset_entries) == max(batches - 1, 0) * OffsetIndex.ENTRY.size
    assert sum(progress) == segment.size
