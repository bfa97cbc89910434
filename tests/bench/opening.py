"""Opening a whole log directory after a clean stop, in a process that has just started.

The time from the call on, the time from the start of the process on, and the memory that is resident afterwards.
Kafka's LogManager loads the logs in the same way in a broker; what else a broker starts is not part of this.
"""

import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from uuid import uuid4

from leadline.log import names
from leadline.log.checkpoints import write_clean_shutdown, write_offsets
from leadline.model import TopicPartition, new_id
from leadline.runtime.ports import OsFiles
from tests.bench.batches import Maker, fill, partition_folder
from tests.bench.results import Goal, Row
from tests.bench.run import Run, settle
from tests.bench.sides import Side, kafka, leadline, same

PARTITIONS_PER_TOPIC = 10
PARTITION_BYTES = 64_000


def measure(run: Run) -> list[Row]:
    count = run.sized(1000, 50)
    run.say(f"open: making {count} partitions")
    ours, theirs = run.folder / "leadline", run.folder / "kafka"
    log_end = _make(run.folder / "model", ours, count)
    shutil.copytree(ours, theirs)
    opened = Row(f"{count:,} partitions opened", "s", Goal(below=2))
    started = Row("from the start of the process on", "s")
    resident = Row("resident afterwards", "MB")
    for n in run.each_round("open"):
        settle(ours, theirs)
        mine, since_start, mb = _open(leadline, ours)
        other, other_since_start, other_mb = _open(kafka, theirs)
        expected = {"logs": count, "log_end": log_end * count}
        same("opened", {what: mine[what] for what in expected}, expected)
        same("opened", expected, {what: other[what] for what in expected})
        if n:
            opened.add(mine["seconds"], other["seconds"])
            started.add(since_start, other_since_start)
            resident.add(mb, other_mb)
    return [opened, started, resident]


def _make(model: Path, directory: Path, count: int) -> int:
    """A log directory as a clean stop leaves it, every partition a copy of one. Where they end."""
    log = fill(model, PARTITION_BYTES, Maker(16, 1000), producer_id=7)
    log.assign_topic_id(new_id(uuid4))
    log.close()
    tps = [TopicPartition(f"topic-{n // PARTITIONS_PER_TOPIC}", n % PARTITIONS_PER_TOPIC) for n in range(count)]
    for tp in tps:
        shutil.copytree(partition_folder(model), directory / str(tp))
    files = OsFiles()
    for name in (names.RECOVERY_POINTS_FILE, names.HIGH_WATERMARKS_FILE):
        write_offsets(files, str(directory / name), dict.fromkeys(tps, log.log_end))
    write_clean_shutdown(files, str(directory), -1)
    return log.log_end


def _open(start: Callable[[], AbstractContextManager[Side]], directory: Path) -> tuple[Any, float, float]:
    began = time.perf_counter()
    with start() as side:
        measured = side.ask("directory_open", dir=str(directory))
        since_start = time.perf_counter() - began
        resident_mb = side.resident_mb
        side.ask("directory_close")
    return measured, since_start, resident_mb
