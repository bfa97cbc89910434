"""Creating logs: the topic id is written with them, and what is in the way concerns one partition."""

import asyncio
import uuid
from pathlib import Path

import pytest

from leadline.errors import StorageError
from leadline.model import TopicPartition
from tests.support.dirs import OTHER, log_dirs, opened
from tests.support.logs import TP


@pytest.fixture
def one(tmp_path: Path) -> Path:
    return tmp_path / "one"


def test_a_topic_id_is_written_with_the_log(one: Path) -> None:
    topic_id = uuid.uuid4()

    async def scenario() -> None:
        dirs = log_dirs(one)
        await dirs.open()
        await dirs.create(TP, topic_id)
        await dirs.close()
        async with opened(log_dirs(one)) as again:
            assert again.logs[TP].topic_id == topic_id

    asyncio.run(scenario())


def test_something_else_at_the_place_of_a_new_log_takes_that_partition_offline_alone(one: Path) -> None:
    async def scenario() -> None:
        async with opened(log_dirs(one)) as dirs:
            (one / "orders-0").write_text("a file")
            await dirs.create_all({TP: None, OTHER: None})
            assert set(dirs.logs) == {OTHER}
            with pytest.raises(StorageError, match=r"orders-0 is offline: .*orders-0: Not a directory"):
                await dirs.create(TP)
            (one / "else-3").write_text("a file")
            with pytest.raises(StorageError, match=r"else-3 is offline: .*else-3: Not a directory"):
                await dirs.create(TopicPartition("else", 3))
            assert not dirs.offline

    asyncio.run(scenario())
