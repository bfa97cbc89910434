"""What tasks leave for the driver."""

from pathlib import Path

import pytest

from leadline.model import TopicPartition
from leadline.spark.batches.encode import EncodedBatch
from leadline.spark.topics.sink import MOST_OPEN, TaskStaged, staged_batches
from leadline.spark.topics.staging import FOLDER, Staging, StagingFailed

TP = TopicPartition("t", 0)


def test_batches_come_back_as_they_were_left(tmp_path: Path) -> None:
    staging = Staging.of(str(tmp_path), "job")
    lefts = [
        TaskStaged(
            staging, staging.write([EncodedBatch(TP, bytearray(f"{task}-{n}", "ascii"), n) for n in range(3)]), None
        )
        for task in range(MOST_OPEN + 5)
    ]
    with staged_batches(lefts) as batches:
        assert [batch.load().decode() for batch in batches] == [f"{t}-{n}" for t in range(len(lefts)) for n in range(3)]
        assert [batch.count for batch in batches[:3]] == [0, 1, 2]
        assert batches[0].load() == b"0-0"


def test_a_job_clears_what_it_staged_and_nothing_else(tmp_path: Path) -> None:
    mine, other = Staging.of(f"file://{tmp_path}", "mine"), Staging.of(str(tmp_path), "other")
    for staging in (mine, other):
        staging.write([EncodedBatch(TP, bytearray(b"x"), 1)])
    mine.clear()
    mine.clear()
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["other"]


def test_a_driver_that_does_not_find_a_file_says_what_is_needed(tmp_path: Path) -> None:
    staging = Staging.of(str(tmp_path), "job")
    left = staging.write([EncodedBatch(TP, bytearray(b"x"), 1)])
    staging.clear()
    with pytest.raises(StagingFailed, match="stagingLocation must be a directory that driver and executors share"):
        staging.open(left)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StagingFailed, match="cannot be written"):
        Staging.of(str(tmp_path / "file"), "job").write([])
