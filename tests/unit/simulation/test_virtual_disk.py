"""What was synced survives a power failure; what was not may be gone, or torn."""

import errno
import os
from collections.abc import Callable
from random import Random

import pytest

from leadline.simulation.ports import VirtualTime
from leadline.simulation.virtual_disk import FSYNC, READ, WRITE, MountedDisk, VirtualDisk
from leadline.simulation.virtual_loop import VirtualLoop

CREATE = os.O_RDWR | os.O_CREAT


def new_disk(total_bytes: int = 1 << 20) -> tuple[VirtualDisk, MountedDisk]:
    disk = VirtualDisk(VirtualTime(VirtualLoop()), total_bytes)
    return disk, MountedDisk(disk, "test")


def content(disk: VirtualDisk, path: str) -> bytes | None:
    files = MountedDisk(disk, "again")
    if not files.exists(path):
        return None
    fd = files.open(path, os.O_RDONLY)
    return files.pread(fd, 1000, 0)


def test_what_was_synced_stays_and_of_the_rest_a_beginning() -> None:
    contents = set()
    for seed in range(60):
        disk, files = new_disk()
        fd = files.open("/data/log", CREATE)
        files.sync_dir("/data")
        files.pwrite(fd, b"kept", 0)
        files.fsync(fd)
        files.pwrite(fd, b"1234", 4)
        files.pwrite(fd, b"5678", 8)
        files.pwrite(fd, b"K", 0)
        disk.fail_power(Random(seed))
        contents.add(content(disk, "/data/log"))
    assert all(data is not None for data in contents)
    assert {b"kept", b"kept1234", b"kept12345678", b"Kept12345678"} <= contents
    assert b"kept12" in contents  # a torn write
    assert not any(data and data[4:].startswith(b"5") for data in contents)


def test_a_truncation_that_was_not_synced_may_be_undone() -> None:
    sizes = set()
    for seed in range(20):
        disk, files = new_disk()
        fd = files.open("/data/log", CREATE)
        files.sync_dir("/data")
        files.pwrite(fd, b"12345678", 0)
        files.fsync(fd)
        files.ftruncate(fd, 2)
        disk.fail_power(Random(seed))
        sizes.add(content(disk, "/data/log"))
    assert {b"12", b"12345678"} <= sizes


def test_a_name_stays_once_its_directory_was_synced() -> None:
    names = set()
    for seed in range(30):
        disk, files = new_disk()
        files.open("/data/a", CREATE)
        files.sync_dir("/data")
        files.rename("/data/a", "/data/b")
        files.open("/data/c", CREATE)
        disk.fail_power(Random(seed))
        names.add(tuple(MountedDisk(disk, "again").listdir("/data")))
    assert names == {("a",), ("b",), ("b", "c")}


def test_a_full_disk_refuses_what_does_not_fit() -> None:
    _, files = new_disk(total_bytes=10)
    fd = files.open("/data/log", CREATE)
    files.pwrite(fd, bytes(10), 0)
    with pytest.raises(OSError, match="No space left"):
        files.pwrite(fd, b"1", 10)
    files.ftruncate(fd, 5)
    files.pwrite(fd, bytes(5), 5)
    files.unlink("/data/log")
    assert files.disk_space("/data").usable_bytes == 10


def test_a_process_that_has_ended_writes_nothing() -> None:
    _, files = new_disk()
    fd = files.open("/data/log", CREATE)
    files.end()
    for call in (lambda: files.pwrite(fd, b"1", 0), lambda: files.fsync(fd), lambda: files.mkdir("/data/x")):
        with pytest.raises(OSError, match="Input/output"):
            call()


def test_sectors_that_were_not_synced_reach_the_disk_in_any_order() -> None:
    sectors = set()
    for seed in range(40):
        disk, files = new_disk()
        fd = files.open("/data/log", CREATE)
        files.sync_dir("/data")
        files.pwrite(fd, b"a" * 100, 0)
        files.fsync(fd)
        files.pwrite(fd, b"b" * 412 + b"c" * 400, 100)
        disk.fail_power(Random(seed))
        data = content(disk, "/data/log")
        assert data is not None
        assert data[:100] == b"a" * 100
        sectors.add((data[100:101], data[-1:]))
    assert {(b"\0", b"c"), (b"b", b"\0"), (b"b", b"c")} <= sectors


def test_a_disk_that_is_nearly_full_takes_a_part_of_a_write() -> None:
    _, files = new_disk(total_bytes=10)
    fd = files.open("/data/log", CREATE)
    assert files.pwrite(fd, b"1234567", 0) == 7
    assert files.pwrite(fd, b"xx89abc", 5) == 5
    assert files.pread(fd, 20, 0) == b"12345xx89a"
    with pytest.raises(OSError, match="No space left"):
        files.pwrite(fd, b"1", 10)
    assert files.pwrite(fd, b"overwritten"[:3], 0) == 3


def test_a_file_that_is_replaced_is_no_longer_counted() -> None:
    _, files = new_disk(total_bytes=10)
    for _ in range(5):
        fd = files.open("/data/log.tmp", CREATE)
        files.pwrite(fd, bytes(5), 0)
        files.rename("/data/log.tmp", "/data/log")
    assert files.disk_space("/data").usable_bytes == 5


@pytest.mark.parametrize("operation", [READ, WRITE, FSYNC])
def test_each_operation_of_a_disk_can_fail_by_itself(operation: str) -> None:
    disk, files = new_disk()
    fd = files.open("/data/log", CREATE)
    disk.errors[operation] = errno.EIO
    calls: dict[str, Callable[[], object]] = {
        READ: lambda: files.pread(fd, 1, 0),
        WRITE: lambda: files.pwrite(fd, b"1", 0),
        FSYNC: lambda: files.fsync(fd),
    }
    for name, call in calls.items():
        if name == operation:
            with pytest.raises(OSError, match="Input/output"):
                call()
        else:
            call()


def test_no_two_disks_of_a_process_share_a_real_path() -> None:
    """A broker that was killed in an earlier simulation never gave its lock back."""
    assert len({new_disk()[1].real_path("/data") for _ in range(50)}) == 50
