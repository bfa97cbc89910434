"""Directories in memory, for tests that write much and sync nothing; on the disk where the system has no such place."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

SHARED_MEMORY = "/dev/shm"


def directory() -> Iterator[Path]:
    place = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="leadline-", dir=place, ignore_cleanup_errors=True) as path:
        yield Path(path)
