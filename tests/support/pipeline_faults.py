"""What can be taken away from a pipeline while it runs, besides its process and its broker."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from pyspark.sql import SparkSession


def kill_workers(driver: int) -> None:
    """The processes that Spark runs tasks in."""
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):
            parent = process.parent()
            if parent is not None and "pyspark.daemon" in " ".join(parent.cmdline()):
                process.kill()


@contextmanager
def own_disks(spark: SparkSession, place: Path, scratch: Path) -> Iterator[None]:
    """Tasks see an empty disk of their own at this place, as on another machine."""
    space = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]
    script = scratch / "python-with-its-own-disk"
    mount = f"mount -t tmpfs tmpfs {shlex.quote(str(place))}"
    inner = shlex.quote(f'{mount} && exec {shlex.quote(sys.executable)} "$@"')
    script.write_text(f'#!/bin/sh\nexec {shlex.join(space)} sh -c {inner} sh "$@"\n')
    script.chmod(0o755)
    context, before = spark.sparkContext, spark.sparkContext.pythonExec
    context.pythonExec = str(script)
    try:
        yield
    finally:
        context.pythonExec = before


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
