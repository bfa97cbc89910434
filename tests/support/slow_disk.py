"""A disk whose fsync of segments takes as long as the test wants, and may fail in the end."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.crash_disk import Unsynced
from tests.support.watched_files import WatchedFiles

PATIENCE_S = 60


class SlowDisk(WatchedFiles):
    """`with disk.slow():` an fsync of a .log file waits until the block is left, or until `release`."""

    def __init__(self) -> None:
        super().__init__(self._watched, Unsynced())
        self.synced: list[str] = []  # the folders of the segments that were synced
        self.waiting = 0  # fsyncs that have begun and not ended
        self.fails = False
        self._gate, self._count = threading.Event(), threading.Lock()
        self._gate.set()

    @contextmanager
    def slow(self) -> Iterator[None]:
        self._gate.clear()
        try:
            yield
        finally:
            self._gate.set()

    def release(self) -> None:
        self._gate.set()

    def _watched(self, operation: str, path: str) -> None:
        if operation != "fsync" or not path.endswith(".log"):
            return
        with self._count:
            self.waiting += 1
        try:
            assert self._gate.wait(PATIENCE_S), "nobody released the disk"
            if self.fails:
                raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        finally:
            with self._count:
                self.waiting -= 1
        self.synced.append(os.path.basename(os.path.dirname(path)))
