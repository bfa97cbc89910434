"""What can be taken away from a pipeline while it runs, besides its process and its broker."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


def kill_workers(driver: int) -> None:
    """The processes that Spark runs tasks in."""
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):
            parent = process.parent()
            if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
                process.kill()


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path | None]:
    """A file system of its own with little room, where one may be mounted."""
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode != 0:
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def little_room(disk: Path, left: int) -> Iterator[None]:
    """So many bytes are free on it for a while."""
    filler, room = disk / "filler", os.statvfs(disk)
    with suppress(OSError):  # it was full before the end, as others write, too
        filler.write_bytes(bytes(max(room.f_bavail * room.f_frsize - left, 0)))
    try:
        yield
    finally:
        filler.unlink()
