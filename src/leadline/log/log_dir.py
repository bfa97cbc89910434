"""One log directory: its lock, its thread, and the state that its last stop left.

one process works in a directory: it holds the .lock file, as Kafka does
"""

import os
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.errors import CorruptFile, LogDirLocked
from leadline.log import names
from leadline.log.disk_thread import DiskThread
from leadline.log.files import FILE_MODE
from leadline.model import Offset, TopicPartition
from leadline.runtime.ports import Files

_locked_here: set[str] = set()  # directories of this process: a record lock does not exclude its own process


class DirLock:
    """The record lock on the .lock file of a directory. LogDirLocked if another broker holds it."""

    def __init__(self, files: Files, path: str) -> None:
        self._files, self._real_path = files, files.real_path(path)
        if self._real_path in _locked_here:  # closing a second descriptor would release the lock of the first
            raise _in_use(path)
        self._fd = files.open(os.path.join(path, names.LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            files.lock(self._fd)
        except (BlockingIOError, PermissionError):
            files.close(self._fd)
            raise _in_use(path) from None
        _locked_here.add(self._real_path)

    def release(self) -> None:
        _locked_here.discard(self._real_path)
        self._files.close(self._fd)


def _in_use(path: str) -> LogDirLocked:
    return LogDirLocked(f"log directory {path} is in use by another broker (its .lock is held)")


class OfflineLog(NamedTuple):
    """A partition whose files cannot be used."""

    tp: TopicPartition
    directory: str
    error: CorruptFile
    checkpoints: dict[str, Offset]  # its entries in the checkpoint files, by file name: kept until it can be used again

    def __str__(self) -> str:
        remedy = self.error.remedy or (
            f"restore the file from a copy; or delete the topic, or remove {self.directory}: the records in it are "
            "lost then, and in a cluster copied again from another replica"
        )
        return f"{self.tp} is offline: {self.error}. Before the next start: {remedy}"


@dataclass(slots=True, eq=False)
class LogDir:
    path: str
    lock: DirLock
    disk: DiskThread
    was_clean: bool = False  # the last stop was clean
    is_new: bool = False  # no broker has used it before
    loaded: bool = False  # every log in it was opened or is accounted for
    broker_epoch: int | None = None  # of the last clean stop
    offline_logs: dict[TopicPartition, OfflineLog] = field(default_factory=dict)
    checkpointing: bool = False  # recovery points are being written, because a segment was flushed
    flushed_since: bool = False  # another segment was flushed in the meantime
    has_leftovers: bool = False  # a directory in it was not opened, so its content was not recovered
    has_unflushed: bool = False  # a log went offline with records that may not be on the disk

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)

    def is_there(self, files: Files) -> bool:
        """Whether it is the one that was locked. It is not if it was removed, unmounted or closed to this user."""
        return files.exists(self.file(names.LOCK_FILE))

    def unclean_reason(self) -> str | None:
        """Why the directory must not be marked as closed cleanly, even if every log that was opened is closed."""
        if not self.loaded:
            return f"log directory {self.path} was not loaded"
        offline = ", ".join(sorted(map(str, self.offline_logs))) or "the rest of a move"
        if self.has_unflushed:
            return f"in log directory {self.path} these went offline, and may not be on the disk: {offline}"
        if self.has_leftovers and not self.was_clean:
            return f"in log directory {self.path} these could not be opened, and were not recovered: {offline}"
        return None
