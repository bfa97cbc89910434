"""Log directories for tests: opened on a clock to set, with small segments and whatever files a test wants."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from leadline.config.topic import LogConfig
from leadline.errors import LogDirFailed
from leadline.log.checkpoints import read_offsets
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicPartition
from leadline.runtime.ports import Files, OsFiles
from tests.support.chance import SeededChance
from tests.support.crash_disk import Unsynced
from tests.support.logs import TP, ManualClock, batch
from tests.support.settings import live_settings

OTHER = TopicPartition("orders", 1)


def log_dirs(
    *paths: Path,
    topic: Mapping[str, str] | None = None,
    storage: Mapping[str, str] | None = None,
    files: Files | None = None,
    clock: ManualClock | None = None,
) -> LogDirs:
    settings = live_settings({"log.dirs": ",".join(map(str, paths)), **(storage or {})})
    topic_config = LogConfig.parse(topic or {})
    return LogDirs(settings, clock or ManualClock(), SeededChance(), files or Unsynced(), lambda _: topic_config)


@asynccontextmanager
async def opened(dirs: LogDirs) -> AsyncIterator[LogDirs]:
    """Until the block ends, as if the process were killed there: nothing is closed."""
    await dirs.open()
    try:
        yield dirs
    finally:
        for path in list(dirs.dirs):
            disk = dirs.dirs[path].disk
            await disk.drain()
            dirs.take_offline(LogDirFailed(path, "running", OSError("killed by the test")))
            await disk.stop()


def fill(log: Log, batches: int = 3, *, key: str = "k", size: int = 10) -> None:
    for _ in range(batches):
        log.append_as_leader(batch(key=key, size=size), 0)
    log.advance_high_watermark(log.log_end)


def checkpoint(directory: Path, name: str) -> dict[TopicPartition, int]:
    return read_offsets(OsFiles(), str(directory / name))


async def stopped(dirs: LogDirs, **logs: int) -> None:
    """Directories with so many batches in orders-0 and orders-1, closed in order."""
    await dirs.open()
    for tp, count in ((TP, logs.get("first", 3)), (OTHER, logs.get("second", 2))):
        fill(await dirs.create(tp), count)
    await dirs.close(broker_epoch=7)
