"""The files of logs that stay open: how many, which, and that nobody notices when one is closed."""

import errno
import os
from pathlib import Path

import pytest

from leadline.log import open_files
from leadline.log.log import Isolation
from leadline.log.open_files import CachedFile, OpenFileCache, cache_capacity
from leadline.runtime.ports import OsFiles, shortage
from tests.support.logs import LogBench, batch, bytes_of, offsets_in, whole_log
from tests.support.memory_files import MemoryFiles
from tests.support.waiting import until

FILES = OsFiles()


def some_files(directory: Path, count: int, cache: OpenFileCache) -> list[CachedFile]:
    for n in range(count):
        (directory / str(n)).write_text(f"file {n}")
    return [CachedFile(FILES, str(directory / str(n)), cache=cache) for n in range(count)]


def open_in(directory: Path) -> list[str]:
    """The files under a directory that this process has open."""
    links = (os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd"))
    targets = [os.readlink(link) for link in links if os.path.lexists(link)]
    return [target for target in targets if target.startswith(str(directory))]


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> OpenFileCache:
    cache = OpenFileCache(4)
    monkeypatch.setattr(open_files, "CACHE", cache)
    return cache


def test_no_more_files_are_open_than_the_capacity(tmp_path: Path) -> None:
    cache = OpenFileCache(3)
    files = some_files(tmp_path, 10, cache)
    for _ in range(2):
        for n, file in enumerate(files):
            assert file.open().pread(20, 0) == f"file {n}".encode()
            assert len(cache) <= 3
            assert len(open_in(tmp_path)) <= 3


def test_a_file_that_is_in_use_stays_open_and_an_idle_one_goes(tmp_path: Path) -> None:
    cache = OpenFileCache(2)
    busy, idle, *others = some_files(tmp_path, 5, cache)
    busy_file, idle_path = busy.open(), idle.open().path
    for other in others:
        busy.open()
        other.open()
    assert busy.open() is busy_file
    assert idle_path not in open_in(tmp_path)


def test_a_read_of_a_file_that_the_cache_closes_goes_on(tmp_path: Path) -> None:
    cache = OpenFileCache(1)
    first, second = some_files(tmp_path, 2, cache)
    reading = first.open()
    second.open()
    assert reading.pread(20, 0) == b"file 0"
    del reading
    assert open_in(tmp_path) == [second.path]


def test_an_unreferenced_file_is_closed_and_forgotten(tmp_path: Path) -> None:
    cache = OpenFileCache(9)
    files = some_files(tmp_path, 3, cache)
    for file in files:
        file.open()
    del file, files
    assert (open_in(tmp_path), len(cache)) == ([], 0)


def test_a_file_is_found_again_under_its_new_name(tmp_path: Path) -> None:
    cache = OpenFileCache(1)
    first, second = some_files(tmp_path, 2, cache)
    first.open()
    os.rename(tmp_path / "0", tmp_path / "renamed")
    first.renamed(str(tmp_path / "renamed"))
    second.open()
    assert first.open().pread(20, 0) == b"file 0"


def test_where_no_descriptor_is_left_idle_files_make_room(tmp_path: Path) -> None:
    cache = OpenFileCache(100)
    files = some_files(tmp_path, 40, cache)
    for file in files:
        file.open()
    refusals = [2]

    def refuse() -> bool:
        refusals[0] -= 1
        return cache.make_room()

    class FewDescriptors(OsFiles):
        def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
            return self._with_descriptor(lambda: self._open(path, flags))

        def _open(self, path: str, flags: int) -> int:
            if refusals[0]:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return os.open(path, flags)

    assert CachedFile(FewDescriptors(refuse), files[0].path, cache=cache).open().pread(20, 0) == b"file 0"
    assert len(open_in(tmp_path)) <= 40 - 2 * open_files.MADE_AT_ONCE + 1


@pytest.mark.parametrize(("limit", "capacity"), [(1_048_576, 524_288), (4096, 2048), (256, 128), (20, 16)])
def test_half_of_all_descriptors_are_for_files_of_logs(limit: int, capacity: int) -> None:
    assert cache_capacity(limit) == capacity


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.EMFILE, ""), "raise ulimit -n"),
        (OSError(errno.ENFILE, ""), "fs.file-max"),
        (OSError(errno.ENOSPC, "", "/data/x"), "the disk is full for /data/x: free some space"),
        (OSError(errno.EDQUOT, ""), "quota"),
        (OSError(errno.ENOMEM, ""), "out of memory"),
        (MemoryError(), "out of memory"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_a_shortage_is_reported_with_its_limit_and_the_remedy(error: BaseException, text: str) -> None:
    assert text in (shortage(error) or "")


@pytest.mark.parametrize("error", [OSError(errno.EIO, ""), OSError(errno.EROFS, ""), RuntimeError("x"), KeyError()])
def test_what_is_the_fault_of_the_disk_or_ours_is_no_shortage(error: BaseException) -> None:
    assert shortage(error) is None


def test_a_log_of_many_segments_needs_few_descriptors(tmp_path: Path, small_cache: OpenFileCache) -> None:
    bench = LogBench(tmp_path, {"segment.bytes": "300", "index.interval.bytes": "1"})
    log = bench.open()
    written = bytearray()
    for _ in range(60):
        data = batch(2, size=40)
        log.append_as_leader(data, 0)
        written += data
        assert len(open_in(tmp_path)) <= small_cache.capacity
    log.advance_high_watermark(log.log_end)
    assert len(log.segments) > 25
    assert whole_log(log) == written
    for offset in (0, 119, 57, 3, 111):
        read = log.read(offset, 1, Isolation.HIGH_WATERMARK)
        assert offset in offsets_in(bytes_of(read))
        del read
        assert len(open_in(tmp_path)) <= small_cache.capacity
    log.close()
    assert whole_log(bench.open()) == written


def test_a_log_that_was_just_opened_needs_no_descriptor(tmp_path: Path) -> None:
    bench = LogBench(tmp_path, {"segment.bytes": "300"})
    log = bench.open()
    for _ in range(20):
        log.append_as_leader(batch(2, size=40), 0)
    log.close()
    del log
    opened = bench.open()
    assert (len(opened.segments) > 5, open_in(tmp_path)) == (True, [])


def test_index_entries_wait_for_a_file_that_is_closed(tmp_path: Path, small_cache: OpenFileCache) -> None:
    bench = LogBench(tmp_path, {"index.interval.bytes": "1"})
    log = bench.open()
    for _ in range(20):
        log.append_as_leader(batch(size=40), 0)
        small_cache.make_room()
    assert (tmp_path / "orders-0" / "00000000000000000000.index").stat().st_size == 0
    log.close()
    entries = (tmp_path / "orders-0" / "00000000000000000000.index").stat().st_size // 8
    assert entries == 19
    assert bench.open().segments.active.offset_index.lookup(19) > 0


# Files with unflushed data


class WritebackDisk(MemoryFiles):
    """Notes what is written back and closed; `fails`: writing back does, once for each descriptor, as on Linux."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[str, int]] = []
        self.fails = False

    def write_back(self, fd: int, position: int, length: int, /) -> bool:
        self.done.append(("write_back", fd))
        if self.fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return True

    def fsync(self, fd: int, /) -> None:
        self.done.append(("fsync", fd))

    def close(self, fd: int, /) -> None:
        super().close(fd)
        self.done.append(("close", fd))

    def has_closed(self, fd: int) -> bool:
        return ("close", fd) in self.done


def written_file(disk: WritebackDisk, cache: OpenFileCache, name: str = "/written") -> tuple[CachedFile, int]:
    file = CachedFile(disk, name, create=True, cache=cache)
    file.open().write(b"data", 0)
    return file, file.open().fd


def push_out(disk: WritebackDisk, cache: OpenFileCache) -> list[CachedFile]:
    """Open so many others that everything else has to go. They do not fit, either."""
    others = [CachedFile(disk, f"/other-{n}", create=True, cache=cache) for n in range(2 * cache.capacity)]
    for other in others:
        other.open()
    return others


def test_a_file_with_unflushed_data_is_written_to_the_disk_before_it_is_closed() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(2)
    _file, fd = written_file(disk, cache)
    push_out(disk, cache)
    until(lambda: disk.has_closed(fd))
    assert [what for what, number in disk.done if number == fd] == ["write_back", "close"]


def test_a_flushed_file_is_closed_at_once() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(2)
    file, fd = written_file(disk, cache)
    file.open().sync()
    push_out(disk, cache)
    assert [what for what, number in disk.done if number == fd] == ["fsync", "close"]


def test_what_failed_to_reach_the_disk_while_its_file_was_closed_fails_the_next_use() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(2)
    file, fd = written_file(disk, cache)
    disk.fails = True
    push_out(disk, cache)
    until(lambda: disk.has_closed(fd))
    with pytest.raises(OSError, match="written data may be lost"):
        file.open()


def test_it_also_fails_the_flush_through_a_descriptor_that_was_opened_meanwhile() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(2)
    file, _ = written_file(disk, cache)
    dismissed = file.dismiss()
    assert dismissed is not None
    again = file.open()
    disk.fails = True
    file.write_to_disk(dismissed)
    with pytest.raises(OSError, match="written data may be lost"):
        again.sync()


def test_a_failure_of_early_writeback_fails_the_next_flush() -> None:
    """The kernel has reported it to this descriptor, so fsync would succeed."""
    disk, cache = WritebackDisk(), OpenFileCache(2)
    file, fd = written_file(disk, cache)
    disk.fails = True
    assert file.open().write_back(0, 4)
    with pytest.raises(OSError, match="written data may be lost"):
        file.open().sync()
    assert ("fsync", fd) not in disk.done


def test_where_pages_cannot_be_written_back_the_file_is_flushed() -> None:
    class NoCall(WritebackDisk):
        def write_back(self, fd: int, position: int, length: int, /) -> bool:
            return False

    disk, cache = NoCall(), OpenFileCache(2)
    _file, fd = written_file(disk, cache)
    push_out(disk, cache)
    until(lambda: disk.has_closed(fd))
    assert [what for what, number in disk.done if number == fd] == ["fsync", "close"]


def test_what_is_closed_for_want_of_descriptors_is_written_to_the_disk_first() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(9)
    _file, fd = written_file(disk, cache)
    assert cache.make_room()
    assert [what for what, number in disk.done if number == fd] == ["write_back", "close"]


def test_a_released_file_stays_open_until_its_data_is_flushed() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(2)
    file, fd = written_file(disk, cache)
    file.close()
    assert not disk.has_closed(fd)
    file.open().sync()
    file.close()
    assert disk.has_closed(fd)


def test_a_file_that_is_about_to_be_deleted_is_closed_with_its_data() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(2)
    file, fd = written_file(disk, cache)
    file.discard()
    assert ([what for what, number in disk.done if number == fd], len(cache)) == (["close"], 0)


def test_files_that_wait_for_the_disk_count_as_open() -> None:
    disk, cache = WritebackDisk(), OpenFileCache(8)
    written = [written_file(disk, cache, f"/{n}") for n in range(40)]
    assert len(disk._open) <= 8
    until(lambda: sum(disk.has_closed(fd) for _, fd in written) >= 32)
    assert len(disk._open) <= 8
