"""The .snapshot files of a partition: what was known of its producers at some offsets.

Written when a segment is rolled and at a clean stop, so that a restart reads the newest one and only the log behind
it. One lies at the base offset of each of the last segments; the newest may lie at the log's end.
"""

import contextlib
import logging
import os
from bisect import insort

from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.files import read_file, remove_files, write_file
from leadline.log.producer_state import ProducerState, decode_snapshot
from leadline.model import Offset
from leadline.runtime.ports import Files, shortage

log = logging.getLogger(__name__)


class ProducerSnapshots:
    def __init__(self, files: Files, directory: str) -> None:
        self._files, self.directory = files, directory
        parsed = (names.parse_file_name(name) for name in files.listdir(directory))
        self.offsets = sorted(offset for offset, kind, suffix in filter(None, parsed) if (kind, suffix) == _PLAIN)
        self.taken_at: Offset = 0  # the end offset of what was last written or loaded

    def path(self, offset: Offset, suffix: str = "") -> str:
        return os.path.join(self.directory, names.file_name(offset, names.SNAPSHOT, suffix))

    @property
    def latest(self) -> Offset | None:
        return self.offsets[-1] if self.offsets else None

    def take(self, producers: ProducerState, *, sync: bool) -> str | None:
        """Write what is known now, if that is more than the last one has. The path of the file.

        None also if a resource is short: what it would have told can be learnt from the log.
        """
        at = producers.end_offset
        if at <= self.taken_at:
            return None
        try:
            write_file(self._files, self.path(at), producers.snapshot(), sync=sync)
        except OSError as error:
            if (lacking := shortage(error)) is None:
                raise
            log.warning("%s is not written: %s", self.path(at), lacking)
            remove_files(self._files, [self.path(at)])
            return None
        if at not in self.offsets:
            insort(self.offsets, at)
        self.taken_at = at
        return self.path(at)

    def load_latest(self, producers: ProducerState, log_start: Offset, now_ms: int) -> list[CorruptFile]:
        """Start from the newest snapshot that is whole; from nothing at the log's start, if there is none."""
        refused: list[CorruptFile] = []
        while (at := self.latest) is not None:
            try:
                producers.load(decode_snapshot(self.path(at), self._read(at)), at, now_ms)
            except CorruptFile as error:
                refused.append(error)
                self.remove(at)
                continue
            self.taken_at = at
            return refused
        producers.clear(log_start)
        self.taken_at = log_start
        return refused

    def _read(self, offset: Offset) -> bytes:
        return read_file(self._files, self.path(offset), MOST_BYTES)

    def keep_between(self, log_start: Offset, log_end: Offset) -> None:
        """Remove the ones that speak of what is not in the log."""
        for offset in [offset for offset in self.offsets if not log_start < offset <= log_end]:
            self.remove(offset)

    def log_start_moved(self, log_start: Offset) -> None:
        self.taken_at = log_start if self.latest is None else self.latest

    def remove_strays(self, bases: list[Offset]) -> None:
        """Remove those at no segment's base, but for the newest if it lies behind all of them."""
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and bases and strays[-1] > bases[-1]:
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def remove(self, offset: Offset) -> None:
        self.offsets.remove(offset)
        remove_files(self._files, [self.path(offset)])

    def remove_all(self) -> None:
        for offset in list(self.offsets):
            self.remove(offset)

    def mark_deleted(self, offset: Offset) -> str | None:
        """Rename one away; it is removed with its segment. The path to remove."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(self.path(offset), self.path(offset, names.DELETED))
        return self.path(offset, names.DELETED)


MOST_BYTES = 1 << 30  # of one file: more than ten million producers
_PLAIN = (names.SNAPSHOT, "")
