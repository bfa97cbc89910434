"""One pass of the cleaner over a whole log in which keys come again and again. Goal: 1.5 times Kafka's speed.

Leadline's as the broker runs it: in a process of its own, whose start counts, and with what it hands back swapped in.
Kafka's in a JVM that has cleaned before. Both must leave the same records.
"""

import filecmp
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leadline.log.checkpoints import write_clean_shutdown, write_offsets
from leadline.log.names import RECOVERY_POINTS_FILE
from leadline.records.compression import Codec
from leadline.records.record import Record
from leadline.runtime.ports import OsFiles
from tests.bench.batches import Maker, partition_folder
from tests.bench.results import Goal, Row
from tests.bench.run import Run, anew, settle
from tests.bench.sides import Side, both, same
from tests.support.logs import TP, LogBench, records_in

KEY_BYTES = 12
GOAL = Goal(times=1.5)
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "67108864"}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    records: int  # in a batch
    value_bytes: int
    copies: int  # of each key, on average
    codec: Codec = Codec.NONE
    full_bytes: int = 220_000_000
    quick_bytes: int = 6_000_000


CASES = (
    Case("1 KB values", 16, 1000, copies=4),
    Case("100 B values", 120, 100, copies=8),
    Case("100 B values, one in a batch", 1, 100, copies=4, full_bytes=60_000_000, quick_bytes=1_000_000),
    *(
        Case(f"{size}, {codec.name.lower()}", records, value_bytes, copies, codec, 40_000_000, 1_000_000)
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
        for size, records, value_bytes, copies in (("1 KB values", 16, 1000, 4), ("100 B values", 120, 100, 8))
    ),
)


def measure(run: Run) -> list[Row]:
    rows: list[Row] = []
    with both() as (leadline, kafka):
        for case in CASES:
            rows += _measure_case(run, case, run.folder / case.name, leadline, kafka)
    return rows


def _measure_case(run: Run, case: Case, folder: Path, leadline: Side, kafka: Side) -> list[Row]:
    size = run.sized(case.full_bytes, case.quick_bytes)
    title = f"{size / 1e6:.0f} MB, {case.name}"
    run.say(f"cleaner, {title}: making the log")
    model, ours, theirs = folder / "model", folder / "leadline", folder / "kafka"
    _make(case, size, model)
    speed, cpu = Row(title, "MB/s", GOAL), Row(f"{title}: CPU", "ms/MB", GOAL)
    for n in run.each_round(f"cleaner, {title}"):
        anew(model, ours)
        anew(model, theirs)
        settle(ours, theirs)
        done = [
            side.ask("clean", dir=str(partition_folder(parent)), config=SETTINGS)
            for side, parent in ((leadline, ours), (kafka, theirs))
        ]
        for what in ("bytes", "end_offset", "log_end"):
            same(what, done[0][what], done[1][what])
        compare_records(partition_folder(ours), partition_folder(theirs))
        if n:
            speed.add(*(measured["bytes"] / 1e6 / measured["seconds"] for measured in done))
            cpu.add(*(measured["cpu_seconds"] * 1e3 / (measured["bytes"] / 1e6) for measured in done))
    shutil.rmtree(folder)
    return [speed, cpu]


def _make(case: Case, size: int, parent: Path) -> None:
    """A directory with one log, cleanly closed; its last segment is empty, for that one is not cleaned."""
    parent.mkdir(parents=True)
    maker = Maker(case.records, case.value_bytes, KEY_BYTES, case.codec)
    log = LogBench(parent, {"segment.bytes": SETTINGS["segment.bytes"]}).open()
    draw = random.Random(case.value_bytes)
    batch_bytes = len(maker.batch([bytes(KEY_BYTES)] * case.records))
    keys = size * case.records // batch_bytes // case.copies
    while log.size < size:
        log.append_as_leader(maker.batch([b"%0*d" % (KEY_BYTES, draw.randrange(keys)) for _ in range(case.records)]), 0)
    log.roll()
    log.close()
    write_offsets(OsFiles(), str(parent / RECOVERY_POINTS_FILE), {TP: log.log_end})
    write_clean_shutdown(OsFiles(), str(parent), -1)


def compare_records(ours: Path, theirs: Path) -> None:
    """Byte for byte; if the bytes differ, record by record."""
    logs = [sorted(folder.glob("*.log")) for folder in (ours, theirs)]
    equal, different, missing = filecmp.cmpfiles(ours, theirs, [path.name for path in logs[0]], shallow=False)
    if len(equal) == len(logs[0]) == len(logs[1]) and not different and not missing:
        return
    for mine, other in zip(_records(logs[0]), _records(logs[1]), strict=True):
        same("records after cleaning", mine, other)


def _records(logs: list[Path]) -> Iterator[Record]:
    for path in logs:
        yield from records_in(path.read_bytes())
