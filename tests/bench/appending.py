"""Appends to a log, one after the other in one thread, without fsync: as leader batch by batch, as follower in chunks.

Both sides append the same batches in the same order to an empty log, and must end with the same bytes. The CPU time is
that of the whole process.
"""

import filecmp
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.batches import Maker, partition_folder
from tests.bench.results import Row
from tests.bench.run import Run
from tests.bench.sides import Side, both, same


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    records: int
    value_bytes: int
    batches: int  # in the file that is appended
    passes: int  # over that file, in one round
    warm_up: int  # rounds
    producer_id: int = -1
    chunk_bytes: int = 0  # 0: as leader


CASES = (
    Case("1 x 100 B", 1, 100, 2000, 15, warm_up=3),
    Case("1 x 100 B, idempotent", 1, 100, 30_000, 1, warm_up=3, producer_id=7),
    Case("16 x 1 KB", 16, 1000, 250, 20, warm_up=3),
    Case("900 x 1 KB", 900, 1000, 8, 25, warm_up=2),
    Case("follower, 1 MB of 16 x 1 KB", 16, 1000, 16_000, 1, warm_up=3, chunk_bytes=1 << 20),
)


def measure(run: Run) -> list[Row]:
    rows: list[Row] = []
    with both() as (leadline, kafka):
        for case in CASES:
            rows += _measure_case(run, case, leadline, kafka)
    return rows


def _measure_case(run: Run, case: Case, leadline: Side, kafka: Side) -> list[Row]:
    batches = run.folder / f"{case.name}.batches"
    with batches.open("wb") as file:
        for data in _batches(case, run.sized(case.batches, max(case.batches // 20, 2))):
            file.write(data)
    rate, speed, cpu = (
        Row(case.name, "/s"),
        Row(f"{case.name}: bytes", "MB/s"),
        Row(f"{case.name}: CPU per append", "us"),
    )
    for n in run.each_round(f"append, {case.name}"):
        for _ in range(1 if n else case.warm_up):
            ours, theirs = _append_on_both(run.folder, case, batches, leadline, kafka)
        if n:
            rate.add(ours["count"] / ours["seconds"], theirs["count"] / theirs["seconds"])
            speed.add(ours["bytes"] / ours["seconds"] / 1e6, theirs["bytes"] / theirs["seconds"] / 1e6)
            cpu.add(ours["cpu_seconds"] / ours["count"] * 1e6, theirs["cpu_seconds"] / theirs["count"] * 1e6)
    batches.unlink()
    return [rate, speed, cpu]


def _batches(case: Case, count: int) -> Iterator[bytearray]:
    """For a leader from offset 0 each, for a follower as the leader has them."""
    maker = Maker(case.records, case.value_bytes)
    for n in range(count):
        if case.chunk_bytes:
            yield maker.batch(base_offset=n * case.records, leader_epoch=0)
        else:
            yield maker.batch(producer_id=case.producer_id)


def _append_on_both(folder: Path, case: Case, batches: Path, leadline: Side, kafka: Side) -> tuple[Any, Any]:
    copies = partition_folder(folder / "leadline"), partition_folder(folder / "kafka")
    results = []
    for side, directory in zip((leadline, kafka), copies, strict=True):
        directory.mkdir(parents=True)
        arguments = {"batches": str(batches), "passes": case.passes, "chunk_bytes": case.chunk_bytes}
        results.append(side.ask("append", dir=str(directory), config={}, **arguments))
    for what in ("count", "bytes", "log_end"):
        same(what, results[0][what], results[1][what])
    logs = [sorted(copy.glob("*.log")) for copy in copies]
    same("segments", [path.name for path in logs[0]], [path.name for path in logs[1]])
    for ours, theirs in zip(*logs, strict=True):
        same(f"bytes of {ours.name}", filecmp.cmp(ours, theirs, shallow=False), True)
    for copy in copies:
        shutil.rmtree(copy)
    return results[0], results[1]
