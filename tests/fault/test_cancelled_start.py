"""The start of a broker is cancelled at any step, as a signal does it: nothing of it goes on, and nothing is lost."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import in_memory
from tests.support.damaged_dirs import KEPT, ORDERS, PATIENCE_S, RECORDS, fill, new_broker, offsets_read

STEPS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # turns of the loop


@pytest.fixture
def directory() -> Iterator[Path]:
    for path in in_memory.directory():
        asyncio.run(fill(path / "crashed"))
        yield path / "crashed"


async def start_and_cancel(directory: Path, after: int) -> None:
    broker = new_broker(directory)
    starting = asyncio.create_task(broker.start())
    for _ in range(after):
        await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait([starting], timeout=PATIENCE_S)
    if not starting.cancelled():
        await starting  # it was faster
        await broker.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert broker.dirs.dirs == {}  # unlocked


async def records_of(directory: Path) -> list[list[int]]:
    broker = new_broker(directory)
    await broker.start()
    try:
        return [offsets_read(broker.dirs.logs[tp]) for tp in (ORDERS, KEPT)]
    finally:
        await broker.stop()


def test_a_start_that_is_cancelled_at_any_step_leaves_nothing_behind(directory: Path) -> None:
    for after in STEPS:
        asyncio.run(start_and_cancel(directory, after))
    assert asyncio.run(records_of(directory)) == [list(range(RECORDS))] * 2
