"""The set of log directories: where a new log goes."""

import asyncio
from pathlib import Path

import pytest

from tests.support.dirs import OTHER, log_dirs, opened, stopped
from tests.support.logs import TP, listing


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


@pytest.fixture
def two(tmp_path: Path) -> Path:
    return tmp_path / "two"


def test_several_directories_are_loaded_and_new_logs_go_to_the_emptiest(one: Path, two: Path) -> None:
    async def scenario() -> None:
        await stopped(log_dirs(one, two))
        assert (
            len({"orders-0", "orders-1"} & set(listing(one))) == len({"orders-0", "orders-1"} & set(listing(two))) == 1
        )
        async with opened(log_dirs(one, two)) as dirs:
            assert {log.parent for log in dirs.logs.values()} == {str(one), str(two)}
            assert (dirs.logs[TP].log_end, dirs.logs[OTHER].log_end) == (3, 2)
            assert await dirs.create(TP) is dirs.logs[TP], "it exists"

    asyncio.run(scenario())
