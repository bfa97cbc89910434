"""The files of one broker of a test: real ones, without fsync, and closed all at once when the broker is killed.

Killing a process does not lose written data, so a test that kills brokers needs no fsync.
"""

import errno
import os
from contextlib import suppress
from typing import Any, NoReturn

from leadline.runtime.ports import OsFiles

_CALLS = (
    "open pread read_into pwrite map ftruncate size mtime_ms set_mtime_ms lock listdir mkdir make_dirs rmdir rename "
    "unlink sync_dir is_cached load request_readahead write_back"
).split()


class BrokerFiles(OsFiles):
    def __init__(self, make_room: Any) -> None:
        super().__init__(make_room)
        self._open: set[int] = set()
        self._is_over = False

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        fd = super().open(path, flags, mode)
        self._open.add(fd)
        return fd

    def close(self, fd: int, /) -> None:  # type: ignore[override]
        if not self._is_over:
            self._open.discard(fd)
            OsFiles.close(fd)

    @staticmethod
    def fsync(fd: int, /) -> None:
        pass

    def sync_dir(self, path: str, /) -> None:
        pass

    def end(self) -> None:
        """The broker was killed, and none of its code runs. Objects that are finalised later must not touch a file."""
        self._is_over = True
        for name in _CALLS:
            setattr(self, name, _refuse)
        for fd in self._open:
            with suppress(OSError):
                os.close(fd)
        self._open.clear()


def _refuse(*_: Any) -> NoReturn:
    raise OSError(errno.EIO, "the broker was killed")
