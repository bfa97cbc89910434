"""One log directory: its lock excludes other brokers."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.errors import LogDirLocked
from tests.support.dirs import log_dirs, opened


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return tmp_path / "two"


TRY_TO_LOCK = """
import asyncio, sys
from leadline.config.broker import broker_settings
from leadline.config.live_settings import LiveSettings
from leadline.errors import LogDirLocked
from leadline.log.log_dirs import LogDirs
from leadline.runtime.ports import OsFiles, SystemChance, SystemTime
async def main():
    settings = LiveSettings(broker_settings({"log.dirs": sys.argv[1]}))
    dirs = LogDirs(settings, SystemTime(), SystemChance(), OsFiles())
    try:
        await dirs.open()
    except LogDirLocked as error:
        print("locked:", error)
    else:
        print("opened")
asyncio.run(main())
"""


def in_another_process(path: Path) -> str:
    command = [sys.executable, "-c", TRY_TO_LOCK, str(path)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def test_a_directory_belongs_to_one_process_and_in_it_to_one_owner(one: Path, two: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one)):
            for _ in range(2):  # a second owner must not give up the lock of the first
                with pytest.raises(LogDirLocked, match=f"{one} is in use"):
                    await log_dirs(two, one).open()
                assert in_another_process(one).startswith("locked: log directory")
            async with opened(log_dirs(two)):
                pass  # what was locked together with a directory in use is free again

    asyncio.run(scenario())
    assert in_another_process(one) == "opened"
