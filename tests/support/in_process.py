"""A broker in the process of the test itself, for what cannot be seen from without."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.broker import broker_settings
from leadline.runtime.ports import Files


@asynccontextmanager
async def broker_in_process(
    *directories: Path,
    settings: Mapping[str, str] | None = None,
    files: Files | None = None,
    crash: bool = False,
) -> AsyncIterator[Broker]:
    """`files`: its disk. `crash`: it ends without closing its logs, as if killed; only its locks are given up."""
    defaults = {
        "log.dirs": ",".join(map(str, directories)),
        "listeners": "PLAINTEXT://localhost:0",
        "log.segment.delete.delay.ms": "0",
    }
    ports = Ports() if files is None else Ports(files=files)
    broker = Broker(broker_settings(defaults | dict(settings or {})), ports)
    await broker.start()
    try:
        yield broker
    finally:
        if crash:
            await broker.net.close()
            await broker.controller.stop()
            await broker.log_tasks.stop()
            for log_dir in list(broker.dirs.dirs.values()):
                await log_dir.disk.stop()
                log_dir.lock.release()
            broker.dirs.dirs.clear()
            await broker.tree.close()
        else:
            await broker.stop()
