"""One writer for a table on one machine: a lock that the kernel releases whenever its process ends.

Between machines, and for a table that is not in a local directory, only the writer's epoch in the table decides.
"""

import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from leadline.spark.table.table import WriterRefused

NAME = "_leadline.lock"  # readers of tables skip names that start with an underscore


class WriterLock:
    """A lock that is held from entry to exit. WriterRefused if another process holds it."""

    def __init__(self, directory: Path | None, what: str) -> None:
        self._directory, self._what = directory, what
        self._fd = -1

    def __enter__(self) -> "WriterLock":
        if self._directory is None:
            return self
        self._directory.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(fd, 200).decode(errors="replace").strip()
            os.close(fd)
            raise WriterRefused(f"{self._what} has a writer already: {owner or 'another process'}") from None
        with suppress(OSError):  # on a full disk: the lock holds without a name
            os.truncate(fd, 0)
            os.write(fd, f"process {os.getpid()} on {socket.gethostname()}".encode())
        self._fd = fd
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
