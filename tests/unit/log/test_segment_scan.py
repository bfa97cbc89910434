"""The scan of a segment after a crash: what it collects, and where it ends."""

import random
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from leadline.errors import CorruptFile
from leadline.log import segment_scan
from leadline.log.checkpoints import EpochEntry
from leadline.log.epochs import LeaderEpochs
from leadline.log.index import OffsetIndex
from leadline.log.log import Log
from leadline.log.open_files import MappedFile
from leadline.log.producer_entry import ProducerEntry
from leadline.log.producer_state import AppendOrigin, OpenTxn, ProducerState
from leadline.log.segment import Segment
from leadline.log.segment_scan import SegmentScan, scan_segment
from leadline.runtime.ports import Files
from tests.support.logs import START_MS, TP, LogBench, batch, marker, three_segments


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


# The compiled scan against the loop in Python


def write_random_batches(log: Log, seed: int) -> None:
    """Of many producers, some of which share a row, with epochs, transactions and times that go back."""
    draw, open_txns = random.Random(seed), set[int]()
    epochs, sequences = dict[int, int](), dict[int, int]()
    leader_epoch = 0
    for _ in range(150):
        leader_epoch += draw.random() < 0.05
        producer = draw.choice((-1, -1, 0, 1, 1, 2, 257, 513, draw.randrange(10**12)))
        if producer in open_txns and draw.random() < 0.3:
            open_txns.discard(producer)
            end = marker(producer, commit=draw.random() < 0.5, producer_epoch=epochs[producer])
            log.append_as_leader(end, leader_epoch, AppendOrigin.COORDINATOR)
            continue
        if producer >= 0 and producer not in open_txns and draw.random() < 0.1:
            epochs[producer], sequences[producer] = epochs.get(producer, 0) + 1, 0
        sequence, epoch = sequences.get(producer, 0), epochs.setdefault(producer, 0)
        transactional = producer >= 0 and (producer in open_txns or draw.random() < 0.2)
        open_txns |= {producer} if transactional else set()
        count = draw.randint(1, 3)
        sequences[producer] = sequence + count
        data = batch(
            count,
            timestamp=START_MS + draw.randint(-1000, 1000),
            size=draw.choice((1, 60, 500)),
            producer_id=producer,
            producer_epoch=epoch,
            sequence=sequence,
            transactional=transactional,
        )
        log.append_as_leader(data, leader_epoch)


class Outcome(NamedTuple):
    scan: SegmentScan
    entries: list[tuple[int, ProducerEntry]]
    open_transactions: Sequence[OpenTxn]
    end_offset: int
    epochs: Sequence[EpochEntry]


def outcome(segment: Segment, files: Files, *, flushed: bool) -> Outcome:
    state, epochs = ProducerState(TP, 10**15), LeaderEpochs()
    scan = scan_segment(files, segment, state, epochs, flushed=flushed)
    return Outcome(scan, list(state.by_id.items()), state.open_transactions(), state.end_offset, epochs.entries)


@pytest.mark.parametrize("seed", range(8))
def test_the_compiled_scan_collects_what_the_loop_does(
    tmp_path: Path, seed: int, compiled_walker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MappedFile, "WINDOW", 8192)
    bench = LogBench(tmp_path, {"index.interval.bytes": str((0, 300, 4096)[seed % 3])})
    log = bench.open()
    write_random_batches(log, seed)
    segment, draw = log.segments.active, random.Random(seed)
    for damage in range(4):
        outcomes = []
        for is_compiled in (True, False):
            monkeypatch.setattr(segment_scan, "IS_COMPILED", is_compiled)
            monkeypatch.setattr(segment_scan, "scan_usual", compiled_walker.scan_usual)
            outcomes += [outcome(segment, bench.files, flushed=flushed) for flushed in (False, True)]
        assert outcomes[:2] == outcomes[2:]
        if damage == 0:
            assert outcomes[0].scan.valid_bytes == segment.size
        at = draw.randrange(segment.size - 1)
        segment.file.write(bytes([segment.file.pread(1, at)[0] ^ 1 << draw.randrange(8)]), at)
