"""Recovery after an unclean stop: every byte read, every CRC checked, the indexes built anew.

From the call that opens the log until it is ready. The data is in the page cache on both sides; nothing is known to be
flushed. Measured twice, and both are held to the goal: at a start, which is when a broker recovers; and in a process
that has done it several times, with the JVM's compiler warm, which is the harder comparison.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.records.compression import Codec
from tests.bench.batches import Maker, fill, partition_folder
from tests.bench.results import Goal, Row
from tests.bench.run import Run, settle
from tests.bench.sides import Side, both, same

MB = 1_000_000
GOAL = Goal(times=2)


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    full_bytes: int
    quick_bytes: int
    records: int
    value_bytes: int
    producer_id: int = -1
    codec: Codec = Codec.NONE


CASES = (
    Case("16 x 1 KB batches", 1_200 * MB, 48 * MB, 16, 1000),
    Case("16 x 1 KB batches, idempotent", 600 * MB, 24 * MB, 16, 1000, producer_id=7),
    Case("16 x 1 KB batches, lz4", 300 * MB, 12 * MB, 16, 1000, codec=Codec.LZ4),
    Case("1 x 100 B batches", 100 * MB, 2 * MB, 1, 100),
    Case("1 x 100 B batches, idempotent", 100 * MB, 2 * MB, 1, 100, producer_id=7),
)


@dataclass(frozen=True, slots=True)
class Crashed:
    """A log whose broker was killed, for each side a copy; and aside, the small files as they were then."""

    leadline: Path
    kafka: Path
    small: Path
    bytes: int

    @classmethod
    def make(cls, case: Case, size: int, folder: Path) -> "Crashed":
        fill(
            folder / "leadline",
            size,
            Maker(case.records, case.value_bytes, codec=case.codec),
            producer_id=case.producer_id,
        )
        ours, theirs = partition_folder(folder / "leadline"), partition_folder(folder / "kafka")
        small = folder / "small"
        shutil.copytree(ours, theirs)
        shutil.copytree(ours, small, ignore=shutil.ignore_patterns("*.log"))
        settle(ours, theirs)
        return cls(ours, theirs, small, sum(path.stat().st_size for path in ours.glob("*.log")))

    def recover(self, side: Side, directory: Path) -> Any:
        for path in directory.iterdir():  # the last recovery wrote indexes, a snapshot and epochs
            if path.suffix != ".log":
                path.unlink()
        shutil.copytree(self.small, directory, dirs_exist_ok=True)
        return side.ask("recover", dir=str(directory), config={})


def measure(run: Run) -> list[Row]:
    rows = [_at_a_start(run, CASES[0], run.folder / "start")]
    with both() as (leadline, kafka):
        for n, case in enumerate(CASES):
            rows += _measure_case(run, case, run.folder / str(n), leadline, kafka)
    return rows


def _at_a_start(run: Run, case: Case, folder: Path) -> Row:
    """As it happens: once, in a process that has just started."""
    size = run.sized(case.full_bytes, case.quick_bytes)
    row = Row(f"{size / 1e9:.2g} GB of {case.name}, at a start", "s", GOAL)
    crashed = Crashed.make(case, size, folder)
    for _ in run.each_round("recovery at a start"):
        with both() as (leadline, kafka):
            ours, theirs = crashed.recover(leadline, crashed.leadline), crashed.recover(kafka, crashed.kafka)
        same("log_end", ours["log_end"], theirs["log_end"])
        row.add(ours["seconds"], theirs["seconds"])
    shutil.rmtree(folder)
    return row


def _measure_case(run: Run, case: Case, folder: Path, leadline: Side, kafka: Side) -> list[Row]:
    size = run.sized(case.full_bytes, case.quick_bytes)
    title = f"{size / 1e9:.2g} GB of {case.name}"
    run.say(f"recovery, {title}: making it")
    crashed = Crashed.make(case, size, folder)
    row, cpu = Row(f"{title}, warm", "s", GOAL), Row(f"{title}, warm: CPU", "s", GOAL)
    for n in run.each_round(f"recovery, {title}"):
        ours = crashed.recover(leadline, crashed.leadline)
        theirs = crashed.recover(kafka, crashed.kafka)
        for what in ("log_end", "bytes", "segments"):
            same(what, ours[what], theirs[what])
        same("bytes kept of so many", (ours["bytes"], crashed.bytes), (theirs["bytes"], theirs["bytes"]))
        compare_indexes(crashed.leadline, crashed.kafka)
        if n:
            row.add(ours["seconds"], theirs["seconds"])
            cpu.add(ours["cpu_seconds"], theirs["cpu_seconds"])
        else:
            crashed.recover(kafka, crashed.kafka)  # the compiler of a JVM wants to see it more than once
    shutil.rmtree(folder)
    return [row, cpu]


def compare_indexes(ours: Path, theirs: Path) -> None:
    """The same entries. Kafka reserves room behind the last one while a log is open."""
    for kind in ("*.index", "*.timeindex"):
        names = sorted(path.name for path in ours.glob(kind))
        same(f"names of {kind}", names, sorted(path.name for path in theirs.glob(kind)))
        for name in names:
            entries, reserved = (ours / name).read_bytes(), (theirs / name).read_bytes()
            same(f"entries of {name}", entries, reserved[: len(entries)])
            same(f"bytes behind the last entry of {name}", 0, len(reserved[len(entries) :].rstrip(b"\0")))
