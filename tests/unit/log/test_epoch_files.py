"""The files of leader epochs: several in one job, each once, and a flush does not wait for them."""

from pathlib import Path
from types import NoneType

import pytest

from leadline.log.epoch_files import FILES_AT_ONCE, EpochFile, EpochFileOutcome, EpochFiles
from leadline.model import TopicPartition
from tests.support.lazy_disk import LazyDisk
from tests.support.logs import LogBench
from tests.support.memory_files import MemoryFiles


class ChangedLog:
    def __init__(self, files: MemoryFiles, number: int) -> None:
        self.tp, self.path = TopicPartition("t", number), f"/t-{number}/leader-epoch-checkpoint"
        files.make_dirs(f"/t-{number}")
        self.content, self.is_written = b"", True
        self.outcomes: list[EpochFileOutcome] = []

    def change(self, content: bytes) -> None:
        self.content, self.is_written = content, False

    def epoch_file(self) -> EpochFile | None:
        return None if self.is_written else EpochFile(self.path, self.content, self._written)

    def _written(self, outcome: EpochFileOutcome) -> None:
        self.outcomes.append(outcome)
        self.is_written = True


def fail(failure: Exception) -> None:
    raise failure


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def content_of(files: MemoryFiles, path: str) -> bytes:
    fd = files.open(path, 0)
    try:
        return files.pread(fd, 100, 0)
    finally:
        files.close(fd)


def test_files_that_wait_are_written_together_and_jobs_of_others_come_in_between(files: MemoryFiles) -> None:
    disk, order = LazyDisk("/", fail), list[str]()
    writes, logs = EpochFiles(disk, files), [ChangedLog(files, number) for number in range(2 * FILES_AT_ONCE)]
    for log in logs:
        log.change(b"x")
        writes.write(log)
    disk.run("a flush", lambda: order.append("flush"), lambda _: None)
    while disk.step():
        order.append(f"{sum(log.is_written for log in logs)} files")
    assert order == ["1 files", "flush", "1 files", f"{1 + FILES_AT_ONCE} files", f"{2 * FILES_AT_ONCE} files"]
    assert content_of(files, logs[-1].path) == b"x"


def test_a_file_that_changes_while_it_waits_is_written_once_with_its_last_content(files: MemoryFiles) -> None:
    disk = LazyDisk("/", fail)
    writes, first, second = EpochFiles(disk, files), ChangedLog(files, 1), ChangedLog(files, 2)
    for log, content in ((first, b"first"), (second, b"old"), (second, b"new")):
        log.change(content)
        writes.write(log)
    while disk.step():
        pass
    assert (content_of(files, second.path), second.outcomes) == (b"new", [None])


def test_a_file_that_is_up_to_date_is_not_written(files: MemoryFiles) -> None:
    disk, log = LazyDisk("/", fail), ChangedLog(files, 1)
    EpochFiles(disk, files).write(log)
    assert not disk.waiting


def test_a_file_that_cannot_be_used_is_reported_to_its_own_log_and_the_others_are_written(files: MemoryFiles) -> None:
    disk, logs = LazyDisk("/", fail), [ChangedLog(files, number) for number in range(4)]
    files.make_dirs(f"{logs[2].path}.tmp")
    writes = EpochFiles(disk, files)
    for log in logs:
        log.change(b"x")
        writes.write(log)
    while disk.step():
        pass
    assert [type(outcome) for log in logs for outcome in log.outcomes] == [
        NoneType, NoneType, IsADirectoryError, NoneType,
    ]  # fmt: skip
    assert content_of(files, logs[3].path) == b"x"


def test_a_clean_start_leaves_an_epoch_without_records_to_the_next_write(tmp_path: Path) -> None:
    bench = LogBench(tmp_path)
    log = bench.open()
    log.begin_epoch(3)
    log.close()
    path = tmp_path / "orders-0" / "leader-epoch-checkpoint"
    before = path.read_bytes()
    opened = bench.open()
    assert (opened.epochs.entries, path.read_bytes()) == ([], before)
    opened.close()
    assert path.read_bytes() == b"0\n0\n"
